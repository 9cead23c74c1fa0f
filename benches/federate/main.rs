//! SPIRE federation with 1, 10 and 50 peers: how soon a peer's rotation is known here, what controller
//! and SPIRE server cost meanwhile, and how many clients a bundle endpoint serves. Each figure stands
//! next to what a plain client gets in the same run.
//!
//! ```sh
//! cargo bench --bench federate
//! cargo bench --bench federate -- --peers 1,50 --rotations 5 --json figures.json
//! ```
//!
//! Figures only: nothing here fails for being slow. `cargo test` asks a real endpoint for a moment, to
//! see that figures come out of it and find their place in the page.

mod load;
mod peers;
mod raw;
mod refresh;
mod report;
mod status;

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Parser;
use testkit::{arguments::Arguments, at, suite};

use load::Load;
use report::Report;

const PROMISE: &str = "federate::the_benchmark_measures_a_real_endpoint_and_updates_the_page";

#[derive(Parser)]
struct Options {
    /// How many peers, one measurement each
    #[arg(long, value_delimiter = ',', default_value = "1,10,50", value_parser = clap::value_parser!(u32).range(1..=50))]
    peers: Vec<u32>,
    /// How many rotations of all peers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rotations: u32,
    /// Seconds without a rotation, for processor time
    #[arg(long, default_value_t = 60)]
    steady: u64,
    /// Seconds for each number of clients of the endpoint
    #[arg(long, default_value_t = 4)]
    load: u64,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into performance.md of this folder, too
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
    if arguments.first().is_some_and(|first| first == raw::COMMAND) {
        return raw::run(&arguments[1..]).map(|()| ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    // Its folders hold keys, and the checks that look back on a suite are not for it.
    suite::keep_in(&testkit::target_folder().join("bench-federate"));
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
        None => measured(&options).await?,
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
        let page = at(folder).join("performance.md");
        fs::write(&page, report::placed(&fs::read_to_string(&page)?, &report)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measured(options: &Options) -> anyhow::Result<Report> {
    let each = Duration::from_secs(options.load);
    let load = Load::measure(&[1, 8, 32, 100], each).await?;
    let mut sizes = Vec::new();
    for peers in &options.peers {
        eprintln!("measuring with {peers} peers");
        let steady = Duration::from_secs(options.steady);
        let rotations = options.rotations;
        sizes.push(refresh::measure(*peers as usize, rotations, steady).await?);
    }
    let mut report = Report::about(format!(
        "{} peers in the bench's own process, which ask to be asked every {} s; {} rotations of all",
        options.peers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        peers::HINT.as_secs(),
        options.rotations,
    ));
    report.tables = vec![refresh::latencies(&sizes), refresh::resources(&sizes), load.table()];
    report.void = load.void_against(&Load::measure(&[8], each).await?);
    Ok(report)
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
    let load = Load::measure(&[1, 4], Duration::from_millis(300)).await?;
    let mut report = Report::about("a moment".to_owned());
    report.tables = vec![load.table(), refresh::latencies(&[]), refresh::resources(&[])];
    println!("{report}");
    let unmeasured: Vec<_> = load.table().rows.into_iter().filter(|row| !row.is_finite()).collect();
    ensure!(unmeasured.is_empty(), "not measured: {unmeasured:?}");
    let page = fs::read_to_string(at("docs/performance.md"))?;
    let updated = report::placed(&page, &report)?;
    ensure!(updated.contains(&report.to_string()), "the figures are not in the page:\n{updated}");
    ensure!(report::placed(&updated, &report)? == updated, "a second run changes the page");
    let read: Report = serde_json::from_slice(&serde_json::to_vec(&report)?)?;
    ensure!(read.to_string() == report.to_string(), "--figures would show something else");
    Ok(())
}
