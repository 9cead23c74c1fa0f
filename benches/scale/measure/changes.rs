//! Changes of one Secret: of a single Route, and of all Routes in a namespace.

use std::{cell::Cell, collections::HashSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use kube::Client;
use testkit::figures::Times;
use tokio::time::Instant;

use super::{Bench, now};
use crate::{
    certificates::{Issuer, Pair},
    fill::{all, annotated, patched},
    journal::{Journal, Mark, Request, seconds_between},
    population::{LONE, RouteRef, SHARED, renewal, secrets_path, tls_secret},
    requests::create,
    stage::Stage,
};

/// Enough for the longest burst at four changes per second.
pub const LONE_CHANGES: usize = 2_000;
const LONE_PAUSE: Duration = Duration::from_millis(250);

/// The lone Route, which renewals of others must not delay.
pub fn lone() -> RouteRef {
    RouteRef::new(LONE, "route")
}

/// Creates the lone Route and waits for its pair.
pub async fn introduce_lone(stage: &mut Stage, issuer: &Issuer) -> anyhow::Result<()> {
    let mark = stage.journal.mark()?;
    let (at, client) = (lone(), &stage.client().await?);
    let pair = issuer.pair()?;
    let secret = at.secret();
    create(client, &secrets_path(LONE), &tls_secret(&secret.name, &pair)).await?;
    annotated(client, at.clone(), None).await?;
    let patched = |request: &Request| request.is_pair() && request.place == at;
    stage.journal.until("the lone Route's pair", mark, patched).await
}

impl Bench {
    /// Changes one Secret many times and measures when its Route has the new pair.
    pub async fn changes(&mut self) -> anyhow::Result<()> {
        now("one Secret changes again and again");
        let pairs = self.issuer.pairs(self.settings.changes as usize)?;
        let mark = self.stage.journal.quiet(self.settings.silence).await?;
        let issuer = self.stage.issuer().await?;
        for pair in &pairs {
            let next = Instant::now() + self.settings.pause;
            renew(&issuer, &lone(), pair).await?;
            tokio::time::sleep_until(next).await;
        }
        let times = Times::of(self.stage.journal.lone_latencies(mark, &pairs).await?);
        let raw = Times::of(self.report.curves.single.clone()).at(0.5);
        let ratio = times.at(0.99) / raw;
        let remark = format!("p99 is {ratio:.1} times a raw patch, by the same clock");
        self.report.add_times("one Secret changed", &times, &remark);
        self.report.at_most("one Secret changed: p99, in raw patches", ratio, 3.0, "");
        self.report.curves.change = times.0;
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let requests = self.stage.journal.between(mark, end);
        self.report.add_cost("one Secret", pairs.len(), requests);
        Ok(())
    }

    /// Changes the Secret that all Routes of a namespace share.
    pub async fn shared(&mut self) -> anyhow::Result<()> {
        now("one Secret of many Routes changes");
        let sharing = self.settings.sharing;
        let place = |number: usize| RouteRef::new(SHARED, &format!("route-{number}"));
        let secret = RouteRef::new(SHARED, "shared-tls");
        let client = &self.stage.client().await?;
        let pair = self.issuer.pair()?;
        create(client, &secrets_path(SHARED), &tls_secret(&secret.name, &pair)).await?;
        let mark = self.stage.journal.mark()?;
        all("Routes that share a Secret", sharing, |number| {
            annotated(client, place(number), Some("shared-tls"))
        })
        .await?;
        let lone_pairs = self.issuer.pairs(LONE_CHANGES.min(4 * sharing))?;
        let issuer = self.stage.issuer().await?;
        let journal = &mut self.stage.journal;
        let places: HashSet<RouteRef> = (0..sharing).map(place).collect();
        all_patched(journal, mark, places.clone()).await?;
        let mark = journal.quiet(self.settings.silence).await?;

        let (pair, issuer) = (self.issuer.pair()?, &issuer);
        let change = async {
            patched(issuer, secret.secret_path(), renewal(&pair)).await?;
            all_patched(journal, mark, places).await
        };
        let used = keep_renewing(issuer, &lone_pairs, change).await?;
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let lone = self.stage.journal.lone_latencies(mark, &lone_pairs[..used]).await?;
        self.report_shared(mark, end, &Times::of(lone));
        Ok(())
    }

    fn report_shared(&mut self, mark: Mark, end: Mark, lone: &Times) {
        let requests = self.stage.journal.between(mark, end);
        let requests = || requests.iter().filter(|request| *request.place.namespace == *SHARED);
        let changed = requests().find(|one| one.is_renewal()).map(|one| one.answered);
        let last = requests().filter(|one| one.is_pair()).map(|one| one.answered).max();
        let seconds = changed.zip(last).map(|(from, to)| seconds_between(from, to));
        let seconds = seconds.unwrap_or(f64::NAN);
        let sharing = self.settings.sharing;
        let rate = sharing as f64 / seconds;
        let share = rate / self.limit.rate();
        let report = &mut self.report;
        let what = format!("one Secret of {sharing} Routes changed");
        report.add(what, seconds, "s", "until the last Route was patched");
        report.add("- pairs a second", rate, "/s", format!("{share:.2} of the raw limit"));
        report.add_times("- meanwhile a lone Route elsewhere", lone, "four changes a second");
        report.add_cost("shared Secret", sharing, requests());
    }
}

/// Writes a new pair to a Route's Secret.
pub async fn renew(client: &Client, route: &RouteRef, pair: &Pair) -> anyhow::Result<()> {
    patched(client, route.secret().secret_path(), renewal(pair)).await
}

/// Renews the lone Route's Secret four times per second until `until` is done. Returns how often.
pub async fn keep_renewing(
    client: &Client,
    pairs: &[Arc<Pair>],
    until: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<usize> {
    let (at, over) = (lone(), Cell::new(false));
    let renewing = async {
        let mut used = 0;
        for pair in pairs.iter().take_while(|_| !over.get()) {
            let next = Instant::now() + LONE_PAUSE;
            renew(client, &at, pair).await?;
            used += 1;
            tokio::time::sleep_until(next).await;
        }
        Ok(used)
    };
    let until = async {
        let done = until.await;
        over.set(true);
        done
    };
    let ((), used) = tokio::try_join!(until, renewing)?;
    Ok(used)
}

async fn all_patched(
    journal: &mut Journal,
    mark: Mark,
    mut missing: HashSet<RouteRef>,
) -> anyhow::Result<()> {
    let last = |request: &Request| {
        request.is_pair() && missing.remove(&request.place) && missing.is_empty()
    };
    journal.until("the pairs of all Routes that share a Secret", mark, last).await
}

impl Journal {
    /// Milliseconds from each renewal of the lone Route's Secret to the patch with this pair or a
    /// later one.
    pub async fn lone_latencies(
        &mut self,
        mark: Mark,
        pairs: &[Arc<Pair>],
    ) -> anyhow::Result<Vec<f64>> {
        let is_last = |request: &Request| number_of(request, pairs) == Some(pairs.len() - 1);
        if !pairs.is_empty() {
            let what = "the last pair of the lone Route";
            self.until(what, mark, |request| request.is_pair() && is_last(request)).await?;
        }
        // Time for the last answers to reach the log.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let requests = self.since(mark)?;
        let (at, secret) = (lone(), lone().secret());
        let renewed: Vec<DateTime<Utc>> = requests
            .iter()
            .filter(|request| request.is_renewal() && request.place == secret)
            .map(|request| request.answered)
            .collect();
        let patches: Vec<(usize, DateTime<Utc>)> = requests
            .iter()
            .filter(|request| request.is_pair() && request.place == at)
            .filter_map(|request| Some((number_of(request, pairs)?, request.answered)))
            .collect();
        let latency = |(number, from): (usize, &DateTime<Utc>)| {
            let first = patches.iter().find(|(patched, _)| *patched >= number);
            first.map(|(_, to)| seconds_between(*from, *to) * 1e3)
        };
        Ok(renewed.iter().enumerate().filter_map(latency).collect())
    }
}

fn number_of(request: &Request, pairs: &[Arc<Pair>]) -> Option<usize> {
    let certificate = request.certificate.as_deref()?;
    pairs.iter().position(|pair| pair.chain == certificate)
}
