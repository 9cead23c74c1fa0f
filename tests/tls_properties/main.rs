//! Promise: every content of a Secret is judged without a panic, a pair that we would inject is
//! valid for OpenSSL too, and no good pair is refused.
//!
//! The cases are good texts from a pool, broken in all ways that people and tools break them.
//! Accepted pairs are checked with the `openssl` crate, which shares no code with the tested one.

mod built;
mod material;
mod mutation;
mod router;

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use chrono::{DateTime, TimeDelta, Utc};
use openssl::pkey::PKey;
use openssl::x509::X509;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed};
use trustplane::tls::{
    Pair, Problem, Warning, Wildcard, ca_problems, judge, next_change, warnings,
};

use material::{POOL, Texts, generated_by_openssl, generated_by_rcgen};
use mutation::{Mutation, mutation};

/// Fixed in `make test`, random in long runs; TRUSTPLANE_SEED repeats one.
fn cases(cases: u32) -> Config {
    let long = std::env::var_os("TRUSTPLANE_LONG").is_some();
    let cases = if long { cases.saturating_mul(5) } else { cases };
    Config { cases, rng_seed: seed(), failure_persistence: None, ..Config::default() }
}

fn seed() -> RngSeed {
    let given = std::env::var("TRUSTPLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let long = std::env::var_os("TRUSTPLANE_LONG").map(|_| u64::from(std::process::id()));
    let seed = given.or(long).unwrap_or(20_260_101);
    println!("TRUSTPLANE_SEED={seed}");
    RngSeed::Fixed(seed)
}

/// Checks any two texts. Returns whether they were accepted.
fn laws(certificate: &[u8], key: &[u8]) -> Result<bool, TestCaseError> {
    let verdict = judge(certificate, key);
    // Not for every case, because judging takes most of the time.
    if (certificate.len() + key.len()).is_multiple_of(8) {
        match (&verdict, judge(certificate, key)) {
            (Ok(one), Ok(two)) => prop_assert_eq!(one.facts(), two.facts()),
            (Err(one), Err(two)) => prop_assert_eq!(one, &two),
            _ => prop_assert!(false, "judged twice, with two answers"),
        }
    }
    match &verdict {
        Ok(pair) => is_a_pair_to_openssl(pair, certificate, key)?,
        Err(problems) => are_problems(problems, key)?,
    }
    Ok(verdict.is_ok())
}

fn is_a_pair_to_openssl(pair: &Pair, certificate: &[u8], key: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(pair.certificate().as_bytes(), certificate);
    prop_assert_eq!(pair.key().expose().as_bytes(), key);
    // The router rewrites every block for HAProxy, so blank lines don't matter.
    let chain = X509::stack_from_pem(rewrapped(pair.certificate()).as_bytes());
    let key = PKey::private_key_from_pem(rewrapped(pair.key().expose()).as_bytes());
    let chain = chain.map_err(|e| TestCaseError::fail(format!("tls.crt: {e}")))?;
    let key = key.map_err(|e| TestCaseError::fail(format!("tls.key: {e}")))?;
    let certificates = pair.certificate().matches("-----BEGIN CERTIFICATE-----").count();
    prop_assert_eq!(chain.len(), certificates);
    prop_assert!(chain[0].public_key().is_ok_and(|public| public.public_eq(&key)));
    for issuer in &chain {
        if let Ok(rsa) = issuer.public_key().and_then(|key| key.rsa()) {
            prop_assert!((2048..=8192).contains(&rsa.n().num_bits()));
        }
    }
    Ok(())
}

fn are_problems(problems: &[Problem], key: &[u8]) -> Result<(), TestCaseError> {
    prop_assert!(!problems.is_empty() && problems.len() <= 45);
    let key = String::from_utf8_lossy(key);
    let words: String = problems.iter().map(Problem::to_string).collect();
    let said = format!("{problems:?} {words}");
    // 24 characters of base64 in a row would be a piece of a key.
    let starts = key.lines().filter_map(|line| line.get(..24));
    for piece in starts.filter(|piece| !piece.contains([' ', '-'])) {
        prop_assert!(!said.contains(piece));
    }
    Ok(())
}

/// The text with the content of every block in lines of 64.
fn rewrapped(text: &str) -> String {
    let mut out = String::new();
    let mut content: Option<String> = None;
    for line in text.lines().map(str::trim_end) {
        match &mut content {
            None if line.starts_with("-----BEGIN ") => {
                out += &format!("{line}\n");
                content = Some(String::new());
            }
            Some(base64) if line.starts_with("-----END ") => {
                for chunk in base64.as_bytes().chunks(64) {
                    out += &format!("{}\n", String::from_utf8_lossy(chunk));
                }
                out += &format!("{line}\n");
                content = None;
            }
            Some(base64) => base64.extend(line.chars().filter(|c| !c.is_ascii_whitespace())),
            None => {}
        }
    }
    out
}

/// Counts of one property, printed to show that a run tested something.
struct Count {
    what: &'static str,
    passed: AtomicU64,
    refused: AtomicU64,
}

impl Count {
    const fn of(what: &'static str) -> Self {
        let (passed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { what, passed, refused }
    }

    fn add(&self, passed: bool) {
        let count = if passed { &self.passed } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    fn check(&self, least_passed: u64, least_refused: u64) {
        let (passed, refused) = (self.passed.load(Relaxed), self.refused.load(Relaxed));
        let (what, all) = (self.what, passed + refused);
        println!("{what}: {all} cases, {passed} served, {refused} refused");
        assert!(passed >= least_passed && refused >= least_refused);
    }
}

#[test]
fn broken_texts_never_pass_as_pairs_that_openssl_would_not_take() {
    static COUNT: Count = Count::of("texts broken at random");
    let strategy = (
        any::<Index>(),
        prop_oneof![4 => Just(None), 1 => any::<Index>().prop_map(Some)],
        prop::collection::vec(mutation(), 0..4),
        prop::collection::vec(mutation(), 0..3),
    );
    proptest!(cases(35_000), |((pair, other, of_crt, of_key) in strategy)| {
        let pair = pair.get(&POOL);
        let key = other.map_or(&pair.key, |other| &other.get(&POOL).key);
        let crt = Mutation::apply_all(&of_crt, &pair.crt);
        let key = Mutation::apply_all(&of_key, key);
        COUNT.add(laws(&crt, &key)?);
    });
    COUNT.check(1_000, 10_000);
}

#[test]
fn broken_contents_never_pass_as_pairs_that_openssl_would_not_take() {
    static COUNT: Count = Count::of("contents broken at random");
    let strategy = (any::<Index>(), any::<bool>(), mutation::content());
    proptest!(cases(25_000), |((pair, in_key, broken) in strategy)| {
        let pair = pair.get(&POOL);
        let (mut crt, mut key) = (pair.crt.clone().into_bytes(), pair.key.clone().into_bytes());
        match in_key {
            true => key = broken.apply(&pair.key),
            false => crt = broken.apply(&pair.crt),
        }
        COUNT.add(laws(&crt, &key)?);
    });
    COUNT.check(1_000, 10_000);
}

#[test]
fn no_single_flipped_bit_passes_as_a_pair_that_openssl_would_not_take() {
    static COUNT: Count = Count::of("every bit flipped");
    let texts = generated_by_openssl(8);
    let crt = X509::from_pem(texts.crt.as_bytes()).unwrap().to_der().unwrap();
    for bit in 0..8 * crt.len() {
        let crt = mutation::block("CERTIFICATE", &flipped(&crt, bit));
        COUNT.add(laws(crt.as_bytes(), texts.key.as_bytes()).unwrap());
    }
    COUNT.check(1_000, 1_000);
}

#[test]
fn no_single_flipped_bit_of_a_key_passes_as_a_pair_that_openssl_would_not_take() {
    static COUNT: Count = Count::of("every bit of a key flipped");
    let ec = generated_by_openssl(8);
    let rsa = POOL.iter().find(|texts| is_rsa(texts)).expect("the pool has RSA keys");
    for texts in [&ec, rsa] {
        let key = PKey::private_key_from_pem(texts.key.as_bytes()).unwrap();
        let own = match key.rsa() {
            Ok(rsa) => rsa.private_key_to_der().unwrap(),
            Err(_) => key.ec_key().unwrap().private_key_to_der().unwrap(),
        };
        for der in [key.private_key_to_pkcs8().unwrap(), own] {
            // Parsers differ in the structure of an RSA key, not in its long numbers.
            let frame = if is_rsa(texts) { 80.min(der.len()) } else { der.len() };
            for bit in 0..8 * frame {
                let key = mutation::block("PRIVATE KEY", &flipped(&der, bit));
                COUNT.add(laws(texts.crt.as_bytes(), key.as_bytes()).unwrap());
            }
        }
    }
    COUNT.check(0, 1_000);
}

fn is_rsa(texts: &material::Texts) -> bool {
    PKey::private_key_from_pem(texts.key.as_bytes()).is_ok_and(|key| key.rsa().is_ok())
}

fn flipped(der: &[u8], bit: usize) -> Vec<u8> {
    let mut der = der.to_vec();
    der[bit / 8] ^= 1 << (bit % 8);
    der
}

#[test]
fn junk_is_refused() {
    static COUNT: Count = Count::of("junk");
    let pieces = prop_oneof![
        Just(b"-----BEGIN ".to_vec()),
        Just(b"-----END ".to_vec()),
        Just(b"CERTIFICATE-----\n".to_vec()),
        Just(b"PRIVATE KEY-----\n".to_vec()),
        Just(b"\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        "[A-Za-z0-9+/=]{0,64}\n".prop_map(String::into_bytes),
    ];
    let text = || prop::collection::vec(pieces.clone(), 0..12).prop_map(|pieces| pieces.concat());
    proptest!(cases(20_000), |((crt, key) in (text(), text()))| {
        COUNT.add(laws(&crt, &key)?);
    });
    COUNT.check(0, 20_000);
}

fn pool_as_pairs() -> Vec<Pair> {
    let pair = |texts: &material::Texts| judge(texts.crt.as_bytes(), texts.key.as_bytes());
    POOL.iter().map(|texts| pair(texts).unwrap()).collect()
}

#[test]
fn any_ca_certificate_has_an_answer() {
    static COUNT: Count = Count::of("caCertificates");
    let pairs = pool_as_pairs();
    let strategy =
        (any::<Index>(), any::<Index>(), any::<bool>(), prop::collection::vec(mutation(), 0..2));
    proptest!(cases(10_000), |((leaf, pool, own, broken) in strategy)| {
        let (leaf, pool) = (leaf.index(POOL.len()), pool.index(POOL.len()));
        let pool = if own { &POOL[leaf].issuers } else { &POOL[pool].issuers };
        let pool = String::from_utf8_lossy(&Mutation::apply_all(&broken, pool)).into_owned();
        let problems = ca_problems(pairs[leaf].certificate(), &pool, Utc::now());
        prop_assert!(problems.len() <= 21);
        // A caCertificate that verifies for us must verify for OpenSSL.
        if problems.is_empty() && !pool.is_empty() {
            let leaf = &X509::stack_from_pem(POOL[leaf].crt.as_bytes()).unwrap()[0];
            let pool = X509::stack_from_pem(rewrapped(&pool).as_bytes()).unwrap();
            let signed = |root: &X509| root.public_key().and_then(|key| leaf.verify(&key));
            prop_assert!(pool.iter().any(|root| matches!(signed(root), Ok(true)) || root == leaf));
        }
        COUNT.add(problems.is_empty());
    });
    COUNT.check(500, 500);
}

#[test]
fn warnings_change_when_they_say_they_do() {
    let pairs = pool_as_pairs();
    let strategy =
        (any::<Index>(), -40_000_000i64..40_000_000, "[a-zA-Z0-9.*:-]{0,30}", any::<bool>());
    proptest!(cases(20_000), |((pair, seconds, host, subdomain) in strategy)| {
        let facts = pair.get(&pairs).facts();
        let wildcard = if subdomain { Wildcard::Subdomain } else { Wildcard::None };
        let now: DateTime<Utc> = material::noon() + TimeDelta::seconds(seconds);
        let at = |now| warnings(facts, &host, wildcard, now);
        let about_time = |warning: &&Warning| matches!(
            warning,
            Warning::NotYetValid { .. }
                | Warning::Expiring { .. }
                | Warning::IntermediateExpired { .. }
                | Warning::Expired { .. }
        );
        prop_assert!(at(now).iter().filter(about_time).count() <= 1);
        prop_assert!(at(now).iter().all(|warning| !warning.to_string().is_empty()));
        match next_change(facts.validity, now) {
            Some(next) => {
                prop_assert!(next > now);
                prop_assert_ne!(at(next), at(now));
                prop_assert_eq!(at(next - TimeDelta::nanoseconds(1)), at(now));
            }
            None => prop_assert_eq!(at(now + TimeDelta::days(100_000)), at(now)),
        }
    });
    println!("warnings: 20000 cases");
}

/// Pairs of all kinds of keys, in all forms in which people write them.
static GOOD: LazyLock<Vec<Texts>> = LazyLock::new(|| {
    let by_rcgen = (0..500).map(generated_by_rcgen);
    let by_openssl = (0..500).map(generated_by_openssl);
    // Fifty in a row have the same form, so that every kind of key has every form.
    let all = by_rcgen.chain(by_openssl).enumerate();
    all.map(|(n, texts)| material::written_down(n / 50, texts)).collect()
});

#[test]
fn no_good_pair_is_refused() {
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    for texts in &*GOOD {
        let kind = &*texts.kind;
        let pair = judge(texts.crt.as_bytes(), texts.key.as_bytes())
            .unwrap_or_else(|problems| panic!("{kind}: {problems:?}\n{}", texts.crt));
        is_a_pair_to_openssl(&pair, texts.crt.as_bytes(), texts.key.as_bytes()).unwrap();
        assert_eq!(ca_problems(pair.certificate(), &texts.issuers, Utc::now()), [], "{kind}");
        let host = pair.facts().names().next().unwrap().replace('*', "www");
        let mut warned = warnings(pair.facts(), &host, Wildcard::None, material::noon());
        // Even clients that insist on the order accept a repeated leaf.
        if kind.ends_with(material::DOUBLED) {
            let order = [Warning::ChainOutOfOrder, Warning::ChainIncomplete];
            warned.retain(|warning| !order.contains(warning));
        }
        assert_eq!(warned, [], "{kind}");
        *counts.entry(kind).or_default() += 1;
    }
    for (kind, count) in &counts {
        println!("round trip: {count:4} {kind}");
    }
    let all: u32 = counts.values().sum();
    println!("round trip: {all} pairs, none refused");
    assert_eq!(all, 1_000);
}
