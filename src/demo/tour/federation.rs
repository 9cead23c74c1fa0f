//! A tour of `trustplane federate`: two clusters in one process, each with an API server, the
//! controller, and a stand-in for SPIRE with a bundle endpoint on its own port.
//!
//! Every step acts as an administrator would, and then polls until it sees the expected result: the
//! bundle that a client in cluster b gets from cluster a's endpoint over TCP, whether workloads
//! accept each other's SVIDs, and the SpireServers' status.

pub mod clusters;
pub mod expect;
pub mod printer;
pub mod steps;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use self::{
    clusters::{Clusters, Side},
    expect::{Condition, Peer, Received, Seen},
    steps::{ActError, Step},
};
use crate::{
    federate::decide::conditions::{PEERS, TRUST},
    spiffe::id::SpiffeId,
};

/// Path of the workload in each cluster.
pub const WORKLOAD: &str = "/shop";
/// Conditions that are shown.
const CONDITIONS: [&str; 2] = [PEERS, TRUST];

/// The parts that the tour uses.
pub struct Tour {
    pub clusters: Clusters,
    /// Timeout for a step's expected result.
    pub patience: Duration,
    /// Time to read before the next step.
    pub pause: Duration,
    /// An SVID from before the rotation, in the steps after it.
    outdated: Mutex<Option<Outdated>>,
}

type Outdated = (SpiffeId, CertificateDer<'static>);

#[derive(Debug, thiserror::Error)]
#[error("step {number} could not be done")]
pub struct TourError {
    pub number: usize,
    pub source: ActError,
}

#[derive(Clone, Debug, Serialize)]
pub struct FederationStepResult {
    pub number: usize,
    pub title: &'static str,
    pub commands: Vec<String>,
    #[serde(flatten)]
    pub seen: Seen,
    /// Time until the expected result was seen.
    pub seconds: f64,
    /// Differences from the expectation; empty if it was met.
    pub differences: Vec<String>,
}

impl FederationStepResult {
    pub fn holds(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Progress of a tour.
pub enum Progress<'a> {
    Begins(usize, &'a Step),
    Ends(&'a FederationStepResult),
}

impl Tour {
    pub fn new(clusters: Clusters, patience: Duration, pause: Duration) -> Self {
        Self { clusters, patience, pause, outdated: Mutex::default() }
    }

    /// Runs all steps and reports each.
    pub async fn walk<E: From<TourError>>(
        &self,
        mut tell: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Vec<FederationStepResult>, E> {
        let mut outcomes = Vec::new();
        for (number, step) in (1..).zip(steps::all(&self.clusters)) {
            if number > 1 {
                sleep(self.pause).await;
            }
            tell(Progress::Begins(number, &step))?;
            let start = Instant::now();
            let acted = self.carry_out(step.act).await;
            acted.map_err(|source| TourError { number, source })?;
            let outcome = self.observe_until(number, step, start).await;
            tell(Progress::Ends(&outcome))?;
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    async fn observe_until(
        &self,
        number: usize,
        step: Step,
        start: Instant,
    ) -> FederationStepResult {
        loop {
            let seen = self.observe().await;
            let seconds = start.elapsed().as_secs_f64();
            let differences = step.expected.differences(&seen);
            if differences.is_empty() || start.elapsed() > self.patience {
                let Step { title, commands, .. } = step;
                return FederationStepResult {
                    number,
                    title,
                    commands,
                    seen,
                    seconds,
                    differences,
                };
            }
            sleep(Duration::from_millis(25)).await;
        }
    }

    async fn observe(&self) -> Seen {
        let Clusters { a, b, .. } = &self.clusters;
        let outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (in_b, in_a) = tokio::join!(status(b, a), status(a, b));
        Seen {
            received: received(b, a).await,
            a_in_b: acceptance(b, a),
            b_in_a: acceptance(a, b),
            outdated: outdated.map(|(id, svid)| accepted(b, &id, svid)),
            peer_in_b: in_b.0,
            peer_in_a: in_a.0,
            conditions: in_b.1,
        }
    }
}

/// Fetches the bundle of one cluster from the other.
async fn received(by: &Side, from: &Side) -> Result<Received, String> {
    let id = from.spire.server_id().map_err(|error| error.to_string())?;
    let url = from.spire.url().parse().map_err(|_| "the endpoint has no URL".to_owned())?;
    let fetched = by.spire.fetch_from(id, url).await.map_err(|error| error.to_string())?;
    Ok(Received {
        trust_domain: from.spire.trust_domain(),
        sequence: fetched.bundle.sequence.unwrap_or_default(),
        authorities: fetched.bundle.x509.len(),
        fingerprint: fetched.bundle.fingerprint(),
    })
}

/// Whether one cluster's workload accepts a new SVID of the other's.
fn acceptance(by: &Side, of: &Side) -> Result<String, String> {
    let (id, svid) = of.spire.workload(WORKLOAD).map_err(|error| error.to_string())?;
    accepted(by, &id, svid.der)
}

fn accepted(by: &Side, id: &SpiffeId, svid: CertificateDer<'static>) -> Result<String, String> {
    let judged = by.spire.judge(id, &[svid]).map_err(|error| error.to_string());
    judged.map(|()| id.to_string())
}

/// A SpireServer's status about the other cluster, and its conditions.
async fn status(of: &Side, about: &Side) -> (Option<Peer>, Vec<Condition>) {
    let Ok(status) = of.status().await else { return (None, Vec::new()) };
    let name = about.spire.trust_domain();
    let mut peers = status.federation.unwrap_or_default().peers.into_iter();
    let peer = peers.find(|it| it.trust_domain == name).map(|it| Peer {
        trust_domain: it.trust_domain,
        reachable: it.reachable,
        verified: it.profile_verified,
        sequence: it.sequence,
        error: it.last_error,
    });
    let shown = status.conditions.into_iter().filter(|it| CONDITIONS.contains(&&*it.r#type));
    let conditions = shown.map(|it| Condition {
        r#type: it.r#type.into_owned(),
        status: it.status.into_owned(),
        reason: it.reason.into_owned(),
        message: it.message,
    });
    (peer, conditions.collect())
}
