//! From the start of the process until every Route holds its pair, and until all is said about it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use anyhow::ensure;
use chrono::{DateTime, Utc};
use kube::Client;
use serde::Deserialize;

use super::{Settings, now};
use crate::{
    certificates::Pair,
    figures::Report,
    journal::{Request, by_verb, seconds_between},
    population::{NAMESPACES, Place, Population, namespace, routes_path},
    process::Process,
    raw::Limit,
    requests::get,
    stage::Stage,
    support::Controller,
};

/// What came of it.
pub struct ColdStart {
    pub routes: usize,
    /// Seconds after the start, in order.
    pairs: Vec<f64>,
    statuses: Vec<f64>,
    /// Seconds until the last write of all.
    all: f64,
    writes: usize,
    requests: BTreeMap<String, usize>,
    /// Memory when it was done, and the most until then, in MB.
    pub resident: f64,
    pub peak: f64,
}

/// Starts a controller where no Route has its pair yet.
pub async fn measure(
    stage: &mut Stage,
    population: &Population,
    settings: &Settings,
) -> anyhow::Result<(Controller, ColdStart)> {
    now("cold start");
    let mark = stage.journal.mark()?;
    let begin = Utc::now();
    let controller = stage.controller();
    let mut missing: HashSet<Place> = population.places().collect();
    stage
        .journal
        .until("every Route's pair", mark, |request| {
            request.is_pair() && missing.remove(&request.place) && missing.is_empty()
        })
        .await?;
    let end = stage.journal.quiet(settings.silence).await?;
    let process = Process(controller.pid());
    let (resident, peak) = (process.resident()?, process.peak()?);
    let requests = stage.journal.between(mark, end);
    let writes = requests.iter().filter(|request| request.is_write());
    let last = writes.clone().map(|request| request.answered).max();
    let statuses = |request: &&Request| request.ours && request.is_good("patch", "routes/status");
    let start = ColdStart {
        routes: population.routes(),
        pairs: firsts(begin, requests.iter().filter(|request| request.is_pair())),
        statuses: firsts(begin, requests.iter().filter(statuses)),
        all: last.map_or(f64::NAN, |last| seconds_between(begin, last)),
        writes: writes.count(),
        requests: by_verb(requests),
        resident,
        peak,
    };
    everything_is_in_place(&stage.client, population).await?;
    Ok((controller, start))
}

/// When each Route was written first, in seconds, in order.
fn firsts<'a>(begin: DateTime<Utc>, writes: impl Iterator<Item = &'a Request>) -> Vec<f64> {
    let mut seen = HashSet::new();
    let first = writes.filter(|request| seen.insert(&request.place));
    let mut times: Vec<f64> =
        first.map(|request| seconds_between(begin, request.answered)).collect();
    times.sort_by(f64::total_cmp);
    times
}

pub fn tell(start: &ColdStart, limit: &Limit, report: &mut Report) {
    let (connections, best) = limit.best();
    let others =
        limit.rates.iter().map(|(connections, rate)| format!("{rate:.0}/s with {connections}"));
    let others = others.collect::<Vec<_>>().join(", ");
    report.add("raw limit", best, "/s", format!("{connections} connections; {others}"));
    report.add_times("one raw patch when idle", &limit.single(), "");

    let (first, last) = (at(&start.pairs, 0.0), at(&start.pairs, 1.0));
    let routes = start.routes as f64;
    report.add("cold start: every pair in place", last, "s", "from the start of the process");
    report.add("- first pair", first, "s", "lists and decisions before it");
    let rate = routes / last;
    let share = format!("{:.2} of the raw limit", rate / best);
    report.add("- pairs a second", rate, "/s", share);
    let writing = routes / (last - first);
    let share = format!("{:.2} of the raw limit", writing / best);
    report.add("- pairs a second from the first on", writing, "/s", share);
    let remark = "with statuses and Events";
    report.add("cold start: everything written", start.all, "s", remark);
    let all_rate = start.writes as f64 / start.all;
    let share = format!("{:.2} of the raw limit", all_rate / best);
    report.add("- writes a second", all_rate, "/s", share);
    for (request, count) in &start.requests {
        let remark = format!("{count} in all");
        report.add(format!("- {request}"), *count as f64 / routes, "a Route", remark);
    }
    report.at_least("pairs in place, share of the raw limit", rate / best, 0.8, "");
    report.at_most("writes a Route", start.writes as f64 / routes, 3.0, "");
    report.at_most("reads a Route", start.reads() / routes, 1.0, "");
    report.add("memory after the start", start.resident, "MB", "resident");
    report.add("- peak until then", start.peak, "MB", "resident");
    report.at_most("peak in cold start", start.peak, 80.0, "MB");
    report.curves.limit = best;
    report.curves.single.clone_from(&limit.singles);
    report.curves.pairs.clone_from(&start.pairs);
    report.curves.statuses.clone_from(&start.statuses);
}

impl ColdStart {
    fn reads(&self) -> f64 {
        self.requests.get("get secrets").copied().unwrap_or_default() as f64
            + self.requests.get("get routes").copied().unwrap_or_default() as f64
            + self.requests.get("get events").copied().unwrap_or_default() as f64
    }
}

fn at(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((part * last).round() as usize).copied().unwrap_or(f64::NAN)
}

#[derive(Deserialize)]
struct Routes {
    items: Vec<Route>,
}

#[derive(Deserialize)]
struct Route {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: Box<str>,
}

#[derive(Deserialize)]
struct Spec {
    tls: Tls,
}

#[derive(Deserialize)]
struct Tls {
    certificate: Option<String>,
}

/// A patch was answered for every Route; that it was the right one is seen here.
pub async fn everything_is_in_place(
    client: &Client,
    population: &Population,
) -> anyhow::Result<()> {
    let mut right = 0;
    for number in 0..NAMESPACES {
        let routes: Routes = get(client, &routes_path(&namespace(number))).await?;
        right += routes.items.iter().filter(|route| holds(route, &population.pairs)).count();
    }
    let all = population.routes();
    ensure!(right == all, "only {right} of {all} Routes hold the pair of their Secret");
    Ok(())
}

fn holds(route: &Route, pairs: &[Arc<Pair>]) -> bool {
    let number = route.metadata.name.strip_prefix("route-").and_then(|text| text.parse().ok());
    let wanted = number.and_then(|number: usize| pairs.get(number));
    wanted.is_some_and(|pair| route.spec.tls.certificate.as_deref() == Some(&*pair.chain))
}
