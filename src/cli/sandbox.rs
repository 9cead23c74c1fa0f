//! `trustplane sandbox`, and what `trustplane demo` has in common with it.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use chrono::TimeDelta;
use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use super::inject::duration;
use crate::{
    kit::{
        log::{self, LogFormat, Loudness},
        shutdown,
    },
    sandbox::{
        loopback::Port,
        session::{Access, Options, Session},
    },
};

const API_PORT: u16 = 6443;
const EDGE_PORT: u16 = 8443;

/// Runs an API server, the injector and a TLS edge on this machine, to try things out.
///
/// The API server speaks to kubectl; the injector is the one of trustplane inject; the edge stands
/// in for OpenShift's router and serves every Route's host with the certificate in the Route. All
/// three run in this process, listen on 127.0.0.1 only, and keep everything in memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Start it, and follow what it prints in a second terminal:
    trustplane sandbox

  From a script, on ports that are free:
    trustplane sandbox --api-port 0 --edge-port 0 -o json

What it does not do: permissions (RBAC), admission webhooks and policies, and server-side apply
(use plain kubectl apply). Nothing is stored: when it ends, its objects and keys are gone.

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Sandbox {
    #[command(flatten)]
    settings: Settings,
}

/// Flags of both commands.
#[derive(Debug, Args)]
pub struct Settings {
    /// The API server's port, 0 for any [default: 6443, or any if that is taken]
    #[arg(long, env = "TRUSTPLANE_API_PORT", value_name = "PORT")]
    api_port: Option<u16>,

    /// The edge's port, 0 for any [default: 8443, or any if that is taken]
    #[arg(long, env = "TRUSTPLANE_EDGE_PORT", value_name = "PORT")]
    edge_port: Option<u16>,

    /// Where to write the kubeconfig; removed at the end [default: a new folder for temporary files]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// How long a Secret must be gone before its certificate is taken out of the Routes
    #[arg(long, env = "TRUSTPLANE_SECRET_MISSING_GRACE", value_parser = duration, default_value = "5s", value_name = "DURATION")]
    secret_missing_grace: Duration,

    /// How to print
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,

    /// Log what the parts do, to stderr
    #[arg(long, short)]
    verbose: bool,
}

/// `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

impl Settings {
    pub(super) fn init_log(&self) {
        let loudness = if self.verbose { Loudness::Usual } else { Loudness::Quiet };
        log::init(LogFormat::Text, loudness);
    }

    pub(super) fn grace(&self) -> Duration {
        self.secret_missing_grace
    }

    pub(super) async fn start(&self) -> anyhow::Result<Session> {
        let port = |chosen: Option<u16>, usual| chosen.map_or(Port::Rather(usual), Port::Exactly);
        let missing_grace = TimeDelta::from_std(self.secret_missing_grace)
            .context("--secret-missing-grace is too long")?;
        let options = Options {
            api_port: port(self.api_port, API_PORT),
            edge_port: port(self.edge_port, EDGE_PORT),
            kubeconfig: self.kubeconfig.as_deref(),
            missing_grace,
        };
        Ok(Session::start(options).await?)
    }
}

impl Sandbox {
    /// Runs the sandbox until it is asked to stop.
    pub fn run(self) -> anyhow::Result<()> {
        self.settings.init_log();
        block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let session = self.settings.start().await?;
        let access = session.access();
        print(&match self.settings.output {
            Output::Text => welcome(&access),
            Output::Json => format!("{}\n", serde_json::to_string(&access)?),
        })?;
        until_stopped(session, &stop).await
    }
}

/// Runs a command's future to its end.
pub(super) fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new().context("cannot start")?.block_on(work)
}

/// Keeps a sandbox up until somebody asks for its end.
pub(super) async fn until_stopped(
    mut session: Session,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = session.failed() => bail!(ended),
    }
    session.end().await;
    Ok(())
}

/// Prints, with colours where there is somebody to see them.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    };
    write().context("cannot write to the standard output")
}

fn welcome(access: &Access) -> String {
    let Access { kubeconfig, server, edge, .. } = access;
    let curl = access.curl("shop.example.com");
    format!(
        "\
trustplane sandbox: an API server, the injector and a TLS edge, on this machine only.

  API server  {server}
  edge        https://{edge}
  kubeconfig  {kubeconfig}

Try it in a second terminal:

export KUBECONFIG={kubeconfig}
kubectl create namespace shop
kubectl apply -f - <<'EOF'
apiVersion: route.openshift.io/v1
kind: Route
metadata: {{name: shop, namespace: shop}}
spec:
  host: shop.example.com
  to: {{kind: Service, name: shop}}
  tls: {{termination: edge}}
EOF
{curl}

That was the edge's default certificate. Now one from a Secret:

openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj /CN=shop.example.com \\
  -addext subjectAltName=DNS:shop.example.com -keyout tls.key -out tls.crt
kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key
kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls
{curl}
kubectl -n shop get route shop -o wide
kubectl -n shop events --for route/shop

There are no permissions (RBAC), admission webhooks or policies, and no server-side apply here, and
nothing is stored. Ctrl-C ends it, and its objects and keys are gone.
"
    )
}
