//! Shrinks a failing case.

use trustplane::runtime::failpoints::Bug;

use crate::case::{RunResult, Scenario};

/// Enough for a case of 200 steps, and soon done.
const TRIES: usize = 400;

/// The smallest case found that still fails, and its result.
pub fn shrink<S: Scenario>(case: &S, bug: Option<Bug>) -> (S, RunResult) {
    let mut tries = 0;
    let mut smallest = (case.clone(), case.run(bug));
    let mut piece = smallest.0.steps().len().max(1);
    loop {
        let mut smaller = false;
        for candidate in candidates(&mut smallest.0, piece) {
            tries += 1;
            if tries > TRIES {
                return smallest;
            }
            let outcome = candidate.run(bug);
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
fn candidates<S: Scenario>(case: &mut S, piece: usize) -> Vec<S> {
    let (faults, steps) = (case.faults().len(), case.steps().len());
    let without_fault = (0..faults).map(|number| {
        let mut smaller = case.clone();
        smaller.faults().remove(number);
        smaller
    });
    let starts = (0..steps).step_by(piece);
    let without_steps = starts.map(|start| without_steps(case, start, (start + piece).min(steps)));
    without_fault.chain(without_steps).collect()
}

fn without_steps<S: Scenario>(case: &S, start: usize, end: usize) -> S {
    let mut smaller = case.clone();
    smaller.steps().drain(start..end);
    for fault in smaller.faults() {
        if fault.at >= end {
            fault.at -= end - start;
        } else if fault.at > start {
            fault.at = start;
        }
    }
    smaller
}
