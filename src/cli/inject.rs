//! `trustplane inject`.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, builder::FalseyValueParser};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Unable,
    rules::{Rules, at_least_a_second},
};
use crate::{
    inject::run::{Injector, Options},
    kit::{
        access::Access,
        client::{self, Gate},
        clock::Clock,
        health::{self, Health},
        lease::{Candidate, Election},
        log::{self, LogFormat, Loudness},
        secure::PairFiles,
        shutdown,
    },
    names::INJECT_LEASE,
};

/// What is under way at the end gets this long, and then the release of the lease: together less
/// than the 10 s that we promise.
const LAST_WRITES: Duration = Duration::from_secs(6);
const RELEASE: Duration = Duration::from_secs(3);
/// A connection may be silent for this much longer than a watch lives.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// Puts the certificate of a TLS Secret into every Route that asks for it, and keeps it current.
///
/// A Route asks with the annotation route.openshift.io/tls-secret-name, which names a Secret of
/// type kubernetes.io/tls in its own namespace. The cluster is found as kubectl finds it:
/// KUBECONFIG, ~/.kube/config, or the account of the Pod.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Serve all namespaces of the current context, and see first what would be written:
    trustplane inject --dry-run

  Serve two namespaces only:
    trustplane inject --namespace shop --namespace blog

  Ask a Route to serve the certificate of the Secret shop-tls:
    kubectl annotate route shop route.openshift.io/tls-secret-name=shop-tls

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Inject {
    /// Serve this namespace only; repeat it, or part names by commas, for several [default: all namespaces]
    #[arg(
        long = "namespace",
        short = 'n',
        env = "TRUSTPLANE_NAMESPACE",
        value_parser = namespace_name,
        value_delimiter = ',',
        value_name = "NAME"
    )]
    namespaces: Vec<String>,

    /// Log what would be written, and write nothing, the Lease included
    #[arg(long, env = "TRUSTPLANE_DRY_RUN", value_parser = FalseyValueParser::new())]
    dry_run: bool,

    #[command(flatten)]
    rules: Rules,

    /// Let one of several replicas write, elected with a Lease
    #[arg(long, env = "TRUSTPLANE_LEADER_ELECT", value_parser = FalseyValueParser::new())]
    leader_elect: bool,

    /// The Lease's namespace
    #[arg(long, env = "POD_NAMESPACE", default_value = "trustplane", value_name = "NAME")]
    leader_elect_namespace: String,

    /// Where /metrics, /livez and /readyz are served
    #[arg(
        long,
        env = "TRUSTPLANE_LISTEN",
        value_parser = socket_address,
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,

    /// Who may read /metrics: everybody, or who brings a token that may get the nonResourceURL /metrics
    #[arg(
        long,
        env = "TRUSTPLANE_METRICS_AUTH",
        value_enum,
        value_name = "HOW",
        default_value = "none"
    )]
    metrics_auth: MetricsAuth,

    /// Serve the three pages over TLS, with the certificate in this file; read anew when it changes
    #[arg(long, env = "TRUSTPLANE_TLS_CERT_FILE", requires = "tls_key_file", value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,

    /// Its private key
    #[arg(long, env = "TRUSTPLANE_TLS_KEY_FILE", requires = "tls_cert_file", value_name = "PATH")]
    tls_key_file: Option<PathBuf>,

    /// How many Routes are worked on at once
    #[arg(long, env = "TRUSTPLANE_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "NUMBER")]
    concurrency: u16,

    /// How long a watch lives; a dead connection is noticed a little later
    #[arg(long, env = "TRUSTPLANE_WATCH_TIMEOUT", value_parser = at_least_a_second, default_value = "60s", value_name = "DURATION")]
    watch_timeout: Duration,

    /// How log lines look
    #[arg(
        long,
        env = "TRUSTPLANE_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,

    /// This replica's name in Events and in the Lease [default: the host's name]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    instance: Option<String>,
}

/// `--metrics-auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MetricsAuth {
    /// Everybody
    None,
    /// Who brings a token of the cluster with the right to
    Token,
}

/// The API server's rule for names of namespaces.
pub(super) fn namespace_name(text: &str) -> Result<String, String> {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = text.chars().all(|c| alphanumeric(c) || c == '-');
    if text.is_empty()
        || text.len() > 63
        || !inner
        || !text.starts_with(alphanumeric)
        || !text.ends_with(alphanumeric)
    {
        return Err(
            "it can't be the name of a namespace; leave it out to serve all namespaces".to_owned()
        );
    }
    Ok(text.to_owned())
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use IP:PORT, for example 127.0.0.1:8080 or [::]:8080".to_owned())
}

impl Inject {
    /// Runs the controller until it is asked to stop.
    pub fn run(self) -> anyhow::Result<()> {
        log::init(self.log_format, Loudness::Usual);
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let outcome = runtime.block_on(self.serve());
        // A name that is being looked up can't be interrupted; it must not hold up the exit.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(self) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let pair = self.pair_files()?;
        let clock = Clock::system();
        let deadline = Arc::new(watch::Sender::new(None));
        let gate = if self.elects() { Gate::until(deadline.subscribe()) } else { Gate::open() };
        let config = client::config().await.map_err(no_cluster)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            server = %config.cluster_url,
            namespaces = if self.namespaces.is_empty() { "all".to_owned() } else { self.namespaces.join(",") },
            dry_run = self.dry_run,
            leader_elect = self.elects(),
            "starting"
        );
        let silence = self.watch_timeout + SILENCE_MARGIN;
        let access = match self.metrics_auth {
            MetricsAuth::None => None,
            // With a gate of its own: who reads metrics is asked about on a standby too.
            MetricsAuth::Token => Some(client::connect(config.clone(), Gate::open(), silence)),
        };
        let client = client::connect(config, gate.clone(), silence);
        let client = client.context("cannot use the cluster's configuration")?;
        let access = access.transpose().context("cannot use the cluster's configuration")?;

        let mut registry = Registry::default();
        let injector =
            Injector::new(client.clone(), gate, clock.clone(), self.options()?, &mut registry);
        let (listener, address) = health::listen(self.listen).await.with_context(|| {
            format!("cannot listen on {}. Choose another address with --listen", self.listen)
        })?;
        tracing::info!(%address, "listening");
        let ready = injector.clone();
        let health = Arc::new(Health {
            waiting_for: Box::new(move || ready.waiting_for()),
            registry,
            access: access.map(Access::new),
        });
        let stop_serving = CancellationToken::new();
        let server = tokio::spawn(health::serve(listener, pair, health, stop_serving.clone()));

        let stopped_writing = CancellationToken::new();
        let election = self.elects().then(|| {
            let election = Election::new(client, self.candidate(), clock, deadline);
            tokio::spawn(election.run(stop.clone(), stopped_writing.clone()))
        });
        let outcome = supervise(
            tokio::spawn(injector.run(stop.clone())),
            election,
            server,
            &stop,
            stopped_writing,
        )
        .await;
        stop_serving.cancel();
        if outcome.is_ok() {
            tracing::info!("stopped");
        }
        outcome
    }

    /// The pair for TLS, if there is to be TLS. Tokens cross no network in the clear.
    fn pair_files(&self) -> anyhow::Result<Option<Arc<PairFiles>>> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) {
            let pair = PairFiles::read(certificate, key);
            return Ok(Some(pair.context("cannot serve TLS")?));
        }
        if self.metrics_auth == MetricsAuth::Token && !self.listen.ip().is_loopback() {
            bail!(Unable(anyhow::anyhow!(
                "--metrics-auth=token without TLS would let tokens cross the network in the clear. \
                 Add --tls-cert-file and --tls-key-file, or listen on a loopback address"
            )));
        }
        Ok(None)
    }

    fn instance(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let named = self.instance.clone().filter(|name| !name.is_empty()).or_else(host);
        named.map_or_else(|| "trustplane".to_owned(), |name| name.trim().to_owned())
    }

    fn elects(&self) -> bool {
        self.leader_elect && !self.dry_run
    }

    fn candidate(&self) -> Candidate {
        // A restarted Pod keeps its name; its predecessor's lease is not its own.
        let identity = format!("{}_{:016x}", self.instance(), fastrand::u64(..));
        Candidate { namespace: self.leader_elect_namespace.clone(), name: INJECT_LEASE, identity }
    }

    fn options(&self) -> anyhow::Result<Options> {
        Ok(Options {
            namespaces: self.namespaces.clone(),
            policy: self.rules.policy()?,
            concurrency: self.concurrency.into(),
            resync: self.rules.resync,
            watch_timeout: self.watch_timeout,
            dry_run: self.dry_run,
            instance: self.instance(),
        })
    }
}

/// Of the two ways to a cluster, tells why the one failed that was meant.
pub(super) fn no_cluster(error: kube::config::InferConfigError) -> anyhow::Error {
    let next =
        "Set KUBECONFIG, mend or create ~/.kube/config, or run in a Pod with a ServiceAccount";
    match std::error::Error::source(&error) {
        Some(kubeconfig) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => {
            anyhow::anyhow!("no usable cluster: {kubeconfig}. {next}")
        }
        _ => anyhow::anyhow!("no usable cluster: {error}. {next}"),
    }
}

type Task<T> = JoinHandle<T>;

/// Waits for the end. A part that ends by itself ends the process: a replica that is ready but
/// does nothing is worse than none.
async fn supervise(
    mut injector: Task<Result<(), crate::inject::run::RunError>>,
    mut election: Option<Task<()>>,
    mut server: Task<std::io::Result<()>>,
    stop: &CancellationToken,
    stopped_writing: CancellationToken,
) -> anyhow::Result<()> {
    let elected = async {
        match &mut election {
            Some(election) => election.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // First: asked to stop, the controller may have ended before anybody looks here.
        biased;
        () = stop.cancelled() => {}
        ended = &mut injector => {
            ended.context("the controller crashed")?.context("the controller ended")?;
            bail!("the controller ended");
        }
        _ = elected => bail!("the leader election ended"),
        ended = &mut server => {
            ended.context("the HTTP server crashed")?.context("the HTTP server ended")?;
            bail!("the HTTP server ended");
        }
    }
    if timeout(LAST_WRITES, injector).await.is_err() {
        tracing::warn!("writes under way did not finish in time; each is whole or not done");
    }
    stopped_writing.cancel();
    if let Some(election) = election {
        match timeout(RELEASE, election).await {
            Ok(released) => released.context("the leader election crashed")?,
            Err(_) => tracing::warn!("the lease was not released in time; it runs out by itself"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
