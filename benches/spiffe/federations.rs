//! Many federations: memory, status writes, and whether dead endpoints delay the living ones.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use testkit::{figures::Times, pair, process::Process, report::Table};

use crate::{
    cluster::Stage,
    document,
    journal::Journal,
    peers::{self, Group},
};

/// A listener drops the oldest of more than 64 handshakes, and the authority begins up to 128 at once.
const BEHIND_ONE_PORT: usize = 50;

/// How many of what.
pub struct Size {
    pub federations: usize,
    pub dead: usize,
    /// The refresh hint of all.
    pub hint: Duration,
    pub shortest_interval: Duration,
    /// For each measurement.
    pub window: Duration,
    pub large: usize,
}

/// While all live, or some are dead.
struct Phase {
    name: String,
    /// From `nextSyncAt` to the request at the endpoint, in milliseconds, of those that live.
    lateness: Times,
    /// Status writes from one sync to the next, of those that live.
    writes: Vec<f64>,
    /// Of one core, in percent.
    busy: f64,
}

pub struct Results {
    federations: usize,
    phases: [Phase; 2],
    raw_writes: Times,
    /// Resident without federations, in MB.
    empty: f64,
    /// With all of them.
    full: f64,
    peak: f64,
    large: usize,
    /// With large bundles.
    large_peak: f64,
}

pub async fn measure(size: &Size) -> anyhow::Result<Results> {
    let (all, dead) = (size.federations, size.dead);
    let (pair, document) = (pair::issued("localhost"), document(size.hint.as_secs())?);
    let mut living = Vec::new();
    for first in (0..all - dead).step_by(BEHIND_ONE_PORT) {
        let numbers = first..(first + BEHIND_ONE_PORT).min(all - dead);
        living.push(Group::start(numbers, &pair, &document).await?);
    }
    let refusing = Group::start(all - dead..all - dead / 2, &pair, &document).await?;
    let mut silent = Group::start(all - dead / 2..all, &pair, &document).await?;

    let stage = Stage::start("bench-spiffe").await?;
    let controller = stage.authority(size.shortest_interval, &[]).await?;
    let process = Process(controller.pid());
    // What only the start needs is freed.
    tokio::time::sleep(size.window / 10).await;
    let empty = process.resident()?;
    for group in living.iter().chain([&refusing, &silent]) {
        stage.create(group.federations()).await?;
    }
    stage.until_trusted(all).await?;

    tokio::time::sleep(size.hint).await;
    let alive = phase("all live", &stage.journal, &living, process, size).await?;
    let (full, peak) = (process.resident()?, process.peak()?);
    refusing.refuse();
    silent.fall_silent().await?;
    // Until each of them was asked in vain.
    tokio::time::sleep(size.hint + size.hint / 5).await;
    let name = format!("{dead} are dead");
    let dying = phase(&name, &stage.journal, &living, process, size).await?;
    drop(controller);

    let raw_writes = stage.raw_writes(&peers::name(0), 100).await?;
    stage.delete_all().await?;
    let large_peak = large_peak(&stage, size).await?;
    let (phases, federations, large) = ([alive, dying], all, size.large);
    Ok(Results { federations, phases, raw_writes, empty, full, peak, large, large_peak })
}

async fn phase(
    name: &str,
    journal: &Journal,
    living: &[Group],
    process: Process,
    size: &Size,
) -> anyhow::Result<Phase> {
    let (from, before) = (Utc::now(), process.busy()?);
    tokio::time::sleep(size.window).await;
    let busy = process.busy()?.saturating_sub(before).as_secs_f64();
    let mut fetches: Vec<Vec<DateTime<Utc>>> = vec![Vec::new(); size.federations];
    for (number, at) in living.iter().flat_map(Group::fetches) {
        fetches[number].push(at);
    }
    let (mut lateness, mut writes) = (Vec::new(), Vec::new());
    for (number, fetches) in fetches.iter().enumerate() {
        let written = journal.of(&peers::name(number));
        let in_window = fetches.iter().filter(|at| **at >= from);
        lateness.extend(in_window.clone().filter_map(|at| {
            let last = written.iter().rfind(|it| it.at < *at)?;
            Some(milliseconds(*at - last.next_sync_at?))
        }));
        let in_window: Vec<_> = in_window.collect();
        writes.extend(in_window.windows(2).map(|pair| {
            let between = |at: DateTime<Utc>| at >= *pair[0] && at < *pair[1];
            written.iter().filter(|it| between(it.at)).count() as f64
        }));
    }
    Ok(Phase {
        name: name.to_owned(),
        lateness: Times::of(lateness),
        writes,
        busy: 100.0 * busy / size.window.as_secs_f64(),
    })
}

/// A new process that finds large static bundles, all of them new to it.
async fn large_peak(stage: &Stage, size: &Size) -> anyhow::Result<f64> {
    let bundle = padded(&document(size.hint.as_secs())?);
    let federation =
        |number| (format!("large-{number}.test"), json!({ "static": { "bundle": bundle } }));
    stage.create((0..size.large).map(federation)).await?;
    let controller = stage.authority(size.shortest_interval, &[]).await?;
    stage.until_trusted(size.large).await?;
    Process(controller.pid()).peak()
}

/// A bundle of the largest size that the API takes, by a member that the standard does not define.
fn padded(document: &str) -> String {
    const LONGEST: usize = 512 * 1024;
    let head = document.trim_end_matches('}');
    let rest = LONGEST - head.len() - r#","padding":""}"#.len();
    format!(r#"{head},"padding":"{}"}}"#, "x".repeat(rest))
}

fn milliseconds(delta: TimeDelta) -> f64 {
    1000.0 * delta.as_seconds_f64()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Results {
    pub fn tables(&self) -> Vec<Table> {
        vec![self.memory(), self.punctuality()]
    }

    fn memory(&self) -> Table {
        let columns = vec![format!("{} federations", self.federations)];
        let mut table = Table::new("memory", columns);
        let this = [self];
        let each = |it: &&Self| 1000.0 * (it.full - it.empty) / it.federations as f64;
        let remark = "resident with all of them, without the memory of the program with none";
        table.row("each federation", "KB", &this, each, remark);
        table.row("the program without federations", "MB", &this, |it| it.empty, "resident");
        table.row("with all of them", "MB", &this, |it| it.full, "resident");
        table.row("- peak", "MB", &this, |it| it.peak, "since its start");
        let what = format!("peak with {} static bundles of 512 KiB", self.large);
        let remark = "a process of its own; a Pod may have 268 MB (256 MiB)";
        table.row(&what, "MB", &this, |it| it.large_peak, remark);
        table
    }

    fn punctuality(&self) -> Table {
        let phases = &self.phases;
        let columns = phases.iter().map(|it| it.name.clone()).collect();
        let mut table = Table::new("syncs of those that live", columns);
        let count = phases.iter().map(|it| it.lateness.count().to_string()).collect::<Vec<_>>();
        let remark =
            format!("from nextSyncAt to the request at the endpoint; {}", count.join(", "));
        table.row("late by: p50", "ms", phases, |it| it.lateness.at(0.5), remark);
        table.row("- p99", "ms", phases, |it| it.lateness.at(0.99), "");
        table.row("- at most", "ms", phases, |it| it.lateness.at(1.0), "");
        let alive = &phases[0].lateness;
        let ratio = |it: &Phase| it.lateness.at(0.99) / alive.at(0.99);
        table.row("p99 next to that with all alive", "", phases, ratio, "");
        let writes = |it: &Phase| mean(&it.writes);
        table.row("status writes from one sync to the next", "", phases, writes, "mean");
        let most = |it: &Phase| it.writes.iter().copied().fold(0.0, f64::max);
        table.row("- at most", "", phases, most, "of any federation; goal: 1");
        table.row("processor", "%", phases, |it| it.busy, "of one core");
        let remark = "a plain client patches one of them, one after the other; median";
        table.row("one raw write", "ms", phases, |_| self.raw_writes.at(0.5), remark);
        table
    }

    /// More status writes than syncs, which a promise rules out.
    pub fn most_writes(&self) -> f64 {
        self.phases.iter().flat_map(|it| &it.writes).copied().fold(0.0, f64::max)
    }
}
