//! `trustplane sandbox`, and what `trustplane demo` has in common with it.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use super::{Cut, rules};
use crate::{
    kit::{
        log::{self, LogFormat, Loudness},
        shutdown,
    },
    sandbox::{
        loopback::Port,
        session::{Access, Options, Rules, Session},
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

  With an injector of your own:
    trustplane sandbox --no-inject --kubeconfig ./sandbox.kubeconfig
    KUBECONFIG=./sandbox.kubeconfig trustplane inject

What it does not do: permissions (RBAC), admission webhooks and policies, and server-side apply
(use plain kubectl apply). Nothing is stored: when it ends, its objects and keys are gone.

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Sandbox {
    /// Do not inject, so that a trustplane inject of yours can
    #[arg(long)]
    no_inject: bool,

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

    #[command(flatten)]
    rules: rules::Rules,

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
        self.rules.secret_missing_grace
    }

    /// How the injector is to decide.
    pub(super) fn rules(&self) -> anyhow::Result<Rules> {
        Ok(Rules { policy: self.rules.policy()?, resync: self.rules.resync })
    }

    pub(super) async fn start(&self, injector: Option<Rules>) -> anyhow::Result<Session> {
        let (api_port, edge_port) = self.ports()?;
        let kubeconfig = self.kubeconfig.as_deref();
        let session = Session::start(Options { api_port, edge_port, kubeconfig, injector }).await?;
        let (api, edge) = session.ports();
        for (wanted, got) in [(api_port, api), (edge_port, edge)] {
            if let Port::Rather(wanted) = wanted
                && wanted != got
            {
                eprintln!("port {wanted} is taken, using {got}");
            }
        }
        Ok(session)
    }

    /// The ports of API server and edge.
    fn ports(&self) -> anyhow::Result<(Port, Port)> {
        match (self.api_port, self.edge_port) {
            (Some(api), Some(edge)) if api == edge && api != 0 => {
                bail!("--api-port and --edge-port are both {api}. Choose two ports, or 0 for any")
            }
            // The edge was promised the port that the API server would rather have.
            (None, Some(API_PORT)) => Ok((Port::Exactly(0), Port::Exactly(API_PORT))),
            (api, edge) => {
                let port =
                    |chosen: Option<u16>, usual| chosen.map_or(Port::Rather(usual), Port::Exactly);
                Ok((port(api, API_PORT), port(edge, EDGE_PORT)))
            }
        }
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
        let injector = if self.no_inject { None } else { Some(self.settings.rules()?) };
        let session = self.settings.start(injector).await?;
        let access = session.access();
        print(&match self.settings.output {
            Output::Text => welcome(&access),
            Output::Json => format!("{}\n", serde_json::to_string(&access)?),
        })?;
        if self.no_inject && self.settings.output == Output::Text {
            let kubeconfig = &access.kubeconfig;
            print(&format!(
                "\nNobody injects here. Do it with: KUBECONFIG={kubeconfig} trustplane inject\n"
            ))?;
        }
        until_stopped(session, &stop, self.settings.output).await
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
    output: Output,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = session.failed() => bail!(ended),
    }
    session.end().await;
    if output == Output::Text {
        // The terminal may be the one that was closed.
        let _ = print("\nThe sandbox is gone: unset KUBECONFIG in your other terminal.\n");
    }
    Ok(())
}

/// Prints, with colours where there is somebody to see them.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    };
    match write() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => bail!(Cut::Unread),
        written => written.context("cannot write to the standard output"),
    }
}

/// Makes tls.crt and tls.key in the folder that the shell is in.
pub(super) const NEW_PAIR: &str = "\
openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj /CN=shop.example.com \\
  -addext subjectAltName=DNS:shop.example.com -keyout tls.key -out tls.crt";

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

cd \"$(mktemp -d)\"
{NEW_PAIR}
kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key
kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls
{curl}
kubectl -n shop get route shop -o wide
kubectl -n shop events --for route/shop

To renew it, run the openssl command again, and then:

kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key \\
  --dry-run=client -o yaml | kubectl replace -f -
{curl}

There are no permissions (RBAC), admission webhooks or policies, and no server-side apply here, and
nothing is stored. Ctrl-C ends it, and its objects and keys are gone.
"
    )
}
