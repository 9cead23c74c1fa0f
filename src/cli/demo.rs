//! `trustplane demo`.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::time::Instant;

use super::{
    inject::duration,
    sandbox::{Output, Settings, block_on, print, until_stopped},
};
use crate::{
    kit::{
        client::{self, Gate},
        shutdown,
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

/// Shows the whole job on this machine in half a minute, without a cluster.
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
    trustplane demo --exit --pause 0s -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong. NO_COLOR takes the colours out.")]
pub struct Demo {
    /// End after the tour
    #[arg(long)]
    exit: bool,

    /// How long to wait between steps [default: 2s on a terminal, else 0s]
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
        let mut session = self.settings.start().await?;
        let access = session.access();
        let tour = self.tour(&session, &access).await?;
        let text = self.settings.output == Output::Text;
        if text {
            print(INTRODUCTION)?;
        }
        let walk = tour.walk(|progress| match progress {
            _ if !text => Ok(()),
            Progress::Begins(number, step) => print(&paper::begins(number, step)),
            Progress::Ends(outcome) => print(&paper::ends(outcome)),
        });
        let outcomes = tokio::select! {
            biased;
            () = stop.cancelled() => {
                session.end().await;
                bail!("the tour was stopped before its end");
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
            until_stopped(session, &stop).await?;
        }
        verdict(&outcomes)
    }

    async fn tour(&self, session: &Session, access: &Access) -> anyhow::Result<Tour> {
        let pause = if std::io::stdout().is_terminal() { PAUSE } else { Duration::ZERO };
        let kubeconfig = Kubeconfig::read_from(&access.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
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
    format!(
        "{}\n",
        json!({ "sandbox": access, "steps": outcomes, "seconds": seconds, "holds": holds })
    )
}

fn by_hand(access: &Access) -> String {
    let kubeconfig = &access.kubeconfig;
    let curl = access.curl(HOST);
    format!(
        "
The sandbox stays up. Go on in a second terminal:

  export KUBECONFIG={kubeconfig}
  kubectl -n shop annotate route shop route.openshift.io/tls-secret-name=shop-tls
  {curl}
  kubectl -n shop get route shop -o wide
  kubectl -n shop events --for route/shop

Ctrl-C ends it, and nothing is left behind.
"
    )
}

#[cfg(test)]
mod tests;
