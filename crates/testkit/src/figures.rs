//! Figures of benches, as the documentation shows them.

use std::fs;

/// A rounded value with its unit.
pub fn with_unit(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        small if small < 0.1 => 3,
        medium if medium < 10.0 => 2,
        large if large < 100.0 => 1,
        _ => 0,
    };
    let gap = if unit.is_empty() || unit.starts_with('/') { "" } else { " " };
    format!("{value:.digits$}{gap}{unit}")
}

/// Durations in milliseconds, sorted.
#[derive(Clone, Debug, Default)]
pub struct Times(pub Vec<f64>);

impl Times {
    pub fn of(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        Self(milliseconds)
    }

    /// The quantile for this share.
    pub fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1) as f64;
        self.0.get((share * last).ceil() as usize).copied().unwrap_or(f64::NAN)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Cores, model of the processor, and whether the build is optimised.
pub fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("a machine", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let build = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
    format!("{cores} cores of {model}, {build}")
}
