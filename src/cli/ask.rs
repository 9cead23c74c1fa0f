//! The terminal: how wide it is, what is said beside the standard output, and questions to whoever
//! sits at it.

use std::io::{self, IsTerminal};

use anyhow::{Context, anyhow, bail};
use terminal_size::terminal_size_of;

use super::{Unable, sandbox::Output};
use crate::runtime::terminal as page;

/// How wide a text on the standard output may be: as the terminal is, or as COLUMNS says.
pub(super) fn width() -> usize {
    let columns = terminal_size_of(io::stdout()).map(|(columns, _)| columns.0);
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    page::width(columns.or_else(said))
}

/// Says something on stderr: wrapped where it is a terminal, and in one line for logs and scripts.
pub(super) fn say(text: &str) {
    eprintln!("{}", for_stderr(text));
}

fn for_stderr(text: &str) -> String {
    match terminal_size_of(io::stderr()) {
        Some((columns, _)) => page::wrapped(text, page::width(Some(columns.0))).join("\n"),
        None => text.to_owned(),
    }
}

/// Asks before something is changed. Only `yes` is a yes. `instead` says what to add to the command
/// line where nobody can be asked.
pub(super) fn confirm(question: &str, output: Output, instead: &str) -> anyhow::Result<()> {
    let somebody_reads = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !somebody_reads || output == Output::Json {
        bail!(Unable(anyhow!("nothing was changed, because nobody can be asked. {instead}")));
    }
    eprint!("\n{} ", for_stderr(&format!("{question} Type yes to go on:")));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("no answer could be read")?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    bail!(Unable(anyhow!("nothing was changed")))
}
