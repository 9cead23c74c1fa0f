//! `trustplane demo`.

mod authority;
mod federation;
mod join;
mod review;
mod tour_args;

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    cli::{
        Exit,
        cluster::{SILENCE, block_on},
        output::{self, Output, print},
        sandbox::{NEW_PAIR, RENEW, Settings, until_stopped},
    },
    demo::{
        session::{Access, Session},
        tour::{HOST, Progress, StepResult, Tour, printer},
    },
    k8s::{client, gate::Gate},
    runtime::{flags::duration, printable, shutdown, terminal as page},
};

/// A step may take this much longer than the grace for a missing Secret.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to read a block.
const PAUSE: Duration = Duration::from_secs(2);
/// Shows in about 20 seconds what trustplane does, on this machine and without a cluster.
///
/// It starts what trustplane sandbox starts, and then does what a user would do: create a Route,
/// annotate it, renew the Secret, delete it, put a wrong key into it. After each step it shows which
/// certificate a TLS client really got, the Route's condition, and its newest Event. On a terminal
/// the sandbox then stays up, so that you can go on by hand.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  Take the tour, then go on by hand in a second terminal:
    trustplane demo

  For scripts, without pauses, and with an end:
    trustplane demo --exit -o json

  See two clusters come to trust each other:
    trustplane demo federation

  See a trust domain of its own, and a partner that it trusts through every rotation:
    trustplane demo authority

  See a partner's workloads join it, and what workloads there get:
    trustplane demo join

  See one endpoint review the tokens of two clusters:
    trustplane demo review

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR switches colours off."
)]
pub struct Demo {
    #[command(subcommand)]
    job: Option<Job>,

    /// End after the tour; otherwise the sandbox stays up [default: true where there is no terminal]
    #[arg(long, default_value_t = !on_a_terminal())]
    exit: bool,

    /// How long to wait between steps [default: 2s on a terminal, 0s elsewhere and with -o json]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pause: Option<Duration>,

    #[command(flatten)]
    settings: Settings,
}

/// Tours of the other jobs.
#[derive(Debug, Subcommand)]
enum Job {
    // The help is on each type.
    Authority(authority::Authority),
    Federation(federation::Federation),
    Join(join::Join),
    Review(review::Review),
}

impl Demo {
    pub fn run(self) -> anyhow::Result<()> {
        match self.job {
            Some(Job::Authority(tour)) => return tour.run(),
            Some(Job::Federation(tour)) => return tour.run(),
            Some(Job::Join(tour)) => return tour.run(),
            Some(Job::Review(tour)) => return tour.run(),
            None => {}
        }
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
        let width = output::width();
        if text {
            print(&page::paragraph(INTRODUCTION, width))?;
        }
        let walk = tour.walk(|progress| match progress {
            _ if !text => Ok(()),
            Progress::Begins(number, step) => print(&printer::begins(number, step, width)),
            Progress::Ends(outcome) => print(&printer::ends(outcome, width)),
        });
        let outcomes = tokio::select! {
            biased;
            () = stop.cancelled() => {
                session.end().await;
                bail!(Exit::Stopped);
            }
            ended = session.failed() => bail!(ended),
            walked = walk => walked?,
        };
        let seconds = start.elapsed().as_secs_f64();
        print(&match self.settings.output {
            Output::Text => printer::summary(&outcomes, seconds, width),
            Output::Json => report(&access, &outcomes, seconds),
        })?;
        if self.exit {
            session.end().await;
            if text && !on_a_terminal() {
                print(&format!("\n{}", page::paragraph(ENDED, width)))?;
            }
        } else {
            if text {
                print(&by_hand(&access, width))?;
            }
            until_stopped(session, &stop, self.settings.output).await?;
        }
        all_hold(outcomes.iter().map(|outcome| (outcome.number, outcome.holds())))
    }

    async fn tour(&self, session: &Session, access: &Access) -> anyhow::Result<Tour> {
        let kubeconfig = Kubeconfig::read_from(&access.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        // A proxy of the environment does not lead to a port of this process.
        config.proxy_url = None;
        Ok(Tour {
            client: client::connect(config, Gate::open(), SILENCE)?,
            edge: access.edge,
            default: session.default_certificate().clone(),
            patience: PATIENCE + self.settings.grace(),
            pause: pause(self.pause, self.settings.output),
        })
    }
}

/// Between two steps: time to read, if a person watches.
fn pause(chosen: Option<Duration>, output: Output) -> Duration {
    let watched = output == Output::Text && std::io::stdout().is_terminal();
    chosen.unwrap_or(if watched { PAUSE } else { Duration::ZERO })
}

/// Whether a person can go on by hand, and press Ctrl-C.
fn on_a_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stdout().is_terminal()
}

/// Fails unless each step showed what it should.
fn all_hold(steps: impl IntoIterator<Item = (usize, bool)>) -> anyhow::Result<()> {
    let failed = steps.into_iter().filter(|(_, holds)| !holds);
    let failed: Vec<_> = failed.map(|(number, _)| number.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("not every step showed what it should: {}. RUST_LOG=info shows why", failed.join(", "))
}

const INTRODUCTION: &str = "\
A Route gets its certificate from a Secret, follows every renewal, and goes back to the default
certificate in the end. API server, injector and TLS edge run in this process, on 127.0.0.1 only. After
each step you see which certificate a TLS client got, the Route's condition, and its newest Event.
";

const ENDED: &str = "\
The sandbox has ended too, because there is no terminal. To keep it running: trustplane demo --exit=false
";

fn report(access: &Access, outcomes: &[StepResult], seconds: f64) -> String {
    let holds = outcomes.iter().all(StepResult::holds);
    let report =
        json!({ "sandbox": access, "steps": outcomes, "seconds": seconds, "holds": holds });
    printable::json(&format!("{report}\n"))
}

fn by_hand(access: &Access, width: usize) -> String {
    let kubeconfig = &access.kubeconfig;
    let curl = access.curl(HOST);
    let text = |text: &str| format!("\n{}", page::paragraph(text, width));
    let commands = |text: &str| format!("\n{}", page::commands(text, width));
    [
        text(
            "The sandbox is still running. Go on in a second terminal. The files of the tour existed in \
             memory only; these commands make their own in a new folder.",
        ),
        commands(&format!(
            "\
# Annotate the Route again:
export KUBECONFIG={kubeconfig}
kubectl -n shop annotate --overwrite route shop route.openshift.io/tls-secret-name=shop-tls
{curl}"
        )),
        commands(&format!(
            "\
# Renew the certificate:
cd \"$(mktemp -d)\"
{NEW_PAIR}
{RENEW}
{curl}"
        )),
        commands(&format!(
            "\
# Break it with a key that does not match the certificate:
openssl genrsa -out other.key 2048
kubectl -n shop create secret generic shop-tls --type=kubernetes.io/tls --from-file=tls.crt --from-file=tls.key=other.key --dry-run=client -o yaml | kubectl replace -f -
{curl}
kubectl -n shop get route shop -o wide
kubectl -n shop events --for route/shop"
        )),
        commands("# Delete the Secret:\nkubectl -n shop delete secret shop-tls"),
        text("Ctrl-C ends it, and nothing is left behind."),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
