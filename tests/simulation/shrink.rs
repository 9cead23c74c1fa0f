//! Shrinks a failing case.

use trustplane::runtime::failpoints::Bug;

use crate::case::{Case, RunResult, run};

/// Enough for a case of 200 steps, and soon done.
const TRIES: usize = 400;

/// The smallest case found that still fails, and its result.
pub fn shrink(case: &Case, bug: Option<Bug>) -> (Case, RunResult) {
    let mut tries = 0;
    let mut smallest = (case.clone(), run(case, bug));
    let mut piece = case.steps.len().max(1);
    loop {
        let mut smaller = false;
        for candidate in candidates(&smallest.0, piece) {
            tries += 1;
            if tries > TRIES {
                return smallest;
            }
            let outcome = run(&candidate, bug);
            if !outcome.violations.is_empty() {
                smallest = (candidate, outcome);
                smaller = true;
                break;
            }
        }
        match (smaller, piece) {
            (true, _) => {}
            (false, 1) => return smallest,
            (false, _) => piece /= 2,
        }
    }
}

/// The case without one of its faults, or without `piece` steps in a row.
fn candidates(case: &Case, piece: usize) -> Vec<Case> {
    let without_fault = (0..case.faults.len()).map(|number| {
        let mut smaller = case.clone();
        smaller.faults.remove(number);
        smaller
    });
    let starts = (0..case.steps.len()).step_by(piece);
    let without_steps = starts.map(|start| without_steps(case, start, piece));
    without_fault.chain(without_steps).collect()
}

fn without_steps(case: &Case, start: usize, piece: usize) -> Case {
    let mut smaller = case.clone();
    let end = (start + piece).min(smaller.steps.len());
    smaller.steps.drain(start..end);
    for fault in &mut smaller.faults {
        if fault.at >= end {
            fault.at -= end - start;
        } else if fault.at > start {
            fault.at = start;
        }
    }
    smaller
}
