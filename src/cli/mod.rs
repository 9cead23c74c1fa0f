//! The command line: flags in, exit code out. No decisions.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::runtime::{
    controller::{Unable, explained},
    printable,
};

mod agent;
mod authority;
mod check;
mod cluster;
mod confirm;
#[cfg(feature = "demo")]
mod demo;
mod federate;
mod federation;
mod help;
mod inject;
mod join;
mod output;
mod policy_args;
mod relative;
mod review;
#[cfg(feature = "demo")]
mod sandbox;
mod spiffe;
mod uninstall;

#[cfg(feature = "demo")]
const DEMO_EXAMPLE: &str = "  See it work, on this machine and without a cluster:
    trustplane demo

";
#[cfg(not(feature = "demo"))]
const DEMO_EXAMPLE: &str = "";

/// Copies the certificate and key of a TLS Secret into every Route that asks for them with one
/// annotation.
///
/// For OpenShift and Kubernetes. trustplane inject does it, checks both before it writes, and follows
/// every renewal. trustplane federate keeps the SPIRE servers of several clusters trusting each other.
/// trustplane authority is a SPIFFE trust domain of its own; trustplane join and trustplane agent join it.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = format!("\
Examples:
{DEMO_EXAMPLE}  See whether your cluster is ready for it, and whether an installation works:
    trustplane check

  Run it against the cluster that kubectl uses, without writing anything:
    trustplane inject --dry-run")
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // The help is on each type: a doc comment here would replace it.
    #[command(name = "agent")]
    Agent(agent::AgentCommand),
    #[command(name = "authority")]
    Authority(authority::AuthorityCommand),
    Check(check::Check),
    #[cfg(feature = "demo")]
    Demo(demo::Demo),
    Federate(federate::Federate),
    Federation(federation::Federation),
    Inject(inject::Inject),
    Join(join::Join),
    Review(review::Review),
    #[cfg(feature = "demo")]
    Sandbox(sandbox::Sandbox),
    Spiffe(spiffe::Spiffe),
    Uninstall(uninstall::Uninstall),
}

/// Early exits that need no error message.
#[derive(Debug, thiserror::Error)]
enum Exit {
    #[error("stopped before its end")]
    Stopped,
    #[error("the standard output was closed")]
    OutputClosed,
    #[error("the problem was printed")]
    Reported,
    #[error("what could not be asked was printed")]
    NotAsked,
}

impl Exit {
    /// 130 and 141 are what a shell reports after SIGINT and SIGPIPE.
    fn code(&self) -> u8 {
        match self {
            Self::Reported => 1,
            Self::NotAsked => 2,
            Self::Stopped => 130,
            Self::OutputClosed => 141,
        }
    }
}

impl Cli {
    /// Ends the process if the command line is wrong or asks for help.
    pub fn from_arguments() -> Self {
        let command = help::finish(Self::command(), output::width());
        let matches = command.try_get_matches().unwrap_or_else(|it| help::with_tip(it).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    pub fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Agent(command) => command.run(),
            Command::Authority(command) => command.run(),
            Command::Check(command) => command.run(),
            #[cfg(feature = "demo")]
            Command::Demo(command) => command.run(),
            Command::Federate(command) => command.run(),
            Command::Federation(command) => command.run(),
            Command::Inject(command) => command.run(),
            Command::Join(command) => command.run(),
            Command::Review(command) => command.run(),
            #[cfg(feature = "demo")]
            Command::Sandbox(command) => command.run(),
            Command::Spiffe(command) => command.run(),
            Command::Uninstall(command) => command.run(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                if let Some(exit) = error.downcast_ref::<Exit>() {
                    return exit.code().into();
                }
                output::say(&printable::lines(&format!("error: {}", explained(&error))));
                if error.is::<Unable>() { 2.into() } else { ExitCode::FAILURE }
            }
        }
    }
}
