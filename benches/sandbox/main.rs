//! The sandbox with many Routes: how long it takes to start, what it costs in memory, and how fast
//! its HTTP API answers. Figures only: nothing here fails for being slow.
//!
//! ```sh
//! cargo bench --bench sandbox
//! cargo bench --bench sandbox -- --routes 1000 --json figures.json
//! ```

mod figures;
mod measure;
mod population;

use std::path::PathBuf;

use clap::Parser;

#[derive(Parser)]
struct Options {
    /// How many Routes, each with a Secret of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    routes: u32,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Said by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(measure::run(options.routes as usize))?;
    println!("{report}");
    if let Some(path) = options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)?;
    }
    Ok(())
}
