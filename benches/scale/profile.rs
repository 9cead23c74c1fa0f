//! Where the controller spends its time in a cold start, as perf sees it.

use std::path::Path;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::process::Process;
use tokio::process::{Child, Command};

/// A perf that records.
pub struct Profile(Child);

impl Profile {
    pub fn of(process: Process, file: &Path) -> anyhow::Result<Self> {
        // Unwinding by the tables that every binary has: no frame pointers, no build of its own. The
        // stacks of futures are deep.
        let child = Command::new("perf")
            .args(["record", "--quiet", "--freq", "1999", "--call-graph", "dwarf,65528"])
            .args(["--event", "cpu-clock", "--pid", &process.0.to_string(), "--output"])
            .arg(file)
            .kill_on_drop(true)
            .spawn();
        Ok(Self(child.context("perf, which Debian has as linux-perf")?))
    }

    /// Has it write what it has seen.
    pub async fn end(mut self) -> anyhow::Result<()> {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.context("perf has ended")?, Signal::INT)?;
        let status = self.0.wait().await?;
        // perf ends as the signal says.
        ensure!(status.code() != Some(1), "perf failed: {status}");
        Ok(())
    }
}
