use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    api::spire_server::{self, SpireServer, SpireServerStatus},
    demo::{
        api_server,
        spire::{Spire, SpireError},
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
/// Changes that a watch may lag behind.
const HISTORY: usize = 10_000;
/// Polling interval for peers: seconds, so that visitors need not wait minutes as in a cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// One cluster.
pub struct Side {
    pub cluster: Cluster,
    /// Stand-in for its SPIRE server.
    pub spire: Arc<Spire>,
}

pub struct Clusters {
    pub a: Side,
    pub b: Side,
}

/// Tasks of the clusters. Dropping it aborts them.
pub struct Running(JoinSet<&'static str>);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spire(#[from] SpireError),
    /// The initial objects could not be created.
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[from] ApiError),
}

/// A part that ended although the tour runs.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended by itself")]
pub struct PartEnded(&'static str);

impl Clusters {
    pub async fn start() -> Result<(Self, Running), StartError> {
        let mut tasks = JoinSet::new();
        let a = Side::start("a", "cluster-a.example", &mut tasks).await?;
        let b = Side::start("b", "cluster-b.example", &mut tasks).await?;
        Ok((Self { a, b }, Running(tasks)))
    }
}

impl Running {
    /// Resolves only if a part ends by itself, which is a bug.
    pub async fn failed(&mut self) -> PartEnded {
        match self.0.join_next().await {
            Some(Ok(part)) => PartEnded(part),
            _ => PartEnded("a part of the sandbox"),
        }
    }
}

impl Side {
    async fn start(
        name: &'static str,
        trust_domain: &str,
        tasks: &mut JoinSet<&'static str>,
    ) -> Result<Self, StartError> {
        let clock = Clock::system();
        let api = api_server::server(api_server::store(HISTORY, fastrand::u64(..)), clock.clone());
        let client = api.client();
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        create(&client, "/api/v1/namespaces", &namespace).await?;
        let spire = Spire::start(trust_domain, client.clone(), NAMESPACE, clock.clone()).await?;
        let (following, federator) = (spire.clone(), federator(&client, clock));
        tasks.spawn(async move {
            following.run().await;
            "the stand-in for SPIRE"
        });
        tasks.spawn(async move {
            federator.run(CancellationToken::new()).await;
            "trustplane federate"
        });
        let cluster = Cluster { context: name.to_owned(), client };
        Ok(Self { cluster, spire })
    }

    /// Creates the SpireServer, with the other cluster as its peer.
    pub async fn configure(&self, peer: &Side) -> Result<(), ApiError> {
        let spire_server = self.spire_server(peer);
        create(&self.cluster.client, &servers(), &spire_server).await
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
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        send(&self.cluster.client, request, patch.to_string()).await
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

async fn create(client: &Client, path: &str, object: &Value) -> Result<(), ApiError> {
    let request = Request::post(path).header("content-type", "application/json");
    send(client, request, object.to_string()).await
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    body: String,
) -> Result<(), ApiError> {
    let request = request
        .body(body.into_bytes())
        .map_err(|error| ApiError::Unreachable { why: error.to_string() })?;
    api_error::with_timeout(client.request::<Value>(request)).await.map(drop)
}
