//! Bugs that real controllers had, switched on one at a time: each must be caught.

use trustplane::runtime::failpoints::Bug;

use crate::{
    case::{Case, run},
    parallel, plans, workloads,
};

/// Random cases to try if no plan catches a bug.
const SEEDS: u64 = 300;

/// How a bug was caught.
pub struct Catch {
    pub bug: Bug,
    /// The case and its violation; None if the bug escaped.
    pub by: Option<(Case, String)>,
    /// Violations of the same case without the bug: should be empty.
    pub without: Vec<String>,
}

/// Runs every bug through the plans, cheapest first, until one catches it.
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
