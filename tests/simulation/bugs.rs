//! Bugs that real controllers had, switched on one at a time: each must be caught.

use trustplane::runtime::failpoints::Bug;

use crate::{case::Scenario, parallel};

/// How a bug was caught.
pub struct Catch {
    pub bug: Bug,
    /// The name of the case, and its violation; None if the bug escaped.
    pub by: Option<(String, String)>,
    /// Violations of the same case without the bug: should be empty.
    pub without: Vec<String>,
}

/// Runs every bug through the plans until one catches it.
pub fn hunt<S: Scenario>(bugs: &[Bug], plans: &[S]) -> Vec<Catch> {
    parallel::map(bugs, |&bug| {
        let caught = plans.iter().find_map(|case| {
            let first = case.run(Some(bug)).violations.into_iter().next()?;
            Some((case, first))
        });
        let without = caught.as_ref().map(|(case, _)| case.run(None).violations);
        let by = caught.map(|(case, violation)| (case.name().to_owned(), violation));
        Catch { bug, by, without: without.unwrap_or_default() }
    })
}

/// A case of each kind in turn, so that a bug that only the last kind catches is not tried on all of the others before.
pub fn in_turns<S>(kinds: impl IntoIterator<Item = Vec<S>>) -> impl Iterator<Item = S> {
    let mut kinds: Vec<_> = kinds.into_iter().map(Vec::into_iter).collect();
    let rounds = std::iter::from_fn(move || {
        let round: Vec<S> = kinds.iter_mut().filter_map(Iterator::next).collect();
        (!round.is_empty()).then_some(round)
    });
    rounds.flatten()
}
