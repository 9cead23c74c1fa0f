//! What all commands have in common, put in place once for the whole tree: every switch takes
//! `=true` and `=false`, and every help starts with a sentence and examples, as wide as the terminal.

use std::ffi::OsStr;

use clap::{
    Arg, ArgAction, Command, Error,
    builder::{BoolValueParser, FalseyValueParser, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use crate::runtime::terminal as page;

/// The command and all below it, for a terminal of this width.
pub(super) fn finish(command: Command, width: usize) -> Command {
    finish_below(command, "", width)
}

fn finish_below(command: Command, parents: &str, width: usize) -> Command {
    let path = format!("{parents} {}", command.get_name()).trim().to_owned();
    let command = command.term_width(width).mut_args(switch);
    let command = examples_first(short_usage(command, &path, width), width);
    command.mut_subcommands(|command| finish_below(command, &path, width))
}

/// clap wraps everything but the usage.
fn short_usage(command: Command, path: &str, width: usize) -> Command {
    const TITLE: &str = "Usage: ";
    let usage = command.clone().bin_name(path).render_usage().to_string();
    // A command that has both flags of its own and commands below it is used in two ways.
    let ways: Vec<_> = usage.trim_start_matches(TITLE).lines().collect();
    let wrapped = |way: &&str| page::wrapped(way, width - TITLE.len());
    let lines: Vec<_> = ways.iter().flat_map(wrapped).collect();
    match lines.len() == ways.len() {
        true => command,
        false => command.override_usage(lines.join("\n       ")),
    }
}

/// `--flag`, `--flag=true` and `--flag=false`. The last one wins, so that an overlay can switch off
/// what its base switches on.
fn switch(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let id = arg.get_id().clone();
    let arg = arg
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_parser(Switch)
        .value_name("true|false")
        .hide_possible_values(true)
        .hide_default_value(true)
        .overrides_with(id);
    if arg.get_default_values().is_empty() { arg.default_value("false") } else { arg }
}

/// Nothing but `true` or `false` on the command line, where a typo must not count as a yes.
/// Variables are off when empty, `0`, `n`, `no`, `f`, `false` or `off`, and on otherwise.
#[derive(Clone)]
struct Switch;

impl TypedValueParser for Switch {
    type Value = bool;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<bool, Error> {
        BoolValueParser::new().parse_ref(cmd, arg, value)
    }

    fn parse_ref_(
        &self,
        cmd: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<bool, Error> {
        match source {
            ValueSource::EnvVariable => FalseyValueParser::new().parse_ref(cmd, arg, value),
            _ => self.parse_ref(cmd, arg, value),
        }
    }
}

/// Says where the flags of a command below another one go, if some were written before its name.
pub(super) fn with_tip(mut error: Error) -> Error {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && error.kind() == ErrorKind::ArgumentConflict
    {
        let tip = format!("write flags after '{name}'; --help there lists them");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Orders the long help: first sentence, examples, rest of the description, flags, exit codes. The
/// short help ends with its examples.
fn examples_first(command: Command, width: usize) -> Command {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
    // A doc comment of one paragraph has no long form, and loses its full stop in the short one.
    let long = || text(command.get_about()).map(|about| format!("{about}."));
    let Some(long) = text(command.get_long_about()).or_else(long) else { return command };
    let Some(after) = text(command.get_after_help()) else { return command };
    let (sentence, details) = long.split_once("\n\n").unwrap_or((&long, ""));
    let (examples, rest) = after.split_once("\n\nExit codes:").map_or_else(
        || (after.as_str(), String::new()),
        |(examples, rest)| (examples, format!("Exit codes:{rest}")),
    );
    let rest = page::help(&rest, width);
    let examples = page::help(examples, width);
    command
        .after_help(format!("{examples}\n\n{rest}").trim_end().to_owned())
        .long_about(format!("{sentence}\n\n{examples}\n\n{details}").trim_end().to_owned())
        .after_long_help(rest)
}

#[cfg(test)]
mod tests;
