//! The command line that benches share.

use std::{
    fmt::Display,
    fs,
    future::Future,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{at, suite};

/// Options for the figures of a run.
#[derive(clap::Args)]
pub struct FigureArgs {
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put tables and plots into performance.md of this folder, too
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
    /// Measure nothing, but take the figures that an earlier run wrote with --json
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The figures of a run.
pub trait Figures: Serialize + DeserializeOwned + Display {
    /// Why they are void, if they are.
    fn void(&self) -> Option<&str>;

    fn write_docs(&self, folder: &Path) -> anyhow::Result<()>;
}

impl FigureArgs {
    /// Measures, or reads earlier figures, and prints and writes them.
    pub async fn publish<F: Figures>(
        &self,
        measure: impl Future<Output = anyhow::Result<F>>,
    ) -> anyhow::Result<ExitCode> {
        let begin = Instant::now();
        let report = match &self.figures {
            Some(path) => serde_json::from_slice(&fs::read(at(path))?)?,
            None => measure.await?,
        };
        println!("{report}");
        eprintln!("It took {:.1} minutes.", begin.elapsed().as_secs_f64() / 60.0);
        if let Some(path) = &self.json {
            fs::write(at(path), serde_json::to_vec_pretty(&report)?)?;
        }
        if let Some(why) = report.void() {
            eprintln!("This run is void: {why}");
            return Ok(ExitCode::FAILURE);
        }
        if let Some(folder) = &self.docs {
            report.write_docs(&at(folder))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether `cargo bench` runs it, and not `cargo test`.
pub fn is_bench(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--bench")
}

/// Keeps the run's folders apart from those of tests: they hold keys, and tests/suite_audit.rs must
/// not judge them.
pub fn keep_runs_apart(name: &str) {
    suite::keep_in(&crate::target_folder().join(name));
}
