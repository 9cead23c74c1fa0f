//! Prints for all commands.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::ValueEnum;
use terminal_size::terminal_size_of;

use super::Exit;
use crate::runtime::terminal;

/// The width of the standard output: that of the terminal, or COLUMNS.
pub(super) fn width() -> usize {
    let columns = terminal_size_of(io::stdout()).map(|(columns, _)| columns.0);
    let from_variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal::width(columns.or_else(from_variable))
}

/// Prints to stderr: wrapped on a terminal, in one line for logs and scripts.
pub(super) fn say(text: &str) {
    eprintln!("{}", for_stderr(text));
}

pub(super) fn for_stderr(text: &str) -> String {
    match terminal_size_of(io::stderr()) {
        Some((columns, _)) => terminal::wrapped(text, terminal::width(Some(columns.0))).join("\n"),
        None => text.to_owned(),
    }
}

/// `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For scripts
    Json,
}

/// Prints to the standard output, with colours on a terminal.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    };
    match write() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => bail!(Exit::OutputClosed),
        written => written.context("cannot write to the standard output"),
    }
}
