//! Promise: the router serves every pair that we inject. The router uses Go's libraries, so those
//! judge (e2e/router-verdict) good pairs that are broken in thousands of ways.
//!
//! We may be stricter (src/tls/mod.rs says where and why), but never laxer.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::{
    prelude::*,
    sample::Index,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use trustplane::tls::{ca_problems, judge};

use crate::{
    GOOD, built,
    material::{POOL, Texts},
    mutation::{self, Mutation, mutation},
    seed,
};

#[derive(Debug)]
pub struct Case {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub ca: Vec<u8>,
}

fn count() -> usize {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 200_000 } else { 10_000 }
}

fn cases() -> Vec<Case> {
    let config = Config { rng_seed: seed(), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let strategy =
        prop_oneof![broken_texts().boxed(), broken_contents().boxed(), built::case().boxed()];
    (0..count()).map(|_| strategy.new_tree(&mut runner).expect("a case").current()).collect()
}

/// Mistakes of people and tools: lost lines, swapped blocks, inserted text.
fn broken_texts() -> impl Strategy<Value = Case> {
    let some = |most: usize| prop::collection::vec(mutation(), 0..most);
    (any::<Index>(), some(3), some(2), some(2), 0..4u8, any::<Index>()).prop_map(
        |(pair, of_certificate, of_key, of_ca, with_ca, other)| {
            let pair = pair.get(&POOL);
            let issuers = if with_ca == 3 { &other.get(&POOL).issuers } else { &pair.issuers };
            Case {
                certificate: Mutation::apply_all(&of_certificate, &pair.crt),
                key: Mutation::apply_all(&of_key, &pair.key),
                ca: if with_ca < 2 { Vec::new() } else { Mutation::apply_all(&of_ca, issuers) },
            }
        },
    )
}

/// Bits flipped and bytes changed inside a block.
fn broken_contents() -> impl Strategy<Value = Case> {
    (any::<Index>(), 0..4u8, mutation::content()).prop_map(|(pair, which, change)| {
        let pair = pair.get(&POOL);
        let whole = |text: &str| text.as_bytes().to_vec();
        let (mut certificate, mut key, mut ca) = (whole(&pair.crt), whole(&pair.key), Vec::new());
        match which {
            0 => key = change.apply(&pair.key),
            1 => ca = change.apply(&pair.issuers),
            _ => certificate = change.apply(&pair.crt),
        }
        Case { certificate, key, ca }
    })
}

/// Why we would not inject it.
fn our_refusal(case: &Case) -> Option<String> {
    match judge(&case.certificate, &case.key) {
        Err(problems) => problems.first().map(ToString::to_string),
        Ok(_) if case.ca.is_empty() => None,
        Ok(pair) => match std::str::from_utf8(&case.ca) {
            Ok(ca) => ca_problems(pair.certificate(), ca, chrono::Utc::now())
                .first()
                .map(ToString::to_string),
            // A Route can't hold it.
            Err(_) => Some("caCertificate is not UTF-8".to_owned()),
        },
    }
}

fn router_verdict() -> PathBuf {
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("router-verdict");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/router-verdict"))
        .status()
        .expect("Go is missing; install Go 1.26 or newer");
    assert!(built.success(), "e2e/router-verdict does not build");
    binary
}

fn answers(cases: &[Case]) -> Vec<String> {
    let mut router = Command::new(router_verdict())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("router-verdict runs");
    let mut questions = router.stdin.take().expect("piped");
    let lines: String = cases
        .iter()
        .map(|case| {
            let text = |bytes: &Vec<u8>| STANDARD.encode(bytes);
            format!("{} {} {}\n", text(&case.certificate), text(&case.key), text(&case.ca))
        })
        .collect();
    let asking = std::thread::spawn(move || questions.write_all(lines.as_bytes()));
    let output = router.wait_with_output().expect("router-verdict ends");
    asking.join().expect("no panic").expect("all was asked");
    assert!(output.status.success(), "router-verdict gave up");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn the_router_serves_every_good_pair() {
    let whole = |text: &str| text.as_bytes().to_vec();
    let case = |Texts { crt, key, issuers, .. }: &Texts| Case {
        certificate: whole(crt),
        key: whole(key),
        ca: whole(issuers),
    };
    let cases: Vec<_> = GOOD.iter().map(case).collect();
    for (texts, answer) in GOOD.iter().zip(answers(&cases)) {
        assert_eq!(answer, "served", "{}\n{}", texts.kind, texts.crt);
    }
}

#[test]
fn the_router_would_serve_every_pair_that_we_would_inject() {
    let cases = cases();
    let answers = answers(&cases);
    assert_eq!(answers.len(), cases.len());

    let mut laxer = Vec::new();
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let verdicts = match (our_refusal(case), answer.as_str()) {
            (None, "served") => "both serve",
            (Some(_), "served") => "we are stricter",
            (Some(_), _) => "both refuse",
            (None, why) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                laxer.push(format!("{why}\n{}{}", text(&case.certificate), text(&case.ca)));
                "we are laxer"
            }
        };
        *tally.entry(verdicts).or_default() += 1;
    }
    println!("{} cases: {tally:?}", cases.len());
    assert!(laxer.is_empty(), "the router refuses what we would inject:\n{}", laxer.join("\n"));
    assert!(tally["both serve"] * 10 > cases.len(), "too few good ones to mean anything");
    assert!(tally["both refuse"] * 10 > cases.len(), "too few bad ones to mean anything");
}

#[test]
fn a_uri_is_accepted_if_and_only_if_go_accepts_it() {
    let config = Config { rng_seed: seed(), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let mut draw = || built::uri().new_tree(&mut runner).expect("a URI").current();
    let uris: Vec<String> = (0..3_000).map(|_| draw()).collect();
    let cases: Vec<_> = uris.iter().map(|uri| built::with_uri(uri)).collect();

    let mut served = 0;
    for ((uri, case), answer) in uris.iter().zip(&cases).zip(answers(&cases)) {
        let ours = our_refusal(case);
        assert_eq!(ours.is_none(), answer == "served", "{uri:?}: {ours:?}, but {answer}");
        served += usize::from(ours.is_none());
    }
    println!("{} URIs: {served} served", uris.len());
    assert!((500..2_500).contains(&served));
}
