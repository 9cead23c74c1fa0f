//! `trustplane sandbox`, and what `trustplane demo` has in common with it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{
        cluster::block_on,
        output::{self, Output, print},
        policy_args::PolicyArgs,
    },
    demo::{
        loopback::Port,
        session::{Access, InjectorRules, Options, Session},
    },
    runtime::{
        log::{self, LogFormat, Verbosity},
        shutdown, terminal as page,
    },
};

const API_PORT: u16 = 6443;
const EDGE_PORT: u16 = 8443;

/// Runs an API server, the injector and a TLS edge on this machine, to try trustplane without a
/// cluster.
///
/// kubectl talks to the API server; the injector is that of trustplane inject; the edge takes the
/// place of OpenShift's router and serves every Route's host with the certificate in the Route. All
/// three run in this process, listen on 127.0.0.1 only, and keep everything in memory. There are no
/// permissions (RBAC), no admission webhooks or policies, and no server-side apply: use plain kubectl
/// apply. When it ends, its objects and keys are gone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Start it, and type what it prints in a second terminal:
    trustplane sandbox

  From a script, on any free ports:
    trustplane sandbox --api-port 0 --edge-port 0 -o json

  With an injector of your own:
    trustplane sandbox --no-inject --kubeconfig ./sandbox.kubeconfig
    KUBECONFIG=./sandbox.kubeconfig trustplane inject

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line is wrong.
RUST_LOG chooses what is logged, for example RUST_LOG=trustplane=debug.")]
pub struct Sandbox {
    /// Do not run the injector, so that you can run trustplane inject yourself
    #[arg(long)]
    no_inject: bool,

    #[command(flatten)]
    settings: Settings,
}

/// Flags of both commands.
#[derive(Debug, Args)]
pub struct Settings {
    /// The port of the API server, 0 for any [default: 6443, or any if that is taken]
    #[arg(long, env = "TRUSTPLANE_API_PORT", value_name = "PORT")]
    api_port: Option<u16>,

    /// The port of the edge, 0 for any [default: 8443, or any if that is taken]
    #[arg(long, env = "TRUSTPLANE_EDGE_PORT", value_name = "PORT")]
    edge_port: Option<u16>,

    /// Where to write the kubeconfig; it is removed at the end [default: a new temporary folder]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    rules: PolicyArgs,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,

    /// Log to stderr what the parts do
    #[arg(long, short)]
    verbose: bool,
}

impl Settings {
    pub(super) fn init_log(&self) {
        init_log(self.verbose);
    }

    pub(super) fn grace(&self) -> Duration {
        self.rules.secret_missing_grace
    }

    pub(super) fn rules(&self) -> anyhow::Result<InjectorRules> {
        Ok(InjectorRules { policy: self.rules.policy()?, resync: self.rules.resync })
    }

    pub(super) async fn start(&self, injector: Option<InjectorRules>) -> anyhow::Result<Session> {
        let (api_port, edge_port) = self.ports()?;
        let kubeconfig = self.kubeconfig.as_deref();
        let session = Session::start(Options { api_port, edge_port, kubeconfig, injector }).await?;
        let (api, edge) = session.ports();
        for (wanted, got) in [(api_port, api), (edge_port, edge)] {
            if let Port::Rather(wanted) = wanted
                && wanted != got
            {
                output::say(&format!("port {wanted} is taken, using {got}"));
            }
        }
        Ok(session)
    }

    fn ports(&self) -> anyhow::Result<(Port, Port)> {
        match (self.api_port, self.edge_port) {
            (Some(api), Some(edge)) if api == edge && api != 0 => {
                bail!(
                    "--api-port and --edge-port are both {api}. Choose two different ports, or 0 for any"
                )
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

pub(super) fn init_log(verbose: bool) {
    let verbosity = if verbose { Verbosity::Normal } else { Verbosity::Quiet };
    log::init(LogFormat::Text, verbosity);
}

impl Sandbox {
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
            Output::Text => welcome(&access, output::width()),
            Output::Json => format!("{}\n", serde_json::to_string(&access)?),
        })?;
        if self.no_inject && self.settings.output == Output::Text {
            let kubeconfig = &access.kubeconfig;
            print("\nThe injector does not run. Run it yourself with:\n")?;
            let inject = format!("KUBECONFIG={kubeconfig} trustplane inject");
            print(&page::commands(&inject, output::width()))?;
        }
        until_stopped(session, &stop, self.settings.output).await
    }
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
        let text = "The sandbox has ended. Run unset KUBECONFIG in your other terminal.";
        let _ = print(&format!("\n{}", page::paragraph(text, output::width())));
    }
    Ok(())
}

/// Makes tls.crt and tls.key in the folder that the shell is in.
pub(super) const NEW_PAIR: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj /CN=shop.example.com -addext subjectAltName=DNS:shop.example.com -keyout tls.key -out tls.crt";

/// Puts them into the Secret that is there.
pub(super) const RENEW: &str = "kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key --dry-run=client -o yaml | kubectl replace -f -";

fn welcome(access: &Access, width: usize) -> String {
    let Access { kubeconfig, server, edge, .. } = access;
    let curl = access.curl("shop.example.com");
    let text = |text: &str| format!("\n{}", page::paragraph(text, width));
    let commands = |text: &str| format!("\n{}", page::commands(text, width));
    let rows = [
        ("API server", server.clone()),
        ("edge", format!("https://{edge}")),
        ("kubeconfig", kubeconfig.clone()),
    ];
    // A path that does not fit beside its name gets a line of its own.
    let rows = rows.map(|(label, value)| match 14 + value.chars().count() <= width {
        true => format!("  {label:<10}  {value}\n"),
        false => format!("  {label}\n    {value}\n"),
    });
    let title =
        "trustplane sandbox: an API server, the injector and a TLS edge, on this machine only.";
    [
        page::paragraph(title, width),
        format!("\n{}", rows.concat()),
        text("Try it in a second terminal:"),
        commands(&format!(
            "\
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
{curl}"
        )),
        text("That was the edge's default certificate. Now one from a Secret:"),
        commands(&format!(
            "\
cd \"$(mktemp -d)\"
{NEW_PAIR}
kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key
kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls
{curl}
kubectl -n shop get route shop -o wide
kubectl -n shop events --for route/shop"
        )),
        text("To renew it, run the openssl command again, and then:"),
        commands(&format!("{RENEW}\n{curl}")),
        text(
            "There are no permissions (RBAC), no admission webhooks or policies, and no server-side apply \
             here, and nothing is stored. Ctrl-C ends it; then its objects and keys are gone.",
        ),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sandbox_says_fits_terminals_of_50_and_80_columns() {
        let access = Access {
            kubeconfig: "/tmp/trustplane-sandbox-0123456789abcdef/kubeconfig".to_owned(),
            server: "https://127.0.0.1:6443".to_owned(),
            edge: ([127, 0, 0, 1], 8443).into(),
            pid: 1,
        };
        for width in [50, 80] {
            let shown = welcome(&access, width);
            assert!(page::fits(&shown, width), "{width}:\n{shown}");
            assert!(shown.lines().any(|line| line == "EOF"), "the shell finds its end: {shown}");
        }
    }
}
