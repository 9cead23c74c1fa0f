//! Every story with every fault at every point, as far as that can be counted.

use std::time::Duration;

use crate::{
    case::{Case, run},
    faults::{Committed, Damage, Fault, Moment, Watched, What, Which},
    parallel,
    workloads::{BEAT, stories},
};

const A_WHILE: Duration = Duration::from_secs(30);
const FOR_EVER: Duration = Duration::from_secs(100_000);
const MINUTE: Duration = Duration::from_secs(60);

fn with(story: &Case, name: String, faults: Vec<Fault>) -> Case {
    Case { name: format!("{name}: {}", story.name), faults, ..story.clone() }
}

/// The process dies before it sends its nth call, and after the API server has carried it out.
pub fn crash_everywhere() -> Vec<Case> {
    let stories = stories();
    let calls = parallel::map(&stories, |story| run(story, None).busy_calls);
    let mut plans = Vec::new();
    for (story, calls) in stories.iter().zip(calls) {
        for call in 0..calls {
            for moment in [Moment::BeforeSend, Moment::AfterCommit] {
                let fault =
                    Fault { at: 0, lasts: Duration::ZERO, what: What::Crash { call, moment } };
                plans.push(with(story, format!("crash at call {call}, {moment:?}"), vec![fault]));
            }
        }
    }
    plans
}

/// Each watch stands still from each step on; and the process comes back to a server that lags.
pub fn stale() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in stories() {
        for at in 1..=story.steps.len() {
            for what in [What::Freeze(Watched::Routes), What::Freeze(Watched::Secrets), What::Lag] {
                let name = format!("{what:?} from step {at}");
                plans.push(with(&story, name, vec![Fault { at, lasts: A_WHILE, what }]));
            }
        }
    }
    plans
}

/// A watch sees nothing of one, two or three steps, and then finds their history gone.
pub fn unobserved() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in stories() {
        for at in 0..story.steps.len() {
            for hidden in (1..=3).filter(|hidden| at + hidden <= story.steps.len()) {
                let waits = story.steps[at..at + hidden].iter().map(|step| step.wait);
                let lasts = waits.sum::<Duration>() + BEAT / 2;
                for watched in Watched::BOTH {
                    let name = format!("{watched:?} unlisted, {hidden} steps from {at}");
                    let what = What::Gap(watched);
                    plans.push(with(&story, name, vec![Fault { at, lasts, what }]));
                }
            }
        }
    }
    plans
}

/// Everything that an API server can answer, or fail to.
pub fn api_faults() -> Vec<Case> {
    let refuse = |which, code, committed, most| What::Refuse { which, code, committed, most };
    let both = |what: fn(Watched) -> What| Watched::BOTH.map(what).to_vec();
    let faults: Vec<(&str, Duration, Vec<What>)> = vec![
        (
            "50 conflicts in a row",
            5 * MINUTE,
            vec![refuse(Which::PairPatches, 409, Committed::No, 50)],
        ),
        (
            "a webhook is down",
            3 * MINUTE,
            vec![refuse(Which::PairPatches, 500, Committed::No, u32::MAX)],
        ),
        (
            "pairs are denied",
            3 * MINUTE,
            vec![refuse(Which::PairPatches, 403, Committed::No, u32::MAX)],
        ),
        (
            "pairs get no answer",
            3 * MINUTE,
            vec![What::Lose {
                which: Which::PairPatches,
                committed: Committed::No,
                most: u32::MAX,
            }],
        ),
        ("conflicts on status", MINUTE, vec![refuse(Which::Status, 409, Committed::No, 10)]),
        ("429 with Retry-After", A_WHILE, vec![refuse(Which::Everything, 429, Committed::No, 20)]),
        ("503", A_WHILE, vec![refuse(Which::Everything, 503, Committed::No, 20)]),
        ("503 after the commit", A_WHILE, vec![refuse(Which::Patches, 503, Committed::Yes, 3)]),
        ("504 after the commit", MINUTE, vec![refuse(Which::Everything, 504, Committed::Yes, 5)]),
        (
            "no answer, not done",
            MINUTE,
            vec![What::Lose { which: Which::Everything, committed: Committed::No, most: 5 }],
        ),
        (
            "no answer, but done",
            MINUTE,
            vec![What::Lose { which: Which::Patches, committed: Committed::Yes, most: 3 }],
        ),
        (
            "410 at the start of watches",
            2 * MINUTE,
            both(|watched| What::Refuse {
                which: Which::Watches(watched),
                code: 410,
                committed: Committed::No,
                most: 3,
            }),
        ),
        ("410 as an event", MINUTE, both(|watched| What::Damage(watched, Damage::Gone))),
        ("half-open watches", MINUTE, both(|watched| What::Damage(watched, Damage::HalfOpen))),
        ("watches reset", MINUTE, both(|watched| What::Damage(watched, Damage::Reset))),
        ("truncated chunks", MINUTE, both(|watched| What::Damage(watched, Damage::Truncated))),
        ("undecodable Route", MINUTE, vec![What::Damage(Watched::Routes, Damage::Undecodable)]),
        ("undecodable Secret", MINUTE, vec![What::Damage(Watched::Secrets, Damage::Undecodable)]),
        ("403 on Routes", 3 * MINUTE, forbidden(Watched::Routes)),
        ("403 on Secrets", 3 * MINUTE, forbidden(Watched::Secrets)),
        ("401", MINUTE, vec![refuse(Which::Everything, 401, Committed::No, u32::MAX)]),
        ("Events refused", MINUTE, vec![refuse(Which::Events, 403, Committed::No, u32::MAX)]),
        (
            "10 s latency",
            MINUTE,
            vec![What::Slow { which: Which::Everything, by: Duration::from_secs(10) }],
        ),
        (
            "9 s latency",
            MINUTE,
            vec![What::Slow { which: Which::Everything, by: Duration::from_secs(9) }],
        ),
        ("history forgotten", MINUTE, vec![What::Compact]),
        (
            "Secrets can't be read",
            MINUTE,
            vec![refuse(Which::Secret, 503, Committed::No, u32::MAX)],
        ),
        (
            "Secrets are forbidden",
            MINUTE,
            vec![refuse(Which::Secret, 403, Committed::No, u32::MAX)],
        ),
        ("patches are answered late", MINUTE, late(Which::Patches)),
        ("Secrets are answered late", MINUTE, late(Which::Secret)),
    ];
    let mut plans = Vec::new();
    for story in stories() {
        let fault = |what| Fault { at: 2, lasts: FOR_EVER, what };
        let faults_for_good = forbidden(Watched::Secrets).into_iter().map(fault).collect();
        let case = with(&story, "403 on Secrets for good".to_owned(), faults_for_good);
        plans.push(Case { mended: false, ..case });
        for (name, lasts, whats) in &faults {
            // From the beginning, and in the middle of it.
            for at in [0, 2] {
                let faults =
                    whats.iter().map(|what| Fault { at, lasts: *lasts, what: what.clone() });
                plans.push(with(&story, format!("{name} from step {at}"), faults.collect()));
            }
        }
    }
    plans
}

fn late(which: Which) -> Vec<What> {
    vec![What::SlowAnswer { which, by: Duration::from_secs(5) }]
}

/// Problems that last for hours.
pub fn hours() -> Vec<Case> {
    let lasting = ["Secret deleted", "Secret broken and mended", "one Secret, three Routes"];
    let stories = stories().into_iter().filter(|story| lasting.contains(&story.name.as_str()));
    let long = |story: Case| Case {
        name: format!("for hours: {}", story.name),
        afterwards: Duration::from_secs(3 * 60 * 60),
        ..story
    };
    stories.map(long).collect()
}

/// The watch breaks, and neither it nor a list is allowed any more.
fn forbidden(watched: Watched) -> Vec<What> {
    let refuse =
        |which| What::Refuse { which, code: 403, committed: Committed::No, most: u32::MAX };
    vec![
        What::Damage(watched, Damage::Reset),
        refuse(Which::Lists(watched)),
        refuse(Which::Watches(watched)),
    ]
}

/// Two replicas: the leader dies, is cut off, cannot renew, or is slow.
pub fn replicas() -> Vec<Case> {
    let no_lease =
        What::Refuse { which: Which::Leases, code: 503, committed: Committed::No, most: u32::MAX };
    let slow = |which, seconds| What::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, Vec<What>)> = vec![
        ("nothing", vec![]),
        ("the first is cut off", vec![What::Pause { replica: 0 }]),
        ("the second is cut off", vec![What::Pause { replica: 1 }]),
        ("no lease can be written, Secrets are slow", vec![no_lease, slow(Which::Secret, 9)]),
        ("everything takes 4 s", vec![slow(Which::Everything, 4)]),
        ("the first dies", vec![What::Crash { call: 14, moment: Moment::AfterCommit }]),
        ("the first comes back to a server that lags", vec![What::Lag]),
    ];
    let lasts = Duration::from_secs(40);
    let mut plans = Vec::new();
    for story in stories() {
        let story = Case { replicas: 2, sees_resyncs: false, ..story };
        for (name, whats) in &faults {
            for at in [1, 2] {
                let faults = whats.iter().map(|what| Fault { at, lasts, what: what.clone() });
                let name = format!("two replicas, {name} from step {at}");
                plans.push(with(&story, name, faults.collect()));
            }
        }
    }
    plans
}
