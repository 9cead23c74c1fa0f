//! Bugs that controllers really had, switched on one at a time: each must be caught.

use trustplane::runtime::failpoints::Bug;

use crate::{
    case::{Case, run},
    parallel, plans, workloads,
};

/// Random cases that are tried where no plan catches a bug.
const SEEDS: u64 = 300;

/// What caught a bug.
pub struct Catch {
    pub bug: Bug,
    /// The case and what it found; none where the bug got away.
    pub by: Option<(Case, String)>,
    /// What the same case finds without the bug: nothing.
    pub without: Vec<String>,
}

/// Tries every bug on the plans, the cheapest first, until one of them catches it.
pub fn hunt() -> Vec<Catch> {
    let plans: Vec<Case> = workloads::stories()
        .into_iter()
        .chain(plans::hours())
        .chain(plans::api_faults())
        .chain(plans::unobserved())
        .chain(plans::stale())
        .chain(plans::replicas())
        .chain((0..SEEDS).map(workloads::random))
        .collect();
    parallel::map(&Bug::ALL, |&bug| {
        let caught = plans.iter().find_map(|case| {
            let first = run(case, Some(bug)).violations.into_iter().next()?;
            Some((case.clone(), first))
        });
        let without = caught.as_ref().map(|(case, _)| run(case, None).violations);
        Catch { bug, by: caught, without: without.unwrap_or_default() }
    })
}
