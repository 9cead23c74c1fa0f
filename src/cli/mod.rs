//! The command line: flags in, exit code out. No decisions.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::kit::printable;

pub mod check;
pub mod demo;
pub mod federate;
pub mod federation;
pub mod inject;
mod rules;
pub mod sandbox;
mod serving;
pub mod uninstall;

/// Keeps identity that was made elsewhere current in a cluster: certificates in Routes, and the
/// trust bundles of other clusters.
///
/// For OpenShift and Kubernetes. To see it work without a cluster: trustplane demo
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Each has its help on its own type: a word here would hide the longer one there.
    Check(check::Check),
    Demo(demo::Demo),
    Federate(federate::Federate),
    Federation(federation::Federation),
    Inject(inject::Inject),
    Sandbox(sandbox::Sandbox),
    Uninstall(uninstall::Uninstall),
}

/// An end before the end that is no error: whoever brought it about knows of it.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("stopped before its end")]
    Stopped,
    #[error("nobody reads the standard output")]
    Unread,
    #[error("what went wrong has been told")]
    Told,
}

impl Cut {
    /// What a shell reports for a program that dies of SIGINT or SIGPIPE, or plain failure.
    fn code(&self) -> u8 {
        match self {
            Self::Told => 1,
            Self::Stopped => 130,
            Self::Unread => 141,
        }
    }
}

/// Nothing was done at all: the command line does not say enough, or there is no cluster.
#[derive(Debug, thiserror::Error)]
#[error("{}", explained(.0))]
struct Unable(anyhow::Error);

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
            Command::Check(command) => command.run(),
            Command::Demo(command) => command.run(),
            Command::Federate(command) => command.run(),
            Command::Federation(command) => command.run(),
            Command::Inject(command) => command.run(),
            Command::Sandbox(command) => command.run(),
            Command::Uninstall(command) => command.run(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                if let Some(cut) = error.downcast_ref::<Cut>() {
                    return cut.code().into();
                }
                eprintln!("error: {}", printable::lines(&explained(&error)));
                if error.is::<Unable>() { 2.into() } else { ExitCode::FAILURE }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_a_short_help_a_long_one_and_examples() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let (short, long) = (command.get_about(), command.get_long_about());
            assert!(short.is_some() && long.is_some(), "{name}");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Examples:"), "{name}");
        }
    }
}
