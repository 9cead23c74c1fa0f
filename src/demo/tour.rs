//! A walk through the job: what a user would type, and what comes of it.
//!
//! Every step acts through the API server's port, as kubectl would, and then looks until it sees
//! what it should: the certificate that a TLS client gets from the edge, the Route's condition, its
//! newest Event. It never looks at our own state.

pub mod expect;
pub mod federation;
pub mod printer;
pub mod probe;
pub mod steps;

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

/// The namespace of the tour.
pub const NAMESPACE: &str = "shop";
/// The Route of the tour.
pub const ROUTE: &str = "shop";
pub const HOST: &str = "shop.example.com";
/// The Secret of the tour.
pub const SECRET: &str = "shop-tls";

/// The parts that a tour walks through.
pub struct Tour {
    /// A client as kubectl is one.
    pub client: Client,
    /// Where the edge listens.
    pub edge: SocketAddr,
    /// The certificate of Routes that hold none.
    pub default: CertificateSummary,
    /// How long a step may take to show what it should.
    pub patience: Duration,
    /// How long a visitor gets to read before the next step.
    pub pause: Duration,
}

/// Why the tour could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TourError {
    /// A step could not be done.
    #[error("step {number} could not be done")]
    Act { number: usize, source: ApiError },
    /// There are no certificates to show.
    #[error("cannot make the certificates of the tour")]
    Certificate(#[from] rcgen::Error),
}

/// The outcome of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepResult {
    /// Counted from 1.
    pub number: usize,
    /// The title of the step.
    pub title: &'static str,
    /// The commands that a user would type.
    pub commands: &'static [&'static str],
    /// The last observation.
    #[serde(flatten)]
    pub seen: Seen,
    /// How long it took until it was seen.
    pub seconds: f64,
    /// The differences from the expectation.
    pub differences: Vec<String>,
}

impl StepResult {
    /// Whether the step showed what it should.
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
    /// Walks through all steps, and tells about each.
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
            let outcome = self.look_until(number, &step, start).await;
            tell(Progress::Ends(&outcome))?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    async fn look_until(&self, number: usize, step: &Step, start: Instant) -> StepResult {
        let mut wait = Duration::from_millis(5);
        loop {
            let seen = self.look().await;
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

    async fn look(&self) -> Seen {
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
        Ok(of_the_route.max_by_key(last_said).map(|event| Reported {
            r#type: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.note.unwrap_or_default(),
        }))
    }
}

fn last_said(event: &Event) -> Option<DateTime<Utc>> {
    let last = event.series.as_ref().map(|series| &series.last_observed_time);
    let time = last.or(event.event_time.as_ref())?;
    DateTime::from_timestamp_micros(time.0.as_microsecond())
}
