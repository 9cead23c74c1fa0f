//! Profiles the controller's cold start with perf.

use std::path::Path;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::process::Process;
use tokio::process::{Child, Command};

/// A running perf.
pub struct Profile(Child);

impl Profile {
    pub fn of(process: Process, file: &Path) -> anyhow::Result<Self> {
        // Unwinding with DWARF needs neither frame pointers nor a separate build. Stacks of futures
        // are deep.
        let child = Command::new("perf")
            .args(["record", "--quiet", "--freq", "1999", "--call-graph", "dwarf,65528"])
            .args(["--event", "cpu-clock", "--pid", &process.0.to_string(), "--output"])
            .arg(file)
            .kill_on_drop(true)
            .spawn();
        Ok(Self(child.context("perf, which Debian has as linux-perf")?))
    }

    /// Stops perf, which then writes its file.
    pub async fn end(mut self) -> anyhow::Result<()> {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.context("perf has ended")?, Signal::INT)?;
        let status = self.0.wait().await?;
        // perf's exit status is that of the signal.
        ensure!(status.code() != Some(1), "perf failed: {status}");
        Ok(())
    }
}
