//! `trustplane inject`.

use std::sync::Arc;

use clap::Args;
use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{cluster::served_namespace, policy_args::PolicyArgs},
    inject::run::{COMPARE_EVERY, Injector, Options},
    names::INJECT_LEASE,
    runtime::controller::{Context, Controller, ControllerArgs},
};

/// Copies the certificate and key of a TLS Secret into every Route that asks for them, and keeps them
/// current.
///
/// A Route asks with the annotation route.openshift.io/tls-secret-name, which names a Secret of
/// type kubernetes.io/tls in its own namespace. The cluster is found as kubectl finds it:
/// KUBECONFIG, ~/.kube/config, or the account of the Pod.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what would be written, in all namespaces of the current context:
    trustplane inject --dry-run

  Serve two namespaces only:
    trustplane inject --namespace shop --namespace blog

  Ask a Route to serve the certificate of the Secret shop-tls:
    kubectl annotate route shop route.openshift.io/tls-secret-name=shop-tls

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Inject {
    /// Serve this namespace only; repeat the flag, or separate several with commas [default: all namespaces]
    #[arg(
        long = "namespace",
        short = 'n',
        env = "TRUSTPLANE_NAMESPACE",
        value_parser = served_namespace,
        value_delimiter = ',',
        value_name = "NAME"
    )]
    namespaces: Vec<String>,

    #[command(flatten)]
    policy: PolicyArgs,

    /// How many Routes to work on at once
    #[arg(long, env = "TRUSTPLANE_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "NUMBER")]
    concurrency: u16,

    #[command(flatten)]
    controller: ControllerArgs,
}

impl Inject {
    pub fn run(self) -> anyhow::Result<()> {
        let Self { namespaces, policy, concurrency, controller } = self;
        controller.run(INJECT_LEASE, |controller, context| {
            let served =
                if namespaces.is_empty() { "all".to_owned() } else { namespaces.join(",") };
            tracing::info!(namespaces = served, "serving");
            let options = Options {
                namespaces,
                policy: policy.policy()?,
                concurrency: concurrency.into(),
                resync: policy.resync,
                watch_timeout: controller.watch_timeout,
                compare_every: COMPARE_EVERY,
                judges_in_place: false,
                dry_run: controller.dry_run,
                instance: controller.instance(),
            };
            let Context { client, gate, clock, registry, .. } = context;
            Ok(Injector::new(client, gate, clock, options, registry))
        })
    }
}

impl Controller for Injector {
    fn waiting_for(&self) -> Vec<String> {
        self.waiting_for()
    }

    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
        async move { Ok(Self::run(self, stop).await?) }.boxed()
    }
}
