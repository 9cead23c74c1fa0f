//! From the start of the process until every Route holds its pair, and until everything is
//! reported.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use testkit::{
    Controller,
    process::{Process, Work, Workers, in_words},
};

use super::{Part, Settings, now};
use crate::{
    figures::{Cost, Memory, Report},
    fill::Progress,
    in_place::everything_is_in_place,
    journal::{Journal, Mark, Request, seconds_between},
    population::{RouteRef, Size},
    profile::Profile,
    raw::Limit,
    stage::Stage,
};

pub struct ColdStart {
    size: Size,
    /// Seconds after the start, in order.
    pairs: Vec<f64>,
    statuses: Vec<f64>,
    events: Vec<f64>,
    /// Seconds until the last write.
    all: f64,
    writes: usize,
    cost: Cost,
    /// Processor time until the last pair, and until the last write.
    work: [Vec<Work>; 2],
    /// Memory in MB after the last write, when idle, and at its peak.
    resident: f64,
    steady: f64,
    peak: f64,
}

/// Starts a controller in a cluster where no Route has its pair.
pub async fn measure(
    stage: &mut Stage,
    size: Size,
    settings: &Settings,
) -> anyhow::Result<(Controller, ColdStart)> {
    now(&format!("cold start with {} Routes, {} other Secrets", size.routes, size.others));
    let mark = stage.journal.mark()?;
    let begin = Utc::now();
    let controller = stage.controller();
    let process = Process(controller.pid());
    let workers = Workers::from_now(vec![
        ("controller", process),
        ("API server", stage.api_server()),
        ("etcd", stage.etcd()),
        ("bench", Process::this()),
    ])?;
    let profile = settings.perf.as_deref().map(|file| Profile::of(process, file)).transpose()?;
    each_route(&mut stage.journal, mark, size, "pairs in place", Request::is_pair).await?;
    let until_pairs = workers.work()?;
    each_route(&mut stage.journal, mark, size, "statuses written", Request::is_status).await?;
    let end = stage.journal.quiet(settings.silence).await?;
    let until_all = workers.work()?;
    let resident = process.resident()?;
    if let Some(profile) = profile {
        profile.end().await?;
    }
    if settings.has(Part::Sizes) {
        tokio::time::sleep(settings.settled.saturating_sub(settings.silence)).await;
    }
    let memory = [resident, process.resident()?, process.peak()?];
    let requests = stage.journal.between(mark, end);
    let start = ColdStart::seen(size, begin, requests, [until_pairs, until_all], memory);
    everything_is_in_place(&stage.client().await?, size).await?;
    Ok((controller, start))
}

/// Waits until every Route has such a write.
async fn each_route(
    journal: &mut Journal,
    mark: Mark,
    size: Size,
    what: &str,
    is_it: impl Fn(&Request) -> bool,
) -> anyhow::Result<()> {
    let mut missing: HashSet<RouteRef> = size.places().collect();
    let mut progress = Progress::of(what, size.routes);
    let is_last = |request: &Request| {
        let news = is_it(request) && missing.remove(&request.place);
        if news {
            progress.step();
        }
        news && missing.is_empty()
    };
    journal.until(what, mark, is_last).await
}

/// Relates processor time to the seconds of work, since it is read a little later.
fn over(seconds: f64, work: Vec<Work>) -> Vec<Work> {
    work.into_iter().map(|one| Work { cores: one.seconds / seconds, ..one }).collect()
}

/// Seconds until the first write of each Route, sorted.
fn firsts<'a>(begin: DateTime<Utc>, writes: impl Iterator<Item = &'a Request>) -> Vec<f64> {
    let mut seen = HashSet::new();
    let first = writes.filter(|request| seen.insert(&request.place));
    let mut times: Vec<f64> =
        first.map(|request| seconds_between(begin, request.answered)).collect();
    times.sort_by(f64::total_cmp);
    times
}

pub fn report_figures(start: &ColdStart, limit: &Limit, report: &mut Report) {
    let (raw, routes) = (limit.rate(), start.size.routes as f64);
    let share = |rate: f64| format!("{:.2} of the raw limit", rate / raw);
    let [until_pairs, until_all] = &start.work;

    let (first, last) = (at(&start.pairs, 0.0), at(&start.pairs, 1.0));
    report.add("cold start: every pair in place", last, "s", "from the start of the process");
    report.add("- first pair", first, "s", "lists and decisions before it");
    report.add("- pairs a second", routes / last, "/s", share(routes / last));
    let writing = routes / (last - first);
    report.add("- pairs a second from the first on", writing, "/s", share(writing));
    add_work(report, until_pairs, routes);

    let writes = start.writes as f64;
    let remark = "with statuses and Events";
    report.add("cold start: everything written", start.all, "s", remark);
    report.add("- writes a second", writes / start.all, "/s", share(writes / start.all));
    add_work(report, until_all, routes);

    report.at_least("pairs in place, share of the raw limit", routes / last / raw, 0.7, "");
    report.at_least("all writes, share of the raw limit", writes / start.all / raw, 0.8, "");
    report.at_most("writes a Route", writes / routes, 3.0, "");
    report.at_most("reads a Route", start.reads() / routes, 1.0, "");
    report.add("memory after the start", start.resident, "MB", "resident");
    report.add("- peak until then", start.peak, "MB", "resident");
    report.at_most("peak in cold start", start.peak, 80.0, "MB");
    report.costs.push(start.cost.clone());
    report.curves.pairs.clone_from(&start.pairs);
    report.curves.statuses.clone_from(&start.statuses);
    report.curves.events.clone_from(&start.events);
    report.curves.memory.push(start.memory());
}

/// Processor time of the controller and of the other processes.
fn add_work(report: &mut Report, work: &[Work], routes: f64) {
    let ours = work.first().map_or(f64::NAN, |controller| controller.seconds);
    let remark = format!("until then; {:.2} ms a Route; {}", ours * 1e3 / routes, in_words(work));
    report.add("- the controller on a processor", ours, "s", remark);
}

impl ColdStart {
    fn seen(
        size: Size,
        begin: DateTime<Utc>,
        requests: &[Request],
        [until_pairs, until_all]: [Vec<Work>; 2],
        [resident, steady, peak]: [f64; 3],
    ) -> Self {
        let writes = requests.iter().filter(|request| request.is_write());
        let last = writes.clone().map(|request| request.answered).max();
        let all = last.map_or(f64::NAN, |last| seconds_between(begin, last));
        let events = |one: &&Request| one.ours && one.is_good("create", "events");
        Self {
            size,
            pairs: firsts(begin, requests.iter().filter(|one| one.is_pair())),
            statuses: firsts(begin, requests.iter().filter(|one| one.is_status())),
            events: firsts(begin, requests.iter().filter(events)),
            all,
            writes: writes.count(),
            cost: Cost::of("cold start", size.routes, requests),
            work: [until_pairs, over(all, until_all)],
            resident,
            steady,
            peak,
        }
    }

    pub fn memory(&self) -> Memory {
        let Size { routes, others } = self.size;
        Memory { routes, others, steady: self.steady, peak: self.peak }
    }

    /// Objects that were read one by one.
    fn reads(&self) -> f64 {
        let reads = self.cost.requests.iter();
        let reads = reads.filter(|(what, _)| what.starts_with("get ") && *what != "get other");
        reads.map(|(_, count)| *count as f64).sum()
    }
}

fn at(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((part * last).round() as usize).copied().unwrap_or(f64::NAN)
}
