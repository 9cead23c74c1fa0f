//! Bugs that real controllers had, switched on one at a time: each must be caught.

use std::time::Instant;

use trustplane::runtime::failpoints::Bug;

use crate::{case::Scenario, parallel};

/// How a bug was caught.
pub struct Catch {
    pub bug: Bug,
    /// The name of the case, and its violation; None if the bug escaped.
    pub by: Option<(String, String)>,
    /// Violations of the same case without the bug: should be empty.
    pub without: Vec<String>,
    /// How many cases were tried, and for how long.
    pub tried: usize,
    pub seconds: f64,
}

/// Runs every bug through the plans until one catches it.
pub fn hunt<S: Scenario>(bugs: &[Bug], plans: &[S]) -> Vec<Catch> {
    parallel::map(bugs, |&bug| {
        let (start, mut tried) = (Instant::now(), 0);
        let caught = plans.iter().find_map(|case| {
            tried += 1;
            let first = case.run(Some(bug)).violations.into_iter().next()?;
            Some((case, first))
        });
        let without = caught.as_ref().map(|(case, _)| case.run(None).violations);
        let by = caught.map(|(case, violation)| (case.name().to_owned(), violation));
        let seconds = start.elapsed().as_secs_f64();
        Catch { bug, by, without: without.unwrap_or_default(), tried, seconds }
    })
}

/// Puts the plans that caught a bug before in front. Without them, some bugs are tried on thousands of plans first.
pub fn with_first<S: Scenario>(caught_before: &[&str], plans: Vec<S>) -> impl Iterator<Item = S> {
    let is_known = |plan: &S| caught_before.contains(&plan.name());
    let (known, others): (Vec<S>, Vec<S>) = plans.into_iter().partition(is_known);
    assert!(known.len() >= caught_before.len(), "a plan of these is gone: {caught_before:?}");
    known.into_iter().chain(others)
}
