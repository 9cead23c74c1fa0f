//! Stories of reviews, and random cases.

use std::time::Duration;

use fastrand::Rng;

use super::{super::remote::ISSUER, Case, Op};
use crate::case::Step;

/// Random cases to try if no story catches a bug.
const SEEDS_FOR_BUGS: u64 = 30;

pub fn plans() -> Vec<(&'static str, Vec<Case>)> {
    vec![("stories", stories())]
}

pub fn for_bugs() -> Vec<Case> {
    stories().into_iter().chain((0..SEEDS_FOR_BUGS).map(random)).collect()
}

/// Waits are in milliseconds.
fn stories() -> Vec<Case> {
    use Op::*;
    let ask = |at| Ask(at, 3, ISSUER);
    let stories: Vec<(&str, Vec<(u64, Op)>)> = vec![
        (
            "two clusters of one issuer",
            vec![(10, ask(0)), (0, ask(1)), (10, AskForged), (2000, ask(0))],
        ),
        (
            "revoked, and made again",
            vec![
                (10, ask(0)),
                (500, Revoke(0)),
                (1, AskOld(0)),
                (1, NewToken(0)),
                (1, ask(0)),
                (99, AskOld(0)),
            ],
        ),
        (
            "revoked while an older review is under way",
            vec![
                (10, SlowReviews(0, 2)),
                (10, ask(0)),
                (1000, Revoke(0)),
                (10, AskOld(0)),
                (3000, AskOld(0)),
            ],
        ),
        (
            "one audience and another",
            vec![
                (10, Ask(0, 2, ISSUER)),
                (1, Ask(0, 2, "bank")),
                (1, Ask(0, 2, "shop")),
                (2000, Ask(0, 2, "bank")),
            ],
        ),
        (
            "a cluster that is down",
            vec![
                (10, Break(0)),
                (10, Ask(0, 8, ISSUER)),
                (500, ask(1)),
                (500, ask(0)),
                (5000, Mend(0)),
                (60_000, Ask(0, 1, ISSUER)),
                (500, ask(0)),
                (10, ask(1)),
            ],
        ),
        (
            "a cluster that hangs",
            vec![
                (10, Hang(1)),
                (10, ask(1)),
                (10, ask(0)),
                (12_000, ask(1)),
                (10, Mend(1)),
                (60_000, ask(1)),
            ],
        ),
        (
            "keys that can't be fetched",
            vec![
                (10, HideKeys(0)),
                (400_000, ask(0)),
                (10, ask(1)),
                (10, AskForged),
                (10, Mend(0)),
                (20_000, ask(0)),
            ],
        ),
        (
            "rotations",
            vec![
                (10, RotateKeys(0)),
                (1, ask(0)),
                (10, RotateKeys(1)),
                (1, ask(1)),
                (10, AskOld(1)),
                (1200, ask(0)),
            ],
        ),
        (
            "a rotation while keys are fetched",
            vec![
                (3000, AskForged),
                (1, AskForged),
                (4, RotateKeys(0)),
                (1, ask(0)),
                (2000, ask(0)),
            ],
        ),
        (
            "keys that are copied",
            vec![(10, CopyKeys(1, 0)), (400_000, ask(0)), (10, ask(1)), (10, AskForged)],
        ),
        ("forged tokens without end", (0..200).map(|_| (40, AskForged)).collect()),
    ];
    let case = |caches| {
        move |(seed, (name, steps)): (u64, (&str, Vec<_>))| Case {
            name: format!("{name}{}", if caches { ", remembered" } else { "" }),
            seed,
            caches,
            steps: steps.into_iter().map(step).collect(),
            ..Case::default()
        }
    };
    let stories = || (0..).zip(stories.clone());
    stories().map(case(false)).chain(stories().map(case(true))).collect()
}

fn step((wait, op): (u64, Op)) -> Step<Op> {
    Step { wait: Duration::from_millis(wait), op }
}

pub fn random(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed ^ 0x5eed_a5c5);
    let number = rng.usize(5..60);
    let steps = (0..number).map(|_| step((wait(&mut rng), op(&mut rng)))).collect();
    let caches = rng.u8(..3) == 0;
    Case { name: format!("seed {seed}"), seed, caches, steps, ..Case::default() }
}

fn wait(rng: &mut Rng) -> u64 {
    let longest = match rng.u8(..20) {
        0..10 => 50,
        10..16 => 2_000,
        16..19 => 20_000,
        _ => 400_000,
    };
    rng.u64(..longest)
}

fn op(rng: &mut Rng) -> Op {
    let at = rng.usize(..2);
    match rng.u8(..32) {
        0..12 => {
            let audience = *rng.choice(&[ISSUER, "shop", "bank"]).expect("some");
            Op::Ask(at, rng.usize(1..8), audience)
        }
        12..15 => Op::AskOld(at),
        15..17 => Op::AskForged,
        17..19 => Op::NewToken(at),
        19 => Op::Revoke(at),
        20..22 => Op::RotateKeys(at),
        22 => Op::Break(at),
        23 => Op::Hang(at),
        24 => Op::HideKeys(at),
        25 => Op::SlowReviews(at, rng.u64(..12)),
        26..30 => Op::Mend(at),
        30 => Op::CopyKeys(at, 1 - at),
        _ => Op::Nothing,
    }
}
