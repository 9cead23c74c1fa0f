//! Table and plots for docs/performance.md.

use std::{fs, path::Path};

use anyhow::Context;

use crate::{
    figures::{Memory, Report, Times},
    plot::{Chart, Line},
};

const BEGIN: &str = "<!-- scale: written by make bench -->\n";
const END: &str = "<!-- scale: end -->\n";

/// Replaces the table in performance.md, and draws the plots that it shows.
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

/// The plots by the names of their files.
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
    Chart {
        title: "Cold start: Routes with their pair in place",
        x: "seconds after the start of the process",
        y: "Routes",
        lines: vec![
            Line::growing("pair", &curves.pairs, routes),
            Line::growing("status", &curves.statuses, curves.statuses.len() as f64),
            Line::growing("Event", &curves.events, curves.events.len() as f64),
            Line::new("raw limit", limit),
        ],
    }
}

fn memory(report: &Report) -> Chart {
    let line = |name: &str, value: fn(&Memory) -> f64| {
        let points =
            report.curves.memory.iter().map(|memory| (memory.routes as f64, value(memory)));
        Line::new(name, points.collect())
    };
    Chart {
        title: "Memory",
        x: "Routes, each with a Secret of its own",
        y: "MB resident",
        lines: vec![
            line("steady", |memory| memory.steady),
            line("peak in cold start", |memory| memory.peak),
        ],
    }
}

fn latency(report: &Report) -> Chart {
    let curves = &report.curves;
    let line = |name: &str, times: &[f64]| Line::growing(name, &Times::of(times.to_vec()).0, 100.0);
    Chart {
        title: "From a Secret's change to its Route's patch",
        x: "milliseconds",
        y: "% through",
        lines: vec![
            line("one Secret", &curves.change),
            line("a lone Route during the burst", &curves.lone),
            line("one raw patch", &curves.single),
        ],
    }
}
