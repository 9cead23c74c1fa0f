//! The command line: flags in, exit code out. No decisions.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod inject;

/// Keeps identity that was made elsewhere current in an OpenShift or Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Puts the certificate of a TLS Secret into every Route that asks for it, and keeps it current
    Inject(inject::Inject),
}

impl Cli {
    /// Does what the command line says.
    pub fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Inject(command) => command.run(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}
