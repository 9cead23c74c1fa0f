//! The raw limit, before and after.

use std::time::Duration;

use testkit::{figures::Times, process::in_words};

use super::{Bench, Part, Settings, now};
use crate::{
    certificates::Issuer,
    figures::Report,
    fill::all,
    journal::Request,
    population::{RAW, SINGLE, route, routes_path},
    raw::{Limit, Order},
    requests::{create, delete},
    stage::Stage,
};

const ROUTES: usize = 256;
/// Number of single patches.
const SINGLE_PATCHES: u32 = 20;
/// If two measurements differ by more, the machine was not quiet.
const TOLERANCE: f64 = 0.15;

/// The rate of a plain client on this otherwise idle API server, and the duration of a single
/// patch.
pub async fn before(
    stage: &mut Stage,
    settings: &Settings,
    issuer: &Issuer,
    report: &mut Report,
) -> anyhow::Result<Limit> {
    let mark = stage.journal.mark()?;
    let singles = if settings.has(Part::Changes) { settings.changes } else { SINGLE_PATCHES };
    let limit = measure(stage, settings, issuer, singles).await?;
    report_figures("raw limit", &limit, report)?;
    let singles = stage.journal.since(mark)?.iter().filter(|request| request.is_single());
    let served = Times::of(singles.map(Request::milliseconds).collect());
    report.add_times("one raw patch when idle", &served, "by the API server's clock");
    let seen = Times::of(limit.singles.clone());
    report.add_times("- as the client sees it", &seen, "");
    report.curves.limit = limit.rate();
    report.curves.single = served.0;
    Ok(limit)
}

async fn measure(
    stage: &Stage,
    settings: &Settings,
    issuer: &Issuer,
    singles: u32,
) -> anyhow::Result<Limit> {
    now("a plain client patches Routes");
    let (client, path) = (stage.client().await?, routes_path(RAW));
    let (client, path) = (&client, &*path);
    create(client, path, &route(SINGLE, None)).await?;
    all("Routes for the plain client", ROUTES, |number| async move {
        create(client, path, &route(&format!("raw-{number}"), None)).await
    })
    .await?;
    let pause = settings.pause.min(Duration::from_millis(250));
    let order = Order::on(stage, settings.limit_for, singles, pause, issuer.mean_bytes()?);
    let limit = order.carry_out().await?;
    // The controller would write the status of these Routes too.
    delete(&stage.client().await?, path).await?;
    Ok(limit)
}

fn report_figures(what: &str, limit: &Limit, report: &mut Report) -> anyhow::Result<()> {
    let best = limit.best()?;
    let all = limit.tries.iter().map(|one| format!("{:.0}/s with {}", one.rate, one.connections));
    let all = all.collect::<Vec<_>>().join(", ");
    let remark = format!("{} connections; {all}; {}", best.connections, in_words(&best.work));
    report.add(what, best.rate, "/s", remark);
    Ok(())
}

impl Bench {
    /// Measures the limit again. The run is void if the machine's speed has changed.
    pub async fn limit_again(&mut self) -> anyhow::Result<()> {
        let again = measure(&self.stage, &self.settings, &self.issuer, 0).await?;
        report_figures("raw limit, afterwards", &again, &mut self.report)?;
        let (before, after) = (self.limit.rate(), again.rate());
        let apart = (before - after).abs() / before.max(after);
        if apart > TOLERANCE {
            self.report.void = Some(format!(
                "the raw limit was {before:.0}/s before and {after:.0}/s after, which is {:.0} % apart",
                apart * 100.0
            ));
        }
        Ok(())
    }
}
