//! The command line, one call per subcommand, nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    trustplane::cli::Cli::parse().run()
}
