//! What the tours that end by themselves have in common.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_trustplane");
/// Visitors should not wait minutes for a rotation.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Runs `trustplane demo TOUR`.
pub fn run(tour: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["demo", tour]).args(arguments).stdin(Stdio::null());
    for name in ["RUST_LOG", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

pub fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// The report of a tour in which every step held, and which shows no key.
pub fn report(tour: &str) -> Value {
    let start = Instant::now();
    let ended = run(tour, &["-o", "json"], &[]);
    assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    let report: Value = serde_json::from_slice(&ended.stdout).expect("JSON alone");
    assert_eq!(report["holds"], true);
    assert!(!text(&ended.stdout).contains("PRIVATE KEY"), "a key is shown");
    report
}

/// Without a terminal it ends by itself, and breaks no word at 50 or 80 columns.
pub fn check_widths(tour: &str, steps: usize) {
    // They wait more than they compute.
    std::thread::scope(|scope| {
        for width in [50, 80] {
            scope.spawn(move || check_width(tour, steps, width));
        }
    });
}

fn check_width(tour: &str, steps: usize, width: usize) {
    let ended = run(tour, &[], &[("COLUMNS", &width.to_string())]);
    let (shown, said) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success() && said.is_empty(), "{shown}{said}");
    let held = format!("{steps} of {steps} steps showed what they should");
    assert!(shown.contains(&held), "{shown}");
    let one_word = |line: &str| {
        let line = line.trim().trim_end_matches(" \\");
        line.starts_with('\'') || !line.contains(' ')
    };
    let too_long = |line: &&str| line.chars().count() > width && !one_word(line);
    assert_eq!(shown.lines().find(too_long), None, "{width}:\n{shown}");
    assert!(!shown.contains('\x1b'), "colours in a file: {shown:?}");
}

#[test]
fn flags_of_the_other_tour_are_refused() {
    for tour in ["authority", "federation", "join"] {
        let ended = run(tour, &["--api-port", "0"], &[]);
        assert_eq!(ended.status.code(), Some(2), "{tour}: {}", text(&ended.stderr));
    }
}
