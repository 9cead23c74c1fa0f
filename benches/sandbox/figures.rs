//! The figures of a run, for people and for machines.

use std::{fmt, fs, time::Duration};

use serde::Serialize;

#[derive(Serialize)]
pub struct Report {
    pub subject: String,
    pub machine: String,
    pub date: String,
    pub figures: Vec<Figure>,
}

#[derive(Serialize)]
pub struct Figure {
    pub what: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub remark: String,
}

impl Report {
    pub fn about(subject: String) -> Self {
        let date = chrono::Utc::now().format("%Y-%m-%d").to_string();
        Self { subject, machine: machine(), date, figures: Vec::new() }
    }

    pub fn add(
        &mut self,
        what: &'static str,
        value: f64,
        unit: &'static str,
        remark: impl Into<String>,
    ) {
        self.figures.push(Figure { what, value, unit, remark: remark.into() });
    }

    /// The median of several, with the slowest beside it.
    pub fn add_times(&mut self, what: &'static str, mut times: Vec<Duration>, remark: &str) {
        times.sort();
        let at = |part: f64| times[(part * (times.len() - 1) as f64).round() as usize];
        let (middle, late, last) = (at(0.5), at(0.99), at(1.0));
        let tail = if times.len() >= 100 {
            format!("99 % within {:.2} ms", milliseconds(late))
        } else {
            format!("slowest of {} {:.1} ms", times.len(), milliseconds(last))
        };
        let remark = [remark, &tail].map(str::to_owned).into_iter().filter(|part| !part.is_empty());
        self.add(what, milliseconds(middle), "ms", remark.collect::<Vec<_>>().join("; "));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}. {}, {}.\n", self.subject, self.machine, self.date)?;
        writeln!(f, "| what | | |\n|---|--:|---|")?;
        for Figure { what, value, unit, remark } in &self.figures {
            let digits = if *value < 10.0 { 2 } else { 0 };
            let gap = if unit.starts_with('/') { "" } else { " " };
            writeln!(f, "| {what} | {value:.digits$}{gap}{unit} | {remark} |")?;
        }
        Ok(())
    }
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Processor time of this thread: unlike elapsed time, the same on a busy machine.
pub fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Resident memory of this process, in MB.
pub fn resident() -> f64 {
    field("/proc/self/status", "VmRSS").and_then(|text| kilobytes(&text)).unwrap_or(f64::NAN)
        * 1024.0
        / 1e6
}

fn machine() -> String {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "a machine".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let build = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
    format!("{cores} cores of {processor}, {build}")
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kilobytes(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}
