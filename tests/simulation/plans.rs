//! Combines every story with every fault at every point.

use std::time::Duration;

use crate::{
    bugs::with_first,
    case::{Case, Scenario},
    faults::{Calls, Committed, Damage, Fault, FaultKind, Moment, Watched},
    parallel,
    workloads::{BEAT, random, stories},
};

/// Random cases to try if no plan catches a bug.
const SEEDS_FOR_BUGS: u64 = 300;
/// Plans that caught what no story does.
const CAUGHT_BUGS: [&str; 11] = [
    "a webhook is down from step 0: the Route is there first",
    "a webhook is down from step 0: termination changes",
    "503 from step 2: the Route is there first",
    "403 on Secrets for good: the Route is there first",
    "Secrets are answered late from step 0: Secret deleted",
    "Secrets unlisted, 2 steps from 0: Secret deleted",
    "Secrets unlisted, 2 steps from 1: renewed twice",
    "Routes unlisted, 1 steps from 1: renewed twice",
    "seed 3",
    "seed 13",
    "seed 36",
];
const A_WHILE: Duration = Duration::from_secs(30);
const FOR_EVER: Duration = Duration::from_secs(100_000);
const MINUTE: Duration = Duration::from_secs(60);

fn with(story: &Case, name: String, faults: Vec<Fault>) -> Case {
    Case { name: format!("{name}: {}", story.name), faults, ..story.clone() }
}

/// Cases in which seeded bugs are looked for. Without a fault, most are caught already.
pub fn for_bugs() -> Vec<Case> {
    let seeds = (0..SEEDS_FOR_BUGS).map(random).collect();
    let with_faults = [hours(), api_faults(), unobserved(), stale(), replicas(), seeds].concat();
    stories().into_iter().chain(with_first(&CAUGHT_BUGS, with_faults)).collect()
}

/// The process dies before its nth call is sent, or after the API server carried it out.
pub fn crash_everywhere() -> Vec<Case> {
    let stories = stories();
    let calls = parallel::map(&stories, |story| story.run(None).busy_calls);
    let mut plans = Vec::new();
    for (story, calls) in stories.iter().zip(calls) {
        for call in 0..calls {
            for moment in [Moment::BeforeSend, Moment::AfterCommit] {
                let fault =
                    Fault { at: 0, lasts: Duration::ZERO, kind: FaultKind::Crash { call, moment } };
                plans.push(with(story, format!("crash at call {call}, {moment:?}"), vec![fault]));
            }
        }
    }
    plans
}

/// Each watch freezes from each step on, or the process restarts with a server that lags.
pub fn stale() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in stories() {
        for at in 1..=story.steps.len() {
            for kind in [
                FaultKind::Freeze(Watched::Routes),
                FaultKind::Freeze(Watched::Secrets),
                FaultKind::Lag,
            ] {
                let name = format!("{kind:?} from step {at}");
                plans.push(with(&story, name, vec![Fault { at, lasts: A_WHILE, kind }]));
            }
        }
    }
    plans
}

/// A watch misses one, two or three steps, and then finds their history gone.
pub fn unobserved() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in stories() {
        for at in 0..story.steps.len() {
            for hidden in (1..=3).filter(|hidden| at + hidden <= story.steps.len()) {
                let waits = story.steps[at..at + hidden].iter().map(|step| step.wait);
                let lasts = waits.sum::<Duration>() + BEAT / 2;
                for watched in Watched::BOTH {
                    let name = format!("{watched:?} unlisted, {hidden} steps from {at}");
                    let kind = FaultKind::Gap(watched);
                    plans.push(with(&story, name, vec![Fault { at, lasts, kind }]));
                }
            }
        }
    }
    plans
}

/// Errors and missing answers of the API server.
pub fn api_faults() -> Vec<Case> {
    let refuse = |which, code, committed, most| FaultKind::Refuse { which, code, committed, most };
    let both = |kind: fn(Watched) -> FaultKind| Watched::BOTH.map(kind).to_vec();
    let faults: Vec<(&str, Duration, Vec<FaultKind>)> = vec![
        (
            "50 conflicts in a row",
            5 * MINUTE,
            vec![refuse(Calls::PairPatches, 409, Committed::No, 50)],
        ),
        (
            "a webhook is down",
            3 * MINUTE,
            vec![refuse(Calls::PairPatches, 500, Committed::No, u32::MAX)],
        ),
        (
            "pairs are denied",
            3 * MINUTE,
            vec![refuse(Calls::PairPatches, 403, Committed::No, u32::MAX)],
        ),
        (
            "pairs get no answer",
            3 * MINUTE,
            vec![FaultKind::Lose {
                which: Calls::PairPatches,
                committed: Committed::No,
                most: u32::MAX,
            }],
        ),
        ("conflicts on status", MINUTE, vec![refuse(Calls::Status, 409, Committed::No, 10)]),
        ("429 with Retry-After", A_WHILE, vec![refuse(Calls::Everything, 429, Committed::No, 20)]),
        ("503", A_WHILE, vec![refuse(Calls::Everything, 503, Committed::No, 20)]),
        ("503 after the commit", A_WHILE, vec![refuse(Calls::Patches, 503, Committed::Yes, 3)]),
        ("504 after the commit", MINUTE, vec![refuse(Calls::Everything, 504, Committed::Yes, 5)]),
        (
            "no answer, not done",
            MINUTE,
            vec![FaultKind::Lose { which: Calls::Everything, committed: Committed::No, most: 5 }],
        ),
        (
            "no answer, but done",
            MINUTE,
            vec![FaultKind::Lose { which: Calls::Patches, committed: Committed::Yes, most: 3 }],
        ),
        (
            "410 at the start of watches",
            2 * MINUTE,
            both(|watched| FaultKind::Refuse {
                which: Calls::Watches(watched),
                code: 410,
                committed: Committed::No,
                most: 3,
            }),
        ),
        ("410 as an event", MINUTE, both(|watched| FaultKind::Damage(watched, Damage::Gone))),
        ("half-open watches", MINUTE, both(|watched| FaultKind::Damage(watched, Damage::HalfOpen))),
        ("watches reset", MINUTE, both(|watched| FaultKind::Damage(watched, Damage::Reset))),
        ("truncated chunks", MINUTE, both(|watched| FaultKind::Damage(watched, Damage::Truncated))),
        (
            "undecodable Route",
            MINUTE,
            vec![FaultKind::Damage(Watched::Routes, Damage::Undecodable)],
        ),
        (
            "undecodable Secret",
            MINUTE,
            vec![FaultKind::Damage(Watched::Secrets, Damage::Undecodable)],
        ),
        ("403 on Routes", 3 * MINUTE, forbidden(Watched::Routes)),
        ("403 on Secrets", 3 * MINUTE, forbidden(Watched::Secrets)),
        ("401", MINUTE, vec![refuse(Calls::Everything, 401, Committed::No, u32::MAX)]),
        ("Events refused", MINUTE, vec![refuse(Calls::Events, 403, Committed::No, u32::MAX)]),
        (
            "10 s latency",
            MINUTE,
            vec![FaultKind::Slow { which: Calls::Everything, by: Duration::from_secs(10) }],
        ),
        (
            "9 s latency",
            MINUTE,
            vec![FaultKind::Slow { which: Calls::Everything, by: Duration::from_secs(9) }],
        ),
        ("history forgotten", MINUTE, vec![FaultKind::Compact]),
        (
            "Secrets can't be read",
            MINUTE,
            vec![refuse(Calls::Secret, 503, Committed::No, u32::MAX)],
        ),
        (
            "Secrets are forbidden",
            MINUTE,
            vec![refuse(Calls::Secret, 403, Committed::No, u32::MAX)],
        ),
        ("patches are answered late", MINUTE, late(Calls::Patches)),
        ("Secrets are answered late", MINUTE, late(Calls::Secret)),
    ];
    let mut plans = Vec::new();
    for story in stories() {
        let fault = |kind| Fault { at: 2, lasts: FOR_EVER, kind };
        let faults_for_good = forbidden(Watched::Secrets).into_iter().map(fault).collect();
        let case = with(&story, "403 on Secrets for good".to_owned(), faults_for_good);
        plans.push(Case { faults_end: false, ..case });
        for (name, lasts, kinds) in &faults {
            // From the start, and from the middle.
            for at in [0, 2] {
                let faults =
                    kinds.iter().map(|kind| Fault { at, lasts: *lasts, kind: kind.clone() });
                plans.push(with(&story, format!("{name} from step {at}"), faults.collect()));
            }
        }
    }
    plans
}

fn late(which: Calls) -> Vec<FaultKind> {
    vec![FaultKind::SlowAnswer { which, by: Duration::from_secs(5) }]
}

/// Problems that last for hours.
pub fn hours() -> Vec<Case> {
    let lasting = ["Secret deleted", "Secret broken and mended", "one Secret, three Routes"];
    let stories = stories().into_iter().filter(|story| lasting.contains(&story.name.as_str()));
    let long = |story: Case| Case {
        name: format!("for hours: {}", story.name),
        extra_time: Duration::from_secs(3 * 60 * 60),
        ..story
    };
    stories.map(long).collect()
}

/// The watch breaks, and neither watch nor list is allowed any more.
fn forbidden(watched: Watched) -> Vec<FaultKind> {
    let refuse =
        |which| FaultKind::Refuse { which, code: 403, committed: Committed::No, most: u32::MAX };
    vec![
        FaultKind::Damage(watched, Damage::Reset),
        refuse(Calls::Lists(watched)),
        refuse(Calls::Watches(watched)),
    ]
}

/// Two replicas: the leader dies, is cut off, cannot renew, or is slow.
pub fn replicas() -> Vec<Case> {
    let no_lease = FaultKind::Refuse {
        which: Calls::Leases,
        code: 503,
        committed: Committed::No,
        most: u32::MAX,
    };
    let slow = |which, seconds| FaultKind::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, Vec<FaultKind>)> = vec![
        ("nothing", vec![]),
        ("the first is cut off", vec![FaultKind::Pause { replica: 0 }]),
        ("the second is cut off", vec![FaultKind::Pause { replica: 1 }]),
        ("no lease can be written, Secrets are slow", vec![no_lease, slow(Calls::Secret, 9)]),
        ("everything takes 4 s", vec![slow(Calls::Everything, 4)]),
        ("the first dies", vec![FaultKind::Crash { call: 14, moment: Moment::AfterCommit }]),
        ("the first comes back to a server that lags", vec![FaultKind::Lag]),
    ];
    let lasts = Duration::from_secs(40);
    let mut plans = Vec::new();
    for story in stories() {
        let story = Case { replicas: 2, sees_resyncs: false, ..story };
        for (name, kinds) in &faults {
            for at in [1, 2] {
                let faults = kinds.iter().map(|kind| Fault { at, lasts, kind: kind.clone() });
                let name = format!("two replicas, {name} from step {at}");
                plans.push(with(&story, name, faults.collect()));
            }
        }
    }
    plans
}
