//! Stories of clients that join, plans that combine them with faults, and random cases.

use std::time::Duration;

use fastrand::Rng;

use super::{
    Case,
    clients::{Join, Proof, WORKLOADS},
    ops::{Op, TOKENS, Terms, UNLIMITED, uses},
    peers::{PEERS, Profile},
    workloads::{crash_everywhere, fault, federation_op, has_time, own_op, wait, with},
};
use crate::{
    bugs::with_first,
    case::Step,
    faults::{Calls, Committed, Damage, Fault, FaultKind, Watched},
};

/// Random cases to try if no plan catches a bug.
const SEEDS_FOR_BUGS: u64 = 60;
/// Plans that caught what no story does.
const CAUGHT_BUGS: [&str; 3] = [
    "Gap(Tokens) from step 9: replicas that come and go",
    "9 s for a status from step 2: a token that is edited, and ends",
    "conflicts from step 2: a token that is deleted while clients join",
];
/// Longer than joins are judged by a watch that died.
const DEAD: Duration = Duration::from_secs(240);
/// Long after the last change that a dead watch did not bring, and before it lives again.
const LATER: Duration = Duration::from_secs(150);
const MINUTE: Duration = Duration::from_secs(60);
const WATCHED: [Watched; 2] = [Watched::Tokens, Watched::Federations];

pub fn plans() -> Vec<(&'static str, Vec<Case>)> {
    let (first, others) = (stories().remove(0), short_stories().split_off(1));
    vec![
        ("no fault", stories()),
        ("one use, crash everywhere", crash_everywhere(&[first])),
        ("crash everywhere", thinned(8, crash_everywhere(&others))),
        ("stale", thinned(3, stale())),
        ("API faults", thinned(3, api_faults())),
        ("one replica is cut off", thinned(2, cut_off())),
    ]
}

/// One plan of so many, and all of them where `make simulate` has the time.
fn thinned(every: usize, plans: Vec<Case>) -> Vec<Case> {
    plans.into_iter().step_by(if has_time() { 1 } else { every }).collect()
}

/// Cases in which seeded bugs are looked for.
pub fn for_bugs() -> Vec<Case> {
    let seeds = (0..SEEDS_FOR_BUGS).map(random).collect();
    let crashes = crash_everywhere(&stories()[..1]);
    let with_faults = [stale(), api_faults(), crashes, seeds].concat();
    stories().into_iter().chain(with_first(&CAUGHT_BUGS, with_faults)).collect()
}

/// Those of minutes, not of hours.
fn short_stories() -> Vec<Case> {
    stories().into_iter().filter(Case::is_short).collect()
}

fn join(workload: usize, replica: usize) -> Op {
    Op::Join(Join::new(workload, 0, replica))
}

fn by_other_token(workload: usize) -> Op {
    Op::Join(Join::new(workload, 1, 0))
}

fn of_other_peer(workload: usize) -> Op {
    Op::Join(Join::new(workload, 0, 0).of(1))
}

fn with_proof(proof: Proof) -> Op {
    Op::Join(Join::new(3, 0, 1).with(proof))
}

/// Stories, each for one part of what the join service does. Waits are in milliseconds.
fn stories() -> Vec<Case> {
    use Op::*;
    use Profile::{Spiffe, Web};
    let ends = |most, seconds| Terms { most: Some(most), lasts: Some(seconds) };
    let deleted_while_they_join = (0..6).flat_map(|round| {
        let (at, then) = (60 + 15 * round, 3_000);
        [
            (then, CreateToken(0, UNLIMITED)),
            (then, Crowd(0, 8)),
            (at, DeleteToken(0)),
            (then, Crowd(0, 8)),
        ]
    });
    let begin = [(10_000, Create(0, Web))];
    let stories: Vec<(&str, Vec<(u64, Op)>)> = vec![
        (
            "one use, and clients at both replicas",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, uses(1))),
                (15_000, Crowd(0, 6)),
                (5_000, Crowd(0, 3)),
            ],
        ),
        (
            "a token that is made again",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, uses(2))),
                (15_000, join(0, 0)),
                (3_000, join(1, 1)),
                (5_000, RecreateToken(0, uses(1))),
                (2_000, join(1, 0)),
                (3_000, join(0, 1)),
                (3_000, join(1, 1)),
                (5_000, DeleteToken(0)),
                (3_000, join(1, 0)),
                (1_000, CreateToken(0, UNLIMITED)),
                (3_000, Crowd(0, 6)),
            ],
        ),
        (
            "a token that is deleted while clients join",
            begin.into_iter().chain(deleted_while_they_join).collect(),
        ),
        (
            "a token that is edited, and ends",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, ends(4, 90))),
                (1_000, CreateToken(1, UNLIMITED)),
                (15_000, EditToken(1, 60)),
                // While the watch still brings what was before their uses.
                (10, by_other_token(0)),
                (150, by_other_token(1)),
                (100, by_other_token(2)),
                (100, by_other_token(3)),
                (5_000, EditToken(0, 30)),
                (10, Crowd(0, 6)),
                (3_000, SetMostUses(0, 5)),
                (3_000, EditToken(0, 20)),
                (10, Crowd(0, 8)),
                (5_000, EndToken(0, 20)),
                (10_000, join(0, 0)),
                (12_000, join(0, 0)),
                (5_000, EndToken(0, 600)),
                (5_000, Crowd(0, 4)),
            ],
        ),
        (
            "a federation that ends, and a peer that rotates",
            vec![
                (10_000, Create(0, Web)),
                (1_000, Create(1, Spiffe)),
                (1_000, CreateToken(0, UNLIMITED)),
                (30_000, join(0, 0)),
                (3_000, Delete(0)),
                (2_000, join(0, 1)),
                (5_000, Create(0, Web)),
                (30_000, join(1, 0)),
                (1_000, PeerRotates(0)),
                (1_000, PeerRotates(0)),
                (1_000, Refresh(0)),
                (30_000, with_proof(Proof::OldCa)),
                (1_000, join(0, 1)),
                (1_000, of_other_peer(0)),
                (1_000, PeerRevokesEverything(0)),
                (1_000, Refresh(0)),
                (30_000, Crowd(0, 2)),
            ],
        ),
        (
            "our CA rotates, and is revoked",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, UNLIMITED)),
                (15_000, Crowd(0, 2)),
                (1_000, Rotate),
                (125_000, Crowd(0, 2)),
                (90_000, Crowd(0, 2)),
                (1_000, RevokeActive),
                (500, Crowd(0, 2)),
                (30_000, Crowd(0, 2)),
            ],
        ),
        (
            "callers that prove nothing",
            vec![
                (10_000, Create(0, Web)),
                (1_000, Create(1, Web)),
                (1_000, CreateToken(0, uses(3))),
                (15_000, Flood(40)),
                (1_000, with_proof(Proof::ForeignCa)),
                (10, with_proof(Proof::Expired)),
                (10, with_proof(Proof::Stolen)),
                (10, with_proof(Proof::Relayed)),
                (10, with_proof(Proof::OldCa)),
                (10, with_proof(Proof::Good)),
                (61_000, Flood(36)),
            ],
        ),
        (
            "replicas that come and go",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, uses(3))),
                (15_000, Crowd(0, 8)),
                (60, Restart(0)),
                (5_000, RecreateToken(0, uses(4))),
                (3_000, Crowd(0, 8)),
                (80, Restart(1)),
                (5_000, Stop(0, MINUTE)),
                (5_000, Crowd(0, 8)),
                (40_000, DeleteToken(0)),
                (30_000, Crowd(0, 4)),
            ],
        ),
        (
            "certificates as long as an hour, and as our CA",
            vec![
                (10_000, Create(0, Web)),
                (1_000, CreateToken(0, UNLIMITED)),
                (15_000, join(0, 0)),
                (40 * 60_000, Crowd(0, 2)),
                (25 * 60_000, StopAll(12 * MINUTE)),
                (12 * 60_000, Crowd(0, 2)),
                (5 * 60_000, Crowd(0, 2)),
            ],
        ),
    ];
    let case = |(seed, (name, steps)): (u64, (&str, Vec<_>))| Case {
        name: name.to_owned(),
        seed,
        steps: steps.into_iter().map(step).collect(),
        serves_joins: true,
        reads_log: true,
        ..Case::default()
    };
    (0..).zip(stories).map(case).collect()
}

fn step((wait, op): (u64, Op)) -> Step<Op> {
    Step { wait: Duration::from_millis(wait), op }
}

/// A watch stands still, misses what happens, or breaks; or the process restarts with a server that lags.
fn stale() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in short_stories() {
        for at in 2..story.steps.len() {
            let broken = WATCHED.into_iter().flat_map(|watched| {
                let damages =
                    [Damage::Reset, Damage::HalfOpen].map(|it| FaultKind::Damage(watched, it));
                [FaultKind::Freeze(watched), FaultKind::Gap(watched)].into_iter().chain(damages)
            });
            for kind in broken.chain([FaultKind::Lag, FaultKind::Compact]) {
                let mut story = story.clone();
                story.steps.push(Step { wait: LATER, op: Op::Crowd(0, 4) });
                let name = format!("{kind:?} from step {at}");
                plans.push(with(&story, &name, vec![Fault { at, lasts: DEAD, kind }]));
            }
        }
    }
    plans
}

/// Errors and missing answers of the API server.
fn api_faults() -> Vec<Case> {
    let refuse = |which, code, committed, most| FaultKind::Refuse { which, code, committed, most };
    let lose = |which, committed, most| FaultKind::Lose { which, committed, most };
    let (no, yes, all) = (Committed::No, Committed::Yes, u32::MAX);
    let slow = |which, seconds| FaultKind::Slow { which, by: Duration::from_secs(seconds) };
    let faults: Vec<(&str, Duration, FaultKind)> = vec![
        ("9 s for a status", 2 * MINUTE, slow(Calls::Status, 9)),
        ("conflicts", MINUTE, refuse(Calls::Status, 409, no, 30)),
        ("504 after the commit", MINUTE, refuse(Calls::Status, 504, yes, 5)),
        ("statuses get no answer", MINUTE, lose(Calls::Status, yes, 3)),
        (
            "statuses are answered late",
            MINUTE,
            FaultKind::SlowAnswer { which: Calls::Status, by: Duration::from_secs(2) },
        ),
        ("no answer, not done", MINUTE, lose(Calls::Everything, no, 5)),
        ("429 with Retry-After", MINUTE, refuse(Calls::Everything, 429, no, 20)),
        ("503", MINUTE, refuse(Calls::Everything, 503, no, 20)),
        ("403 on statuses", MINUTE, refuse(Calls::Status, 403, no, all)),
        ("403 on the Secret", DEAD, refuse(Calls::Secret, 403, no, all)),
        ("Events refused", MINUTE, refuse(Calls::Events, 403, no, all)),
        ("9 s latency", DEAD, slow(Calls::Everything, 9)),
        ("undecodable token", MINUTE, FaultKind::Damage(Watched::Tokens, Damage::Undecodable)),
        ("410 as an event", MINUTE, FaultKind::Damage(Watched::Tokens, Damage::Gone)),
        ("truncated chunks", MINUTE, FaultKind::Damage(Watched::Tokens, Damage::Truncated)),
    ];
    let mut plans = Vec::new();
    for (name, lasts, kind) in &faults {
        for story in short_stories() {
            for at in [2, 3, story.steps.len() / 2] {
                let fault = Fault { at, lasts: *lasts, kind: kind.clone() };
                plans.push(with(&story, &format!("{name} from step {at}"), vec![fault]));
            }
        }
    }
    plans
}

/// A replica hears and reaches nobody but its clients.
fn cut_off() -> Vec<Case> {
    let mut plans = Vec::new();
    for story in short_stories() {
        for at in 2..story.steps.len() {
            let kind = FaultKind::Pause { replica: at % 2 };
            let mut story = story.clone();
            story.steps.push(Step { wait: LATER, op: Op::Crowd(0, 4) });
            let name = format!("{kind:?} from step {at}");
            plans.push(with(&story, &name, vec![Fault { at, lasts: DEAD, kind }]));
        }
    }
    plans
}

pub fn random(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed ^ 0x5eed_7013);
    let seconds = |wait, op| Step { wait: Duration::from_secs(wait), op };
    let mut steps = vec![
        seconds(10, Op::Create(0, Profile::Web)),
        seconds(1, Op::CreateToken(0, terms(&mut rng))),
        seconds(1, Op::CreateToken(1, terms(&mut rng))),
        seconds(10, Op::Crowd(0, 3)),
    ];
    for _ in 0..rng.usize(4..24) {
        let op = match rng.u8(..16) {
            0..9 => join_op(&mut rng),
            9..13 => token_op(&mut rng),
            13..15 => federation_op(&mut rng),
            _ => own_op(&mut rng, 3),
        };
        steps.push(Step { wait: wait(&mut rng), op });
    }
    let number = rng.usize(..3);
    let mut faults = Vec::new();
    for _ in 0..number {
        let watched = WATCHED[rng.usize(..2)];
        faults.push(fault(&mut rng, watched, steps.len()));
    }
    let name = format!("seed {seed}");
    Case { name, seed, steps, faults, serves_joins: true, ..Case::default() }
}

fn terms(rng: &mut Rng) -> Terms {
    let most = (rng.u8(..4) > 0).then(|| rng.u32(1..6));
    let lasts = (rng.u8(..4) == 0).then(|| rng.i64(10..600));
    Terms { most, lasts }
}

fn join_op(rng: &mut Rng) -> Op {
    let token = rng.usize(..TOKENS);
    if rng.u8(..3) == 0 {
        return Op::Crowd(token, rng.usize(2..WORKLOADS));
    }
    let join = Join::new(rng.usize(..WORKLOADS), token, rng.usize(..2));
    // Most are of the one peer that is always there.
    let peer = if rng.bool() { 0 } else { rng.usize(..PEERS) };
    let proof =
        if rng.u8(..4) > 0 { Proof::Good } else { Proof::ALL[rng.usize(..Proof::ALL.len())] };
    Op::Join(join.of(peer).with(proof))
}

fn token_op(rng: &mut Rng) -> Op {
    let token = rng.usize(..TOKENS);
    match rng.u8(..8) {
        0 => Op::DeleteToken(token),
        1..3 => Op::CreateToken(token, terms(rng)),
        3..5 => Op::RecreateToken(token, terms(rng)),
        5 => Op::EndToken(token, rng.i64(-10..120)),
        6 => Op::SetMostUses(token, rng.u32(1..8)),
        _ => Op::EditToken(token, rng.u32(1..20)),
    }
}
