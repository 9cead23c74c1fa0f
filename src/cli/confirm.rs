//! Asks a person before something is changed.

use std::io::{self, IsTerminal};

use anyhow::{Context, anyhow, bail};

use super::output::{Output, for_stderr};
use crate::runtime::controller::Unable;

/// Only `yes` is a yes. `instead` is what to add to the command line if nobody can be asked.
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
