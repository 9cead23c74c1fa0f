//! The command line, one call per subcommand, nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trustplane::cli::Cli::from_arguments().run()
}
