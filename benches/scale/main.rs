//! The controller with many Routes on a real API server: how fast it injects their pairs, how soon
//! it follows a change, and what it costs in requests and memory. Each figure is shown next to that
//! of a plain client on the same API server in the same run.
//!
//! ```sh
//! cargo bench --bench scale
//! cargo bench --bench scale -- --routes 1000 --secrets 10000 --json figures.json
//! ```
//!
//! Figures only: nothing here fails for being slow. `cargo test` runs it with 200 Routes, to check
//! that everything is measured.

mod certificates;
mod docs;
mod figures;
mod fill;
mod in_place;
mod journal;
mod measure;
mod plot;
mod population;
mod profile;
mod raw;
mod requests;
mod stage;
mod stores;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::ensure;
use clap::Parser;
use testkit::{
    arguments::Arguments,
    at,
    bench::{self, FigureArgs, Figures},
};

use figures::Report;
use measure::{Part, Settings};
use population::Size;

const PROMISE: &str = "scale::the_benchmark_measures_a_controller_with_two_hundred_routes";

#[derive(Parser)]
struct Options {
    /// How many Routes, each with a Secret of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    routes: u32,
    /// How many Secrets of other types [default: ten for each Route]
    #[arg(long)]
    secrets: Option<u32>,
    /// Seconds without a change, for steady memory and idle figures
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Measure the cold start and these only
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Leave out the smaller clusters, which show how memory grows
    #[arg(long)]
    one_size: bool,
    /// Keep the filled stores in this folder, and use those that are there
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Write a profile of the controller in the cold start to this file, with perf
    #[arg(long, value_name = "FILE")]
    perf: Option<PathBuf>,
    #[command(flatten)]
    output: FigureArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if arguments.first().is_some_and(|first| first == raw::COMMAND) {
        return runtime.block_on(raw::run(&arguments[1..])).map(|()| ExitCode::SUCCESS);
    }
    bench::keep_runs_apart("bench-scale");
    if bench::is_bench(&arguments) {
        let options = Options::parse();
        runtime.block_on(options.output.publish(measure::run(options.settings())))
    } else {
        runtime.block_on(check_small_run(arguments)).map(|()| ExitCode::SUCCESS)
    }
}

impl Figures for Report {
    fn void(&self) -> Option<&str> {
        self.void.as_deref()
    }

    fn write_docs(&self, folder: &Path) -> anyhow::Result<()> {
        docs::write(folder, self)
    }
}

impl Options {
    fn settings(&self) -> Settings {
        let routes = self.routes as usize;
        let others = self.secrets.map_or(10 * routes, |secrets| secrets as usize);
        let mut settings = Settings::of(Size { routes, others });
        settings.idle = Duration::from_secs(self.idle);
        settings.keep = self.keep.as_deref().map(at);
        settings.perf = self.perf.as_deref().map(at);
        settings.only.clone_from(&self.only);
        if self.one_size {
            settings.parts.clear();
        }
        settings
    }
}

/// Run by `cargo test`, whose arguments may name other tests.
async fn check_small_run(arguments: Vec<String>) -> anyhow::Result<()> {
    if !Arguments::of(arguments).select_only_test(PROMISE) {
        return Ok(());
    }
    let report = measure::run(Settings::small()).await?;
    println!("{report}");
    check_complete(&report)
}

fn check_complete(report: &Report) -> anyhow::Result<()> {
    let figures = report.figures.iter().chain(&report.tenants);
    let unmeasured: Vec<_> = figures.filter(|figure| !figure.value.is_finite()).collect();
    ensure!(unmeasured.is_empty(), "not measured: {unmeasured:?}");
    serde_json::to_string(report)?;
    for (name, drawing) in docs::plots(report) {
        ensure!(drawing.contains("<polyline"), "nothing is drawn in {name}");
    }
    Ok(())
}
