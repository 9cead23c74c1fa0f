//! Workloads of simulations: named stories and random ones.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    case::{Case, Step},
    faults::{Calls, Committed, Damage, Fault, FaultKind, Moment, Watched},
    ops::{Authority, Op, RouteId, SecretId, Shape},
    pool::Content,
};

const SHOP: RouteId = RouteId(0);
const BLOG: RouteId = RouteId(1);
/// In another namespace.
const OPS: RouteId = RouteId(2);
const DOCS: RouteId = RouteId(3);
const FIRST: SecretId = SecretId(0);
const SECOND: SecretId = SecretId(1);

/// Long enough for the controller to settle between two steps without faults.
pub const BEAT: Duration = Duration::from_secs(3);
/// Longer than the grace period for missing Secrets.
const LONG: Duration = Duration::from_secs(12);

/// Stories, each for one part of the table.
pub fn stories() -> Vec<Case> {
    use Content::{Empty, Garbage, Good, Mismatched, Opaque};
    use Op::{
        Admit, Annotate, AnnotateBadly, ChangeHost, CreateRoute, DeleteRoute, DeleteSecret,
        DeleteSlowly, Detach, Disown, DropCertificate, DropExternal, DropPair, Fight,
        FinishDeletion, FitMarker, FitSource, ForgeMarker, Label, LabelSecret, Nothing,
        OwnByIngress, PutSecret, Reapply, RecreateRoute, RecreateSecret, Restart, RestoreRoute,
        SetAuthority, SetExternal, SetPair, StripMarker, Terminate,
    };
    let put = |content| PutSecret(SHOP, FIRST, content);
    let annotated = |route| CreateRoute(route, Shape::Edge, Some(FIRST));
    let stories: Vec<(&str, Vec<Op>)> = vec![
        ("the Route is there first", vec![annotated(SHOP), Nothing, put(Good(0))]),
        ("renewed twice", vec![put(Good(0)), annotated(SHOP), put(Good(1)), put(Good(2))]),
        ("Secret deleted", vec![put(Good(0)), annotated(SHOP), DeleteSecret(SHOP, FIRST), Nothing]),
        (
            "Secret deleted and made again within the grace",
            vec![put(Good(0)), annotated(SHOP), DeleteSecret(SHOP, FIRST), put(Good(1))],
        ),
        (
            "Secret gone, back, and gone again",
            vec![
                put(Good(0)),
                annotated(SHOP),
                DeleteSecret(SHOP, FIRST),
                put(Good(0)),
                Nothing,
                DeleteSecret(SHOP, FIRST),
                Nothing,
            ],
        ),
        (
            "changed, looked at, and changed back",
            vec![
                put(Good(0)),
                annotated(SHOP),
                put(Good(1)),
                DropPair(SHOP),
                put(Good(0)),
                Nothing,
            ],
        ),
        (
            "Secret replaced at once, twice",
            vec![
                put(Good(0)),
                annotated(SHOP),
                RecreateSecret(SHOP, FIRST, Good(1)),
                RecreateSecret(SHOP, FIRST, Good(1)),
            ],
        ),
        (
            "Secret broken and mended",
            vec![put(Good(0)), annotated(SHOP), put(Mismatched), put(Good(2)), put(Garbage)],
        ),
        (
            "cert-manager begins with an empty Secret",
            vec![annotated(SHOP), put(Empty), put(Good(0)), LabelSecret(SHOP, FIRST)],
        ),
        (
            "annotation removed and put back",
            vec![put(Good(0)), annotated(SHOP), Annotate(SHOP, None), Annotate(SHOP, Some(FIRST))],
        ),
        (
            "another Secret, which is renewed",
            vec![
                put(Good(0)),
                PutSecret(SHOP, SECOND, Good(1)),
                annotated(SHOP),
                Annotate(SHOP, Some(SECOND)),
                PutSecret(SHOP, SECOND, Good(2)),
                DeleteSecret(SHOP, FIRST),
            ],
        ),
        (
            "the user's own pair is adopted",
            vec![
                CreateRoute(SHOP, Shape::Edge, None),
                SetPair(SHOP, Good(3)),
                put(Good(3)),
                Annotate(SHOP, Some(FIRST)),
                put(Good(4)),
            ],
        ),
        (
            "the pair is changed by hand",
            vec![
                put(Good(0)),
                annotated(SHOP),
                SetPair(SHOP, Good(4)),
                DropPair(SHOP),
                DropCertificate(SHOP),
            ],
        ),
        ("detached", vec![put(Good(0)), annotated(SHOP), Detach(SHOP), put(Good(1))]),
        (
            "the Route is made again",
            vec![
                put(Good(0)),
                annotated(SHOP),
                RecreateRoute(SHOP, Some(FIRST)),
                RecreateRoute(SHOP, None),
            ],
        ),
        (
            "the Route is restored from a backup",
            vec![
                put(Good(0)),
                annotated(SHOP),
                RestoreRoute(SHOP),
                DeleteSecret(SHOP, FIRST),
                Nothing,
            ],
        ),
        (
            "one Secret, three Routes",
            vec![
                put(Good(0)),
                annotated(SHOP),
                annotated(BLOG),
                annotated(DOCS),
                put(Good(1)),
                DeleteSecret(SHOP, FIRST),
                Nothing,
            ],
        ),
        (
            "two namespaces, the same names",
            vec![
                put(Good(0)),
                annotated(SHOP),
                annotated(OPS),
                PutSecret(OPS, FIRST, Good(1)),
                DeleteSecret(SHOP, FIRST),
                Nothing,
            ],
        ),
        (
            "termination changes",
            vec![
                put(Good(0)),
                annotated(SHOP),
                Terminate(SHOP, Shape::Passthrough),
                Terminate(SHOP, Shape::Reencrypt),
                Terminate(SHOP, Shape::Plain),
                Terminate(SHOP, Shape::Edge),
            ],
        ),
        (
            "an Ingress takes the Route over",
            vec![put(Good(0)), annotated(SHOP), OwnByIngress(SHOP), put(Good(1)), Disown(SHOP)],
        ),
        (
            "externalCertificate",
            vec![
                put(Good(0)),
                annotated(SHOP),
                SetExternal(SHOP),
                put(Good(1)),
                DropExternal(SHOP),
            ],
        ),
        (
            "the Route's own authority",
            vec![
                put(Good(0)),
                annotated(SHOP),
                SetAuthority(SHOP, Some(Authority::Stranger)),
                SetAuthority(SHOP, Some(Authority::Ours)),
                put(Good(1)),
                SetAuthority(SHOP, None),
            ],
        ),
        (
            "GitOps fights back",
            vec![
                put(Good(0)),
                annotated(SHOP),
                Reapply(SHOP),
                Fight(SHOP, Duration::from_secs(400)),
            ],
        ),
        (
            "the router drops what it does not know",
            vec![put(Good(0)), annotated(SHOP), Admit(SHOP), put(Good(1)), Admit(SHOP)],
        ),
        (
            "a deletion that takes its time",
            vec![
                put(Good(0)),
                annotated(SHOP),
                DeleteSlowly(SHOP),
                put(Good(1)),
                FinishDeletion(SHOP),
                annotated(SHOP),
            ],
        ),
        (
            "the Secret changes its type",
            vec![put(Good(0)), annotated(SHOP), put(Opaque), put(Good(1))],
        ),
        (
            "changed and changed back",
            vec![
                put(Good(0)),
                annotated(SHOP),
                put(Good(1)),
                put(Good(0)),
                Annotate(SHOP, Some(SECOND)),
                Annotate(SHOP, Some(FIRST)),
            ],
        ),
        (
            "the note is stripped and forged",
            vec![
                put(Good(0)),
                annotated(SHOP),
                StripMarker(SHOP),
                ForgeMarker(SHOP),
                DeleteSecret(SHOP, FIRST),
                Nothing,
            ],
        ),
        (
            "pair, note and source are fitted to each other",
            vec![
                put(Good(0)),
                annotated(SHOP),
                Restart,
                Nothing,
                FitSource(SHOP, Good(3)),
                Nothing,
            ],
        ),
        (
            "an earlier version took what is refused now",
            vec![
                put(Mismatched),
                annotated(SHOP),
                FitMarker(SHOP, Mismatched),
                Nothing,
                LabelSecret(SHOP, FIRST),
                put(Good(1)),
                put(Garbage),
            ],
        ),
        (
            "labels of a Secret, and a Route that is adopted",
            vec![
                put(Good(0)),
                annotated(SHOP),
                LabelSecret(SHOP, FIRST),
                FitMarker(SHOP, Good(0)),
                LabelSecret(SHOP, FIRST),
                put(Good(1)),
            ],
        ),
        (
            "what does not concern us",
            vec![
                put(Good(0)),
                CreateRoute(SHOP, Shape::Reencrypt, Some(FIRST)),
                Label(SHOP),
                ChangeHost(SHOP),
                AnnotateBadly(SHOP),
                DeleteRoute(SHOP),
            ],
        ),
    ];
    stories.into_iter().enumerate().map(|(number, (name, ops))| story(number, name, ops)).collect()
}

fn story(number: usize, name: &str, ops: Vec<Op>) -> Case {
    let wait = |op: &Op| if *op == Op::Nothing { LONG } else { BEAT };
    let steps = ops.into_iter().map(|op| Step { wait: wait(&op), op }).collect();
    Case {
        name: name.to_owned(),
        seed: number as u64,
        replicas: 1,
        keep: false,
        faults_end: true,
        extra_time: Duration::ZERO,
        sees_resyncs: true,
        logs: true,
        steps,
        faults: Vec::new(),
    }
}

/// The random case of this seed.
pub fn random(seed: u64) -> Case {
    let mut rng = Rng::with_seed(seed);
    let number = match rng.u8(..10) {
        0..7 => rng.usize(1..20),
        7..9 => rng.usize(20..60),
        _ => rng.usize(60..=200),
    };
    let secret = |rng: &mut Rng| (*rng.choice(&RouteId::ALL).expect("some"), SecretId(rng.u8(..2)));
    let mut steps: Vec<Step> = Vec::new();
    for route in &RouteId::ALL[..rng.usize(1..=3)] {
        let (_, asked) = secret(&mut rng);
        let created = Op::CreateRoute(*route, Shape::Edge, Some(asked));
        let filled = Op::PutSecret(*route, asked, content(&mut rng));
        let mut both = [created, filled];
        rng.shuffle(&mut both);
        steps.extend(both.into_iter().map(|op| Step { wait: Duration::ZERO, op }));
    }
    steps.extend((0..number).map(|_| {
        let (route, asked) = secret(&mut rng);
        Step { wait: wait(&mut rng), op: op(&mut rng, route, asked) }
    }));
    // Changes of Secrets of other types are noticed at a resync, which would repair other faults
    // too.
    if rng.u8(..12) > 0 {
        steps.iter_mut().for_each(Step::without_opaque_secrets);
    }
    let faults = (0..rng.usize(..5)).map(|_| fault(&mut rng, steps.len())).collect();
    Case {
        name: format!("seed {seed}"),
        seed,
        replicas: if rng.u8(..8) == 0 { 2 } else { 1 },
        keep: rng.u8(..5) == 0,
        faults_end: true,
        extra_time: Duration::ZERO,
        sees_resyncs: rng.u8(..4) == 0,
        logs: rng.u8(..8) == 0,
        steps,
        faults,
    }
}

fn wait(rng: &mut Rng) -> Duration {
    let longest = match rng.u8(..10) {
        0..6 => 50,
        6..9 => 2_000,
        _ => 8_000,
    };
    Duration::from_millis(rng.u64(..longest))
}

fn content(rng: &mut Rng) -> Content {
    if rng.u8(..4) == 0 {
        *rng.choice(&Content::ALL).expect("some")
    } else {
        Content::Good(rng.u8(..6))
    }
}

fn shape(rng: &mut Rng) -> Shape {
    match rng.u8(..6) {
        0 => Shape::Passthrough,
        1 => Shape::Plain,
        2 => Shape::Reencrypt,
        _ => Shape::Edge,
    }
}

fn op(rng: &mut Rng, route: RouteId, secret: SecretId) -> Op {
    match rng.u8(..40) {
        0..10 => Op::PutSecret(route, secret, content(rng)),
        10..12 => Op::DeleteSecret(route, secret),
        12..14 => Op::RecreateSecret(route, secret, content(rng)),
        14 => Op::LabelSecret(route, secret),
        15..18 => Op::CreateRoute(route, shape(rng), (rng.u8(..4) > 0).then_some(secret)),
        18 => Op::DeleteRoute(route),
        19 => Op::RecreateRoute(route, (rng.u8(..4) > 0).then_some(secret)),
        20 => Op::RestoreRoute(route),
        21..24 => Op::Annotate(route, (rng.u8(..3) > 0).then_some(secret)),
        24 => Op::AnnotateBadly(route),
        25 => Op::Detach(route),
        26 => Op::StripMarker(route),
        27 => Op::ForgeMarker(route),
        28 => Op::SetPair(route, content(rng)),
        29 => {
            if rng.bool() {
                Op::DropPair(route)
            } else {
                Op::DropCertificate(route)
            }
        }
        30 => Op::Terminate(route, shape(rng)),
        31 => {
            if rng.bool() {
                Op::SetExternal(route)
            } else {
                Op::DropExternal(route)
            }
        }
        32 => Op::SetAuthority(
            route,
            *rng.choice(&[None, Some(Authority::Ours), Some(Authority::Stranger)]).expect("some"),
        ),
        33 => {
            if rng.bool() {
                Op::OwnByIngress(route)
            } else {
                Op::Disown(route)
            }
        }
        34 => {
            if rng.bool() {
                Op::Label(route)
            } else {
                Op::ChangeHost(route)
            }
        }
        35 => {
            if rng.bool() {
                Op::DeleteSlowly(route)
            } else {
                Op::FinishDeletion(route)
            }
        }
        36 => Op::Reapply(route),
        37 => Op::Fight(route, Duration::from_secs(rng.u64(..30))),
        38 => Op::Admit(route),
        _ => match rng.u8(..3) {
            0 => Op::Nothing,
            1 => Op::FitMarker(route, content(rng)),
            _ => Op::FitSource(route, content(rng)),
        },
    }
}

fn fault(rng: &mut Rng, steps: usize) -> Fault {
    let which = *rng.choice(&Calls::ALL).expect("some");
    let watched = *rng.choice(&Watched::BOTH).expect("some");
    let committed = if rng.bool() { Committed::Yes } else { Committed::No };
    let most = rng.u32(1..10);
    let kind = match rng.u8(..15) {
        0..3 => {
            let moment = if rng.bool() { Moment::BeforeSend } else { Moment::AfterCommit };
            FaultKind::Crash { call: rng.u32(..80), moment }
        }
        3..5 => {
            let code = *rng.choice(&[401, 403, 409, 410, 429, 500, 503, 504]).expect("some");
            // Only a 5xx may be answered to a request that was carried out.
            let committed = if code >= 500 { committed } else { Committed::No };
            FaultKind::Refuse { which, code, committed, most }
        }
        5 => FaultKind::Lose { which, committed, most },
        6 => FaultKind::Slow { which, by: Duration::from_millis(rng.u64(..10_000)) },
        7..9 => FaultKind::Freeze(watched),
        9 => FaultKind::Damage(watched, *rng.choice(&Damage::ALL).expect("some")),
        10 => FaultKind::Lag,
        11 => FaultKind::Gap(watched),
        12 => FaultKind::Compact,
        13 => FaultKind::SlowAnswer { which, by: Duration::from_millis(rng.u64(..9_000)) },
        _ => FaultKind::Pause { replica: rng.usize(..2) },
    };
    Fault { at: rng.usize(..steps), lasts: Duration::from_millis(rng.u64(100..60_000)), kind }
}
