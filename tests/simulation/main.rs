//! The fault simulator: the unchanged production controller against an API server in the same
//! process, over a connection that fails by plan, on a clock that only advances while every task
//! waits.
//!
//! - `workloads`, `ops`: actions of users, cert-manager, GitOps tools and routers
//! - `faults`, `plans`: the faults, and every point at which they happen
//! - `world`, `wire`: one simulation, over the fault layer of `apiserver`
//! - `oracle`: the invariants of every history; `testkit::route_table` is a second implementation
//!   of the decisions
//! - `bugs`, `tamper`: seeded bugs, each of which must be caught
//!
//! `make simulate` runs everything. A failing case is printed with the command that reproduces it:
//! `TRUSTPLANE_SEED=4711 make simulate` runs one seed, `TRUSTPLANE_CASE='...'` one plan.

mod bugs;
mod case;
mod faults;
mod journal;
mod ops;
mod oracle;
mod parallel;
mod plans;
mod pool;
mod shrink;
mod tamper;
mod wire;
mod workloads;
mod world;

use std::{process::ExitCode, time::Instant};

use case::{Case, RunResult, run};

/// Random cases in `make test`; `make simulate` runs more.
const SEEDS: u64 = 2_000;
/// This many failures are shown in full.
const SHOWN: usize = 3;

#[derive(Default)]
struct Totals {
    plans: usize,
    seeds: usize,
    violations: usize,
    caught: usize,
    escaped: usize,
}

fn main() -> ExitCode {
    let start = Instant::now();
    let mut totals = Totals::default();
    if let Some(seed) = number("TRUSTPLANE_SEED") {
        totals.seeds += 1;
        totals.violations += all_hold("one seed", &[workloads::random(seed)]);
    } else if let Ok(name) = std::env::var("TRUSTPLANE_CASE") {
        let plans: Vec<Case> = plans().into_iter().flat_map(|(_, cases)| cases).collect();
        let named: Vec<Case> = plans.into_iter().filter(|case| case.name == name).collect();
        assert!(!named.is_empty(), "there is no plan of this name");
        totals.plans += 1;
        totals.violations += all_hold("one plan", &named);
    } else {
        everything(&mut totals);
    }
    println!(
        "simulation: {} plans, {} seeds, {} violations, {} seeded bugs caught, {} escaped, {:.0} s",
        totals.plans,
        totals.seeds,
        totals.violations,
        totals.caught,
        totals.escaped,
        start.elapsed().as_secs_f64()
    );
    let failed = totals.violations + totals.escaped;
    let passed = (totals.plans + totals.seeds + totals.caught).saturating_sub(totals.violations);
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn everything(totals: &mut Totals) {
    totals.violations += repeats_itself();
    for (name, cases) in plans() {
        totals.plans += cases.len();
        totals.violations += all_hold(name, &cases);
    }
    let seeds: Vec<Case> =
        (0..number("TRUSTPLANE_SEEDS").unwrap_or(SEEDS)).map(workloads::random).collect();
    totals.seeds += seeds.len();
    totals.violations += all_hold("random", &seeds);
    hunt_bugs(totals);
}

fn plans() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("no fault", workloads::stories()),
        ("crash everywhere", plans::crash_everywhere()),
        ("stale", plans::stale()),
        ("unobserved", plans::unobserved()),
        ("API faults", plans::api_faults()),
        ("two replicas", plans::replicas()),
        ("hours", plans::hours()),
    ]
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

/// Runs the cases. Returns how many have violations.
fn all_hold(name: &str, cases: &[Case]) -> usize {
    let start = Instant::now();
    let outcomes = parallel::map(cases, |case| run(case, None));
    let failed: Vec<(&Case, &RunResult)> =
        cases.iter().zip(&outcomes).filter(|(_, outcome)| !outcome.violations.is_empty()).collect();
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {} cases, {} violations, {seconds:.1} s", cases.len(), failed.len());
    for (case, outcome) in failed.iter().take(SHOWN) {
        show(case, outcome);
    }
    for (case, outcome) in failed.iter().skip(SHOWN).take(20) {
        println!("  also: {}: {}", case.name, outcome.violations[0]);
    }
    failed.len()
}

fn show(case: &Case, outcome: &RunResult) {
    println!("\nVIOLATION in {}", case.name);
    for violation in &outcome.violations {
        println!("  {violation}");
    }
    let (smallest, outcome) = shrink::shrink(case, None);
    println!("  the smallest case found has {} steps:", smallest.steps.len());
    for (number, step) in smallest.steps.iter().enumerate() {
        println!("    {number}: after {:?} {:?}", step.wait, step.op);
    }
    for fault in &smallest.faults {
        println!("    fault: {fault:?}");
    }
    println!("    and finds: {:?}", outcome.violations);
    match case.name.strip_prefix("seed ") {
        Some(seed) => println!("  reproduce it with: TRUSTPLANE_SEED={seed} make simulate\n"),
        None => println!("  reproduce it with: TRUSTPLANE_CASE='{}' make simulate\n", case.name),
    }
}

/// A failure can only be reproduced if the same seed makes the same history.
fn repeats_itself() -> usize {
    let cases: Vec<Case> = (0..40).map(workloads::random).collect();
    let digests = || parallel::map(&cases, |case| run(case, None).digest);
    let (once, twice) = (digests(), digests());
    let differing: Vec<usize> = (0..cases.len()).filter(|&at| once[at] != twice[at]).collect();
    println!("the same history twice: {} cases, {} differ", cases.len(), differing.len());
    for at in &differing {
        println!("VIOLATION: {} does not repeat itself", cases[*at].name);
    }
    differing.len()
}

fn hunt_bugs(totals: &mut Totals) {
    let start = Instant::now();
    let hunted = bugs::hunt();
    println!("\n{:<22} {:<70} what it saw", "seeded bug", "caught by");
    for catch in &hunted {
        match &catch.by {
            Some((case, violation)) => {
                println!("{:<22} {:<70} {violation}", format!("{:?}", catch.bug), case.name);
                totals.caught += 1;
            }
            None => {
                println!("{:<22} NOT CAUGHT", format!("{:?}", catch.bug));
                totals.escaped += 1;
            }
        }
        for violation in &catch.without {
            println!("  VIOLATION: the same case fails without the bug: {violation}");
            totals.violations += 1;
        }
    }
    println!("seeded bugs: {:.1} s\n", start.elapsed().as_secs_f64());
}
