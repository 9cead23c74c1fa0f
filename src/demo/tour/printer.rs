//! Prints the tour: one block per step, as wide as the terminal but at most 100 columns. Pure: text
//! in, text out. The writer removes colours if they are not wanted.

use std::fmt::Write;

use anstyle::Style;

use super::{StepResult, expect::Reported, steps::Step};
use crate::runtime::terminal::{BAD, BOLD, FAINT, GOOD, WARNING, command, wrapped};

/// Column of observations.
const INDENT: usize = 25;
/// In narrower terminals observations have lines of their own.
const NARROW: usize = 72;
/// Their column.
const NARROW_INDENT: usize = 5;

/// The text at the start of a step.
pub fn begins(number: usize, step: &Step, width: usize) -> String {
    heading(number, step.title, step.commands.iter().copied(), width)
}

/// A step's number, title and commands. Comments describe what nobody has to type.
pub fn heading<'a>(
    number: usize,
    title: &str,
    commands: impl IntoIterator<Item = &'a str>,
    width: usize,
) -> String {
    let title = wrapped(title, width - 3).join("\n   ");
    let mut text = format!("\n{BOLD}{number}  {title}{BOLD:#}\n");
    for line in commands {
        for (index, part) in command(line, width - 5).iter().enumerate() {
            let prompt = if index == 0 && !line.starts_with('#') { "$" } else { " " };
            let _ = writeln!(text, "   {FAINT}{prompt} {part}{FAINT:#}");
        }
    }
    text
}

/// The text at the end of a step.
pub fn ends(outcome: &StepResult, width: usize) -> String {
    let mut rows = Rows::new(outcome.holds(), outcome.seconds, width);
    let managed = outcome.seen.condition.as_ref().is_some_and(|it| it.r#type == "Managed");
    let state = if managed { GOOD } else { WARNING };
    match &outcome.seen.served {
        Ok(served) => {
            rows.add("served", state, &served.certificate.to_string());
            // The rest of the line repeats the certificate.
            let route = served.line.split(" | ").next().unwrap_or_default();
            rows.add("answer", Style::new(), &format!("{} {route}", served.status));
        }
        Err(why) => rows.add("served", BAD, why),
    }
    match &outcome.seen.condition {
        Some(Reported { r#type, reason, .. }) => {
            rows.add("condition", state, &format!("{type} ({reason})"));
        }
        None => rows.add("condition", FAINT, "none"),
    }
    match &outcome.seen.event {
        Some(Reported { r#type, reason, message }) => {
            let style = if r#type == "Warning" { WARNING } else { Style::new() };
            rows.add("event", style, &format!("{reason}: {message}"));
        }
        None => rows.add("event", FAINT, "none"),
    }
    for difference in &outcome.differences {
        rows.add("expected", BAD, difference);
    }
    rows.text
}

/// The summary at the end.
pub fn summary(outcomes: &[StepResult], seconds: f64, width: usize) -> String {
    counted(outcomes.iter().map(StepResult::holds), seconds, width)
}

/// How many steps met their expectation.
pub fn counted(held: impl IntoIterator<Item = bool>, seconds: f64, width: usize) -> String {
    let outcomes: Vec<bool> = held.into_iter().collect();
    let (held, all) = (outcomes.iter().filter(|it| **it).count(), outcomes.len());
    let style = if held == all { GOOD } else { BAD };
    let text = format!("{held} of {all} steps showed what they should, in {seconds:.1} s.");
    let text = wrapped(&text, width).join("\n");
    format!("\n{style}{text}{style:#}\n")
}

/// Observations, one row each.
pub struct Rows {
    pub text: String,
    first: String,
    width: usize,
}

impl Rows {
    /// The first row says whether the step met its expectation, and how long it took.
    pub fn new(holds: bool, seconds: f64, width: usize) -> Self {
        let (mark, style) = if holds { ("✓", GOOD) } else { ("✗", BAD) };
        let time = format!("{mark} {seconds:.2} s");
        let first = format!("{style}{time:<10}{style:#}");
        Self { text: String::new(), first, width }
    }

    /// Adds a row. Labels have at most ten letters.
    pub fn add(&mut self, label: &str, style: Style, value: &str) {
        if self.width < NARROW {
            return self.add_narrow(label, style, value);
        }
        let first = std::mem::replace(&mut self.first, " ".repeat(10));
        for (index, line) in wrapped(value, self.width - INDENT).iter().enumerate() {
            let _ = match index {
                0 => writeln!(
                    self.text,
                    "   {first} {FAINT}{label:<10}{FAINT:#} {style}{line}{style:#}"
                ),
                _ => writeln!(self.text, "{:INDENT$}{style}{line}{style:#}", ""),
            };
        }
    }

    fn add_narrow(&mut self, label: &str, style: Style, value: &str) {
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() {
            let _ = writeln!(self.text, "   {first}");
        }
        let _ = writeln!(self.text, "   {FAINT}{label}{FAINT:#}");
        for line in wrapped(value, self.width - NARROW_INDENT) {
            let _ = writeln!(self.text, "{:NARROW_INDENT$}{style}{line}{style:#}", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::{
        demo::{
            certificate_summary::CertificateSummary,
            tour::{expect::Seen, probe::Served},
        },
        runtime::{
            printable::{HOSTILE, is_harmless},
            terminal::{WIDTH, fits},
        },
    };

    fn outcome(differences: &[&str]) -> StepResult {
        let certificate = CertificateSummary {
            subject: "CN=shop.example.com".into(),
            issuer: "CN=demo CA".into(),
            serial: "1".into(),
            sha256: "0123456789abcdef".into(),
        };
        let line = format!("Route shop/shop (edge) | certificate {certificate}");
        let reported = |r#type: &str, reason: &str, message: &str| {
            Some(Reported { r#type: r#type.into(), reason: reason.into(), message: message.into() })
        };
        StepResult {
            number: 4,
            title: "Something happens",
            commands: &["kubectl get routes"],
            seen: Seen {
                served: Ok(Served { certificate, status: 200, line }),
                condition: reported("Default", "SecretNotFound", "not shown"),
                event: reported("Warning", "SecretNotFound", &"many words ".repeat(12)),
            },
            seconds: 5.127,
            differences: differences.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_block_shows_what_was_served_the_condition_and_the_event_within_the_width() {
        let shown = strip_str(&ends(&outcome(&[]), WIDTH)).to_string();
        let expected = "   ✓ 5.13 s   served     CN=shop.example.com, sha256 0123456789ab, issued by CN=demo CA
              answer     200 Route shop/shop (edge)
              condition  Default (SecretNotFound)
              event      SecretNotFound: many words many words many words many words many words many
                         words many words many words many words many words many words many words
";
        assert_eq!(shown, expected);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn a_block_of_any_observation_is_harmless() {
        let mut hostile = outcome(&[HOSTILE]);
        hostile.seen.event =
            hostile.seen.event.map(|it| Reported { message: HOSTILE.into(), ..it });
        hostile.seen.served = Err(HOSTILE.into());
        assert!(is_harmless(&strip_str(&ends(&hostile, WIDTH)).to_string()));
    }

    #[test]
    fn in_a_narrow_terminal_no_word_is_broken() {
        for width in [50, 60, 80] {
            let shown = strip_str(&ends(&outcome(&["it should be another"]), width)).to_string();
            assert!(fits(&shown, width), "{width}:\n{shown}");
            let summary = strip_str(&summary(&[outcome(&[])], 7.0, width)).to_string();
            assert!(fits(&summary, width), "{summary}");
        }
    }

    #[test]
    fn a_step_without_the_expected_result_is_marked() {
        let failed = outcome(&["the newest Event should be none"]);
        assert!(!failed.holds());
        let shown = strip_str(&ends(&failed, WIDTH)).to_string();
        assert!(shown.starts_with("   ✗ 5.13 s   served"), "{shown}");
        assert!(shown.ends_with("expected   the newest Event should be none\n"), "{shown}");
        let summary = strip_str(&summary(&[outcome(&[]), failed], 7.0, WIDTH)).to_string();
        assert_eq!(summary, "\n1 of 2 steps showed what they should, in 7.0 s.\n");
    }

    #[test]
    fn every_line_of_every_step_is_within_the_width() {
        let pairs = super::super::steps::Pairs::new(chrono::Utc::now()).unwrap();
        let default = CertificateSummary::of(b"any");
        for (step, width) in super::super::steps::all(&pairs, &default)
            .iter()
            .flat_map(|step| [50, 80, WIDTH].map(|width| (step, width)))
        {
            let shown = strip_str(&begins(1, step, width)).to_string();
            assert!(fits(&shown, width), "{width}:\n{shown}");
        }
    }
}
