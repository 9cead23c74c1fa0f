//! A tour of `trustplane inject`: the commands of a user, and their effects.
//!
//! Every step acts through the API server's port, as kubectl would, and then polls until it sees
//! the expected result: the certificate that a TLS client gets from the edge, the Route's
//! condition, its newest Event. It never reads internal state.

pub mod authority;
pub mod expect;
pub mod federation;
pub mod join;
pub mod observed;
pub mod parts;
pub mod printer;
pub mod probe;
pub mod review;
pub mod steps;
pub mod walk;

use std::{net::SocketAddr, time::Duration};

use chrono::{DateTime, Utc};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, api::ListParams};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use self::{
    expect::{Reported, Seen},
    steps::Step,
};
use super::certificate_summary::CertificateSummary;
use crate::{
    api::route::Route,
    k8s::api_error::{self, ApiError},
};

pub const NAMESPACE: &str = "shop";
pub const ROUTE: &str = "shop";
pub const HOST: &str = "shop.example.com";
pub const SECRET: &str = "shop-tls";

/// The parts that the tour uses.
pub struct Tour {
    /// Connects to the port, as kubectl does.
    pub client: Client,
    /// Address of the edge.
    pub edge: SocketAddr,
    /// The certificate for Routes without one.
    pub default: CertificateSummary,
    /// Timeout for a step's expected result.
    pub patience: Duration,
    /// Time to read before the next step.
    pub pause: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum TourError {
    #[error("step {number} could not be done")]
    Act { number: usize, source: ApiError },
    /// The pairs could not be made.
    #[error("cannot make the certificates of the tour")]
    Certificate(#[from] rcgen::Error),
}

#[derive(Clone, Debug, Serialize)]
pub struct StepResult {
    pub number: usize,
    pub title: &'static str,
    pub commands: &'static [&'static str],
    #[serde(flatten)]
    pub seen: Seen,
    /// Time until the expected result was seen.
    pub seconds: f64,
    /// Differences from the expectation; empty if it was met.
    pub differences: Vec<String>,
}

impl StepResult {
    pub fn holds(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Progress of a tour.
pub enum Progress<'a> {
    Begins(usize, &'a Step),
    Ends(&'a StepResult),
}

impl Tour {
    /// Runs all steps and reports each.
    pub async fn walk<E: From<TourError>>(
        &self,
        mut tell: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Vec<StepResult>, E> {
        let pairs = steps::Pairs::new(Utc::now()).map_err(TourError::from)?;
        let mut outcomes = Vec::new();
        for (number, step) in (1..).zip(steps::all(&pairs, &self.default)) {
            if number > 1 {
                sleep(self.pause).await;
            }
            tell(Progress::Begins(number, &step))?;
            let start = Instant::now();
            let acted = step.act.carry_out(&self.client, &pairs).await;
            acted.map_err(|source| TourError::Act { number, source })?;
            let outcome = self.observe_until(number, &step, start).await;
            tell(Progress::Ends(&outcome))?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    async fn observe_until(&self, number: usize, step: &Step, start: Instant) -> StepResult {
        let mut wait = Duration::from_millis(5);
        loop {
            let seen = self.observe().await;
            let seconds = start.elapsed().as_secs_f64();
            let differences = step.expected.differences(&seen);
            if differences.is_empty() || start.elapsed() > self.patience {
                let Step { title, commands, .. } = *step;
                return StepResult { number, title, commands, seen, seconds, differences };
            }
            sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(50));
        }
    }

    async fn observe(&self) -> Seen {
        let served = probe::probe(self.edge, HOST).await.map_err(|error| error.to_string());
        Seen {
            served,
            condition: self.condition().await.unwrap_or_default(),
            event: self.newest_event().await.unwrap_or_default(),
        }
    }

    async fn condition(&self) -> Result<Option<Reported>, ApiError> {
        let routes: Api<Route> = Api::namespaced(self.client.clone(), NAMESPACE);
        let route = api_error::with_timeout(routes.get(ROUTE)).await?;
        let condition = route.status.certificate.into_iter().find(|it| it.status == "True");
        Ok(condition.map(|it| Reported {
            r#type: it.r#type.into_owned(),
            reason: it.reason.into_owned(),
            message: it.message.into(),
        }))
    }

    async fn newest_event(&self) -> Result<Option<Reported>, ApiError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let events = api_error::with_timeout(events.list(&ListParams::default())).await?;
        let of_the_route = events.items.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|it| it.kind.as_deref() == Some("Route"))
        });
        Ok(of_the_route.max_by_key(last_time).map(|event| Reported {
            r#type: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.note.unwrap_or_default(),
        }))
    }
}

fn last_time(event: &Event) -> Option<DateTime<Utc>> {
    let last = event.series.as_ref().map(|series| &series.last_observed_time);
    let time = last.or(event.event_time.as_ref())?;
    DateTime::from_timestamp_micros(time.0.as_microsecond())
}
