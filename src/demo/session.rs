//! API server, injector and edge in one process. The injector is the production one.

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

/// Changes that a watch may lag behind.
const HISTORY: usize = 100_000;
/// Time for running work to finish at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The ConfigMap and key in which OpenShift publishes its service CA.
const SERVICE_AUTHORITY: (&str, &str) = ("openshift-service-ca.crt", "service-ca.crt");

/// Settings from the command line.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    pub api_port: Port,
    pub edge_port: Port,
    /// Path of the kubeconfig; a temporary folder if none.
    pub kubeconfig: Option<&'a Path>,
    /// None to run without the injector.
    pub injector: Option<InjectorRules>,
}

#[derive(Clone, Debug)]
pub struct InjectorRules {
    pub policy: Policy,
    /// Interval at which unchanged Routes are reconciled too.
    pub resync: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// The initial objects could not be created.
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[source] ApiError),
}

/// A part that ended although the sandbox runs.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox's {0} ended by itself")]
pub struct PartEnded(&'static str);

#[derive(Clone, Debug, Serialize)]
pub struct Access {
    pub kubeconfig: String,
    pub server: String,
    /// Address of the edge; in JSON its URL.
    #[serde(serialize_with = "as_url")]
    pub edge: SocketAddr,
    pub pid: u32,
}

fn as_url<S: Serializer>(address: &SocketAddr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("https://{address}"))
}

impl Access {
    /// A curl command that requests this host from the edge.
    pub fn curl(&self, host: &str) -> String {
        let port = self.edge.port();
        format!("curl --resolve {host}:{port}:127.0.0.1 -k https://{host}:{port}/")
    }
}

/// A running sandbox.
pub struct Session {
    api: serve::RunningApi,
    edge: edge::RunningEdge,
    injector: Option<JoinHandle<Result<(), RunError>>>,
    stop: CancellationToken,
}

impl Session {
    pub async fn start(options: Options<'_>) -> Result<Self, StartError> {
        let clock = Clock::system();
        let api = api_server::server(api_server::store(HISTORY, fastrand::u64(..)), clock.clone());
        let client = api.client();
        let serving = serve::Options { port: options.api_port, kubeconfig: options.kubeconfig };
        let serving = serve::RunningApi::start_for_accounts(api, serving, &clock).await?;
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

    pub fn access(&self) -> Access {
        Access {
            kubeconfig: self.api.kubeconfig().display().to_string(),
            server: format!("https://{}", self.api.address()),
            edge: self.edge.address(),
            pid: std::process::id(),
        }
    }

    /// Ports of API server and edge.
    pub fn ports(&self) -> (u16, u16) {
        (self.api.address().port(), self.edge.address().port())
    }

    /// The certificate for Routes without one.
    pub fn default_certificate(&self) -> &CertificateSummary {
        self.edge.default_certificate()
    }

    /// Resolves only if a part ends by itself, which is a bug.
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

    /// Stops all parts and removes the kubeconfig.
    pub async fn end(self) {
        self.stop.cancel();
        if let Some(injector) = self.injector {
            let _ = timeout(SHUTDOWN_TIMEOUT, injector).await;
        }
    }
}

/// The defaults of an installation, with the given policy.
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

/// Creates objects that users look for, such as the ConfigMap with the destinationCACertificate for
/// `reencrypt` Routes.
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
