//! Stories of renewals, plans that combine them with faults, and random cases.

use std::time::Duration;

use fastrand::Rng;

use super::{Case, ops::Op};
use crate::{
    case::Step,
    faults::{Calls, Committed, Fault, FaultKind, Moment},
    parallel,
};

const MINUTE: Duration = Duration::from_secs(60);
/// A token lives for ten minutes, and is renewed after seven and a half.
const GENERATION: u64 = 450;
/// Random cases to try if no story catches a bug.
const SEEDS_FOR_BUGS: u64 = 30;

pub fn plans() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("no fault", stories()),
        ("crash everywhere", thinned(crash_everywhere(&short_stories()))),
        ("API faults", thinned(api_faults())),
        ("two replicas", thinned(replicas())),
    ]
}

/// One plan of four, and all of them where there is time.
fn thinned(plans: Vec<Case>) -> Vec<Case> {
    let every = if std::env::var_os("TRUSTPLANE_SEEDS").is_some() { 1 } else { 4 };
    plans.into_iter().step_by(every).collect()
}

/// Cases in which seeded bugs are looked for.
pub fn for_bugs() -> Vec<Case> {
    let seeds = (0..SEEDS_FOR_BUGS).map(random).collect();
    [stories(), replicas(), api_faults(), seeds].concat()
}

/// Those of one generation or two.
fn short_stories() -> Vec<Case> {
    let length = |case: &Case| case.steps.iter().map(|step| step.wait).sum::<Duration>();
    stories().into_iter().filter(|case| length(case) < Duration::from_secs(700)).collect()
}

/// Stories, each for one part of what renewals are. Waits are in seconds.
fn stories() -> Vec<Case> {
    use Op::*;
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    let stories: Vec<(&str, Vec<(u64, Op)>)> = vec![
        ("a first renewal", vec![(60, Nothing), (30, HandOver), (30, Restart(1))]),
        ("three generations", vec![(3 * GENERATION + 60, Nothing)]),
        (
            "three generations, and changing leaders",
            vec![
                (60, HandOver),
                (GENERATION - 60, HandOver),
                (15, Restart(0)),
                (GENERATION - 20, Restart(1)),
                (30, HandOver),
                (GENERATION, HandOver),
            ],
        ),
        (
            "a cluster that caps lives",
            vec![(1, Cap(0, 400)), (600, HandOver), (400, Cap(1, 300)), (600, Nothing)],
        ),
        (
            "a rule that is missing, and granted",
            vec![
                (1, Forbid(0)),
                (300, Allow(0)),
                (200, Forbid(0)),
                (1, ForbidReviews(1)),
                (500, AllowReviews(1)),
                (60, Allow(0)),
                (300, Nothing),
            ],
        ),
        (
            "new files, wrong ones and none",
            vec![
                (120, NewFile(0)),
                (60, HandOver),
                (100, WrongFile(0)),
                (120, NewFile(0)),
                (60, BrokenFile(1)),
                (60, RemoveFile(0)),
                (60, Restart(0)),
                (GENERATION, NewFile(1)),
            ],
        ),
        (
            "a cluster without a token at first",
            vec![
                (0, RemoveFile(1)),
                (1, Restart(0)),
                (1, Restart(1)),
                (120, NewFile(1)),
                (120, Nothing),
            ],
        ),
        ("an account made again", vec![(120, Revoke(0)), (120, NewFile(0)), (120, Nothing)]),
        (
            "a cluster that is down when it matters",
            vec![(300, Break(0)), (300, Mend(0)), (300, Hang(1)), (200, HandOver), (100, Mend(1))],
        ),
        (
            "a cluster that does not accept what it grants",
            vec![(0, GrantVoid(0)), (200, GrantGood(0)), (200, GrantVoid(0)), (400, GrantGood(0))],
        ),
        (
            "a Secret that others change",
            vec![
                (120, EditSecret),
                (30, DeleteSecret),
                (60, DeleteEntry(0)),
                (60, BreakEntry(1)),
                (60, EditStatus),
                (GENERATION, DeleteSecret),
                (1, Restart(1)),
                (60, Nothing),
            ],
        ),
        (
            "keys that are copied",
            vec![
                (120, CopyKeys(1, 0)),
                (90, Restart(0)),
                (30, Restart(1)),
                (60, RotateKeys(0)),
                (120, RotateKeys(1)),
                (60, Nothing),
            ],
        ),
        ("hours without us", vec![(120, StopAll(hours(2))), (2 * 60 * 60, Nothing)]),
    ];
    let case = |(seed, (name, steps)): (u64, (&str, Vec<_>))| Case {
        name: name.to_owned(),
        seed,
        steps: steps.into_iter().map(step).collect(),
        reads_log: seed % 3 == 0,
        ..Case::default()
    };
    (0..).zip(stories).map(case).collect()
}

fn step((wait, op): (u64, Op)) -> Step<Op> {
    Step { wait: Duration::from_secs(wait), op }
}

fn with(story: &Case, name: &str, faults: Vec<Fault>) -> Case {
    // A log takes longer than the rest, and without faults it says as much.
    Case { name: format!("{name}: {}", story.name), faults, reads_log: false, ..story.clone() }
}

/// The first replica dies before a call is sent, or after the server carried it out.
fn crash_everywhere(stories: &[Case]) -> Vec<Case> {
    let points = parallel::map(stories, Case::crash_points);
    let mut plans = Vec::new();
    for (story, points) in stories.iter().zip(points) {
        for call in points {
            for moment in [Moment::BeforeSend, Moment::AfterCommit] {
                let kind = FaultKind::Crash { call, moment };
                let name = format!("crash at call {call}, {moment:?}");
                plans.push(with(story, &name, vec![Fault { at: 0, lasts: Duration::ZERO, kind }]));
            }
        }
    }
    plans
}

/// Errors and missing answers, of our own API server and of the remote ones.
fn api_faults() -> Vec<Case> {
    let refuse = |which, code, committed, most| FaultKind::Refuse { which, code, committed, most };
    let lose = |which, committed, most| FaultKind::Lose { which, committed, most };
    let (no, yes, all) = (Committed::No, Committed::Yes, u32::MAX);
    let slow = |which, seconds| FaultKind::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, Duration, FaultKind)> = vec![
        ("conflicts", MINUTE, refuse(Calls::Writes, 409, no, 10)),
        ("429 with Retry-After", MINUTE, refuse(Calls::Everything, 429, no, 20)),
        ("503", MINUTE, refuse(Calls::Everything, 503, no, 20)),
        ("504 after the commit", 2 * MINUTE, refuse(Calls::Writes, 504, yes, 5)),
        ("403 on writes", 4 * MINUTE, refuse(Calls::Writes, 403, no, all)),
        ("403 on the Secret", 4 * MINUTE, refuse(Calls::Secret, 403, no, all)),
        ("403 on ConfigMaps", 4 * MINUTE, refuse(Calls::ConfigMaps, 403, no, all)),
        ("401", 2 * MINUTE, refuse(Calls::Everything, 401, no, all)),
        ("Events refused", 2 * MINUTE, refuse(Calls::Events, 403, no, all)),
        ("no answer, not done", 2 * MINUTE, lose(Calls::Everything, no, 5)),
        ("no answer, but done", 2 * MINUTE, lose(Calls::Writes, yes, 3)),
        ("the Secret's answer is lost", 2 * MINUTE, lose(Calls::Secret, yes, 3)),
        ("grants are lost", 2 * MINUTE, lose(Calls::TokenRequests, yes, 3)),
        ("trials are lost", 2 * MINUTE, lose(Calls::TokenReviews, yes, 3)),
        ("trials fail", 2 * MINUTE, refuse(Calls::TokenReviews, 503, no, 5)),
        ("9 s latency", 2 * MINUTE, slow(Calls::Everything, 9)),
        ("writes arrive late", 2 * MINUTE, slow(Calls::Writes, 25)),
    ];
    let mut plans = Vec::new();
    for (number, story) in stories().iter().enumerate() {
        for (name, lasts, kind) in &faults {
            // From the start, and in some in the middle, too.
            for at in if number < 3 { 0..2 } else { 0..1 } {
                let fault = Fault { at, lasts: *lasts, kind: kind.clone() };
                plans.push(with(story, &format!("{name} from step {at}"), vec![fault]));
            }
        }
    }
    plans
}

/// The leader is cut off or slow, and hands over while its writes are on their way.
fn replicas() -> Vec<Case> {
    let slow = |which, seconds| FaultKind::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, FaultKind)> = vec![
        ("the first is cut off", FaultKind::Pause { replica: 0 }),
        ("the second is cut off", FaultKind::Pause { replica: 1 }),
        ("everything takes 4 s", slow(Calls::Everything, 4)),
        ("writes arrive late", slow(Calls::Writes, 25)),
        ("the Secret is slow", slow(Calls::Secret, 25)),
    ];
    let mut plans = Vec::new();
    for story in stories() {
        for (name, kind) in &faults {
            for at in 0..story.steps.len().min(3) {
                for seconds in [8, 20, 40] {
                    let mut story = story.clone();
                    // Something is under way when it changes.
                    story.steps.insert(at, step((seconds, Op::HandOver)));
                    let lasts = story.steps[at].wait + MINUTE;
                    let fault = Fault { at, lasts, kind: kind.clone() };
                    let name = format!("{name}, handed over {seconds} s after step {at}");
                    plans.push(with(&story, &name, vec![fault]));
                }
            }
        }
    }
    plans
}

pub fn random(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed ^ 0x5eed_4e3e);
    let number = rng.usize(3..20);
    let steps: Vec<_> =
        (0..number).map(|_| Step { wait: wait(&mut rng), op: op(&mut rng) }).collect();
    let number = rng.usize(..4);
    let faults = (0..number).map(|_| fault(&mut rng, steps.len())).collect();
    Case { name: format!("seed {seed}"), seed, steps, faults, ..Case::default() }
}

fn wait(rng: &mut Rng) -> Duration {
    let longest = match rng.u8(..20) {
        0..6 => 2_000,
        6..12 => 30_000,
        12..18 => 200_000,
        _ => 900_000,
    };
    Duration::from_millis(rng.u64(..longest))
}

fn op(rng: &mut Rng) -> Op {
    let (at, replica) = (rng.usize(..2), rng.usize(..2));
    match rng.u8(..40) {
        0..4 => Op::HandOver,
        4..7 => Op::Restart(replica),
        7 => Op::Stop(replica, Duration::from_secs(rng.u64(..300))),
        8 => Op::StopAll(Duration::from_secs(rng.u64(..3000))),
        9..12 => Op::NewFile(at),
        12 => Op::WrongFile(at),
        13 => Op::BrokenFile(at),
        14 => Op::RemoveFile(at),
        15 => Op::Forbid(at),
        16..18 => Op::Allow(at),
        18 => Op::ForbidReviews(at),
        19 => Op::AllowReviews(at),
        20..22 => Op::Cap(at, rng.i64(300..1000)),
        22 => Op::Break(at),
        23 => Op::Hang(at),
        24..27 => Op::Mend(at),
        27 => Op::GrantVoid(at),
        28..30 => Op::GrantGood(at),
        30 => Op::Revoke(at),
        31 => Op::DeleteSecret,
        32 => Op::EditSecret,
        33 => Op::DeleteEntry(at),
        34 => Op::BreakEntry(at),
        35 => Op::EditStatus,
        36 => Op::CopyKeys(at, 1 - at),
        37 => Op::RotateKeys(at),
        _ => Op::Nothing,
    }
}

fn fault(rng: &mut Rng, steps: usize) -> Fault {
    let all = [
        Calls::Everything,
        Calls::Writes,
        Calls::Secret,
        Calls::ConfigMaps,
        Calls::Events,
        Calls::TokenRequests,
        Calls::TokenReviews,
    ];
    let which = *rng.choice(&all).expect("some");
    let committed = if rng.bool() { Committed::Yes } else { Committed::No };
    let most = rng.u32(1..10);
    let kind = match rng.u8(..10) {
        0..4 => {
            let moment = if rng.bool() { Moment::BeforeSend } else { Moment::AfterCommit };
            FaultKind::Crash { call: rng.u32(..200), moment }
        }
        4..6 => {
            let code = *rng.choice(&[401, 403, 409, 429, 500, 503, 504]).expect("some");
            // Only a 5xx may be answered to a request that was carried out.
            let committed = if code >= 500 { committed } else { Committed::No };
            FaultKind::Refuse { which, code, committed, most }
        }
        6 => FaultKind::Lose { which, committed, most },
        7..9 => FaultKind::Slow { which, by: Duration::from_millis(rng.u64(..30_000)) },
        _ => FaultKind::Pause { replica: rng.usize(..2) },
    };
    Fault { at: rng.usize(..steps), lasts: Duration::from_millis(rng.u64(100..240_000)), kind }
}
