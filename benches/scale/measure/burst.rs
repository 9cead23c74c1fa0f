//! All Secrets are renewed as fast as the API server allows, and a lone Route elsewhere must not
//! wait for that.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use testkit::figures::Times;

use super::{
    Bench,
    changes::{LONE_CHANGES, keep_renewing, renew},
    now,
};
use crate::{
    fill::{Progress, all},
    in_place::everything_is_in_place,
    journal::{Journal, Mark, Request, seconds_between},
    population::{RouteRef, Size, place},
};

/// One Route in a burst.
#[derive(Default)]
struct Renewed {
    /// When the API server received and answered the Secret's change.
    secret: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// When it received and answered the Route's last patch.
    route: Option<(DateTime<Utc>, DateTime<Utc>)>,
}

impl Renewed {
    /// Milliseconds between the two, once both are known.
    fn took(&self) -> Option<f64> {
        let ((asked, changed), (received, patched)) = self.secret.zip(self.route)?;
        (received > asked).then(|| seconds_between(changed, patched).max(0.0) * 1e3)
    }
}

impl Bench {
    pub async fn burst(&mut self) -> anyhow::Result<()> {
        now("all Secrets change");
        let size = self.settings.size;
        let pairs = self.issuer.pairs(size.routes)?;
        let lone_pairs =
            self.issuer.pairs(LONE_CHANGES.min(20 * self.settings.changes as usize))?;
        let mark = self.stage.journal.quiet(self.settings.silence).await?;
        let (issuer, journal) = (&self.stage.issuer().await?, &mut self.stage.journal);
        let mut routes = HashMap::new();
        let burst = async {
            all("Secrets renewed", size.routes, |number| {
                let pair = pairs[number].clone();
                async move { renew(issuer, &place(number), &pair).await }
            })
            .await?;
            follow(journal, mark, size, &mut routes).await
        };
        let used = keep_renewing(issuer, &lone_pairs, burst).await?;
        let end = self.stage.journal.quiet(self.settings.silence).await?;
        let lone = self.stage.journal.lone_latencies(mark, &lone_pairs[..used]).await?;
        everything_is_in_place(&self.stage.client().await?, size).await?;
        self.report_burst(mark, end, &routes, Times::of(lone));
        Ok(())
    }

    fn report_burst(
        &mut self,
        mark: Mark,
        end: Mark,
        routes: &HashMap<RouteRef, Renewed>,
        lone: Times,
    ) {
        let requests = self.stage.journal.between(mark, end);
        let asked = routes.values().filter_map(|route| route.secret);
        let begin = asked.clone().map(|(asked, _)| asked).min();
        let renewed = asked.map(|(_, answered)| answered).max();
        let patched = routes.values().filter_map(|route| route.route).map(|(_, at)| at).max();
        let seconds = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
            from.zip(to).map_or(f64::NAN, |(from, to)| seconds_between(from, to))
        };
        let (whole, changed) = (seconds(begin, patched), seconds(begin, renewed));
        let pairs = requests.iter().filter(|request| request.is_pair()).count();
        let both = (routes.len() + pairs) as f64 / whole;
        let share = both / self.limit.rate();

        let report = &mut self.report;
        let remark = "from the first Secret's change to the last Route's patch";
        report.add(format!("all {} Secrets changed", routes.len()), whole, "s", remark);
        report.add("- of it until the last Secret was changed", changed, "s", "32 at once");
        let remark =
            format!("Secrets and pairs; {share:.2} of the raw limit. {pairs} pairs were written");
        report.add("- changes a second", both, "/s", remark);
        let times = Times::of(routes.values().filter_map(Renewed::took).collect());
        report.add_times("- from a Secret to its Route", &times, "");
        report.add_times("- meanwhile a lone Route elsewhere", &lone, "four changes a second");
        report.add_cost("all Secrets", pairs, requests);
        report.at_most("a lone Route during the burst: p99", lone.at(0.99), 1_000.0, "ms");
        report.curves.lone = lone.0;
    }
}

/// Waits until every Route was patched after its Secret's change.
async fn follow(
    journal: &mut Journal,
    mark: Mark,
    size: Size,
    routes: &mut HashMap<RouteRef, Renewed>,
) -> anyhow::Result<()> {
    let by_secret: HashMap<RouteRef, RouteRef> =
        size.places().map(|place| (place.secret(), place)).collect();
    routes.extend(size.places().map(|place| (place, Renewed::default())));
    let mut missing = routes.len();
    let mut progress = Progress::of("Routes with their new pair", missing);
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
        if !was_through && renewed.took().is_some() {
            missing -= 1;
            progress.step();
        }
        missing == 0
    };
    journal.until("every Route's new pair", mark, look).await
}
