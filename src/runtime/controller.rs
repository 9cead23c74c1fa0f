//! Runs a controller: common flags, client, lease, health and metrics, graceful stop.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use futures::future::BoxFuture;
use kube::{Client, config::KubeconfigError};
use prometheus_client::registry::Registry;
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::flags::at_least_a_second;
use crate::{
    k8s::{client, gate::Gate},
    runtime::{
        clock::Clock,
        health::{self, Health, Page},
        http_listener,
        lease::{Candidate, Election},
        log::{self, LogFormat, Verbosity},
        shutdown,
        tls_listener::CertReloader,
        token_auth::TokenAuth,
    },
};

/// Time for writes under way at the end, and then for the release of the lease: together less than
/// the 10 s that we promise.
const LAST_WRITES: Duration = Duration::from_secs(6);
const RELEASE: Duration = Duration::from_secs(3);
/// A connection may be silent for this much longer than a watch lives.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// Flags of all controllers.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// Log what would be written, and write nothing, not even the Lease
    #[arg(long, env = "TRUSTPLANE_DRY_RUN")]
    pub(crate) dry_run: bool,

    /// Let only one of several replicas write, elected with a Lease
    #[arg(long, env = "TRUSTPLANE_LEADER_ELECT")]
    leader_elect: bool,

    /// The namespace of the Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "trustplane", value_name = "NAME")]
    leader_elect_namespace: String,

    /// The address that serves /metrics, /livez and /readyz
    #[arg(
        long,
        env = "TRUSTPLANE_LISTEN",
        value_parser = socket_address,
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,

    /// Who may read /metrics
    #[arg(
        long,
        env = "TRUSTPLANE_METRICS_AUTH",
        value_enum,
        value_name = "HOW",
        default_value = "none"
    )]
    metrics_auth: MetricsAuth,

    /// Serve them over TLS with the certificate in this file; it is read again when it changes
    #[arg(long, env = "TRUSTPLANE_TLS_CERT_FILE", requires = "tls_key_file", value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(long, env = "TRUSTPLANE_TLS_KEY_FILE", requires = "tls_cert_file", value_name = "PATH")]
    tls_key_file: Option<PathBuf>,

    /// How long a watch lasts; a dead connection is noticed a little later
    #[arg(long, env = "TRUSTPLANE_WATCH_TIMEOUT", value_parser = at_least_a_second, default_value = "60s", value_name = "DURATION")]
    pub(crate) watch_timeout: Duration,

    /// The format of log lines
    #[arg(
        long,
        env = "TRUSTPLANE_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,

    /// The name of this replica in Events and in the Lease [default: the host name]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    instance: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MetricsAuth {
    /// Everybody
    None,
    /// Accounts of the cluster that may get the nonResourceURL /metrics, with their token
    Token,
}

pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use IP:PORT, for example 127.0.0.1:8080 or [::]:8080".to_owned())
}

pub trait Controller: Send + Sync + 'static {
    const THREADS: Threads = Threads::Two;

    /// Reasons why the replica is not ready; `/readyz` shows them.
    fn waiting_for(&self) -> Vec<String>;

    /// For a controller that answers requests: closes its listeners once it is polled, and ends with the last
    /// request under way. Before that `/readyz` says for a while that this replica is stopping.
    fn drain(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// What it shows beside its metrics.
    fn pages(self: Arc<Self>) -> Vec<Page> {
        Vec::new()
    }

    /// Runs until asked to stop, and finishes what is under way.
    fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A controller mostly waits for the API server, and two threads keep up with it. Each thread has a malloc
    /// arena that keeps its memory: on a node of 64 cores, one for each core would cost more than all Routes do.
    Two,
    /// For one that answers requests.
    AllCores,
}

impl Threads {
    fn count(self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Two => cores.min(2),
            Self::AllCores => cores,
        }
    }
}

/// Input for making a controller.
pub struct Context<'a> {
    /// How the cluster is reached.
    pub config: kube::Config,
    /// Every write passes the gate.
    pub client: Client,
    /// For writes that need no lease, because any replica may make them.
    pub ungated: Client,
    pub gate: Gate,
    pub clock: Clock,
    pub registry: &'a mut Registry,
}

impl ControllerArgs {
    pub fn run<C: Controller>(
        self,
        lease: &'static str,
        open: impl FnOnce(&Self, Context<'_>) -> anyhow::Result<Arc<C>>,
    ) -> anyhow::Result<()> {
        log::init(self.log_format, Verbosity::Normal);
        let runtime = runtime(C::THREADS).context("cannot start")?;
        let outcome = runtime.block_on(self.serve(lease, open));
        // A DNS lookup can't be interrupted; it must not delay the exit.
        runtime.shutdown_background();
        outcome
    }

    async fn serve<C: Controller>(
        self,
        lease: &'static str,
        open: impl FnOnce(&Self, Context<'_>) -> anyhow::Result<Arc<C>>,
    ) -> anyhow::Result<()> {
        let signal = shutdown::on_signal().context("cannot handle signals")?;
        let (draining, stop) = (CancellationToken::new(), CancellationToken::new());
        let certificate = self.certificate()?;
        let clock = Clock::system();
        let deadline = Arc::new(watch::Sender::new(None));
        let gate = if self.elects() { Gate::until(deadline.subscribe()) } else { Gate::open() };
        let config = client::config().await.map_err(no_cluster)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            server = %config.cluster_url,
            dry_run = self.dry_run,
            leader_elect = self.elects(),
            "starting"
        );
        let silence = self.watch_timeout + SILENCE_MARGIN;
        let connect = |config, gate| {
            client::connect(config, gate, silence).context("cannot use the cluster's configuration")
        };
        let ungated = connect(config.clone(), Gate::open())?;
        let client = connect(config.clone(), gate.clone())?;
        let auth = match self.metrics_auth {
            MetricsAuth::None => None,
            // Metrics of a standby are read too.
            MetricsAuth::Token => Some(ungated.clone()),
        };

        let mut registry = Registry::default();
        let (client_copy, clock_copy) = (client.clone(), clock.clone());
        let context = Context {
            config,
            client: client_copy,
            ungated,
            gate,
            clock: clock_copy,
            registry: &mut registry,
        };
        let job = open(&self, context)?;
        let (listener, address) = http_listener::bind(self.listen).await.with_context(|| {
            format!("cannot listen on {}. Choose another address with --listen", self.listen)
        })?;
        tracing::info!(%address, "listening");
        tokio::spawn(drain::run(job.clone(), signal, draining.clone(), stop.clone()));
        let ready = job.clone();
        let health = Health {
            waiting_for: Box::new(move || drain::waiting_for(&*ready, &draining)),
            registry,
            auth: auth.map(TokenAuth::new),
            pages: job.clone().pages(),
        };
        let stop_serving = CancellationToken::new();
        let serving = http_listener::serve(
            listener,
            certificate,
            health::router(health),
            stop_serving.clone(),
        );
        let server = tokio::spawn(serving);

        let stopped_writing = CancellationToken::new();
        let election = self.elects().then(|| {
            let election = Election::new(client, self.candidate(lease), clock, deadline);
            tokio::spawn(election.run(stop.clone(), stopped_writing.clone()))
        });
        let job = tokio::spawn(job.run(stop.clone()));
        let outcome = supervise(job, election, server, &stop, stopped_writing).await;
        stop_serving.cancel();
        if outcome.is_ok() {
            tracing::info!("stopped");
        }
        outcome
    }

    /// None for plain HTTP, which is refused if tokens would cross a network in the clear.
    fn certificate(&self) -> anyhow::Result<Option<Arc<CertReloader>>> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) {
            let pair = CertReloader::read(certificate, key);
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

    pub fn instance(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let named = self.instance.clone().filter(|name| !name.is_empty()).or_else(host);
        named.map_or_else(|| "trustplane".to_owned(), |name| name.trim().to_owned())
    }

    fn elects(&self) -> bool {
        self.leader_elect && !self.dry_run
    }

    fn candidate(&self, lease: &'static str) -> Candidate {
        // A restarted Pod keeps its name; its predecessor's lease is not its own.
        let identity = format!("{}_{:016x}", self.instance(), fastrand::u64(..));
        Candidate { namespace: self.leader_elect_namespace.clone(), name: lease, identity }
    }
}

fn runtime(threads: Threads) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads.count()).enable_all().build()
}

/// Nothing was done: the command line is incomplete, or there is no cluster. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{}", explained(.0))]
pub(crate) struct Unable(pub anyhow::Error);

/// The error and its causes, without those that an earlier one quotes already.
pub(crate) fn explained(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Explains why the cluster was not found: by the kubeconfig, or in a Pod by its account.
pub(crate) fn no_cluster(error: kube::config::InferConfigError) -> anyhow::Error {
    let next =
        "Set KUBECONFIG, create or correct ~/.kube/config, or run in a Pod with a ServiceAccount";
    match std::error::Error::source(&error) {
        Some(kubeconfig) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => {
            let why = kubeconfig.downcast_ref().map(explain_kubeconfig);
            let why = why.unwrap_or_else(|| kubeconfig.to_string());
            anyhow::anyhow!("no usable cluster: {why}. {next}")
        }
        _ => anyhow::anyhow!("no usable cluster: {error}. {next}"),
    }
}

/// kube's own text has the path in two pairs of quotes.
pub(crate) fn explain_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(cause, path) => {
            format!("kubeconfig {} can't be read: {cause}", path.display())
        }
        error => error.to_string(),
    }
}

type Task<T> = JoinHandle<T>;

/// A part that ends by itself ends the process: a replica that is ready but does nothing is worse
/// than none.
async fn supervise(
    mut job: Task<anyhow::Result<()>>,
    mut election: Option<Task<()>>,
    mut server: Task<io::Result<()>>,
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
        // First: after a request to stop, the controller may have ended already.
        biased;
        () = stop.cancelled() => {}
        ended = &mut job => {
            ended.context("the controller crashed")?.context("the controller ended")?;
            bail!("the controller ended");
        }
        _ = elected => bail!("the leader election ended"),
        ended = &mut server => {
            ended.context("the HTTP server crashed")?.context("the HTTP server ended")?;
            bail!("the HTTP server ended");
        }
    }
    if timeout(LAST_WRITES, job).await.is_err() {
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

mod drain;

#[cfg(test)]
mod tests;
