//! `trustplane agent`.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::{
    authority::agent::{
        metrics::Metrics,
        run::{Agent, Options},
    },
    cli::{
        cluster::block_on,
        join::{Role, ServerArgs, SvidArgs},
    },
    runtime::{
        controller::socket_address,
        health::{self, Health},
        http_listener,
        log::{self, LogFormat, Verbosity},
        shutdown,
    },
};

/// Joins a trust domain, stays joined, and serves its identity and every trusted bundle to workloads.
///
/// Workloads ask by the SPIFFE Workload API on a UNIX socket, and are told of every change: a renewed SVID,
/// a partner that rotated its CA, a federation that ended. Nothing is stored. An agent that is cut off from
/// the server serves until its SVID ends, an hour at most, and then nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Join with the SVID that SPIRE's agent on this machine has for us:
    trustplane agent --server join.example.org:443 --server-bundle bundle.json --trust-domain example.org --token nodes --workload-api unix:///run/spire/agent.sock --socket /run/trustplane/agent.sock

  With an SVID from files, for the users 1000 and 1001:
    trustplane agent --server join.example.org:443 --server-ca ca.pem --trust-domain example.org --token nodes --svid-file svid.pem --svid-key-file svid_key.pem --allow-uid 1000,1001

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct AgentCommand {
    #[command(flatten)]
    server: ServerArgs,

    /// What to join as
    #[arg(long, env = "TRUSTPLANE_ROLE", value_enum, value_name = "ROLE", default_value = "agent")]
    role: Role,

    #[command(flatten)]
    svid: SvidArgs,

    /// The UNIX socket to serve at; its folder must exist
    #[arg(
        long,
        env = "TRUSTPLANE_SOCKET",
        default_value = "/run/trustplane/agent.sock",
        value_name = "PATH"
    )]
    socket: PathBuf,

    /// A user that may ask, by its number; may be repeated [default: the agent's own]
    #[arg(
        long,
        env = "TRUSTPLANE_ALLOW_UID",
        value_parser = user_id,
        value_delimiter = ',',
        value_name = "UID"
    )]
    allow_uid: Vec<u32>,

    /// The address that serves /metrics, /livez and /readyz
    #[arg(
        long,
        env = "TRUSTPLANE_LISTEN",
        value_parser = socket_address,
        default_value = "127.0.0.1:8081",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,

    /// The format of log lines
    #[arg(
        long,
        env = "TRUSTPLANE_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: LogFormat,
}

fn user_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write the user's number, as id -u USER prints it".to_owned())
}

impl AgentCommand {
    pub fn run(self) -> anyhow::Result<()> {
        log::init(self.log_format, Verbosity::Normal);
        let (client, trust) = self.server.client(self.role, self.svid)?;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let allowed = self.allow_uid.into_iter().collect();
        let agent = Agent::new(Options { client, trust, socket: self.socket, allowed }, metrics);
        block_on(async {
            let stop = shutdown::on_signal().context("cannot handle signals")?;
            let (listener, address) =
                http_listener::bind(self.listen).await.with_context(|| {
                    format!(
                        "cannot listen on {}. Choose another address with --listen",
                        self.listen
                    )
                })?;
            tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
            tracing::info!(%address, "listening");
            let ready = agent.clone();
            let waiting_for = Box::new(move || ready.waiting_for());
            let router =
                health::router(Health { waiting_for, registry, auth: None, pages: Vec::new() });
            // The pages answer until the agent has ended.
            let stop_pages = CancellationToken::new();
            let pages = http_listener::serve(listener, None, router, stop_pages.clone());
            let pages = tokio::spawn(pages);
            let ended = agent.run(stop).await;
            stop_pages.cancel();
            pages.await.context("the HTTP server crashed")??;
            ended
        })
    }
}
