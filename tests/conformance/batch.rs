//! Runs many sequences, counts what was compared, and reports failures.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use futures::StreamExt;

use crate::call::Call;
use crate::generate::{Generator, KINDS};
use crate::sequence::{self, Compared, Disagreement, Pair};

/// Calls per sequence. Longer ones find nothing more and take longer to shrink.
const LENGTH: usize = 80;
/// Concurrent sequences, because the real server mostly waits.
const CONCURRENCY: usize = 4;
/// Limits for shrinking a failing sequence.
const RETRIES: usize = 300;
const SHRINK_WITHIN: Duration = Duration::from_secs(45);

#[derive(Default)]
pub struct Tally {
    pub operations: usize,
    by_verb: BTreeMap<String, usize>,
    by_code: BTreeMap<u16, usize>,
    known: BTreeMap<&'static str, usize>,
    took: Duration,
}

/// Fixed in `make test`, random in long runs; TRUSTPLANE_SEED repeats one.
pub fn seed() -> u64 {
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let long = is_long().then(|| u64::from(std::process::id()) << 20);
    let seed = given.or(long).unwrap_or(20_260_101);
    println!("TRUSTPLANE_SEED={seed}");
    seed
}

pub fn is_long() -> bool {
    std::env::var_os("TRUSTPLANE_LONG").is_some()
}

/// Compares at least this many operations. An error is a report that shows how to reproduce the
/// difference.
pub async fn compare(pair: &Pair, seed: u64, operations: usize) -> Result<Tally, String> {
    match first_failure(pair, seed, operations).await {
        Ok(tally) => Ok(tally),
        Err(Failure { seed, steps, found }) => Err(report(pair, seed, &steps, *found).await),
    }
}

/// A sequence on which the two sides differ.
pub struct Failure {
    pub seed: u64,
    pub steps: Vec<Call>,
    pub found: Box<Disagreement>,
}

/// Like [`compare`], without shrinking.
pub async fn first_failure(pair: &Pair, seed: u64, operations: usize) -> Result<Tally, Failure> {
    let start = Instant::now();
    let sequences = (0..operations.div_ceil(LENGTH) as u64).map(|number| async move {
        let seed = seed + number;
        let steps = Generator::new(seed).sequence(LENGTH);
        match sequence::run(pair, &steps).await {
            Ok(compared) => Ok(compared),
            Err(found) => Err(Failure { seed, steps, found }),
        }
    });
    let mut sequences = futures::stream::iter(sequences).buffer_unordered(CONCURRENCY);
    let mut tally = Tally::default();
    while let Some(done) = sequences.next().await {
        tally.add(&done?);
    }
    tally.took = start.elapsed();
    Ok(tally)
}

/// Compares handwritten sequences concurrently, because some wait for controllers. Returns the
/// differences.
pub async fn scenarios(pair: &Pair, scenarios: Vec<(&'static str, Vec<Call>)>) -> Vec<String> {
    let runs = scenarios.iter().map(|(name, steps)| async move {
        let failure = sequence::run(pair, steps).await.err();
        failure.map(|found| format!("{name}: {found}"))
    });
    futures::future::join_all(runs).await.into_iter().flatten().collect()
}

async fn report(pair: &Pair, seed: u64, steps: &[Call], found: Disagreement) -> String {
    let first = found.to_string();
    let (steps, found) = shrink(pair, steps, found).await;
    let mut text = format!(
        "TRUSTPLANE_SEED={seed} has a sequence on which {} and {} differ:\n",
        pair.left.name, pair.right.name
    );
    for (index, step) in steps.iter().enumerate() {
        text.push_str(&format!("  {index}. {step}\n"));
    }
    text + &format!("and then {found}as it was found: {first}")
}

/// A shorter sequence on which the two sides still differ.
async fn shrink(pair: &Pair, steps: &[Call], found: Disagreement) -> (Vec<Call>, Disagreement) {
    let start = Instant::now();
    let (mut steps, mut found) = (steps.to_vec(), found);
    if !found.call.is_watch() {
        steps.truncate(found.step + 1);
    }
    let related: Vec<_> =
        steps.iter().filter(|step| step.collection() == found.call.collection()).cloned().collect();
    if let Err(still) = sequence::run(pair, &related).await {
        (steps, found) = (related, *still);
    }
    let mut size = (steps.len() / 2).max(1);
    let mut tries = 0;
    while size > 0 {
        let mut at = 0;
        while at < steps.len() && tries < RETRIES && start.elapsed() < SHRINK_WITHIN {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            tries += 1;
            match sequence::run(pair, &fewer).await {
                Err(still) if still.call.method == found.call.method => {
                    (steps, found) = (fewer, *still);
                }
                _ => at += size,
            }
        }
        size /= 2;
    }
    (steps, found)
}

impl Tally {
    fn add(&mut self, compared: &[Compared]) {
        for one in compared {
            self.operations += 1;
            *self.by_verb.entry(one.verb()).or_default() += 1;
            *self.by_code.entry(one.code).or_default() += 1;
            if let Some(known) = one.known {
                *self.known.entry(known).or_default() += 1;
            }
        }
    }

    /// Number of known differences found.
    pub fn known(&self) -> usize {
        self.known.values().sum()
    }

    /// Calls that were made too rarely for the comparison to mean much.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        for verb in ["create", "get", "list", "update", "patch", "delete", "watch"] {
            for kind in KINDS {
                let what = format!("{verb} {} {}", kind.plural, kind.api_version);
                if self.by_verb.get(&what).copied().unwrap_or_default() < 3 {
                    gaps.push(what);
                }
            }
        }
        for code in [200, 201, 400, 404, 405, 406, 409, 415, 422] {
            if self.by_code.get(&code).copied().unwrap_or_default() < 3 {
                gaps.push(format!("code {code}"));
            }
        }
        gaps
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        write!(f, "{} operations in {:?}, codes {:?}", self.operations, self.took, self.by_code)?;
        write!(f, ", 0 unknown differences, {known} known ones {:?}", self.known)
    }
}

impl Compared {
    /// Such as `update secrets v1`.
    fn verb(&self) -> String {
        let of = |kind: &&crate::generate::Kind| {
            let place = self.path.strip_prefix(&format!("{}/", kind.base()));
            let place =
                place.and_then(
                    |place| if kind.namespaced { place.split('/').nth(2) } else { Some(place) },
                );
            let everywhere = self.path == kind.everywhere();
            everywhere || place.is_some_and(|place| place.split('/').next() == Some(kind.plural))
        };
        let Some(kind) = KINDS.iter().find(of) else { return "odd".to_owned() };
        let in_collection = self.path.ends_with(kind.plural);
        let verb = match (self.method.as_str(), self.is_watch, in_collection) {
            ("GET", true, _) => "watch",
            ("GET", false, true) => "list",
            ("GET", false, false) => "get",
            ("POST", ..) => "create",
            ("PUT", ..) => "update",
            ("PATCH", ..) => "patch",
            ("DELETE", _, false) => "delete",
            ("DELETE", _, true) => "deletecollection",
            _ => "odd",
        };
        format!("{verb} {} {}", kind.plural, kind.api_version)
    }
}
