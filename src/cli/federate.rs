//! `trustplane federate`.

use std::{sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use futures::{FutureExt, future::BoxFuture};
use rustls::RootCertStore;
use tokio_util::sync::CancellationToken;

use super::{
    Unable,
    inject::namespace_name,
    rules::at_least_a_second,
    serving::{Ground, Job, Serving},
};
use crate::{
    bundle::fetch,
    federate::{
        apply::Mode,
        metrics::Metrics,
        peers::{ErrorDetail, Peers},
        render::{PodUser, Proxy, Setting},
        run::{Federator, Options},
        validate::is_host,
    },
    names::FEDERATE_LEASE,
};

/// Keeps a SPIRE server federated with others, as its SpireServer object says.
///
/// It renders the server's configuration, exposes the bundle endpoint through a Route, and reports
/// in the object's status whether each peer's bundle can be fetched, and how old it is. It
/// runs until it is stopped, also with --dry-run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what would be made from the SpireServer of the current context:
    trustplane federate --dry-run

  Run it, with its Route below the domain of this cluster's Routes:
    trustplane federate --namespace spire --apps-domain apps.example.com

  See the state of its peers:
    kubectl get spireserver cluster -o jsonpath='{.status.federation.peers}'

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Federate {
    /// The namespace that the SPIRE server runs in
    #[arg(long, short = 'n', env = "TRUSTPLANE_SPIRE_NAMESPACE", value_parser = spire_namespace, default_value = "spire", value_name = "NAME")]
    namespace: String,

    /// The domain of the Route of the bundle endpoint, unless the SpireServer names a host [default: that of the
    /// OpenShift cluster]
    #[arg(long, env = "TRUSTPLANE_APPS_DOMAIN", value_parser = domain, value_name = "DOMAIN")]
    apps_domain: Option<String>,

    /// Create what is missing, and change nothing that exists
    #[arg(long, env = "CREATE_ONLY_MODE")]
    create_only: bool,

    /// The image of the SPIRE server
    #[arg(
        long,
        env = "RELATED_IMAGE_SPIRE_SERVER",
        default_value = "spire-server:1.13.3",
        value_name = "IMAGE"
    )]
    server_image: String,

    /// The image of the SPIRE controller manager
    #[arg(
        long,
        env = "RELATED_IMAGE_SPIRE_CONTROLLER_MANAGER",
        default_value = "spire-controller-manager:0.6.4",
        value_name = "IMAGE"
    )]
    controller_manager_image: String,

    /// The user of the server's Pod: a number, or `assigned` for whom the cluster assigns [default: `assigned` where
    /// OpenShift assigns users to the namespace, else 1000, as in the official images]
    #[arg(long, env = "TRUSTPLANE_RUN_AS_USER", value_parser = pod_user, value_name = "USER")]
    run_as_user: Option<PodUser>,

    /// How often to check everything again even if nothing changed
    #[arg(long, env = "TRUSTPLANE_RESYNC", value_parser = at_least_a_second, default_value = "5m", value_name = "DURATION")]
    resync: Duration,

    /// Of which peers the status says exactly why they cannot be reached; the log always does
    #[arg(
        long,
        env = "TRUSTPLANE_PEER_ERROR_DETAIL",
        value_enum,
        default_value = "public",
        value_name = "WHICH"
    )]
    peer_error_detail: PeerErrorDetail,

    #[command(flatten)]
    serving: Serving,
}

/// `--peer-error-detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerErrorDetail {
    /// Those at public addresses; of private ones, and behind a proxy, it says only: unreachable
    Public,
    /// All, for peers in private networks: whoever edits the SpireServer can find out what listens there
    All,
}

pub(super) fn spire_namespace(text: &str) -> Result<String, String> {
    namespace_name(text).map_err(|_| "not a valid namespace name".to_owned())
}

fn domain(text: &str) -> Result<String, String> {
    match is_host(text) {
        true => Ok(text.to_owned()),
        false => Err("write a domain, such as apps.example.com".to_owned()),
    }
}

fn pod_user(text: &str) -> Result<PodUser, String> {
    // The largest that Kubernetes accepts.
    const LARGEST: u32 = i32::MAX as u32;
    match text.parse() {
        _ if text == "assigned" => Ok(PodUser::Assigned),
        Ok(id @ 1..=LARGEST) => Ok(PodUser::Id(id)),
        Ok(0) => Err("the server does not run as root".to_owned()),
        _ => Err("write the number of a user, or assigned".to_owned()),
    }
}

impl Federate {
    /// Runs the controller until it is asked to stop.
    pub fn run(self) -> anyhow::Result<()> {
        let mode = match (self.serving.dry_run, self.create_only) {
            (true, true) => {
                bail!(Unable(anyhow!("--create-only and --dry-run exclude each other")))
            }
            (true, false) => Mode::DryRun,
            (false, true) => Mode::CreateOnly,
            (false, false) => Mode::Full,
        };
        let setting = Setting {
            namespace: self.namespace,
            apps_domain: self.apps_domain.filter(|domain| !domain.is_empty()),
            server_image: self.server_image,
            controller_manager_image: self.controller_manager_image,
            pod_user: self.run_as_user,
            proxy: Proxy::from_env(|name| std::env::var(name).ok()),
        };
        let resync = self.resync;
        let detail = match self.peer_error_detail {
            PeerErrorDetail::Public => ErrorDetail::Public,
            PeerErrorDetail::All => ErrorDetail::All,
        };
        self.serving.run(FEDERATE_LEASE, move |serving, ground| {
            if let Some(note) = setting.proxy.withheld() {
                tracing::warn!("{note}");
            }
            let options = Options {
                setting,
                mode,
                resync,
                watch_timeout: serving.watch_timeout,
                instance: serving.instance(),
            };
            // Peers with https_spiffe need none, and those with https_web report what they lack.
            let roots = fetch::web_roots().unwrap_or_else(|error| {
                tracing::warn!(%error, "peers with https_web cannot be verified");
                Arc::new(RootCertStore::empty())
            });
            let Ground { client, gate, clock, registry } = ground;
            let peers = Peers::with_detail(detail, clock.clone(), gate.clone(), roots);
            let metrics = Metrics::register(registry, peers.clone(), clock.clone());
            Ok(Federator::new(client, gate, clock, options, peers, metrics))
        })
    }
}

impl Job for Federator {
    fn waiting_for(&self) -> Vec<String> {
        self.waiting_for()
    }

    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
        async move {
            Self::run(self, stop).await;
            Ok(())
        }
        .boxed()
    }
}
