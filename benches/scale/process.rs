//! What the kernel knows of a process.

use std::{fs, time::Duration};

use anyhow::Context;

/// Of `utime` and `stime`: the kernel's USER_HZ, the same on every machine that Linux runs on here.
const TICK: Duration = Duration::from_millis(10);

/// A running process.
#[derive(Clone, Copy)]
pub struct Process(pub i32);

impl Process {
    /// Memory that is not swapped out, in MB.
    pub fn resident(self) -> anyhow::Result<f64> {
        self.megabytes("VmRSS")
    }

    /// The most since the start, or since [`Process::forget_peak`], in MB.
    pub fn peak(self) -> anyhow::Result<f64> {
        self.megabytes("VmHWM")
    }

    pub fn forget_peak(self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.0), "5")?)
    }

    /// Time on a processor so far, in user mode and in the kernel.
    pub fn busy(self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name stands in parentheses and may hold any character; utime is field 14, stime 15.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        Ok(ticks * TICK)
    }

    fn megabytes(self, name: &str) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: f64 =
            kilobytes.with_context(|| format!("{name} of the process"))?.parse()?;
        Ok(kilobytes * 1024.0 / 1e6)
    }
}
