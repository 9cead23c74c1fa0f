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

use std::{sync::Mutex, time::Duration};

use rustls::pki_types::CertificateDer;

use self::{
    clusters::{Clusters, Side},
    expect::{Expected, Peer, Seen},
    steps::{Act, ActError, Step},
};
use super::{
    observed::{Condition, Received},
    walk::Scenario,
};
use crate::{
    federate::decide::conditions::{PEERS, TRUST},
    runtime::lock::lock,
    spiffe::id::SpiffeId,
};

/// Path of the workload in each cluster.
pub const WORKLOAD: &str = "/shop";
/// Conditions that are shown.
const CONDITIONS: [&str; 2] = [PEERS, TRUST];

/// The parts that the tour uses.
pub struct Tour {
    pub clusters: Clusters,
    /// Timeout for the first bundle of a cluster.
    pub patience: Duration,
    /// An SVID from before the rotation, in the steps after it.
    outdated: Mutex<Option<Outdated>>,
}

type Outdated = (SpiffeId, CertificateDer<'static>);

impl Tour {
    pub fn new(clusters: Clusters, patience: Duration) -> Self {
        Self { clusters, patience, outdated: Mutex::default() }
    }
}

impl Scenario for Tour {
    type Act = Act;
    type Expected = Expected;
    type Seen = Seen;
    type Error = ActError;

    fn steps(&self) -> Vec<Step> {
        steps::all(&self.clusters)
    }

    async fn carry_out(&self, act: Act) -> Result<(), ActError> {
        self.act(act).await
    }

    async fn observe(&self) -> Seen {
        let Clusters { a, b, .. } = &self.clusters;
        let outdated = lock(&self.outdated).clone();
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

    fn differences(expected: &Expected, seen: &Seen) -> Vec<String> {
        expected.differences(seen)
    }
}

/// Fetches the bundle of one cluster from the other.
async fn received(by: &Side, from: &Side) -> Result<Received, String> {
    let id = from.spire.server_id().map_err(|error| error.to_string())?;
    let url = from.spire.url().parse().map_err(|_| "the endpoint has no URL".to_owned())?;
    let fetched = by.spire.fetch_from(id, url).await.map_err(|error| error.to_string())?;
    Ok(Received::new(from.spire.trust_domain(), &fetched.bundle))
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
    (peer, shown.map(Condition::from).collect())
}
