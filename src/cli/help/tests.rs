//! The whole tree of commands: switches, and help at every width.

use clap::{CommandFactory, Parser};

use super::*;
use crate::cli::Cli;

fn finished(width: usize) -> Command {
    let mut root = finish(Cli::command(), width);
    root.build();
    root
}

/// Every command below this one, with its path.
fn walk(command: &Command, path: &str, see: &mut impl FnMut(&str, &Command)) {
    see(path, command);
    for below in command.get_subcommands().filter(|it| it.get_name() != "help") {
        walk(below, &format!("{path} {}", below.get_name()), see);
    }
}

#[test]
fn every_switch_of_every_command_takes_true_and_false() {
    let mut seen = Vec::new();
    walk(&finished(100), "trustplane", &mut |path, command| {
        for arg in command.get_arguments() {
            let is_bare = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
            assert!(!is_bare, "{path} --{} takes no value", arg.get_id());
            let counts = matches!(arg.get_action(), ArgAction::Count);
            assert!(!counts, "{path} --{} counts", arg.get_id());
            if arg.is_require_equals_set() {
                seen.push(format!("{path} --{}", arg.get_long().unwrap_or_default()));
            }
        }
    });
    for known in [
        "trustplane inject --leader-elect",
        "trustplane federate --create-only",
        "trustplane federation bootstrap --yes",
        "trustplane check --installed",
        "trustplane uninstall --while-running",
        "trustplane sandbox --no-inject",
        "trustplane demo --exit",
    ] {
        assert!(seen.iter().any(|it| it == known), "{known} is not among {seen:?}");
    }
}

#[derive(Debug, Parser)]
struct Sample {
    #[arg(long, short, env = "TRUSTPLANE_TEST_OF_SWITCHES")]
    loud: bool,
    #[arg(long, short)]
    yes: bool,
    #[arg(long, short)]
    output: Option<String>,
}

fn read(arguments: &[&str]) -> Result<(bool, bool, Option<String>), String> {
    use clap::FromArgMatches;
    let command = finish(Sample::command(), 100);
    let matches = command.try_get_matches_from([&["sample"], arguments].concat());
    let matches = matches.map_err(|error| error.to_string())?;
    let sample = Sample::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    Ok((sample.loud, sample.yes, sample.output))
}

#[test]
fn a_switch_is_off_unless_it_is_named_and_the_last_word_counts() {
    assert_eq!(read(&[]), Ok((false, false, None)));
    assert_eq!(read(&["--loud"]), Ok((true, false, None)));
    assert_eq!(read(&["--loud=true", "-y"]), Ok((true, true, None)));
    assert_eq!(read(&["--loud=false", "-y=false"]), Ok((false, false, None)));
    assert_eq!(read(&["--loud", "--loud=false"]), Ok((false, false, None)));
    assert_eq!(read(&["-lyo", "json"]), Ok((true, true, Some("json".to_owned()))));
}

#[test]
fn a_value_that_is_neither_is_refused_and_none_is_taken_from_the_next_argument() {
    for wrong in [&["--loud=flase"][..], &["--loud="], &["--loud", "false"]] {
        assert!(read(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn what_a_switch_requires_is_required_only_where_it_is_on() {
    let read = |line: &str| finish(Cli::command(), 100).try_get_matches_from(line.split(' '));
    assert!(read("trustplane inject --leader-elect=false").is_ok());
    assert!(read("trustplane federation bootstrap a b --yes").is_err());
    assert!(read("trustplane federation bootstrap a b --yes=false").is_ok());
    assert!(read("trustplane federation bootstrap a b --yes --fingerprint 00").is_ok());
}

/// clap reads the variable when the command is built.
#[test]
fn what_a_variable_says_counts_as_it_always_did() {
    let parse = |value: &str| {
        let arg = finish(Sample::command(), 100);
        let loud = arg.get_arguments().find(|arg| arg.get_id() == "loud");
        Switch.parse_ref_(&arg, loud, OsStr::new(value), ValueSource::EnvVariable).ok()
    };
    for off in ["", "0", "n", "No", "f", "false", "off"] {
        assert_eq!(parse(off), Some(false), "{off:?}");
    }
    for on in ["1", "true", "yes", "anything"] {
        assert_eq!(parse(on), Some(true), "{on:?}");
    }
}

#[test]
fn no_help_has_a_line_that_a_terminal_of_50_or_80_columns_would_break() {
    for width in [50, 80] {
        walk(&finished(width), "trustplane", &mut |path, command| {
            let mut command = command.clone();
            for text in [command.render_help(), command.render_long_help()] {
                let text = text.to_string();
                assert!(page::fits(&text, width), "{path} at {width}:\n{text}");
            }
        });
    }
}

#[test]
fn help_starts_with_a_sentence_and_then_shows_examples() {
    walk(&finished(100), "trustplane", &mut |path, command| {
        let help = command.clone().render_long_help().to_string();
        let (sentence, rest) = help.split_once("\n\n").unwrap_or_default();
        assert!(sentence.ends_with('.') && !sentence.contains(". "), "{path}: {sentence}");
        assert!(rest.starts_with("Examples:\n"), "{path}:\n{help}");
        assert_eq!(help.matches("Examples:").count(), 1, "{path}:\n{help}");
        let short = command.clone().render_help().to_string();
        assert!(short.contains("Examples:\n"), "{path}:\n{short}");
    });
}

#[test]
fn every_command_that_does_something_names_its_exit_codes() {
    walk(&finished(100), "trustplane", &mut |path, command| {
        let help = command.clone().render_long_help().to_string();
        let is_root = path == "trustplane";
        assert!(is_root || help.contains("\nExit codes: 0 "), "{path}:\n{help}");
    });
}

#[test]
fn flags_before_a_command_below_are_answered_with_where_they_go() {
    let line = "trustplane demo -o json federation".split(' ');
    let refused = finish(Cli::command(), 100).try_get_matches_from(line).unwrap_err();
    let said = with_tip(refused).to_string();
    assert!(said.contains("tip: write flags after 'federation'"), "{said}");
}

#[test]
fn a_duration_that_is_none_is_answered_with_its_form() {
    let line = "trustplane demo --pause x".split(' ');
    let refused = finish(Cli::command(), 100).try_get_matches_from(line).unwrap_err().to_string();
    assert!(refused.contains("'--pause <DURATION>': write it like 500ms, 5s or 10m"), "{refused}");
}

#[test]
fn the_first_line_of_all_says_what_the_program_does_as_the_readme_does() {
    // Read when it runs: what is compiled in has to be in the image's sources.
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let about = finished(100).get_about().expect("a sentence").to_string();
    for words in
        ["opies the certificate and key of a TLS Secret", "into every Route that asks for them"]
    {
        assert!(readme.contains(words) && about.contains(words), "{about}");
    }
}

/// Every example of the help is a command line that this version takes.
#[test]
fn every_example_that_runs_trustplane_is_a_command_line_that_it_takes() {
    let mut lines = Vec::new();
    // So wide that each example is one line.
    walk(&finished(1000), "trustplane", &mut |_, command| {
        let help = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        lines.extend(help.lines().filter(|line| line.starts_with("    ")).map(str::to_owned));
    });
    let is_ours = |line: &&String| line.trim().starts_with("trustplane ");
    let examples: Vec<_> = lines.iter().filter(is_ours).collect();
    assert!(examples.len() > 10, "{examples:?}");
    for example in examples {
        let words = example.split_whitespace();
        let read = finish(Cli::command(), 100).try_get_matches_from(words);
        assert!(read.is_ok(), "{example}: {}", read.unwrap_err());
    }
}

#[test]
fn no_line_of_the_examples_holds_two_commands() {
    walk(&finished(100), "trustplane", &mut |path, command| {
        let help = command.clone().render_long_help().to_string();
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            let commands = line.trim_start().starts_with("trustplane ");
            assert!(!commands || line.matches(" trustplane ").count() < 2, "{path}: {line}");
        }
    });
}
