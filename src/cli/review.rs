//! `trustplane review`.

mod serve;

use clap::Args;

/// Serves TokenReview for the tokens of many clusters, and asks each token's own cluster.
///
/// A service sends its TokenReviews here instead of to its own API server, and learns of each token whose it is,
/// whichever registered cluster made it. A token is sent to its own cluster only, and every answer is as new as the
/// question.
#[derive(Debug, Args)]
#[command(
    mut_arg("listen", |it| it.default_value("127.0.0.1:8081")),
    after_help = "\
Examples:
  Serve the clusters of a file:
    trustplane review --config clusters.yaml --serve-cert-file tls.crt --serve-key-file tls.key

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line or the configuration is wrong."
)]
pub struct Review {
    #[command(flatten)]
    serve: serve::ServeArgs,
}

impl Review {
    pub fn run(self) -> anyhow::Result<()> {
        self.serve.run()
    }
}
