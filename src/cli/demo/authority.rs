//! `trustplane demo authority`.

use clap::Args;

use super::{
    PATIENCE,
    tour_args::{Presentation, TourArgs},
};
use crate::demo::tour::authority::{
    Tour, printer,
    stage::{Joins, Stage},
};

/// Shows in about 20 seconds how trustplane runs a SPIFFE trust domain and follows a partner's, on this
/// machine and without a cluster.
///
/// Two API servers, the controller of trustplane authority, and a partner's bundle endpoint run in this
/// process; the partner's stands in for SPIRE, and all listen on 127.0.0.1 only. The steps: publish our
/// bundle, federate, follow a rotation of the partner, rotate ourselves, refuse a lower sequence, end the
/// trust in a partner that revokes everything, delete the federation. After each you see what a client
/// got, whether the partner's workloads are trusted, the conditions, and the newest audit record. Bundles
/// are fetched every second here, and not every few minutes. It ends after the last step.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Take the tour:
    trustplane demo authority

  For scripts, without pauses:
    trustplane demo authority -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR switches colours off.")]
pub struct Authority {
    #[command(flatten)]
    tour: TourArgs,
}

const INTRODUCTION: &str = "\
Our trust domain is example.org, with a CA of its own; partner.example is one that we come to trust, follow
and give up. API servers, trustplane authority and a stand-in for the partner's SPIRE server run in this
process, on 127.0.0.1 only. After each step you see what the partner got from our bundle endpoint, whether
its workloads are trusted here, the conditions of the SPIFFEFederation, and the newest audit record.
";

impl Authority {
    pub fn run(self) -> anyhow::Result<()> {
        let presentation = Presentation { introduction: INTRODUCTION, ends: printer::ends };
        self.tour.run(presentation, async {
            let (stage, parts) = Stage::start(PATIENCE, Joins::Off).await?;
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
        let (stage, _parts) = Stage::start(PATIENCE, Joins::Off).await.unwrap();
        check_headings(&Tour::new(stage));
    }

    #[tokio::test]
    async fn no_step_holds_where_no_authority_runs() {
        let (stage, parts) = Stage::start(Duration::from_millis(50), Joins::Off).await.unwrap();
        drop(parts);
        let (held, failed) = walk_impatiently(&Tour::new(stage)).await;
        // The authority may have published a bundle before it ended.
        assert!(failed.is_none_or(|why| why == "step 1 could not be done"));
        assert!(held.iter().all(|held| !held), "{held:?}");
    }
}
