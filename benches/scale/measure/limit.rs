//! The raw limit, before and after.

use std::time::Duration;

use super::{Bench, Settings, now};
use crate::{
    certificates::Pair,
    fill::all,
    population::{RAW, route, routes_path},
    raw::{Limit, Order},
    requests::{create, delete},
    stage::Stage,
};

const ROUTES: usize = 256;
/// Two that differ by more are not of the same machine.
const LIKE: f64 = 0.15;

/// What a plain client gets out of this API server while nobody else asks.
pub async fn measure(stage: &Stage, settings: &Settings, like: &Pair) -> anyhow::Result<Limit> {
    now("a plain client patches Routes");
    let (client, path) = (&stage.client, routes_path(RAW));
    let path = &*path;
    all("Routes for the plain client", ROUTES, |number| async move {
        create(client, path, &route(&format!("raw-{number}"), None)).await
    })
    .await?;
    let order = Order::new(
        &stage.admin_kubeconfig(),
        settings.limit_for,
        (settings.changes / 2).max(5),
        settings.pause.min(Duration::from_millis(250)),
    );
    let limit = order.like(like).carry_out().await?;
    // The controller would write the status of every Route that it finds.
    delete(client, path).await?;
    Ok(limit)
}

impl Bench {
    /// Whether the machine is still what it was.
    pub async fn limit_again(&mut self) -> anyhow::Result<()> {
        let before = self.limit.best().1;
        let again = measure(&self.stage, &self.settings, &self.population.pairs[0]).await?;
        let (connections, after) = again.best();
        let remark = format!("{connections} connections, when all was done");
        self.report.add("raw limit, afterwards", after, "/s", remark);
        let apart = (before - after).abs() / before.max(after);
        if apart > LIKE {
            self.report.void = Some(format!(
                "the raw limit was {before:.0}/s before and {after:.0}/s after, which is {:.0} % apart",
                apart * 100.0
            ));
        }
        Ok(())
    }
}
