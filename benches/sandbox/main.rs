//! The sandbox with many Routes: start time, memory, and speed of its HTTP API. Figures only:
//! nothing here fails for being slow.
//!
//! ```sh
//! cargo bench --bench sandbox
//! cargo bench --bench sandbox -- --routes 1000 --json figures.json
//! ```

mod figures;
mod measure;
mod population;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Parser;
use testkit::{arguments::Arguments, bench::is_bench};

#[derive(Parser)]
struct Options {
    /// How many Routes, each with a Secret of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    routes: u32,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const PROMISE: &str = "sandbox::the_benchmark_measures_a_sandbox_with_two_hundred_routes";

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !is_bench(&arguments) {
        return runtime.block_on(small_run(arguments));
    }
    let options = Options::parse();
    let report = runtime.block_on(measure::run(options.routes as usize))?;
    println!("{report}");
    if let Some(path) = options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)?;
    }
    Ok(())
}

/// Run by `cargo test`: checks that everything is measured, but judges no figure.
async fn small_run(arguments: Vec<String>) -> anyhow::Result<()> {
    if !Arguments::of(arguments).select_only_test(PROMISE) {
        return Ok(());
    }
    let report = measure::run(200).await?;
    println!("{report}");
    ensure!(
        report.figures.iter().all(|figure| !figure.value.is_nan()),
        "not everything was measured"
    );
    println!("test result: ok. 1 passed; 0 failed");
    Ok(())
}
