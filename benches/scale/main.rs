//! The controller with many Routes on a real API server: how fast it puts their pairs in place, how
//! soon it follows a change, and what it costs in requests and memory. Each figure stands next to
//! what a plain client gets out of the same API server in the same run.
//!
//! ```sh
//! cargo bench --bench scale
//! cargo bench --bench scale -- --routes 1000 --secrets 10000 --json figures.json
//! ```
//!
//! Figures only: nothing here fails for being slow. `cargo test` runs it with 200 Routes, to see
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
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Parser;
use testkit::{arguments::Arguments, at, suite};

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
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put table and plots into performance.md of this folder, too
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
    /// Measure nothing, but take the figures that an earlier run wrote with --json
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Said by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if arguments.first().is_some_and(|first| first == raw::COMMAND) {
        return runtime.block_on(raw::run(&arguments[1..])).map(|()| ExitCode::SUCCESS);
    }
    // Its folders hold keys, and the checks that look back on a suite are not for it.
    suite::keep_in(&testkit::target_folder().join("bench-scale"));
    if arguments.iter().any(|argument| argument == "--bench") {
        runtime.block_on(figures_of(Options::parse()))
    } else {
        runtime.block_on(see_that_it_works(arguments)).map(|()| ExitCode::SUCCESS)
    }
}

async fn figures_of(options: Options) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let report = match &options.figures {
        Some(path) => serde_json::from_slice(&fs::read(at(path))?)?,
        None => measure::run(options.settings()).await?,
    };
    println!("{report}");
    eprintln!("It took {:.1} minutes.", begin.elapsed().as_secs_f64() / 60.0);
    if let Some(path) = &options.json {
        fs::write(at(path), serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(why) = &report.void {
        eprintln!("This run is void: {why}");
        return Ok(ExitCode::FAILURE);
    }
    if let Some(folder) = &options.docs {
        docs::write(&at(folder), &report)?;
    }
    Ok(ExitCode::SUCCESS)
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

/// Run by `cargo test`, which passes every test the names of all.
async fn see_that_it_works(arguments: Vec<String>) -> anyhow::Result<()> {
    let arguments = Arguments::of(arguments);
    if !arguments.mean(PROMISE) {
        return Ok(());
    }
    if arguments.list {
        println!("{PROMISE}: test");
        return Ok(());
    }
    let report = measure::run(Settings::small()).await?;
    println!("{report}");
    everything_is_there(&report)
}

fn everything_is_there(report: &Report) -> anyhow::Result<()> {
    let figures = report.figures.iter().chain(&report.tenants);
    let unmeasured: Vec<_> = figures.filter(|figure| !figure.value.is_finite()).collect();
    ensure!(unmeasured.is_empty(), "not measured: {unmeasured:?}");
    serde_json::to_string(report)?;
    for (name, drawing) in docs::plots(report) {
        ensure!(drawing.contains("<polyline"), "nothing is drawn in {name}");
    }
    Ok(())
}
