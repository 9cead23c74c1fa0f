//! `trustplane review`.

mod check;
mod explain;
mod register;
mod serve;
mod store_args;
mod unregister;

use clap::{Args, Subcommand};

use crate::{
    cli::cluster::block_on,
    review::decide::config::is_name,
    runtime::log::{self, LogFormat, Verbosity},
};

/// Serves TokenReview for the tokens of many clusters, and asks each token's own cluster.
///
/// A service sends its TokenReviews here instead of to its own API server, and learns of each token whose it is,
/// whichever registered cluster made it. A token is sent to its own cluster only, and every answer is as new as the
/// question. Without a command it serves; the commands below register clusters and tell what is wrong.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    mut_arg("listen", |it| it.default_value("127.0.0.1:8081")),
    after_help = "\
Examples:
  Register a cluster, and see whether all is well:
    trustplane review register cluster-b --kubeconfig cluster-b.kubeconfig
    trustplane review check clusters.yaml

  Find out whose a token is, and why:
    trustplane review explain token.txt --config clusters.yaml

  Serve the clusters of a file:
    trustplane review --config clusters.yaml --serve-cert-file tls.crt --serve-key-file tls.key

Exit codes: 0 stopped as asked, 1 something went wrong, 2 the command line or the configuration is wrong."
)]
pub struct Review {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    // The help is on each type.
    Register(register::Register),
    Unregister(unregister::Unregister),
    Check(check::Check),
    Explain(explain::Explain),
}

impl Review {
    pub fn run(self) -> anyhow::Result<()> {
        let Some(command) = self.command else { return self.serve.run() };
        log::init(LogFormat::Text, Verbosity::Quiet);
        block_on(async {
            match command {
                Command::Register(command) => command.run().await,
                Command::Unregister(command) => command.run().await,
                Command::Check(command) => command.run().await,
                Command::Explain(command) => command.run().await,
            }
        })
    }
}

fn cluster_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a cluster's name has lower-case letters, digits, dots and dashes".to_owned()),
    }
}
