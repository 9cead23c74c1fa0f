//! `trustplane demo join`.

use clap::Args;

use super::{
    PATIENCE,
    tour_args::{Presentation, TourArgs},
};
use crate::demo::tour::join::{Tour, printer, stage::Stage};

/// Shows in about half a minute how a partner's workloads join a trust domain, and what workloads there get
/// of it, on this machine and without a cluster.
///
/// Two API servers, trustplane authority, trustplane agent, a workload, and a partner that stands in for
/// SPIRE run in this process; ports are on 127.0.0.1 only, sockets in a folder of yours. The steps: federate,
/// join, serve a workload, rotate ourselves and the partner, refuse a replay, delete the federation. After
/// each you see what the join service answered, what the workload has from the agent's socket, the uses of
/// the JoinToken, the status, and the audit record. Bundles are fetched every second here, and SVIDs of the
/// agent live 4 seconds. It ends after the last step.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Take the tour:
    trustplane demo join

  For scripts, without pauses:
    trustplane demo join -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR switches colours off.")]
pub struct Join {
    #[command(flatten)]
    tour: TourArgs,
}

const INTRODUCTION: &str = "\
Our trust domain is example.org. A pipeline and a node of partner.example have SVIDs of their own there, and
get identities here with them, without a shared secret. API servers, trustplane authority, trustplane agent,
a workload and stand-ins for the partner's SPIRE run in this process. After each step you see what the join
service answered, what the workload has from the agent's socket, and what the cluster and the audit log say.
";

impl Join {
    pub fn run(self) -> anyhow::Result<()> {
        let presentation = Presentation { introduction: INTRODUCTION, ends: printer::ends };
        self.tour.run(presentation, async {
            let (stage, parts) = Stage::start(PATIENCE).await?;
            Ok((Tour::new(stage), parts))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::demo::tour_args::testing::{check_headings, walk_impatiently};

    #[tokio::test]
    async fn every_line_of_every_step_fits_and_what_is_to_be_typed_is_a_command_line() {
        let (stage, _parts) = Stage::start(PATIENCE).await.unwrap();
        check_headings(&Tour::new(stage));
    }

    #[tokio::test]
    async fn no_step_holds_where_no_authority_runs() {
        let (stage, parts) = Stage::start(Duration::from_millis(50)).await.unwrap();
        drop(parts);
        let (held, failed) = walk_impatiently(&Tour::new(stage)).await;
        assert!(failed.is_none_or(|why| why.ends_with("could not be done")));
        assert!(held.iter().all(|held| !held), "{held:?}");
    }
}
