//! What is measured, in order. All of it on one cluster, but for the smaller ones that show how
//! memory grows.

mod burst;
mod changes;
mod cold_start;
mod idle;
mod limit;
mod relist;
mod restart;
mod sizes;

use std::time::Duration;

use crate::{
    figures::Report, fill::fill, population::Population, raw::Limit, stage::Stage,
    support::Controller,
};

/// How much of everything.
pub struct Settings {
    pub routes: usize,
    /// Of types that are none of the controller's business.
    pub other_secrets: usize,
    /// Further clusters, for memory alone.
    pub smaller_sizes: Vec<usize>,
    /// How long the plain client tries each number of connections.
    pub limit_for: Duration,
    /// How often one Secret is changed.
    pub changes: u32,
    /// Between two changes.
    pub pause: Duration,
    /// How many Routes share a Secret.
    pub sharing: usize,
    /// How long nothing happens.
    pub idle: Duration,
    /// How long the controller has to be still to be called done.
    pub silence: Duration,
}

impl Settings {
    pub fn of(routes: usize, other_secrets: usize) -> Self {
        Self {
            routes,
            other_secrets,
            smaller_sizes: [10, 5, 2].map(|part| routes / part).to_vec(),
            limit_for: Duration::from_secs(8),
            changes: 200,
            pause: Duration::from_millis(250),
            sharing: 1_000,
            idle: Duration::from_secs(60),
            silence: Duration::from_secs(5),
        }
    }

    /// With the time that steady figures need.
    pub fn long(self) -> Self {
        Self { idle: Duration::from_secs(600), ..self }
    }

    /// Enough to see that everything is measured.
    pub fn small() -> Self {
        Self {
            smaller_sizes: vec![100],
            limit_for: Duration::from_millis(500),
            changes: 5,
            sharing: 20,
            idle: Duration::from_secs(2),
            silence: Duration::from_secs(2),
            ..Self::of(200, 200)
        }
    }
}

/// A cluster with its controller, and what has been found out so far.
struct Bench {
    /// Declared first, so that it ends before its API server.
    controller: Controller,
    stage: Stage,
    population: Population,
    settings: Settings,
    limit: Limit,
    report: Report,
}

/// Measures everything once.
pub async fn run(settings: Settings) -> anyhow::Result<Report> {
    let population = Population::of(settings.routes, settings.other_secrets)?;
    let pair = &population.pairs[0];
    let mut report = Report::about(format!(
        "{} Routes and as many TLS Secrets in 20 namespaces, pairs of {:.1} KB, {} other Secrets",
        settings.routes,
        (pair.chain.len() + pair.key.len()) as f64 / 1e3,
        settings.other_secrets
    ));
    sizes::measure(&settings, &mut report).await?;
    let mut stage = Stage::start("scale").await?;
    fill(&stage.client, &population).await?;
    let limit = limit::measure(&stage, &settings, pair).await?;
    let (controller, start) = cold_start::measure(&mut stage, &population, &settings).await?;
    cold_start::tell(&start, &limit, &mut report);
    let mut bench = Bench { settings, stage, population, controller, limit, report };
    bench.idle(&start).await?;
    bench.changes().await?;
    bench.shared().await?;
    bench.burst().await?;
    bench.relist().await?;
    bench.restart().await?;
    bench.limit_again().await?;
    Ok(bench.report)
}

/// Says on the standard error what goes on: all of it takes minutes.
fn now(what: &str) {
    eprintln!("{} {what}", chrono::Utc::now().format("%T"));
}
