//! The command line: flags in, exit code out. No decisions.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod demo;
pub mod inject;
pub mod sandbox;

/// Keeps identity that was made elsewhere current in an OpenShift or Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the whole job on this machine in half a minute, without a cluster
    Demo(demo::Demo),
    /// Puts the certificate of a TLS Secret into every Route that asks for it, and keeps it current
    Inject(inject::Inject),
    /// Runs an API server, the injector and a TLS edge on this machine, to try things out
    Sandbox(sandbox::Sandbox),
}

/// The error and its causes, without those that an earlier one quotes already.
fn explained(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl Cli {
    /// Does what the command line says.
    pub fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Demo(command) => command.run(),
            Command::Inject(command) => command.run(),
            Command::Sandbox(command) => command.run(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {}", explained(&error));
                ExitCode::FAILURE
            }
        }
    }
}
