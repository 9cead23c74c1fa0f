//! Table and plots for docs/performance.md.

use std::{fs, path::Path};

use anyhow::Context;
use testkit::figures::Times;

use crate::{
    figures::{Memory, Report},
    plot::{Chart, Line, Scale},
};

const BEGIN: &str = "<!-- scale: written by make bench -->\n";
const END: &str = "<!-- scale: end -->\n";

/// Replaces the table in performance.md and draws its plots.
pub fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    let page = folder.join("performance.md");
    let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let (before, rest) = text.split_once(BEGIN).context("performance.md has no place for it")?;
    let (_, after) = rest.split_once(END).context("performance.md has no end of that place")?;
    let mut shown = String::new();
    for (name, drawing) in plots(report) {
        fs::write(folder.join(name), drawing)?;
        shown += &format!("\n![{}]({name})\n", name.trim_end_matches(".svg"));
    }
    fs::write(&page, format!("{before}{BEGIN}\n{report}{shown}\n{END}{after}"))?;
    Ok(())
}

/// The plots by file name.
pub fn plots(report: &Report) -> [(&'static str, String); 3] {
    [
        ("performance-convergence.svg", convergence(report).svg()),
        ("performance-memory.svg", memory(report).svg()),
        ("performance-latency.svg", latency(report).svg()),
    ]
}

fn convergence(report: &Report) -> Chart {
    let curves = &report.curves;
    let routes = curves.pairs.len() as f64;
    let limit = vec![(0.0, 0.0), (routes / curves.limit, routes)];
    let line = |name: &str, times: &[f64]| Line::growing(name, times, times.len() as f64);
    Chart {
        title: "Cold start",
        x: "seconds after the start of the process",
        y: "Routes",
        scale: Scale::Linear,
        lines: vec![
            Line::new("pairs at the raw limit", limit).dashed(),
            line("pair in place", &curves.pairs),
            line("status written", &curves.statuses),
            line("Event written", &curves.events),
        ],
    }
}

fn memory(report: &Report) -> Chart {
    let memory = &report.curves.memory;
    let line = |name: &str, value: fn(&Memory) -> f64| {
        Line::new(name, memory.iter().map(|one| (one.routes as f64, value(one))).collect())
    };
    let most = memory.iter().map(|one| one.routes as f64).fold(0.0, f64::max);
    let bound =
        |name: &str, bound: f64| Line::new(name, vec![(0.0, bound), (most, bound)]).dashed();
    Chart {
        title: "Memory of the controller",
        x: "Routes, each with a Secret of its own",
        y: "MB resident",
        scale: Scale::Linear,
        lines: vec![
            line("peak in cold start", |one| one.peak),
            line("steady", |one| one.steady),
            bound("wanted: peak 80 MB", 80.0),
            bound("wanted: steady 30 MB", 30.0),
        ],
    }
}

fn latency(report: &Report) -> Chart {
    let curves = &report.curves;
    let line = |name: &str, times: &[f64]| Line::growing(name, &Times::of(times.to_vec()).0, 100.0);
    Chart {
        title: "From a Secret's change to its Route's patch",
        x: "milliseconds",
        y: "% of the changes that are through",
        scale: Scale::Powers,
        lines: vec![
            line("one raw patch when idle", &curves.single).dashed(),
            line("one Secret changes", &curves.change),
            line("a lone Route during the burst", &curves.lone),
        ],
    }
}
