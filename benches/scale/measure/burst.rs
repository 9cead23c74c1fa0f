//! All Secrets are renewed as fast as the API server takes it, and a lone Route elsewhere must not
//! wait for that.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use kube::Client;
use tokio::time::Instant;

use super::{
    Bench,
    changes::{lone, renew},
    cold_start::everything_is_in_place,
    now,
};
use crate::{
    certificates::Pair,
    figures::Times,
    fill::all,
    journal::{Journal, Mark, Request, by_verb, seconds_between},
    population::{Place, Population},
};

/// Longer than any burst takes at four changes a second.
const LONE_CHANGES: usize = 4_000;
const PAUSE: Duration = Duration::from_millis(250);

/// One Route in a burst.
#[derive(Default)]
struct Renewed {
    /// When its Secret's change was received and answered.
    secret: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// When the Route's last patch was received and answered.
    route: Option<(DateTime<Utc>, DateTime<Utc>)>,
}

impl Renewed {
    /// Milliseconds from one to the other, once both are there.
    fn took(&self) -> Option<f64> {
        let ((asked, changed), (received, patched)) = self.secret.zip(self.route)?;
        (received > asked).then(|| seconds_between(changed, patched).max(0.0) * 1e3)
    }
}

impl Bench {
    pub async fn burst(&mut self) -> anyhow::Result<()> {
        now("all Secrets change");
        let fresh = self.population.fresh_pairs(self.population.routes())?;
        self.population.pairs = fresh;
        let lone_pairs = self.fresh(LONE_CHANGES.min(20 * self.settings.changes as usize))?;
        let mark = self.stage.journal.quiet(self.settings.silence).await?;
        let (client, population) = (&self.stage.client, &self.population);
        let journal = &mut self.stage.journal;
        let (mut routes, over) = (HashMap::new(), AtomicBool::new(false));
        let burst = async {
            all("Secrets renewed", population.routes(), |number| {
                let (place, pair) = (population.place(number), population.pairs[number].clone());
                async move { renew(client, &place, &pair).await }
            })
            .await?;
            follow(journal, mark, population, &mut routes).await?;
            over.store(true, Ordering::Relaxed);
            anyhow::Ok(())
        };
        let ((), used) = tokio::try_join!(burst, keep_renewing(client, &lone_pairs, &over))?;
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let lone = self.stage.journal.lone_latencies(mark, &lone_pairs[..used]).await?;
        everything_is_in_place(&self.stage.client, &self.population).await?;
        self.tell_burst(mark, end, &routes, Times::of(lone));
        Ok(())
    }

    fn tell_burst(&mut self, mark: Mark, end: Mark, routes: &HashMap<Place, Renewed>, lone: Times) {
        let best = self.limit.best().1;
        let requests = self.stage.journal.between(mark, end);
        let asked = routes.values().filter_map(|route| route.secret);
        let begin = asked.clone().map(|(asked, _)| asked).min();
        let renewed = asked.map(|(_, answered)| answered).max();
        let patched = routes.values().filter_map(|route| route.route).map(|(_, at)| at).max();
        let seconds = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
            from.zip(to).map_or(f64::NAN, |(from, to)| seconds_between(from, to))
        };
        let whole = seconds(begin, patched);
        let changed = seconds(begin, renewed);
        let pairs = requests.iter().filter(|request| request.is_pair()).count();
        let report = &mut self.report;
        let remark = "from the first Secret's change to the last Route's patch";
        report.add(format!("all {} Secrets changed", routes.len()), whole, "s", remark);
        report.add("- of it until the last Secret was changed", changed, "s", "32 at once");
        let both = (routes.len() + pairs) as f64 / whole;
        let remark = format!(
            "Secrets and pairs; {:.2} of the raw limit. {pairs} pairs were written",
            both / best
        );
        report.add("- changes a second", both, "/s", remark);
        let times = Times::of(routes.values().filter_map(Renewed::took).collect());
        report.add_times("- from a Secret to its Route", &times, "");
        report.add_times("- the same of a lone Route elsewhere", &lone, "four a second");
        let counts: Vec<_> = by_verb(requests)
            .into_iter()
            .map(|(request, count)| format!("{count} {request}"))
            .collect();
        report.add(
            "- requests",
            requests.iter().filter(|one| one.ours).count() as f64,
            "",
            counts.join(", "),
        );
        report.at_most("a lone Route during the burst: p99", lone.at(0.99), 1_000.0, "ms");
        report.curves.lone = lone.0;
    }
}

/// Renews the lone Route's Secret until it is over. Answers how often.
async fn keep_renewing(
    client: &Client,
    pairs: &[Arc<Pair>],
    over: &AtomicBool,
) -> anyhow::Result<usize> {
    let at = lone();
    let mut used = 0;
    for pair in pairs.iter().take_while(|_| !over.load(Ordering::Relaxed)) {
        let next = Instant::now() + PAUSE;
        renew(client, &at, pair).await?;
        used += 1;
        tokio::time::sleep_until(next).await;
    }
    Ok(used)
}

/// Until every Route was patched after its Secret was changed.
async fn follow(
    journal: &mut Journal,
    mark: Mark,
    population: &Population,
    routes: &mut HashMap<Place, Renewed>,
) -> anyhow::Result<()> {
    let by_secret: HashMap<Place, Place> =
        population.places().map(|place| (place.secret(), place)).collect();
    routes.extend(population.places().map(|place| (place, Renewed::default())));
    let mut missing = routes.len();
    let look = |request: &Request| {
        let route = if request.is_renewal() { by_secret.get(&request.place) } else { None };
        let route = route.unwrap_or(&request.place);
        let Some(renewed) = routes.get_mut(route) else { return false };
        let was_through = renewed.took().is_some();
        if request.is_renewal() {
            renewed.secret = Some((request.received, request.answered));
        } else if request.is_pair() && !was_through {
            renewed.route = Some((request.received, request.answered));
        }
        missing -= usize::from(!was_through && renewed.took().is_some());
        missing == 0
    };
    journal.until("every Route's new pair", mark, look).await
}
