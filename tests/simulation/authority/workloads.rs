//! Stories of the authority, plans that combine them with faults, and random cases.

use std::time::Duration;

use fastrand::Rng;

use super::{
    Case,
    ops::Op,
    peers::{PEERS, Profile},
};
use crate::{
    bugs::with_first,
    case::Step,
    faults::{Calls, Committed, Damage, Fault, FaultKind, Moment, Watched},
    parallel,
};

const MINUTE: Duration = Duration::from_secs(60);
/// Random cases to try if no story catches a bug.
const SEEDS_FOR_BUGS: u64 = 30;
/// Plans that caught what no story does.
const CAUGHT_BUGS: [&str; 5] = [
    "403 on ConfigMaps from step 1: the Secret is lost and restored",
    "writes arrive late from step 0: three profiles, and peers that rotate",
    "everything takes 4 s, handed over after step 0: three profiles, and peers that rotate",
    "seed 15",
    "seed 24",
];
/// Longer than a peer's interval.
const INTERVAL: u64 = 130;

pub fn plans() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("no fault", stories()),
        ("crash everywhere", thinned(crash_everywhere(&short_stories()))),
        ("stale", thinned(stale())),
        ("API faults", thinned(api_faults())),
        ("two replicas", thinned(replicas())),
    ]
}

/// Whether the number of seeds is given, as `make simulate` does.
pub fn has_time() -> bool {
    std::env::var_os("TRUSTPLANE_SEEDS").is_some()
}

/// One plan of four, and all of them where there is time.
fn thinned(plans: Vec<Case>) -> Vec<Case> {
    let every = if has_time() { 1 } else { 4 };
    plans.into_iter().step_by(every).collect()
}

/// Cases in which seeded bugs are looked for.
pub fn for_bugs() -> Vec<Case> {
    let seeds = (0..SEEDS_FOR_BUGS).map(random).collect();
    let with_faults = [seeds, api_faults(), replicas()].concat();
    stories().into_iter().chain(with_first(&CAUGHT_BUGS, with_faults)).collect()
}

/// Those of minutes, not of hours.
fn short_stories() -> Vec<Case> {
    stories().into_iter().filter(Case::is_short).collect()
}

/// Stories, each for one part of what the authority does. Waits are in seconds.
fn stories() -> Vec<Case> {
    use Op::*;
    use Profile::{Spiffe, Static, Web};
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    let stories: Vec<(&str, Vec<(u64, Op)>)> = vec![
        (
            "three profiles, and peers that rotate",
            vec![
                (10, Create(0, Web)),
                (1, Create(1, Spiffe)),
                (1, Create(2, Static)),
                (20, PeerRotates(0)),
                (1, PeerRotates(1)),
                (INTERVAL, PeerRotates(1)),
                (5, Refresh(0)),
                (INTERVAL, PeerRotates(1)),
            ],
        ),
        (
            "deleted, made again, changed",
            vec![
                (10, Create(0, Web)),
                (10, ChangeSource(0, Web)),
                (10, Delete(0)),
                (10, Create(0, Spiffe)),
                (10, Recreate(0, Web)),
                (10, ChangeSource(0, Static)),
                (10, DeleteSlowly(0)),
            ],
        ),
        (
            "a rotation, and another leader",
            vec![(15, Rotate), (70, HandOver), (40, Nothing), (480, Rotate), (20, Restart(0))],
        ),
        (
            "a peer that replays, and is accepted once",
            vec![
                (10, Create(0, Web)),
                (5, PeerRotates(0)),
                (5, Refresh(0)),
                (5, PeerReplays(0)),
                (5, Refresh(0)),
                (10, Accept(0)),
                (10, PeerRecovers(0)),
                (5, Refresh(0)),
                (5, PeerReplays(0)),
                (5, Refresh(0)),
                (INTERVAL, PeerRecovers(0)),
            ],
        ),
        (
            "a peer that fails, and revokes everything",
            vec![
                (10, Create(0, Web)),
                (1, Create(1, Web)),
                (10, PeerFails(0)),
                (1, PeerAnswersGarbage(1)),
                (1, Refresh(0)),
                (1, Refresh(1)),
                (INTERVAL, PeerRecovers(0)),
                (1, PeerChangesWithoutCounting(0)),
                (INTERVAL, PeerRevokesEverything(0)),
                (INTERVAL, Nothing),
            ],
        ),
        (
            "two objects for one trust domain",
            vec![
                (10, Create(0, Web)),
                (10, CreateTwin(0)),
                (10, Delete(0)),
                (10, Create(0, Web)),
                (10, DeleteTwin(0)),
            ],
        ),
        (
            "a hint that is shortened before a rotation",
            vec![
                (20, SetHint(120)),
                (40, SetHint(30)),
                (20, Rotate),
                (200, Nothing),
                (300, Nothing),
            ],
        ),
        (
            "a stolen key",
            vec![(20, RevokeActive), (60, Rotate), (30, RevokePrepared), (60, RevokeActive)],
        ),
        (
            "the Secret is lost and restored",
            vec![(20, Rotate), (30, DeleteSecret), (60, RestoreSecret), (60, Nothing)],
        ),
        (
            "the Secret is lost for good",
            vec![
                (20, Rotate),
                (30, DeleteSecret),
                (60, SetNewAuthority(true)),
                (60, SetNewAuthority(false)),
            ],
        ),
        (
            "the Secret is restored from an old copy",
            vec![
                (20, Rotate),
                (40, RestoreOldSecret),
                (60, Restart(1)),
                (40, SetNewAuthority(true)),
                (60, SetNewAuthority(false)),
            ],
        ),
        (
            "the ConfigMap is deleted",
            vec![(20, Rotate), (30, DeleteConfigMap), (60, DeleteConfigMap), (60, HandOver)],
        ),
        (
            "deletions that nobody saw",
            vec![
                (10, Create(0, Web)),
                (1, Create(1, Web)),
                (20, StopAll(2 * MINUTE)),
                (10, Delete(0)),
                (10, Recreate(1, Spiffe)),
                (1, PeerRotates(1)),
            ],
        ),
        (
            "a life of a CA",
            vec![
                (10, Create(0, Web)),
                (50 * 60, HandOver),
                (40 * 60, StopAll(15 * MINUTE)),
                (40 * 60, Nothing),
            ],
        ),
        (
            "days without the authority",
            vec![(10, Create(0, Web)), (10, StopAll(days(3))), (3 * 24 * 60 * 60, PeerRotates(0))],
        ),
    ];
    let case = |(seed, (name, steps)): (u64, (&str, Vec<_>))| Case {
        name: name.to_owned(),
        seed,
        steps: steps.into_iter().map(step).collect(),
        ..Case::default()
    };
    (0..).zip(stories).map(case).collect()
}

fn step((wait, op): (u64, Op)) -> Step<Op> {
    Step { wait: Duration::from_secs(wait), op }
}

pub fn with(story: &Case, name: &str, faults: Vec<Fault>) -> Case {
    // A log takes longer than the rest, and without faults it says as much.
    Case { name: format!("{name}: {}", story.name), faults, reads_log: false, ..story.clone() }
}

/// The first replica dies before a call is sent, or after the API server carried it out.
pub fn crash_everywhere(stories: &[Case]) -> Vec<Case> {
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

/// The watch freezes or misses steps, or the process restarts with a server that lags.
fn stale() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in short_stories().iter().filter(|story| has_federations(story)) {
        for at in 1..=story.steps.len() {
            let watched = Watched::Federations;
            for kind in [FaultKind::Freeze(watched), FaultKind::Lag, FaultKind::Gap(watched)] {
                let name = format!("{kind:?} from step {at}");
                plans.push(with(story, &name, vec![Fault { at, lasts: MINUTE, kind }]));
            }
        }
    }
    plans
}

fn has_federations(story: &Case) -> bool {
    story.steps.iter().any(|step| matches!(step.op, Op::Create(..)))
}

/// Errors and missing answers of the API server.
fn api_faults() -> Vec<Case> {
    let refuse = |which, code, committed, most| FaultKind::Refuse { which, code, committed, most };
    let lose = |which, committed, most| FaultKind::Lose { which, committed, most };
    let (no, yes, all) = (Committed::No, Committed::Yes, u32::MAX);
    let damage = |damage| FaultKind::Damage(Watched::Federations, damage);
    let slow = |which, seconds| FaultKind::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, Duration, FaultKind)> = vec![
        ("conflicts", MINUTE, refuse(Calls::Writes, 409, no, 10)),
        ("429 with Retry-After", MINUTE, refuse(Calls::Everything, 429, no, 20)),
        ("503", MINUTE, refuse(Calls::Everything, 503, no, 20)),
        ("504 after the commit", 2 * MINUTE, refuse(Calls::Writes, 504, yes, 5)),
        ("403 on writes", 4 * MINUTE, refuse(Calls::Writes, 403, no, all)),
        ("403 on ConfigMaps", 5 * MINUTE, refuse(Calls::ConfigMaps, 403, no, all)),
        ("403 on the Secret", 4 * MINUTE, refuse(Calls::Secret, 403, no, all)),
        ("401", 2 * MINUTE, refuse(Calls::Everything, 401, no, all)),
        ("Events refused", 2 * MINUTE, refuse(Calls::Events, 403, no, all)),
        ("no answer, not done", 2 * MINUTE, lose(Calls::Everything, no, 5)),
        ("no answer, but done", 2 * MINUTE, lose(Calls::Writes, yes, 3)),
        ("statuses get no answer", 2 * MINUTE, lose(Calls::Status, yes, 3)),
        ("9 s latency", 2 * MINUTE, slow(Calls::Everything, 9)),
        ("writes arrive late", 2 * MINUTE, slow(Calls::Writes, 25)),
        ("watches reset", MINUTE, damage(Damage::Reset)),
        ("half-open watches", MINUTE, damage(Damage::HalfOpen)),
        ("truncated chunks", MINUTE, damage(Damage::Truncated)),
        ("410 as an event", MINUTE, damage(Damage::Gone)),
        ("undecodable federation", MINUTE, damage(Damage::Undecodable)),
        ("history forgotten", MINUTE, FaultKind::Compact),
    ];
    let mut plans = Vec::new();
    for (number, story) in short_stories().iter().enumerate() {
        for (name, lasts, kind) in &faults {
            // From the first operation on, and in some from the start.
            for at in if number < 3 { 0..2 } else { 1..2 } {
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
    ];
    let mut plans = Vec::new();
    for story in short_stories() {
        for (name, kind) in &faults {
            for at in 0..story.steps.len().min(4) {
                let mut story = story.clone();
                // Something is under way a moment after the step, and over there it changes.
                let moment = Duration::from_millis(700);
                story.steps.insert(at + 1, Step { wait: moment, op: Op::HandOver });
                story.steps.insert(at + 2, Step { wait: moment, op: Op::PeerRotates(0) });
                let lasts = story.steps[at].wait + 3 * moment;
                let fault = Fault { at, lasts, kind: kind.clone() };
                let name = format!("{name}, handed over after step {at}");
                plans.push(with(&story, &name, vec![fault]));
            }
        }
    }
    plans
}

pub fn random(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed ^ 0x5eed_a077);
    let number = rng.usize(4..40);
    let own = rng.u8(..4);
    let mut steps: Vec<Step<Op>> = Vec::new();
    for _ in 0..number {
        let op = if rng.u8(..3) == 0 { own_op(&mut rng, own) } else { federation_op(&mut rng) };
        steps.push(Step { wait: wait(&mut rng), op });
    }
    let number = rng.usize(..4);
    let faults = (0..number).map(|_| fault(&mut rng, Watched::Federations, steps.len())).collect();
    Case { name: format!("seed {seed}"), seed, steps, faults, ..Case::default() }
}

pub fn wait(rng: &mut Rng) -> Duration {
    let longest = match rng.u8(..20) {
        0..6 => 500,
        6..16 => 20_000,
        16..19 => 150_000,
        _ => 900_000,
    };
    Duration::from_millis(rng.u64(..longest))
}

fn profile(rng: &mut Rng) -> Profile {
    *rng.choice(&[Profile::Web, Profile::Web, Profile::Spiffe, Profile::Static]).expect("some")
}

/// Operator faults of one kind only: several together can hide what was published.
pub fn own_op(rng: &mut Rng, kind: u8) -> Op {
    match (rng.u8(..12), kind) {
        (0..3, _) => Op::Rotate,
        (3, _) => Op::SetHint(i64::from(rng.u8(1..4)) * 30),
        (4, _) => Op::HandOver,
        (5, _) => Op::Restart(rng.usize(..2)),
        (6, _) => Op::Stop(rng.usize(..2), Duration::from_secs(rng.u64(..600))),
        (7, _) => Op::StopAll(Duration::from_secs(rng.u64(..6000))),
        (8, 0) => Op::DeleteSecret,
        (9, 0) => Op::RestoreSecret,
        (8, 1) => Op::RestoreOldSecret,
        (9, 1) => Op::SetNewAuthority(rng.bool()),
        (8, 2) => Op::DeleteConfigMap,
        (8, 3) => Op::RevokeActive,
        (9, 3) => Op::RevokePrepared,
        _ => Op::Nothing,
    }
}

pub fn federation_op(rng: &mut Rng) -> Op {
    let peer = rng.usize(..PEERS);
    match rng.u8(..24) {
        0..4 => Op::Create(peer, profile(rng)),
        4 => Op::Delete(peer),
        5 => Op::Recreate(peer, profile(rng)),
        6..8 => Op::ChangeSource(peer, profile(rng)),
        8 => match rng.u8(..4) {
            0 => Op::DeleteSlowly(peer),
            1 => Op::DeleteTwin(peer),
            _ => Op::CreateTwin(peer),
        },
        9..12 => Op::Refresh(peer),
        12..14 => Op::Accept(peer),
        14..18 => Op::PeerRotates(peer),
        18 => Op::PeerChangesWithoutCounting(peer),
        19 => Op::PeerRevokesEverything(peer),
        20 => Op::PeerReplays(peer),
        21 => Op::PeerFails(peer),
        22 => Op::PeerAnswersGarbage(peer),
        _ => Op::PeerRecovers(peer),
    }
}

/// One of those that a watch may have is of `watched`.
pub fn fault(rng: &mut Rng, watched: Watched, steps: usize) -> Fault {
    let which = *rng
        .choice(&[
            Calls::Everything,
            Calls::Writes,
            Calls::Status,
            Calls::ConfigMaps,
            Calls::Secret,
            Calls::Events,
            Calls::Lists(watched),
            Calls::Watches(watched),
        ])
        .expect("some");
    let committed = if rng.bool() { Committed::Yes } else { Committed::No };
    let most = rng.u32(1..10);
    let kind = match rng.u8(..14) {
        0..3 => {
            let moment = if rng.bool() { Moment::BeforeSend } else { Moment::AfterCommit };
            FaultKind::Crash { call: rng.u32(..200), moment }
        }
        3..5 => {
            let code = *rng.choice(&[401, 403, 409, 429, 500, 503, 504]).expect("some");
            // Only a 5xx may be answered to a request that was carried out.
            let committed = if code >= 500 { committed } else { Committed::No };
            FaultKind::Refuse { which, code, committed, most }
        }
        5 => FaultKind::Lose { which, committed, most },
        6..8 => FaultKind::Slow { which, by: Duration::from_millis(rng.u64(..30_000)) },
        8 => FaultKind::Freeze(watched),
        9 => FaultKind::Damage(watched, *rng.choice(&Damage::ALL).expect("some")),
        10 => FaultKind::Lag,
        11 => FaultKind::Gap(watched),
        12 => FaultKind::Compact,
        _ => FaultKind::Pause { replica: rng.usize(..2) },
    };
    Fault { at: rng.usize(..steps), lasts: Duration::from_millis(rng.u64(100..240_000)), kind }
}
