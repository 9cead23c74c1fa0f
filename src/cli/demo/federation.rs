//! `trustplane demo federation`.

use clap::Args;

use super::{
    PATIENCE,
    tour_args::{Presentation, TourArgs},
};
use crate::demo::tour::federation::{Tour, clusters::Clusters, printer};

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
    #[command(flatten)]
    tour: TourArgs,
}

const INTRODUCTION: &str = "\
Two clusters, a and b, each with its own SPIFFE trust domain. Their workloads come to trust each other,
and stop again in the end. API servers, trustplane federate and stand-ins for SPIRE run in this process,
on 127.0.0.1 only. After each step you see what a client in b got from a's bundle endpoint, whose
workloads are trusted where, and what the SpireServers say of their peers.
";

impl Federation {
    pub fn run(self) -> anyhow::Result<()> {
        let presentation = Presentation { introduction: INTRODUCTION, ends: printer::ends };
        self.tour.run(presentation, async {
            let (clusters, parts) = Clusters::start().await?;
            Ok((Tour::new(clusters, PATIENCE), parts))
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
        let (clusters, _parts) = Clusters::start().await.unwrap();
        check_headings(&Tour::new(clusters, PATIENCE));
    }

    #[tokio::test]
    async fn no_step_holds_where_nobody_federates() {
        let (clusters, parts) = Clusters::start().await.unwrap();
        drop(parts);
        let tour = Tour::new(clusters, Duration::from_millis(50));
        let (held, failed) = walk_impatiently(&tour).await;
        // There is not even a ConfigMap with authorities to begin with.
        assert_eq!(failed.as_deref(), Some("step 2 could not be done"));
        assert_eq!(held, [false]);
    }
}
