//! `trustplane federate`.

use std::{sync::Arc, time::Duration};

use clap::{Args, builder::FalseyValueParser};
use futures::{FutureExt, future::BoxFuture};
use rustls::RootCertStore;
use tokio_util::sync::CancellationToken;

use super::{
    inject::namespace_name,
    rules::at_least_a_second,
    serving::{Ground, Job, Serving},
};
use crate::{
    bundle::fetch,
    federate::{
        apply::Mode,
        metrics::Metrics,
        peers::Peers,
        render::Setting,
        run::{Federator, Options},
        validate::is_host,
    },
    names::FEDERATE_LEASE,
};

/// Keeps a SPIRE server federated with others, as the SpireServer object says.
///
/// It renders the server's configuration, exposes the bundle endpoint through a Route, and tells
/// in the object's status whether each peer's bundle can really be fetched, and how old it is. It
/// runs until it is stopped, with --dry-run too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what would be made of the SpireServer of the current context:
    trustplane federate --dry-run

  Keep it, with its Route below the domain of this cluster's Routes:
    trustplane federate --namespace spire --apps-domain apps.example.com

  See how the peers are:
    kubectl get spireserver cluster -o jsonpath='{.status.federation.peers}'

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Federate {
    /// The namespace that the SPIRE server runs in
    #[arg(long, short = 'n', env = "TRUSTPLANE_SPIRE_NAMESPACE", value_parser = spire_namespace, default_value = "spire", value_name = "NAME")]
    namespace: String,

    /// The domain below which the Route of the bundle endpoint gets its host, unless the SpireServer names one;
    /// OpenShift's own where there is none
    #[arg(long, env = "TRUSTPLANE_APPS_DOMAIN", value_parser = domain, value_name = "DOMAIN")]
    apps_domain: Option<String>,

    /// Make what is missing, and change nothing that exists
    #[arg(long, env = "CREATE_ONLY_MODE", value_parser = FalseyValueParser::new(), conflicts_with = "dry_run")]
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

    /// How often everything is looked at again although nothing changed
    #[arg(long, env = "TRUSTPLANE_RESYNC", value_parser = at_least_a_second, default_value = "5m", value_name = "DURATION")]
    resync: Duration,

    #[command(flatten)]
    serving: Serving,
}

pub(super) fn spire_namespace(text: &str) -> Result<String, String> {
    namespace_name(text).map_err(|_| "it can't be the name of a namespace".to_owned())
}

fn domain(text: &str) -> Result<String, String> {
    match is_host(text) {
        true => Ok(text.to_owned()),
        false => Err("write a domain, such as apps.example.com".to_owned()),
    }
}

impl Federate {
    /// Runs the controller until it is asked to stop.
    pub fn run(self) -> anyhow::Result<()> {
        let mode = match (self.serving.dry_run, self.create_only) {
            (true, _) => Mode::DryRun,
            (false, true) => Mode::CreateOnly,
            (false, false) => Mode::Full,
        };
        let setting = Setting {
            namespace: self.namespace,
            apps_domain: self.apps_domain.filter(|domain| !domain.is_empty()),
            server_image: self.server_image,
            controller_manager_image: self.controller_manager_image,
        };
        let resync = self.resync;
        self.serving.run(FEDERATE_LEASE, move |serving, ground| {
            let options = Options {
                setting,
                mode,
                resync,
                watch_timeout: serving.watch_timeout,
                instance: serving.instance(),
            };
            // Peers by https_spiffe need none, and those by https_web tell what they lack.
            let roots = fetch::web_roots().unwrap_or_else(|error| {
                tracing::warn!(%error, "peers by https_web can't be verified");
                Arc::new(RootCertStore::empty())
            });
            let Ground { client, gate, clock, registry } = ground;
            let peers = Peers::new(clock.clone(), gate.clone(), roots);
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
