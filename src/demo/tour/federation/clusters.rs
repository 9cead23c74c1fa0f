use std::{sync::Arc, time::Duration};

use http::Method;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    api::spire_server::{self, SpireServer, SpireServerStatus},
    demo::{
        spire::{Spire, SpireError},
        tour::{
            parts::{Parts, cluster},
            steps::send,
        },
    },
    federate::{
        act::{
            apply::Mode,
            bootstrap::Cluster,
            peers::{ErrorDetail, Peers},
        },
        decide::{
            render::{Proxy, RenderContext},
            validate,
        },
        metrics::Metrics,
        run::{Federator, Options},
    },
    k8s::{
        api_error::{self, ApiError},
        gate::Gate,
    },
    runtime::clock::Clock,
};

/// SPIRE's namespace.
pub const NAMESPACE: &str = "spire";
/// Refresh hint of the bundles, in seconds.
const REFRESH_HINT: u64 = 300;
/// Polling interval for peers: seconds, so that visitors need not wait minutes as in a cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub struct Side {
    pub cluster: Cluster,
    /// Stand-in for its SPIRE server.
    pub spire: Arc<Spire>,
}

pub struct Clusters {
    pub a: Side,
    pub b: Side,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spire(#[from] SpireError),
    /// The initial objects could not be created.
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[from] ApiError),
}

impl Clusters {
    pub async fn start() -> Result<(Self, Parts), StartError> {
        let mut parts = Parts::default();
        let a = Side::start("a", "cluster-a.example", &mut parts).await?;
        let b = Side::start("b", "cluster-b.example", &mut parts).await?;
        Ok((Self { a, b }, parts))
    }
}

impl Side {
    async fn start(
        name: &'static str,
        trust_domain: &str,
        parts: &mut Parts,
    ) -> Result<Self, StartError> {
        let clock = Clock::system();
        let client = cluster(NAMESPACE, &clock).await?;
        let (own, now) = (client.clone(), clock.clone());
        let spire = Spire::start(trust_domain, REFRESH_HINT, own, NAMESPACE, now).await?;
        let (following, federator) = (spire.clone(), federator(&client, clock));
        parts.spawn("the stand-in for SPIRE", following.run());
        parts.spawn("trustplane federate", federator.run(CancellationToken::new()));
        let cluster = Cluster { context: name.to_owned(), client };
        Ok(Self { cluster, spire })
    }

    /// Creates the SpireServer, with the other cluster as its peer.
    pub async fn configure(&self, peer: &Side) -> Result<(), ApiError> {
        let spire_server = self.spire_server(peer);
        send(&self.cluster.client, Method::POST, servers(), spire_server).await
    }

    /// The objects that an administrator applies.
    fn spire_server(&self, peer: &Side) -> Value {
        let trust_domain = self.spire.trust_domain();
        let (other, url) = (peer.spire.trust_domain(), peer.spire.url());
        json!({
            "apiVersion": spire_server::API_VERSION,
            "kind": spire_server::KIND,
            "metadata": { "name": spire_server::NAME },
            "spec": {
                "trustDomain": trust_domain,
                "clusterName": format!("cluster-{}", self.cluster.context),
                "jwtIssuer": format!("https://oidc.{trust_domain}"),
                "federation": {
                    // There is no router here: each endpoint is a port of this machine.
                    "managedRoute": "false",
                    "bundleEndpoint": { "profile": "https_spiffe" },
                    "federatesWith": [{
                        "trustDomain": other,
                        "bundleEndpointUrl": url,
                        "bundleEndpointProfile": "https_spiffe",
                        "endpointSpiffeId": format!("spiffe://{other}/spire/server"),
                    }],
                },
            },
        })
    }

    /// Removes all peers from the SpireServer.
    pub async fn remove_peers(&self) -> Result<(), ApiError> {
        let path = format!("{}/{}", servers(), spire_server::NAME);
        let patch = json!({ "spec": { "federation": { "federatesWith": null } } });
        send(&self.cluster.client, Method::PATCH, path, patch).await
    }

    pub async fn status(&self) -> Result<SpireServerStatus, ApiError> {
        let api: Api<SpireServer> = Api::all(self.cluster.client.clone());
        Ok(api_error::with_timeout(api.get(spire_server::NAME)).await?.status)
    }
}

/// The defaults of an installation, but for the polling interval.
fn federator(client: &Client, clock: Clock) -> Arc<Federator> {
    let options = Options {
        setting: RenderContext {
            namespace: NAMESPACE.to_owned(),
            apps_domain: None,
            server_image: "spire-server:1.13.3".to_owned(),
            controller_manager_image: "spire-controller-manager:0.6.4".to_owned(),
            pod_user: None,
            proxy: Proxy::default(),
        },
        mode: Mode::Full,
        resync: Duration::from_secs(300),
        watch_timeout: Duration::from_secs(60),
        instance: "sandbox".to_owned(),
        max_peers: validate::MOST_PEERS,
        // The stand-in has none.
        server_metrics: None,
    };
    // No peer here has a certificate of a public CA.
    let roots = Arc::new(RootCertStore::empty());
    // Nothing is private here, and visitors should see why a peer fails.
    let detail = ErrorDetail::All;
    let peers = Peers::with_detail(detail, clock.clone(), Gate::open(), roots);
    peers.ask_at_least_every(POLL_INTERVAL);
    let metrics = Metrics::register(&mut Registry::default(), peers.clone(), clock.clone());
    Federator::new(client.clone(), Gate::open(), clock, options, peers, metrics)
}

fn servers() -> String {
    format!("/apis/{}/spireservers", spire_server::API_VERSION)
}
