//! SPIRE federation with 1, 10 and 50 peers: how soon a peer's rotation is known, the cost of
//! controller and SPIRE server meanwhile, and how many clients a bundle endpoint serves. Each
//! figure is shown next to that of a plain client in the same run.
//!
//! ```sh
//! cargo bench --bench federate
//! cargo bench --bench federate -- --peers 1,50 --rotations 5 --json figures.json
//! ```
//!
//! Figures only: nothing here fails for being slow. `cargo test` measures a real endpoint for a
//! moment, to check that figures are made and placed in the page.

mod load;
mod peers;
mod raw;
mod refresh;
mod status;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use testkit::{
    arguments::Arguments,
    bench::{self, FigureArgs},
    report::{self, Report},
};

use load::Load;

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
    #[command(flatten)]
    output: FigureArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == raw::COMMAND) {
        return raw::run(&arguments[1..]).map(|()| ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    bench::keep_runs_apart("bench-federate");
    if bench::is_bench(&arguments) {
        let options = Options::parse();
        runtime.block_on(options.output.publish(measure(&options)))
    } else {
        runtime.block_on(check_small_run(arguments)).map(|()| ExitCode::SUCCESS)
    }
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    let each = Duration::from_secs(options.load);
    let load = Load::measure(&[1, 8, 32, 100], each).await?;
    let mut sizes = Vec::new();
    for peers in &options.peers {
        eprintln!("measuring with {peers} peers");
        let steady = Duration::from_secs(options.steady);
        let rotations = options.rotations;
        sizes.push(refresh::measure(*peers as usize, rotations, steady).await?);
    }
    let mut report = Report::about(
        "federate",
        format!(
            "{} peers in the bench's own process, which ask to be asked every {} s; {} rotations of all",
            options.peers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            peers::HINT.as_secs(),
            options.rotations,
        ),
    );
    report.tables = vec![refresh::latencies(&sizes), refresh::resources(&sizes), load.table()];
    report.void = load.void_against(&Load::measure(&[8], each).await?);
    Ok(report)
}

/// Run by `cargo test`, whose arguments may name other tests.
async fn check_small_run(arguments: Vec<String>) -> anyhow::Result<()> {
    if !Arguments::of(arguments).select_only_test(PROMISE) {
        return Ok(());
    }
    let load = Load::measure(&[1, 4], Duration::from_millis(300)).await?;
    let mut report = Report::about("federate", "a moment".to_owned());
    report.tables = vec![load.table(), refresh::latencies(&[]), refresh::resources(&[])];
    println!("{report}");
    report::check(&report)
}
