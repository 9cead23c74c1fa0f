//! Memory and processor time of a process.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Unit of `utime` and `stime`: USER_HZ, the same on all our machines.
const TICK: Duration = Duration::from_millis(10);

/// A running process.
#[derive(Clone, Copy)]
pub struct Process(pub i32);

impl Process {
    pub fn this() -> Self {
        Self(std::process::id() as i32)
    }

    /// Resident memory, in MB.
    pub fn resident(self) -> anyhow::Result<f64> {
        self.megabytes("VmRSS")
    }

    /// Peak since the start or [`Process::forget_peak`], in MB.
    pub fn peak(self) -> anyhow::Result<f64> {
        self.megabytes("VmHWM")
    }

    pub fn forget_peak(self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.0), "5")?)
    }

    /// Processor time so far, in user mode and in the kernel.
    pub fn busy(self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name is in parentheses and may hold any character; utime is field 14, stime 15.
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

/// Measures several processes from the same moment on.
pub struct Workers {
    all: Vec<(&'static str, Process)>,
    begin: Instant,
    before: Vec<Duration>,
}

/// Processor time of one of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    pub who: String,
    /// Processor time.
    pub seconds: f64,
    /// Processor time per elapsed time.
    pub cores: f64,
}

impl Workers {
    pub fn from_now(all: Vec<(&'static str, Process)>) -> anyhow::Result<Self> {
        let before = all.iter().map(|(_, process)| process.busy()).collect::<Result<_, _>>()?;
        Ok(Self { all, begin: Instant::now(), before })
    }

    /// Processor time of each until now.
    pub fn work(&self) -> anyhow::Result<Vec<Work>> {
        let whole = self.begin.elapsed().as_secs_f64();
        let each = self.all.iter().zip(&self.before).map(|((who, process), before)| {
            let seconds = process.busy()?.saturating_sub(*before).as_secs_f64();
            Ok(Work { who: (*who).to_owned(), seconds, cores: seconds / whole })
        });
        each.collect()
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.2}", self.who, self.cores)
    }
}

/// All in one line.
pub fn in_words(work: &[Work]) -> String {
    let each: Vec<String> = work.iter().map(Work::to_string).collect();
    format!("cores busy: {}", each.join(", "))
}
