//! Flags of the tours that end after their last step, and how such a tour is shown.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
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
        parts::Parts,
        printer::counted,
        walk::{Pace, Progress, Scenario, WalkedStep, walk},
    },
    runtime::{flags::duration, printable, shutdown, terminal as page},
};

#[derive(Debug, Args)]
pub struct TourArgs {
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

/// A tour as a visitor sees it.
pub struct Presentation<S: Scenario> {
    pub introduction: &'static str,
    /// The text at the end of a step.
    pub ends: fn(&WalkedStep<S::Seen>, usize) -> String,
}

impl TourArgs {
    /// Starts a scenario and its parts, walks it, and fails unless each step showed what it should.
    pub fn run<S: Scenario>(
        self,
        presentation: Presentation<S>,
        start: impl Future<Output = anyhow::Result<(S, Parts)>>,
    ) -> anyhow::Result<()> {
        init_log(self.verbose);
        block_on(self.show(presentation, start))
    }

    async fn show<S: Scenario>(
        self,
        presentation: Presentation<S>,
        start: impl Future<Output = anyhow::Result<(S, Parts)>>,
    ) -> anyhow::Result<()> {
        let stop = shutdown::on_signal().context("cannot handle signals")?;
        let begin = Instant::now();
        let text = self.output == Output::Text;
        let width = output::width();
        if text {
            print(&page::paragraph(presentation.introduction, width))?;
        }
        let (scenario, mut parts) = start.await?;
        let pace = Pace { patience: PATIENCE, pause: pause(self.pause, self.output) };
        let walk = walk(&scenario, pace, |progress| match progress {
            _ if !text => Ok(()),
            Progress::Begins(number, step) => print(&step.heading(number, width)),
            Progress::Ends(step) => print(&(presentation.ends)(step, width)),
        });
        let walked = tokio::select! {
            biased;
            () = stop.cancelled() => bail!(Exit::Stopped),
            ended = parts.failed() => bail!(ended),
            walked = walk => walked?,
        };
        let seconds = begin.elapsed().as_secs_f64();
        print(&match self.output {
            Output::Text => counted(walked.iter().map(WalkedStep::holds), seconds, width),
            Output::Json => report(&walked, seconds),
        })?;
        all_hold(walked.iter().map(|step| (step.number, step.holds())))
    }
}

fn report<Seen: Serialize>(walked: &[WalkedStep<Seen>], seconds: f64) -> String {
    let holds = walked.iter().all(WalkedStep::holds);
    let report = json!({ "steps": walked, "seconds": seconds, "holds": holds });
    printable::json(&format!("{report}\n"))
}

#[cfg(test)]
pub(super) mod testing {
    use anstream::adapter::strip_str;
    use clap::CommandFactory;

    use super::*;
    use crate::{
        cli::{Cli, help},
        demo::tour::walk::testing::walked,
    };

    /// Every line of every step fits, and what is to be typed is a command line.
    pub fn check_headings(scenario: &impl Scenario) {
        for step in scenario.steps() {
            for width in [50, 80, 100] {
                let shown = strip_str(&step.heading(1, width)).to_string();
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

    /// Walks without patience. Returns which steps ended as they should, and why the walk did not go on.
    pub async fn walk_impatiently(scenario: &impl Scenario) -> (Vec<bool>, Option<String>) {
        let pace = Pace { patience: Duration::from_millis(50), pause: Duration::ZERO };
        let mut ended = Vec::new();
        let walked = walk(scenario, pace, |progress| -> anyhow::Result<()> {
            if let Progress::Ends(step) = progress {
                ended.push(step.holds());
            }
            Ok(())
        });
        let failed = walked.await.err().map(|error| error.to_string());
        (ended, failed)
    }

    #[test]
    fn the_report_for_scripts_says_whether_all_held() {
        let step = |differences: &[&str]| walked(json!({ "client": "got it" }), differences);
        let read = |walked: &[WalkedStep<serde_json::Value>]| -> serde_json::Value {
            serde_json::from_str(&report(walked, 1.0)).unwrap()
        };
        assert_eq!(read(&[])["holds"], true);
        let both = read(&[step(&[]), step(&["no record"])]);
        assert_eq!(both["holds"], false);
        assert_eq!(both["steps"][0]["client"], "got it");
        assert_eq!(both["steps"][1]["differences"][0], "no record");
    }
}
