//! The steps of the tour, in order.

use std::time::Duration;

use chrono::Utc;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::{
    Outdated, Tour, WORKLOAD,
    clusters::{Clusters, NAMESPACE, Side},
    expect::{Expected, PeersCondition, State},
};
use crate::{
    api::federated_trust_domain::FederatedTrustDomain,
    demo::{
        spire::{SpireError, trust_domain::TrustDomainError},
        tour::walk,
    },
    federate::{act::bootstrap::BootstrapError, decide::bootstrap::Offer},
    k8s::api_error::{self, ApiError},
    runtime::lock::lock,
};

pub type Step = walk::Step<Act, Expected>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Creates a SpireServer in each cluster, with the other as its peer.
    Configure,
    /// Imports a's first bundle into b.
    BootstrapB,
    /// Imports b's first bundle into a.
    BootstrapA,
    /// Adds an authority to a's bundle.
    PrepareAuthority,
    /// Makes it sign, and removes the old one.
    ActivateAuthority,
    /// Takes a's endpoint down.
    CloseEndpoint,
    /// Brings it back.
    OpenEndpoint,
    /// Removes a from b's peers.
    RemovePeer,
    /// Removes the ClusterFederatedTrustDomain and the bundle of a from b.
    EndTrust,
}

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error(transparent)]
    Bootstrap(#[from] Box<BootstrapError>),
    #[error(transparent)]
    Spire(#[from] SpireError),
    #[error(transparent)]
    TrustDomain(#[from] TrustDomainError),
    /// The bundle was changed on its way.
    #[error("the bundle has the fingerprint {found}, and not {announced}")]
    Fingerprint { announced: String, found: String },
}

pub fn all(clusters: &Clusters) -> Vec<Step> {
    let (a, b) = (&clusters.a.spire, &clusters.b.spire);
    let (name, url_a, url_b) = (a.trust_domain(), a.url(), b.url());
    let own = |commands: &[&str]| commands.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let bootstrap = |from: &str, to: &str, url: &str| {
        vec![
            format!("trustplane federation fingerprint {from} --url {url}"),
            format!("trustplane federation bootstrap {from} {to} --url {url}"),
        ]
    };
    let nothing = Expected {
        received: None,
        a_in_b: false,
        b_in_a: false,
        peer_in_b: State::Failing,
        peer_in_a: State::Failing,
        peers_reachable: PeersCondition::False,
        unlisted: false,
    };
    let well = Expected {
        received: Some((1, 1)),
        a_in_b: true,
        b_in_a: true,
        peer_in_b: State::Healthy(1),
        peer_in_a: State::Healthy(1),
        peers_reachable: PeersCondition::NotFalse,
        unlisted: false,
    };
    let rotated = Expected { received: Some((3, 1)), peer_in_b: State::Healthy(3), ..well };
    let removed =
        Expected { peer_in_b: State::Unlisted, peers_reachable: PeersCondition::Absent, ..rotated };
    vec![
        Step {
            title: "Two clusters list each other as peers. Neither knows the other yet",
            commands: own(&[
                "kubectl --context a apply -f spireserver-a.yaml",
                "kubectl --context b apply -f spireserver-b.yaml",
            ]),
            act: Act::Configure,
            expected: nothing,
        },
        Step {
            title: "b gets the first bundle of a, after its fingerprint was compared",
            commands: bootstrap("a", "b", &url_a),
            act: Act::BootstrapB,
            expected: Expected { b_in_a: false, peer_in_a: State::Failing, ..well },
        },
        Step {
            title: "a gets the first bundle of b, and workloads trust each other",
            commands: bootstrap("b", "a", &url_b),
            act: Act::BootstrapA,
            expected: well,
        },
        Step {
            title: "a prepares a new authority: it is in the bundle before it signs",
            commands: own(&["# The SPIRE server of a does it by itself, about twice a day."]),
            act: Act::PrepareAuthority,
            expected: Expected { received: Some((2, 2)), peer_in_b: State::Healthy(2), ..well },
        },
        Step {
            title: "The new authority signs, the old one is gone, and b has followed",
            commands: own(&["# The SPIRE server of a does this by itself, too."]),
            act: Act::ActivateAuthority,
            expected: rotated,
        },
        Step {
            title: "a's endpoint is dark: b says so, and trusts the bundle that it has",
            commands: own(&["# Somebody cuts the line to a's bundle endpoint."]),
            act: Act::CloseEndpoint,
            expected: Expected {
                received: None,
                peer_in_b: State::Failing,
                peers_reachable: PeersCondition::False,
                ..rotated
            },
        },
        Step {
            title: "a's endpoint is back, and all is well again",
            commands: own(&["# The line is repaired."]),
            act: Act::OpenEndpoint,
            expected: rotated,
        },
        Step {
            title: "b no longer lists a. SPIRE trusts it all the same, and b's status says so",
            commands: own(&[
                r#"kubectl --context b patch spireserver cluster --type=merge -p '{"spec":{"federation":{"federatesWith":null}}}'"#,
            ]),
            act: Act::RemovePeer,
            expected: Expected { unlisted: true, ..removed },
        },
        Step {
            title: "Its ClusterFederatedTrustDomain and its bundle go: b no longer trusts a",
            commands: vec![
                format!("kubectl --context b delete clusterfederatedtrustdomain {name}"),
                format!(
                    "kubectl --context b -n spire exec spire-server-0 -- /opt/spire/bin/spire-server bundle delete -id spiffe://{name} -mode dissociate"
                ),
            ],
            act: Act::EndTrust,
            expected: Expected { received: None, a_in_b: false, ..removed },
        },
    ]
}

impl Tour {
    pub(super) async fn act(&self, act: Act) -> Result<(), ActError> {
        let Clusters { a, b } = &self.clusters;
        self.remember(None);
        match act {
            Act::Configure => {
                a.configure(b).await?;
                Ok(b.configure(a).await?)
            }
            Act::BootstrapB => self.bootstrap(a, b).await,
            Act::BootstrapA => self.bootstrap(b, a).await,
            Act::PrepareAuthority => Ok(a.spire.prepare_authority().await?),
            Act::ActivateAuthority => {
                let (id, svid) = a.spire.workload(WORKLOAD)?;
                a.spire.activate_authority().await?;
                self.remember(Some((id, svid.der)));
                Ok(())
            }
            Act::CloseEndpoint => Ok(a.spire.close_endpoint().await?),
            Act::OpenEndpoint => Ok(a.spire.open_endpoint().await?),
            Act::RemovePeer => Ok(b.remove_peers().await?),
            Act::EndTrust => {
                let api: Api<FederatedTrustDomain> = Api::all(b.cluster.client.clone());
                let name = a.spire.trust_domain();
                api_error::with_timeout(api.delete(&name, &Default::default())).await?;
                b.spire.delete_bundle(&name).await;
                Ok(())
            }
        }
    }

    /// The step after a rotation shows that an SVID from before it is refused.
    fn remember(&self, outdated: Option<Outdated>) {
        *lock(&self.outdated) = outdated;
    }

    /// Does what `trustplane federation bootstrap` and the comparison by a person do.
    async fn bootstrap(&self, from: &Side, to: &Side) -> Result<(), ActError> {
        let announced = self.offer(from).await?.bundle.fingerprint();
        let offer = self.offer(from).await?;
        let found = offer.bundle.fingerprint();
        if found != announced {
            return Err(ActError::Fingerprint { announced, found });
        }
        let plan = to.cluster.plan(&offer).await.map_err(Box::new)?;
        Ok(to.cluster.apply(&plan).await.map_err(Box::new)?)
    }

    /// The SPIRE server publishes its authorities shortly after the ConfigMap for them exists.
    async fn offer(&self, from: &Side) -> Result<Offer, ActError> {
        let start = Instant::now();
        loop {
            let url = from.spire.url();
            match from.cluster.offer(NAMESPACE, Some(&url), Utc::now()).await {
                Err(BootstrapError::NotPublished { .. }) if start.elapsed() < self.patience => {
                    sleep(Duration::from_millis(50)).await;
                }
                offered => return Ok(offered.map_err(Box::new)?),
            }
        }
    }
}
