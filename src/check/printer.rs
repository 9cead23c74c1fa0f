//! The lines as a table for people, and as JSON for scripts. Pure.

use std::fmt::Write;

use anstyle::Style;
use serde_json::json;

use super::checks::{CheckResult, Status};
use crate::runtime::{
    printable::{self, printable},
    terminal::{BAD, FAINT, GOOD, WARNING, command, wrapped},
};

/// The column in which the findings begin.
const INDENT: usize = 29;
/// In narrower terminals the findings have lines of their own.
const NARROW: usize = 72;
const NARROW_INDENT: usize = 8;

/// Whether trustplane can be installed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Cluster,
    /// `trustplane sandbox`.
    Sandbox,
}

/// The table and its summary.
pub fn table(lines: &[CheckResult], target: Target, width: usize) -> String {
    format!("{}\n{}\n", rows(lines, width), summary(lines, target))
}

/// The table alone.
pub fn rows(lines: &[CheckResult], width: usize) -> String {
    let mut text = String::new();
    for line in lines {
        let (label, style) = shown(line.result);
        let indent = if width < NARROW { NARROW_INDENT } else { INDENT };
        let found = wrapped(&line.found, width - indent);
        let mut found = found.iter();
        let first = if width < NARROW { None } else { found.next() };
        let title = format!("{style}{label:<7}{style:#} {:<19}", line.subject);
        let _ = match first {
            Some(part) => writeln!(text, "{title}  {part}"),
            None => writeln!(text, "{}", title.trim_end()),
        };
        for part in found {
            let _ = writeln!(text, "{:indent$}{part}", "");
        }
        for part in line.todo.iter().flat_map(|todo| wrapped(todo, width - indent)) {
            let _ = writeln!(text, "{:indent$}{FAINT}{part}{FAINT:#}", "");
        }
        for part in line.command.iter().flat_map(|it| command(&printable(it), width - indent)) {
            let _ = writeln!(text, "{:indent$}{part}", "");
        }
    }
    text
}

fn shown(status: Status) -> (&'static str, Style) {
    match status {
        Status::Ok => ("ok", GOOD),
        Status::Warning => ("warning", WARNING),
        Status::Failed => ("FAILED", BAD),
        Status::NotYet => ("not yet", FAINT),
        Status::Note => ("note", FAINT),
    }
}

pub fn summary(lines: &[CheckResult], target: Target) -> String {
    let count = |status| lines.iter().filter(|line| line.result == status).count();
    let (failed, warnings) = (count(Status::Failed), count(Status::Warning));
    let warned = match warnings {
        0 => String::new(),
        1 => " One warning.".to_owned(),
        many => format!(" {many} warnings."),
    };
    match failed {
        0 if target == Target::Sandbox => {
            format!("{GOOD}This is the sandbox.{GOOD:#} Nothing is installed here.{warned}")
        }
        0 if count(Status::NotYet) > 0 => format!("{GOOD}Ready to install.{GOOD:#}{warned}"),
        0 => format!("{GOOD}In order.{GOOD:#}{warned}"),
        1 => format!("{BAD}One line failed.{BAD:#}{warned}"),
        many => format!("{BAD}{many} lines failed.{BAD:#}{warned}"),
    }
}

pub fn holds(lines: &[CheckResult]) -> bool {
    lines.iter().all(|line| line.result != Status::Failed)
}

/// One object. Fields may be added; none is renamed or removed.
pub fn document(lines: &[CheckResult], target: Target, namespace: &str, installed: bool) -> String {
    let report = json!({
        "namespace": namespace, "installed": installed, "sandbox": target == Target::Sandbox,
        "holds": holds(lines), "lines": lines,
    });
    printable::json(&format!("{report}\n"))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::Value;

    use super::*;
    use crate::runtime::{
        printable::{HOSTILE, is_harmless},
        terminal::fits,
    };

    fn line(result: Status, found: &str, todo: Option<&str>) -> CheckResult {
        let todo = todo.map(str::to_owned);
        let command = todo.as_ref().map(|_| "kubectl apply -k deploy/policy".to_owned());
        let (check, subject) = ("policy", "admission policy");
        CheckResult { check, result, subject, found: found.into(), todo, command }
    }

    #[test]
    fn a_line_shows_its_mark_what_was_found_and_what_to_do() {
        let lines = [
            line(Status::Ok, "in order", None),
            line(Status::Failed, &"many words ".repeat(8), Some("Apply it.")),
        ];
        let expected = "\
ok      admission policy     in order
FAILED  admission policy     many words many words many words many words many words many words many
                             words many words
                             Apply it.
                             kubectl apply -k deploy/policy

One line failed.
";
        assert_eq!(strip_str(&table(&lines, Target::Cluster, 100)).to_string(), expected);
        for width in [50, 60, 80] {
            let narrow = strip_str(&table(&lines, Target::Cluster, width)).to_string();
            assert!(fits(&narrow, width), "{narrow}");
        }
    }

    #[test]
    fn whatever_a_tenant_wrote_the_table_and_the_document_are_harmless() {
        let mut hostile = line(Status::Warning, HOSTILE, Some(HOSTILE));
        hostile.command = Some(format!("kubectl -n {HOSTILE}"));
        let lines = [hostile];
        assert!(is_harmless(&strip_str(&table(&lines, Target::Cluster, 100)).to_string()));
        assert!(is_harmless(&document(&lines, Target::Cluster, HOSTILE, true)));
        // Our colours are stripped; those that a tenant wrote stay escaped.
        assert!(
            strip_str(&table(&lines, Target::Cluster, 100)).to_string().contains("\\u{1b}[31mred")
        );
    }

    #[test]
    fn what_it_comes_to_tells_ready_from_in_order() {
        let sum_at = |target, statuses: &[Status]| {
            let lines: Vec<_> = statuses.iter().map(|status| line(*status, "", None)).collect();
            strip_str(&summary(&lines, target)).to_string()
        };
        let sum = |statuses: &[Status]| sum_at(Target::Cluster, statuses);
        let sandbox = sum_at(Target::Sandbox, &[Status::Ok, Status::NotYet]);
        assert_eq!(sandbox, "This is the sandbox. Nothing is installed here.");
        assert_eq!(sum(&[Status::Ok, Status::Note]), "In order.");
        assert_eq!(
            sum(&[Status::Ok, Status::NotYet, Status::Warning]),
            "Ready to install. One warning."
        );
        assert_eq!(sum(&[Status::Failed, Status::Failed, Status::NotYet]), "2 lines failed.");
    }

    #[test]
    fn scripts_get_one_object_with_names_that_do_not_change() {
        let lines = [line(Status::NotYet, "comes with the installation", None)];
        let document: Value =
            serde_json::from_str(&document(&lines, Target::Cluster, "trustplane", false)).unwrap();
        let expected = json!({
            "namespace": "trustplane", "installed": false, "sandbox": false, "holds": true,
            "lines": [{
                "check": "policy", "result": "not-yet", "subject": "admission policy",
                "found": "comes with the installation", "do": null, "command": null,
            }],
        });
        assert_eq!(document, expected);
    }
}
