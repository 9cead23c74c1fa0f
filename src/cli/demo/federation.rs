//! `trustplane demo federation`.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use tokio::time::Instant;

use super::{PATIENCE, all_hold, pause};
use crate::{
    cli::{
        Exit,
        cluster::block_on,
        output::{self, Output, print},
        sandbox::init_log,
    },
    demo::tour::{
        federation::{FederationStepResult, Progress, Tour, clusters::Clusters, printer},
        printer::counted,
    },
    runtime::{flags::duration, printable, shutdown, terminal as page},
};

/// Shows in about 20 seconds how two clusters come to trust each other's workloads, on this machine
/// and without a cluster.
///
/// Two API servers, the controller of trustplane federate in each, and two SPIFFE bundle endpoints run
/// in this process; the endpoints stand in for SPIRE and listen on 127.0.0.1 only. The steps: configure,
/// bring the first bundles, rotate an authority, lose an endpoint and get it back, end the trust. After
/// each you see what a client got, whose workloads are trusted where, and the status of the
/// SpireServers. Peers are asked four times a second here, and not every few minutes. It ends after the
/// last step.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Take the tour:
    trustplane demo federation

  For scripts, without pauses:
    trustplane demo federation -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR switches colours off.")]
pub struct Federation {
    /// How long to wait between steps [default: 2s on a terminal, 0s elsewhere and with -o json]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pause: Option<Duration>,

    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Output,

    /// Log to stderr what the parts do
    #[arg(long, short)]
    verbose: bool,
}

const INTRODUCTION: &str = "\
Two clusters, a and b, each with its own SPIFFE trust domain. Their workloads come to trust each other,
and stop again in the end. API servers, trustplane federate and stand-ins for SPIRE run in this process,
on 127.0.0.1 only. After each step you see what a client in b got from a's bundle endpoint, whose
workloads are trusted where, and what the SpireServers say of their peers.
";

impl Federation {
    pub fn run(self) -> anyhow::Result<()> {
        init_log(self.verbose);
        block_on(self.show())
    }

    async fn show(self) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let start = Instant::now();
        let text = self.output == Output::Text;
        let width = output::width();
        if text {
            print(&page::paragraph(INTRODUCTION, width))?;
        }
        let (clusters, mut running) = Clusters::start().await?;
        let tour = Tour::new(clusters, PATIENCE, pause(self.pause, self.output));
        let walk = tour.walk(|progress| match progress {
            _ if !text => Ok(()),
            Progress::Begins(number, step) => print(&printer::begins(number, step, width)),
            Progress::Ends(outcome) => print(&printer::ends(outcome, width)),
        });
        let outcomes = tokio::select! {
            biased;
            () = stop.cancelled() => bail!(Exit::Stopped),
            ended = running.failed() => bail!(ended),
            walked = walk => walked?,
        };
        let seconds = start.elapsed().as_secs_f64();
        print(&match self.output {
            Output::Text => {
                counted(outcomes.iter().map(FederationStepResult::holds), seconds, width)
            }
            Output::Json => report(&outcomes, seconds),
        })?;
        all_hold(outcomes.iter().map(|outcome| (outcome.number, outcome.holds())))
    }
}

fn report(outcomes: &[FederationStepResult], seconds: f64) -> String {
    let holds = outcomes.iter().all(FederationStepResult::holds);
    let report = json!({ "steps": outcomes, "seconds": seconds, "holds": holds });
    printable::json(&format!("{report}\n"))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use clap::CommandFactory;

    use super::*;
    use crate::{
        cli::{Cli, help},
        demo::tour::federation::steps,
    };

    #[tokio::test]
    async fn every_line_of_every_step_fits_and_what_is_to_be_typed_is_a_command_line() {
        let (clusters, _running) = Clusters::start().await.unwrap();
        for step in steps::all(&clusters) {
            for width in [50, 80, 100] {
                let shown = strip_str(&printer::begins(1, &step, width)).to_string();
                assert!(page::fits(&shown, width), "{width}:\n{shown}");
            }
            let ours = step.commands.iter().filter(|line| line.starts_with("trustplane "));
            for line in ours {
                let read = help::finish(Cli::command(), 100);
                let read = read.try_get_matches_from(line.split_whitespace());
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }

    #[tokio::test]
    async fn no_step_holds_where_nobody_federates() {
        let (clusters, running) = Clusters::start().await.unwrap();
        drop(running);
        let tour = Tour::new(clusters, Duration::from_millis(50), Duration::ZERO);
        let mut ended = Vec::new();
        let walked = tour.walk(|progress| -> anyhow::Result<()> {
            if let Progress::Ends(outcome) = progress {
                ended.push(outcome.holds());
            }
            Ok(())
        });
        // There is not even a ConfigMap with authorities to begin with.
        let failed = walked.await.unwrap_err().to_string();
        assert_eq!(failed, "step 2 could not be done");
        assert_eq!(ended, [false]);
        let report: serde_json::Value = serde_json::from_str(&report(&[], 1.0)).unwrap();
        assert_eq!(report["holds"], true);
    }
}
