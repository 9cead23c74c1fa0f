//! The results of a run, for people and for programs.

use std::path::Path;

use testkit::suite;

use super::observation::{Observation, Shown};
use super::runner::{CaseResult, CaseVerdict};

/// Digits of a serial number that are shown; the JSON has all.
const DIGITS: usize = 12;

type Line = [String; 5];

/// Prints the table, what was skipped and why, and the totals.
pub fn print(outcomes: &[CaseResult]) {
    let mut lines = vec![["case", "served", "condition", "Event", "time"].map(str::to_owned)];
    lines.extend(outcomes.iter().filter(|outcome| !outcome.is_skipped()).flat_map(lines_of));
    print_aligned(&lines);
    let skipped: Vec<&CaseResult> =
        outcomes.iter().filter(|outcome| outcome.is_skipped()).collect();
    if !skipped.is_empty() {
        println!("\nskipped:");
    }
    for outcome in skipped {
        if let CaseVerdict::Skipped(why) = &outcome.result {
            println!("  {}: {why}", outcome.case);
        }
    }
    let notes = outcomes.iter().flat_map(|outcome| &outcome.notes);
    for (number, note) in notes.enumerate() {
        println!("{}{note}", if number == 0 { "\n" } else { "" });
    }
    for outcome in outcomes {
        if let CaseVerdict::Failed(why) = &outcome.result {
            println!("\nFAILED {}\n{why}", outcome.case);
        }
    }
    println!("\n{}", totals(outcomes));
}

/// Writes all of it as JSON.
pub fn write(outcomes: &[CaseResult], path: &Path) {
    let text = serde_json::to_string_pretty(outcomes).expect("outcomes are JSON");
    suite::write_private(path, &text);
}

fn totals(outcomes: &[CaseResult]) -> String {
    let failed = outcomes.iter().filter(|outcome| outcome.has_failed()).count();
    let skipped = outcomes.iter().filter(|outcome| outcome.is_skipped()).count();
    let passed = outcomes.len() - failed - skipped;
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

impl CaseResult {
    pub fn has_failed(&self) -> bool {
        matches!(self.result, CaseVerdict::Failed(_))
    }

    fn is_skipped(&self) -> bool {
        matches!(self.result, CaseVerdict::Skipped(_))
    }
}

/// One line a sight; the first names the case, the last has its time.
fn lines_of(outcome: &CaseResult) -> Vec<Line> {
    let mut lines: Vec<Line> = outcome.saw.iter().map(line).collect();
    if lines.is_empty() {
        lines.push(["", "-", "-", "-", ""].map(str::to_owned));
    }
    let failed = if outcome.has_failed() { "FAILED " } else { "" };
    if let Some(first) = lines.first_mut() {
        first[0] = format!("{failed}{}", outcome.case);
    }
    if let Some(last) = lines.last_mut() {
        last[4] = format!("{:.1} s", outcome.seconds);
    }
    lines
}

fn line(sight: &Observation) -> Line {
    let served = match &sight.served {
        Shown::Default => "default".to_owned(),
        Shown::Nothing => "nothing".to_owned(),
        Shown::Certificate { issuer, serial } => {
            format!("{issuer} {}", serial.get(..DIGITS).unwrap_or(serial))
        }
        Shown::Several { issuer, serials } => format!("{issuer}, {serials} serials"),
    };
    let is_one = !matches!(sight.served, Shown::Several { .. });
    let times =
        if is_one && sight.times > 1 { format!(" (x{})", sight.times) } else { String::new() };
    [
        String::new(),
        format!("{served}{times}"),
        sight.condition.clone(),
        sight.event.clone(),
        String::new(),
    ]
}

fn print_aligned(lines: &[Line]) {
    let mut widths = [0; 5];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    println!();
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
