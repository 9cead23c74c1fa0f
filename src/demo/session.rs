//! API server, injector and edge in one process: the injector is the one that ships, and has the
//! API server in place of a cluster.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use prometheus_client::registry::Registry;
use serde::{Serialize, Serializer};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    api_server,
    certificate_summary::CertificateSummary,
    edge::{self, EdgeError},
    loopback::Port,
    serve::{self, ServeError},
};
use crate::{
    inject::{
        decide::plan::Policy,
        run::{COMPARE_EVERY, Injector, Options as InjectorOptions, RunError},
    },
    k8s::{
        api_error::{self, ApiError},
        gate::Gate,
        sandbox::INJECTOR_CONFIG_MAP,
    },
    runtime::clock::Clock,
};

/// How many changes a watch may fall behind.
const HISTORY: usize = 100_000;
/// What is under way at the end gets this long.
const LAST_WRITES: Duration = Duration::from_secs(1);
/// The names under which OpenShift publishes the authority of its Services' certificates.
const SERVICE_AUTHORITY: (&str, &str) = ("openshift-service-ca.crt", "service-ca.crt");

/// What the command line chose.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The API server's port.
    pub api_port: Port,
    /// The edge's port.
    pub edge_port: Port,
    /// Where the kubeconfig goes; nowhere in particular if none is given.
    pub kubeconfig: Option<&'a Path>,
    /// How the injector decides; none if somebody else is to inject.
    pub injector: Option<InjectorRules>,
}

/// How the injector decides.
#[derive(Clone, Debug)]
pub struct InjectorRules {
    /// What it writes.
    pub policy: Policy,
    /// How often it looks at every Route although nothing changed.
    pub resync: Duration,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The API server can't be reached from outside.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The edge can't start.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// The cluster in this process can't be prepared.
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[source] ApiError),
}

/// A part that was to run as long as the sandbox, and did not.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox's {0} ended by itself")]
pub struct PartEnded(&'static str);

/// How to reach a sandbox.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    /// The file for kubectl.
    pub kubeconfig: String,
    /// The API server's URL.
    pub server: String,
    /// Where the edge listens; its URL in JSON.
    #[serde(serialize_with = "as_url")]
    pub edge: SocketAddr,
    /// Who runs it.
    pub pid: u32,
}

fn as_url<S: Serializer>(address: &SocketAddr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("https://{address}"))
}

impl Access {
    /// A command that asks the edge for this host.
    pub fn curl(&self, host: &str) -> String {
        let port = self.edge.port();
        format!("curl --resolve {host}:{port}:127.0.0.1 -k https://{host}:{port}/")
    }
}

/// A sandbox that runs.
pub struct Session {
    api: serve::RunningApi,
    edge: edge::RunningEdge,
    injector: Option<JoinHandle<Result<(), RunError>>>,
    stop: CancellationToken,
}

impl Session {
    /// Starts all parts.
    pub async fn start(options: Options<'_>) -> Result<Self, StartError> {
        let clock = Clock::system();
        let api = api_server::server(api_server::store(HISTORY, fastrand::u64(..)), clock.clone());
        let client = api.client();
        let serving = serve::Options { port: options.api_port, kubeconfig: options.kubeconfig };
        let serving = serve::RunningApi::start(api, serving, &clock).await?;
        let edge =
            edge::RunningEdge::start(client.clone(), options.edge_port, clock.clone()).await?;
        let (name, key) = SERVICE_AUTHORITY;
        let authority = edge.service_authority();
        publish(&client, name, key, authority).await.map_err(StartError::Prepare)?;
        if options.injector.is_some() {
            let why = "The injector runs in the same process as this API server.";
            publish(&client, INJECTOR_CONFIG_MAP, "note", why)
                .await
                .map_err(StartError::Prepare)?;
        }

        let stop = CancellationToken::new();
        let injector = options.injector.map(|rules| {
            let (gate, chosen) = (Gate::open(), injector_options(rules));
            let injector = Injector::new(client, gate, clock, chosen, &mut Registry::default());
            tokio::spawn(injector.run(stop.clone()))
        });
        Ok(Self { api: serving, edge, injector, stop })
    }

    /// How to reach it.
    pub fn access(&self) -> Access {
        Access {
            kubeconfig: self.api.kubeconfig().display().to_string(),
            server: format!("https://{}", self.api.address()),
            edge: self.edge.address(),
            pid: std::process::id(),
        }
    }

    /// The ports of API server and edge.
    pub fn ports(&self) -> (u16, u16) {
        (self.api.address().port(), self.edge.address().port())
    }

    /// The certificate of Routes that hold none.
    pub fn default_certificate(&self) -> &CertificateSummary {
        self.edge.default_certificate()
    }

    /// Waits until a part ends by itself, which comes only by a bug.
    pub async fn failed(&mut self) -> PartEnded {
        let injector = async {
            match &mut self.injector {
                Some(injector) => injector.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.api.ended() => PartEnded("API server"),
            () = self.edge.ended() => PartEnded("edge"),
            _ = injector => PartEnded("injector"),
        }
    }

    /// Ends all parts, and removes the kubeconfig.
    pub async fn end(self) {
        self.stop.cancel();
        if let Some(injector) = self.injector {
            let _ = timeout(LAST_WRITES, injector).await;
        }
    }
}

/// As an installation has it, but for the rules.
fn injector_options(rules: InjectorRules) -> InjectorOptions {
    InjectorOptions {
        namespaces: Vec::new(),
        policy: rules.policy,
        concurrency: 16,
        resync: rules.resync,
        watch_timeout: Duration::from_secs(60),
        compare_every: COMPARE_EVERY,
        judges_in_place: false,
        dry_run: false,
        instance: "sandbox".to_owned(),
    }
}

/// Lets users find something: what a `reencrypt` Route needs as destinationCACertificate, for one.
async fn publish(client: &Client, name: &str, key: &str, text: &str) -> Result<(), ApiError> {
    let config_map = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    api_error::with_timeout(api.create(&PostParams::default(), &config_map)).await?;
    Ok(())
}
