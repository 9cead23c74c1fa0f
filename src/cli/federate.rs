//! `trustplane federate`.

use std::{sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use futures::{FutureExt, future::BoxFuture};
use http::Uri;
use rustls::RootCertStore;
use tokio_util::sync::CancellationToken;

use crate::{
    bundle::fetch,
    cli::{
        Exit,
        cluster::{self, block_on, namespace_name},
        output::{Output, print},
    },
    federate::{
        act::{
            apply::Mode,
            peers::{ErrorDetail, Peers},
            preview::preview,
        },
        decide::{
            render::{PodUser, Proxy, RenderContext, SERVER},
            validate::is_host,
        },
        metrics::Metrics,
        run::{Federator, Options},
    },
    names::FEDERATE_LEASE,
    runtime::{
        controller::{Context, Controller, ControllerArgs, Unable},
        flags::at_least_a_second,
        log::{self, LogFormat, Verbosity},
    },
};

/// Keeps a SPIRE server federated with others, as its SpireServer object says.
///
/// It renders the server's configuration, exposes the bundle endpoint through a Route, and reports
/// in the object's status whether each peer's bundle can be fetched, and how old it is. It
/// runs until it is stopped. With --dry-run it shows once what it would do, and ends.
#[derive(Debug, Args)]
#[command(mut_arg("dry_run", |it| it.help("Show once what would be made or changed, write nothing, and end")))]
#[command(after_help = "\
Examples:
  See what would be made from the SpireServer of the current context:
    trustplane federate --dry-run

  Run it, with its Route below the domain of this cluster's Routes:
    trustplane federate --namespace spire --apps-domain apps.example.com

  See the state of its peers:
    kubectl get spireserver cluster -o jsonpath='{.status.federation.peers}'

Exit codes: 0 stopped as asked, or shown with --dry-run, whether or not anything would change; 1
something went wrong, or could not be read; 2 the command line is wrong, or with --dry-run there is no
cluster.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Federate {
    /// The namespace that the SPIRE server runs in
    #[arg(long, short = 'n', env = "TRUSTPLANE_SPIRE_NAMESPACE", value_parser = namespace_name, default_value = "spire", value_name = "NAME")]
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

    /// How many trust domains may be federated with, 1 to 50; those in ClusterFederatedTrustDomains alone
    /// count, too
    #[arg(long, env = "TRUSTPLANE_MAX_PEERS", value_parser = clap::value_parser!(u8).range(1..=50), default_value = "50", value_name = "NUMBER")]
    max_peers: u8,

    /// Where the metrics of the SPIRE server are, to see which bundles it fetches itself
    /// [default: http://spire-server.NAMESPACE.svc:9402/metrics]
    #[arg(long, env = "TRUSTPLANE_SERVER_METRICS_URL", value_parser = metrics_url, value_name = "URL")]
    server_metrics_url: Option<Uri>,

    /// The output format of --dry-run
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,

    #[command(flatten)]
    controller: ControllerArgs,
}

/// `--peer-error-detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerErrorDetail {
    /// Those at public addresses; of private ones, and behind a proxy, it says only: unreachable
    Public,
    /// All, for peers in private networks: whoever edits the SpireServer can find out what listens there
    All,
}

/// Only http: inside the cluster, SPIRE serves its metrics without TLS.
fn metrics_url(text: &str) -> Result<Uri, String> {
    let url: Option<Uri> = text.parse().ok();
    let url = url.filter(|it| it.scheme_str() == Some("http") && it.host().is_some());
    let clean = |it: &Uri| it.authority().is_some_and(|it| !it.as_str().contains('@'));
    url.filter(clean).ok_or_else(|| {
        "write an address without a user, such as http://spire-server.spire.svc:9402/metrics"
            .to_owned()
    })
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
    pub fn run(self) -> anyhow::Result<()> {
        if self.output == Output::Json && !self.controller.dry_run {
            bail!(Unable(anyhow!("-o json belongs to --dry-run. Add --dry-run, or leave -o out")));
        }
        let mode = match (self.controller.dry_run, self.create_only) {
            (true, true) => {
                bail!(Unable(anyhow!("--create-only and --dry-run exclude each other")))
            }
            (_, true) => Mode::CreateOnly,
            (_, false) => Mode::Full,
        };
        let setting = RenderContext {
            namespace: self.namespace,
            apps_domain: self.apps_domain.filter(|domain| !domain.is_empty()),
            server_image: self.server_image,
            controller_manager_image: self.controller_manager_image,
            pod_user: self.run_as_user,
            proxy: Proxy::from_env(|name| std::env::var(name).ok()),
        };
        let max_peers = usize::from(self.max_peers);
        if self.controller.dry_run {
            log::init(LogFormat::Text, Verbosity::Quiet);
            return block_on(show(setting, max_peers, self.output));
        }
        let resync = self.resync;
        let detail = match self.peer_error_detail {
            PeerErrorDetail::Public => ErrorDetail::Public,
            PeerErrorDetail::All => ErrorDetail::All,
        };
        let server_metrics =
            self.server_metrics_url.or_else(|| default_metrics_url(&setting.namespace));
        self.controller.run(FEDERATE_LEASE, move |controller, context| {
            if let Some(note) = setting.proxy.withheld() {
                tracing::warn!("{note}");
            }
            let options = Options {
                setting,
                mode,
                resync,
                watch_timeout: controller.watch_timeout,
                instance: controller.instance(),
                max_peers,
                server_metrics,
            };
            // Peers with https_spiffe need no roots; those with https_web report the failure.
            let roots = fetch::web_roots().unwrap_or_else(|error| {
                tracing::warn!(%error, "peers with https_web cannot be verified");
                Arc::new(RootCertStore::empty())
            });
            let Context { client, gate, clock, registry, .. } = context;
            let peers = Peers::with_detail(detail, clock.clone(), gate.clone(), roots);
            let metrics = Metrics::register(registry, peers.clone(), clock.clone());
            Ok(Federator::new(client, gate, clock, options, peers, metrics))
        })
    }
}

/// At the Service that we render.
fn default_metrics_url(namespace: &str) -> Option<Uri> {
    format!("http://{SERVER}.{namespace}.svc:9402/metrics").parse().ok()
}

/// `--dry-run`.
async fn show(setting: RenderContext, max_peers: usize, output: Output) -> anyhow::Result<()> {
    let client = cluster::connect(cluster::config().await?)?;
    let Some(preview) = preview(&client, &setting, max_peers).await? else {
        let nothing = "There is no SpireServer: nothing would be done.\n";
        return print(match output {
            Output::Text => nothing,
            Output::Json => "{ \"objects\": [], \"conditions\": [] }\n",
        });
    };
    match output {
        Output::Text => print(&preview.to_string())?,
        Output::Json => print(&preview.document())?,
    }
    if preview.is_complete() { Ok(()) } else { bail!(Exit::Reported) }
}

impl Controller for Federator {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        federate: Federate,
    }

    fn parsed(flag: &str) -> Result<Federate, String> {
        let line = Line::try_parse_from(["trustplane", flag]);
        line.map(|it| it.federate).map_err(|error| error.to_string())
    }

    #[test]
    fn the_limit_of_peers_is_at_least_one_and_at_most_what_the_crd_takes() {
        assert_eq!(parsed("--max-peers=1").unwrap().max_peers, 1);
        assert_eq!(parsed("--max-peers=50").unwrap().max_peers, 50);
        assert_eq!(parsed("--namespace=spire").unwrap().max_peers, 50);
        for wrong in ["--max-peers=0", "--max-peers=51"] {
            assert!(parsed(wrong).unwrap_err().contains("1..=50"), "{wrong}");
        }
    }

    #[test]
    fn an_output_format_without_dry_run_is_refused_and_starts_nothing() {
        let refused = parsed("--output=json").unwrap().run().unwrap_err();
        assert!(refused.is::<Unable>(), "exit code 2");
        let said = refused.to_string();
        assert!(said.contains("belongs to --dry-run"), "{said}");
    }

    #[test]
    fn metrics_are_read_at_a_plain_address_and_nobody_s_password_is_sent_there() {
        assert!(parsed("--server-metrics-url=http://127.0.0.1:9402/metrics").is_ok());
        for wrong in ["https://a/metrics", "http://u:p@a/metrics", "/metrics", "a b", ""] {
            assert!(parsed(&format!("--server-metrics-url={wrong}")).is_err(), "{wrong}");
        }
        let usual = default_metrics_url("spire").unwrap();
        assert_eq!(usual, "http://spire-server.spire.svc:9402/metrics");
    }
}
