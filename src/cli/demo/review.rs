//! `trustplane demo review`.

use clap::Args;

use super::tour_args::{Presentation, TourArgs};
use crate::demo::tour::review::{Tour, printer, stage::Stage};

/// Shows in about 20 seconds how trustplane reviews the tokens of two clusters at one endpoint, on this machine and
/// without a cluster.
///
/// Two API servers of one issuer and the server of trustplane review run in this process, and all listen on
/// 127.0.0.1 only. The steps: a token of each cluster, a forged one, an account that is deleted, a key that is
/// rotated, our own credential renewed, a cluster that is down. After each you see what a service is told, and
/// which cluster received the token. It ends after the last step.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Take the tour:
    trustplane demo review

  For scripts, without pauses:
    trustplane demo review -o json

Exit codes: 0 every step showed what it should, 1 one did not or something went wrong, 2 the command
line is wrong, 130 the tour was stopped before its end. NO_COLOR switches colours off.")]
pub struct Review {
    #[command(flatten)]
    tour: TourArgs,
}

const INTRODUCTION: &str = "\
Clusters home and branch have the same issuer, as clusters often do. trustplane review runs in home, and a
service there asks it about tokens of both. After each step you see what the service is told, which cluster
received the token, and how it stands with our own token for branch.
";

impl Review {
    pub fn run(self) -> anyhow::Result<()> {
        let presentation = Presentation { introduction: INTRODUCTION, ends: printer::ends };
        self.tour.run(presentation, async {
            let (stage, parts) = Stage::start().await?;
            Ok((Tour::new(stage), parts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::tour_args::testing::{check_headings, walk_impatiently};

    #[tokio::test]
    async fn every_line_of_every_step_fits_and_what_is_to_be_typed_is_a_command_line() {
        let (stage, _parts) = Stage::start().await.unwrap();
        check_headings(&Tour::new(stage));
    }

    #[tokio::test]
    async fn no_step_with_a_good_token_holds_where_no_review_runs() {
        let (stage, parts) = Stage::start().await.unwrap();
        drop(parts);
        let (held, _) = walk_impatiently(&Tour::new(stage)).await;
        assert!(!held[0] && !held[3], "{held:?}");
    }
}
