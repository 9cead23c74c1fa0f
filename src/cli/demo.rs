//! `trustplane demo`.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use terminal_size::terminal_size_of;
use tokio::time::Instant;

use super::{
    Cut,
    rules::duration,
    sandbox::{NEW_PAIR, Output, Settings, block_on, print, until_stopped},
};
use crate::{
    kit::{
        client::{self, Gate},
        paper as page, printable, shutdown,
    },
    sandbox::{
        session::{Access, Session},
        tour::{HOST, Outcome, Progress, Tour, paper},
    },
};

/// A step may take this much longer than the grace for a missing Secret.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to read a block.
const PAUSE: Duration = Duration::from_secs(2);
/// A connection may be silent for this long.
const SILENCE: Duration = Duration::from_secs(30);

/// Shows the whole job on this machine in about 20 seconds, without a cluster.
///
/// Starts what trustplane sandbox starts, and then does what a user would do: a Route, an
/// annotation, a renewal, a deleted Secret, a wrong key. After each step it shows which certificate
/// a TLS client really got, the Route's condition, and its newest Event. Afterwards the sandbox
/// stays up to go on by hand.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Take the tour, then go on by hand in a second terminal:
    trustplane demo

  Take the tour and end, without pauses; for scripts:
    trustplane demo --exit -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR takes the colours out.")]
pub struct Demo {
    /// End after the tour
    #[arg(long)]
    exit: bool,

    /// How long to wait between steps [default: 2s on a terminal, 0s elsewhere and with -o json]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pause: Option<Duration>,

    #[command(flatten)]
    settings: Settings,
}

impl Demo {
    /// Takes the tour.
    pub fn run(self) -> anyhow::Result<()> {
        self.settings.init_log();
        block_on(self.show())
    }

    async fn show(self) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let start = Instant::now();
        let mut session = self.settings.start(Some(self.settings.rules()?)).await?;
        let access = session.access();
        let tour = self.tour(&session, &access).await?;
        let text = self.settings.output == Output::Text;
        let columns = terminal_size_of(std::io::stdout()).map(|(columns, _)| columns.0);
        let width = page::width(columns);
        if text {
            print(&page::paragraph(INTRODUCTION, width))?;
        }
        let walk = tour.walk(|progress| match progress {
            _ if !text => Ok(()),
            Progress::Begins(number, step) => print(&paper::begins(number, step, width)),
            Progress::Ends(outcome) => print(&paper::ends(outcome, width)),
        });
        let outcomes = tokio::select! {
            biased;
            () = stop.cancelled() => {
                session.end().await;
                bail!(Cut::Stopped);
            }
            ended = session.failed() => bail!(ended),
            walked = walk => walked?,
        };
        let seconds = start.elapsed().as_secs_f64();
        print(&match self.settings.output {
            Output::Text => paper::summary(&outcomes, seconds),
            Output::Json => report(&access, &outcomes, seconds),
        })?;
        if self.exit {
            session.end().await;
        } else {
            if text {
                print(&by_hand(&access))?;
            }
            until_stopped(session, &stop, self.settings.output).await?;
        }
        verdict(&outcomes)
    }

    async fn tour(&self, session: &Session, access: &Access) -> anyhow::Result<Tour> {
        let watched = self.settings.output == Output::Text && std::io::stdout().is_terminal();
        let pause = if watched { PAUSE } else { Duration::ZERO };
        let kubeconfig = Kubeconfig::read_from(&access.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // What the environment has for the way out is no way to a port of this process.
        config.proxy_url = None;
        Ok(Tour {
            client: client::connect(config, Gate::open(), SILENCE)?,
            edge: access.edge,
            default: session.default_certificate().clone(),
            patience: PATIENCE + self.settings.grace(),
            pause: self.pause.unwrap_or(pause),
        })
    }
}

/// A tour that did not show what it should is a failure.
fn verdict(outcomes: &[Outcome]) -> anyhow::Result<()> {
    let failed = outcomes.iter().filter(|outcome| !outcome.holds());
    let failed: Vec<_> = failed.map(|outcome| outcome.number.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("not every step showed what it should: {}. RUST_LOG=info shows why", failed.join(", "))
}

const INTRODUCTION: &str = "\
A Route gets its certificate from a Secret, follows every renewal, and lets go of it again.
API server, injector and TLS edge run in this process, on 127.0.0.1 only. After each step you see
which certificate a TLS client got, what the Route's condition says, and its newest Event.
";

fn report(access: &Access, outcomes: &[Outcome], seconds: f64) -> String {
    let holds = outcomes.iter().all(Outcome::holds);
    let report =
        json!({ "sandbox": access, "steps": outcomes, "seconds": seconds, "holds": holds });
    printable::json(&format!("{report}\n"))
}

fn by_hand(access: &Access) -> String {
    let kubeconfig = &access.kubeconfig;
    let curl = access.curl(HOST);
    format!(
        "
The sandbox stays up. Go on in a second terminal. The files of the tour were made in memory; these
commands make their own, in a new folder.

# Annotate the Route again:
export KUBECONFIG={kubeconfig}
kubectl -n shop annotate --overwrite route shop route.openshift.io/tls-secret-name=shop-tls
{curl}

# Renew:
cd \"$(mktemp -d)\"
{NEW_PAIR}
kubectl -n shop create secret tls shop-tls --cert=tls.crt --key=tls.key \\
  --dry-run=client -o yaml | kubectl replace -f -
{curl}

# Break it with a key that is not the certificate's:
openssl genrsa -out other.key 2048
kubectl -n shop create secret generic shop-tls --type=kubernetes.io/tls --from-file=tls.crt \\
  --from-file=tls.key=other.key --dry-run=client -o yaml | kubectl replace -f -
{curl}
kubectl -n shop get route shop -o wide
kubectl -n shop events --for route/shop

# Delete the Secret:
kubectl -n shop delete secret shop-tls

Ctrl-C ends it, and nothing is left behind.
"
    )
}

#[cfg(test)]
mod tests;
