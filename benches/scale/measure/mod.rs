//! The measurements, in order. Every cold start has its own API server, which starts with a copy of
//! a filled store.

mod burst;
mod changes;
mod cold_start;
mod idle;
mod limit;
mod relist;
mod restart;
mod sizes;
mod tenants;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::ValueEnum;

use changes::introduce_lone;
use tenants::Flood;
use testkit::Controller;

use crate::{
    certificates::Issuer, figures::Report, population::Size, raw::Limit, stage::Stage,
    stores::Stores,
};

/// Interval and timeout for a controller to become ready.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Measurements that may be left out. A cold start is always measured, and so is the raw limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    ColdStart,
    /// Memory of smaller clusters
    Sizes,
    Idle,
    /// One Secret changes, many times
    Changes,
    /// One Secret of many Routes changes
    Shared,
    /// All Secrets change
    Burst,
    Relist,
    Restart,
    /// A restart after labels of Secrets have changed
    Labels,
    /// A hostile tenant, on an API server of its own
    Tenants,
}

/// The size of each measurement.
pub struct Settings {
    pub size: Size,
    /// Measure only these; all if empty.
    pub only: Vec<Part>,
    /// Folder for filled stores.
    pub keep: Option<PathBuf>,
    /// File for a profile of the cold start.
    pub perf: Option<PathBuf>,
    /// The smaller clusters, as fractions of the full size.
    pub parts: Vec<usize>,
    /// Time for each number of connections of the plain client.
    pub limit_for: Duration,
    /// Number of changes of one Secret.
    pub changes: u32,
    /// Pause between two changes.
    pub pause: Duration,
    /// Number of Routes that share a Secret.
    pub sharing: usize,
    /// Number of Secrets whose labels change while the controller is down.
    pub labelled: usize,
    /// Actions of the hostile tenant.
    pub flood: Flood,
    /// Duration of the idle measurement.
    pub idle: Duration,
    /// The controller is done if it wrote nothing for this long.
    pub silence: Duration,
    /// Idle time before memory is compared between sizes.
    pub settled: Duration,
}

impl Settings {
    pub fn of(size: Size) -> Self {
        Self {
            size,
            only: Vec::new(),
            keep: None,
            perf: None,
            parts: vec![10, 5, 2],
            limit_for: Duration::from_secs(8),
            changes: 200,
            pause: Duration::from_millis(250),
            sharing: 1_000,
            labelled: 100,
            flood: Flood::FULL,
            idle: Duration::from_secs(300),
            silence: Duration::from_secs(5),
            settled: Duration::from_secs(30),
        }
    }

    /// Enough to check that everything is measured.
    pub fn small() -> Self {
        Self {
            parts: vec![2],
            limit_for: Duration::from_millis(500),
            changes: 5,
            sharing: 20,
            labelled: 20,
            flood: Flood::SMALL,
            idle: Duration::from_secs(2),
            silence: Duration::from_secs(2),
            settled: Duration::from_secs(2),
            ..Self::of(Size { routes: 200, others: 200 })
        }
    }

    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// The sizes of the needed stores, ascending.
    fn sizes(&self) -> Vec<Size> {
        let smaller = if self.has(Part::Sizes) { sizes::smaller(self) } else { Vec::new() };
        smaller.into_iter().chain([self.size]).collect()
    }
}

/// A cluster with its controller, and the figures so far.
struct Bench {
    /// Declared first, so that it is dropped before its API server.
    controller: Controller,
    stage: Stage,
    issuer: Issuer,
    settings: Settings,
    limit: Limit,
    report: Report,
}

pub async fn run(settings: Settings) -> anyhow::Result<Report> {
    let issuer = Issuer::new()?;
    let size = settings.size;
    let (chain, key) = issuer.mean_bytes()?;
    let mut report = Report::about(format!(
        "{} Routes and as many TLS Secrets in 20 namespaces, pairs of {:.1} KB on average, {} Secrets of other types",
        size.routes,
        (chain + key) as f64 / 1e3,
        size.others
    ));
    let stores = Stores::open(settings.keep.as_deref());
    now("fill");
    stores.fill(&issuer, &settings.sizes()).await?;
    if settings.has(Part::Sizes) {
        sizes::measure(&settings, &stores, &mut report).await?;
    }
    let mut stage = Stage::with("scale", &stores.of(size)).await?;
    drop(stores);
    let limit = limit::before(&mut stage, &settings, &issuer, &mut report).await?;
    let (controller, start) = cold_start::measure(&mut stage, size, &settings).await?;
    cold_start::report_figures(&start, &limit, &mut report);
    sizes::report_growth(&mut report);
    let mut bench = Bench { controller, stage, issuer, settings, limit, report };
    bench.rest().await?;
    let Bench { controller, stage, issuer, settings, mut report, .. } = bench;
    // Nothing else may run while the hostile tenant is measured.
    drop((controller, stage));
    if settings.has(Part::Tenants) {
        tenants::measure(&settings, &issuer, &mut report).await?;
    }
    Ok(report)
}

/// Waits until a controller is ready.
async fn until_ready(controller: &mut Controller) -> anyhow::Result<()> {
    let begin = Instant::now();
    while controller.page("/readyz").await.0 != 200 {
        ensure!(begin.elapsed() < READY_WITHIN, "the controller does not become ready");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Stops a controller gracefully.
async fn end(controller: &mut Controller) -> anyhow::Result<()> {
    let (code, _) = controller.terminate().await;
    ensure!(code == 0, "the controller ended with code {code}");
    Ok(())
}

impl Bench {
    async fn rest(&mut self) -> anyhow::Result<()> {
        if self.settings.has(Part::Idle) {
            self.idle().await?;
        }
        if [Part::Changes, Part::Shared, Part::Burst].iter().any(|part| self.settings.has(*part)) {
            introduce_lone(&mut self.stage, &self.issuer).await?;
        }
        if self.settings.has(Part::Changes) {
            self.changes().await?;
        }
        if self.settings.has(Part::Shared) {
            self.shared().await?;
        }
        if self.settings.has(Part::Burst) {
            self.burst().await?;
        }
        if self.settings.has(Part::Relist) {
            self.relist().await?;
        }
        if self.settings.has(Part::Restart) {
            self.restart().await?;
        }
        if self.settings.has(Part::Labels) {
            self.labels().await?;
        }
        end(&mut self.controller).await?;
        self.limit_again().await
    }
}

/// Prints progress to standard error, because the measurements take minutes.
fn now(what: &str) {
    eprintln!("{} {what}", chrono::Utc::now().format("%T"));
}
