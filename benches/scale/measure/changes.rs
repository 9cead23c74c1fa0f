//! Changes of one Secret: that of one Route, and that of a whole namespace.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use kube::Client;
use tokio::time::Instant;

use super::{Bench, now};
use crate::{
    certificates::Pair,
    figures::Times,
    fill::{all, annotated, patched},
    journal::{Journal, Mark, Request, by_verb, seconds_between},
    population::{LONE, Place, SHARED, renewal, secrets_path, tls_secret},
    requests::create,
};

/// The lone Route, which others' renewals must not hold up.
pub fn lone() -> Place {
    Place::new(LONE, "route")
}

impl Bench {
    /// One Secret, many times: how soon its Route has the new pair.
    pub async fn changes(&mut self) -> anyhow::Result<()> {
        now("one Secret changes again and again");
        let first = self.population.issuer.pair()?;
        let mark = self.stage.journal.mark()?;
        let at = lone();
        self.create_secret(&at.secret(), &first).await?;
        annotated(&self.stage.client, at.clone(), None).await?;
        let patched = |request: &Request| request.is_pair() && request.place == at;
        self.stage.journal.until("the lone Route's pair", mark, patched).await?;

        let pairs = self.fresh(self.settings.changes as usize)?;
        let mark = self.stage.journal.quiet(self.settings.silence).await?;
        let pause = self.settings.pause;
        for pair in &pairs {
            let next = Instant::now() + pause;
            renew(&self.stage.client, &at, pair).await?;
            tokio::time::sleep_until(next).await;
        }
        let times = self.stage.journal.lone_latencies(mark, &pairs).await?;
        let times = Times::of(times);
        let single = self.limit.single().at(0.5);
        let ratio = times.at(0.99) / single;
        let remark = format!("p99 is {ratio:.1} times a raw patch");
        self.report.add_times("one Secret changed", &times, &remark);
        self.report.at_most("one Secret changed: p99, in raw patches", ratio, 3.0, "");
        self.report.curves.change = times.0;
        Ok(())
    }

    /// One Secret of all Routes of a namespace.
    pub async fn shared(&mut self) -> anyhow::Result<()> {
        now("one Secret of many Routes changes");
        let sharing = self.settings.sharing;
        let place = |number: usize| Place::new(SHARED, &format!("route-{number}"));
        let secret = Place::new(SHARED, "shared-tls");
        let client = &self.stage.client;
        let pair = self.population.issuer.pair()?;
        create(client, &secrets_path(SHARED), &tls_secret(&secret.name, &pair)).await?;
        let mark = self.stage.journal.mark()?;
        all("Routes that share a Secret", sharing, |number| {
            annotated(client, place(number), Some("shared-tls"))
        })
        .await?;
        let journal = &mut self.stage.journal;
        let places: HashSet<Place> = (0..sharing).map(place).collect();
        all_patched(journal, mark, places.clone()).await?;
        let mark = journal.quiet(self.settings.silence).await?;

        let pair = self.population.issuer.pair()?;
        patched(client, secret.secret_path(), renewal(&pair)).await?;
        all_patched(journal, mark, places).await?;
        let end = journal.quiet(self.settings.silence).await?;
        let requests = journal.between(mark, end);
        let changed = requests.iter().find(|request| request.is_renewal());
        let changed = changed.map(|request| request.answered);
        let last =
            requests.iter().filter(|request| request.is_pair()).map(|request| request.answered);
        let seconds = changed.zip(last.max()).map(|(from, to)| seconds_between(from, to));
        let seconds = seconds.unwrap_or(f64::NAN);
        let counts =
            by_verb(requests).into_iter().filter(|(request, _)| !request.starts_with("watch"));
        let counts: Vec<_> = counts.map(|(request, count)| format!("{count} {request}")).collect();
        let what = format!("one Secret of {sharing} Routes changed");
        let rate = sharing as f64 / seconds;
        let share = rate / self.limit.best().1;
        self.report.add(what, seconds, "s", "until the last Route was patched");
        let remark = format!("{share:.2} of the raw limit; {}", counts.join(", "));
        self.report.add("- pairs a second", rate, "/s", remark);
        Ok(())
    }

    pub fn fresh(&self, count: usize) -> anyhow::Result<Vec<Arc<Pair>>> {
        Ok((0..count).map(|_| self.population.issuer.pair()).collect::<Result<_, _>>()?)
    }

    async fn create_secret(&self, at: &Place, pair: &Pair) -> anyhow::Result<()> {
        create(&self.stage.client, &secrets_path(&at.namespace), &tls_secret(&at.name, pair)).await
    }
}

/// Puts a new pair into a Route's Secret.
pub async fn renew(client: &Client, route: &Place, pair: &Pair) -> anyhow::Result<()> {
    patched(client, route.secret().secret_path(), renewal(pair)).await
}

async fn all_patched(
    journal: &mut Journal,
    mark: Mark,
    mut missing: HashSet<Place>,
) -> anyhow::Result<()> {
    let last = |request: &Request| {
        request.is_pair() && missing.remove(&request.place) && missing.is_empty()
    };
    journal.until("the pairs of all Routes that share a Secret", mark, last).await
}

impl Journal {
    /// Milliseconds from each of these renewals of the lone Route's Secret to the patch that put
    /// this pair, or a later one, into the Route.
    pub async fn lone_latencies(
        &mut self,
        mark: Mark,
        pairs: &[Arc<Pair>],
    ) -> anyhow::Result<Vec<f64>> {
        let at = lone();
        let is_last = |request: &Request| number_of(request, pairs) == Some(pairs.len() - 1);
        if !pairs.is_empty() {
            let what = "the last pair of the lone Route";
            self.until(what, mark, |request| request.is_pair() && is_last(request)).await?;
        }
        // An answer that was on its way is in the log by then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let requests = self.since(mark)?;
        let secret = at.secret();
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
