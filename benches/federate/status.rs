//! When a bundle was first seen in the status of the SpireServer, and in the SPIRE server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use testkit::{figures::Times, spire::SpireServer, stage};
use tokio::task::JoinHandle;

/// Interval between reads of the SPIRE server's log.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

type Moments = Arc<Mutex<HashMap<(String, u64), Instant>>>;

/// A watch of the SpireServer.
pub struct Status {
    api: Api<DynamicObject>,
    /// By trust domain and sequence.
    seen: Moments,
    /// By the annotation that [`Status::raw_writes`] makes.
    marks: Moments,
    watching: JoinHandle<()>,
}

const MARK: &str = "bench.trustplane.dev/mark";

impl Status {
    pub fn watch(client: Client) -> Self {
        let api = stage::spire_servers(client);
        let (seen, marks) = (Moments::default(), Moments::default());
        let watching = tokio::spawn(follow(api.clone(), seen.clone(), marks.clone()));
        Self { api, seen, marks, watching }
    }

    /// When this sequence of a peer was first in the status.
    pub fn first_seen(&self, trust_domain: &str, sequence: u64) -> Option<Instant> {
        moment(&self.seen, trust_domain, sequence)
    }

    pub async fn now(&self) -> anyhow::Result<Value> {
        Ok(json!(self.api.get("cluster").await?))
    }

    /// Durations of patches by a plain client, from sending to the watch event.
    pub async fn raw_writes(&self, number: u64) -> anyhow::Result<Times> {
        let mut times = Vec::new();
        for mark in 1..=number {
            let change = json!({ "metadata": { "annotations": { MARK: mark.to_string() } } });
            let start = Instant::now();
            let (params, patch) = (PatchParams::default(), Patch::Merge(change));
            self.api.patch("cluster", &params, &patch).await?;
            let seen = loop {
                match moment(&self.marks, MARK, mark) {
                    Some(seen) => break seen,
                    None => tokio::time::sleep(Duration::from_micros(200)).await,
                }
            };
            times.push(1000.0 * seen.saturating_duration_since(start).as_secs_f64());
        }
        Ok(Times::of(times))
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn moment(moments: &Moments, name: &str, number: u64) -> Option<Instant> {
    let moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
    moments.get(&(name.to_owned(), number)).copied()
}

async fn follow(api: Api<DynamicObject>, seen: Moments, marks: Moments) {
    let note = |moments: &Moments, name: &str, number: u64| {
        let mut moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.entry((name.to_owned(), number)).or_insert_with(Instant::now);
    };
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), "0").await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                continue;
            };
            let object = json!(object);
            for peer in object["status"]["federation"]["peers"].as_array().into_iter().flatten() {
                if let (Some(name), Some(sequence)) =
                    (peer["trustDomain"].as_str(), peer["sequence"].as_u64())
                {
                    note(&seen, name, sequence);
                }
            }
            let mark = object["metadata"]["annotations"][MARK].as_str();
            if let Some(mark) = mark.and_then(|it| it.parse().ok()) {
                note(&marks, MARK, mark);
            }
        }
    }
}

/// Waits until the SPIRE server has logged a new bundle of each of these trust domains, which it
/// does once it is stored. Returns the times in the same order. `earlier` is the length of the log
/// before.
pub async fn refreshed(
    server: &SpireServer,
    earlier: usize,
    trust_domains: &[&str],
    within: Duration,
) -> anyhow::Result<Vec<Instant>> {
    let (start, mut found) = (Instant::now(), HashMap::new());
    loop {
        let log = server.log();
        let lines = log.get(earlier..).unwrap_or_default().lines();
        for line in lines.filter(|line| line.contains("Bundle refreshed")) {
            let named = line.split("trust_domain=").nth(1).unwrap_or_default();
            let name = named.split_whitespace().next().unwrap_or_default().trim_matches('"');
            found.entry(name.to_owned()).or_insert_with(Instant::now);
        }
        let all: Option<Vec<Instant>> =
            trust_domains.iter().map(|name| found.get(*name).copied()).collect();
        if let Some(all) = all {
            return Ok(all);
        }
        anyhow::ensure!(
            start.elapsed() < within,
            "the SPIRE server has {} of {} bundles after {within:?}",
            found.len(),
            trust_domains.len(),
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
