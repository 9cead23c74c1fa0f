//! Promise: go-spiffe (e2e/spiffe-verdict) accepts every ID and every bundle document that we accept, and
//! reads the same in it, but for the differences that are listed here. We may be stricter.
//!
//! A difference is recognised by taking it away: the same input without it must be accepted, with the
//! same content. So nothing else hides behind it.

mod endpoint;
mod svids;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::{prelude::*, strategy::ValueTree as _};
use serde_json::{Map, Value, json, value::RawValue};
use testkit::spiffe_verdict::{self as question, SpiffeVerdict, is_ok};
use trustplane::spiffe::{
    bundle::Bundle,
    id::{SpiffeId, TrustDomain},
};

use crate::{
    count,
    documents::{Text, document},
    ids, material,
    material::{Key, jwk_members, jwt, x509},
    runner,
};

/// What go-spiffe refuses although the standard says to accept it: its reader of JWKs reads all members
/// of all keys, also of those to ignore, and fails where it can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// In the scheme, or in the trust domain.
    UpperCase,
    /// `kty` is missing, or has no meaning for the key's use (rule 32).
    UnknownType,
    /// Of an x509-svid key (rule 33).
    NoCertificate,
    /// Of an x509-svid key: the first counts (rule 33).
    SecondCertificate,
    /// `use` is missing or unknown (rule 32), and the rest of the key is not well-formed.
    UnknownUse,
    /// A curve that SVIDs are not signed on.
    UnknownCurve,
    /// A member that SPIFFE does not define for such a key (rule 8), and that is not well-formed.
    OtherMember,
}

use Difference::*;

const OF_DOCUMENTS: [Difference; 6] =
    [UnknownType, NoCertificate, SecondCertificate, UnknownUse, UnknownCurve, OtherMember];

/// So many are asked at once.
const BATCH: usize = 4_000;

/// Draws `count()` inputs, in batches.
fn batches<S: Strategy>(strategy: S) -> impl Iterator<Item = Vec<S::Value>> {
    let mut runner = runner();
    let count = count() as usize;
    (0..count.div_ceil(BATCH)).map(move |batch| {
        let size = BATCH.min(count - batch * BATCH);
        (0..size).map(|_| strategy.new_tree(&mut runner).expect("an input").current()).collect()
    })
}

/// Outcomes, counted and printed to show that a run tested something.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<&'static str, usize>,
    /// Inputs that differ by this alone.
    differences: BTreeMap<Difference, usize>,
    findings: Vec<String>,
}

impl Tally {
    fn count(&mut self, outcome: &'static str) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    fn differ(&mut self, differences: &BTreeSet<Difference>) {
        self.count("only we accept");
        if let Some(only) = differences.first().filter(|_| differences.len() == 1) {
            *self.differences.entry(*only).or_default() += 1;
        }
    }

    fn finish(self, expected: &[Difference]) {
        println!("{:?}\ndifferences: {:?}", self.outcomes, self.differences);
        // One of each kind, by its first line.
        let kinds: BTreeMap<_, _> =
            self.findings.iter().map(|it| (it.lines().next(), it.as_str())).collect();
        let some: Vec<_> = kinds.into_values().take(10).collect();
        assert!(some.is_empty(), "{} findings:\n{}", self.findings.len(), some.join("\n\n"));
        for difference in expected {
            let times = self.differences.get(difference).copied().unwrap_or_default();
            assert!(times >= 10, "{difference:?} was seen {times} times: is it gone?");
        }
        for outcome in ["both accept", "both refuse"] {
            let enough = self.outcomes[outcome] * 10 > count() as usize;
            assert!(enough, "too few to mean anything: {outcome}");
        }
    }
}

#[test]
fn go_spiffe_accepts_every_id_that_we_accept() {
    let (mut verdict, mut tally) = (SpiffeVerdict::start(), Tally::default());
    for texts in batches(ids::id()) {
        let questions: Vec<_> = texts
            .iter()
            .flat_map(|text| [question::id(text), question::id(&lower(text))])
            .collect();
        for (text, answers) in texts.iter().zip(verdict.ask_all(&questions).chunks(2)) {
            let ours = SpiffeId::parse(text).ok();
            let (theirs, of_lower) = (&answers[0], &answers[1]);
            let Some(id) = ours else {
                tally.count(if is_ok(theirs) { "we are stricter" } else { "both refuse" });
                continue;
            };
            let content = json!({
                "ok": true, "td": id.trust_domain().as_str(), "path": id.path(),
            });
            if *theirs == content {
                tally.count("both accept");
            } else if !is_ok(theirs) && lower(text) != *text && *of_lower == content {
                tally.differ(&BTreeSet::from([UpperCase]));
            } else {
                tally.findings.push(format!("{text:?}: {theirs}"));
            }
        }
    }
    tally.finish(&[UpperCase]);
}

/// An ID with scheme and trust domain in lower case.
fn lower(text: &str) -> String {
    let path = text.match_indices('/').nth(2).map_or(text.len(), |(at, _)| at);
    text[..path].to_ascii_lowercase() + &text[path..]
}

#[test]
fn go_spiffe_accepts_every_trust_domain_that_we_accept() {
    let (mut verdict, mut tally) = (SpiffeVerdict::start(), Tally::default());
    for names in batches(ids::name()) {
        let ask = |name: &str| question::bundle(name, "{\"keys\": []}");
        let questions: Vec<_> =
            names.iter().flat_map(|name| [ask(name), ask(&name.to_ascii_lowercase())]).collect();
        for (name, answers) in names.iter().zip(verdict.ask_all(&questions).chunks(2)) {
            let (theirs, of_lower) = (is_ok(&answers[0]), is_ok(&answers[1]));
            let has_upper_case = name.contains(|c: char| c.is_ascii_uppercase());
            match (TrustDomain::parse(name).is_ok(), theirs) {
                (true, true) => tally.count("both accept"),
                (false, true) => tally.count("we are stricter"),
                (false, false) => tally.count("both refuse"),
                (true, false) if has_upper_case && of_lower => {
                    tally.differ(&BTreeSet::from([UpperCase]));
                }
                (true, false) => tally.findings.push(format!("{name:?}: {}", answers[0])),
            }
        }
    }
    tally.finish(&[UpperCase]);
}

#[test]
fn go_spiffe_accepts_every_document_that_we_accept_and_reads_the_same_in_it() {
    let (mut verdict, mut tally) = (SpiffeVerdict::start(), Tally::default());
    for documents in batches(document()) {
        // The question is text. We refuse what is not UTF-8, too.
        let texts = documents.into_iter().map(|Text(bytes)| String::from_utf8(bytes).ok());
        let texts: Vec<_> =
            texts.map(|text| text.unwrap_or_else(|| "not UTF-8".to_owned())).collect();
        judge(&texts, &mut verdict, &mut tally);
    }
    tally.finish(&OF_DOCUMENTS);
}

/// Compares what we and go-spiffe make of the documents.
fn judge(texts: &[String], verdict: &mut SpiffeVerdict, tally: &mut Tally) {
    let ask = |text: &String| question::bundle("td.test", text);
    let theirs = verdict.ask_all(&texts.iter().map(ask).collect::<Vec<_>>());
    let mut accepted = Vec::new();
    for (text, theirs) in texts.iter().zip(theirs) {
        match Bundle::parse(text.as_bytes()) {
            Ok(bundle) => accepted.push((text, bundle, theirs)),
            Err(_) if is_ok(&theirs) => tally.count("we are stricter"),
            Err(_) => tally.count("both refuse"),
        }
    }
    let repaired: Vec<_> = accepted.iter().map(|(text, ..)| repaired(text)).collect();
    let questions: Vec<_> = repaired.iter().map(|(text, _)| ask(text)).collect();
    let of_repaired = verdict.ask_all(&questions);
    for (((text, bundle, theirs), (_, differences)), of_repaired) in
        accepted.into_iter().zip(repaired).zip(of_repaired)
    {
        let content = content(text, &bundle);
        let same = |theirs: &Value| without_endless_hint(theirs) == content;
        match is_ok(&theirs) {
            _ if !same(&of_repaired) => {
                let whole = format!(
                    "we read {content}\nthey read {theirs}\nrepaired: {of_repaired}\n{text}"
                );
                tally.findings.push(whole);
            }
            false if differences.is_empty() => tally.findings.push(format!("{theirs}\n{text}")),
            false => tally.differ(&differences),
            true if differences.is_empty() && !same(&theirs) => {
                tally.findings.push(format!("we read {content}\nthey read {theirs}\n{text}"));
            }
            true => tally.count("both accept"),
        }
    }
}

/// go-spiffe counts nanoseconds, so a greater hint becomes any number there.
const ENDLESS: u64 = i64::MAX as u64 / 1_000_000_000;

/// What go-spiffe should answer.
fn content(text: &str, bundle: &Bundle) -> Value {
    let authorities: BTreeSet<_> = bundle.x509.iter().map(|it| it.der().to_vec()).collect();
    let keys: BTreeSet<_> = bundle.jwt.iter().map(|it| &it.kid).collect();
    let mut content = json!({ "ok": true, "x509": authorities.len(), "jwt": keys.len() });
    if let Some(sequence) = bundle.sequence {
        content["sequence"] = sequence.to_string().into();
    }
    if let Some(hint) = bundle.refresh_hint {
        // We cut it to a year.
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).expect("a document");
        let whole: u64 = members["spiffe_refresh_hint"].get().parse().expect("a number");
        assert!(
            hint.as_secs() == whole
                || hint.as_secs() == 365 * 24 * 60 * 60 && hint.as_secs() < whole
        );
        content["hint"] = whole.into();
    }
    without_endless_hint(&content)
}

fn without_endless_hint(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(members) = answer.as_object_mut() {
        let is_endless = |hint: &Value| hint.as_u64().is_none_or(|hint| hint > ENDLESS);
        if members.get("hint").is_some_and(is_endless) {
            members.remove("hint");
        }
    }
    answer
}

/// The document without what go-spiffe may refuse in it, and what that was.
fn repaired(text: &str) -> (String, BTreeSet<Difference>) {
    let mut members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(text).expect("a document");
    let keys: Vec<Map<String, Value>> =
        serde_json::from_str(members["keys"].get()).expect("a list of objects");
    let mut differences = BTreeSet::new();
    let kept: Vec<_> =
        keys.into_iter().filter_map(|key| repaired_key(key, &mut differences)).collect();
    let kept = serde_json::value::to_raw_value(&kept).expect("JSON");
    members.insert("keys".to_owned(), kept);
    (serde_json::to_string(&members).expect("JSON"), differences)
}

/// None if the key is to be ignored.
fn repaired_key(
    mut key: Map<String, Value>,
    differences: &mut BTreeSet<Difference>,
) -> Option<Map<String, Value>> {
    key.retain(|_, value| !value.is_null());
    let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kty, usage) = (text("kty"), text("use"));
    let numbers: &[&str] = match &*kty {
        "EC" => &["crv", "x", "y"],
        "RSA" => &["n", "e"],
        "OKP" => &["crv", "x"],
        _ => &[],
    };
    let known_curve = matches!(&*text("crv"), "P-256" | "P-384" | "P-521");
    let reason = match (&*kty, &*usage) {
        ("EC" | "RSA" | "OKP", "x509-svid") => None,
        ("EC", "jwt-svid") => (!known_curve).then_some(UnknownCurve),
        ("RSA", "jwt-svid") => None,
        (_, "x509-svid" | "jwt-svid") => Some(UnknownType),
        ("EC" | "RSA" | "OKP", _) => Some(UnknownUse),
        _ => Some(UnknownType),
    };
    if let Some(reason) = reason {
        differences.insert(reason);
        return None;
    }
    let own = if usage == "x509-svid" { "x5c" } else { "kid" };
    let before = key.len();
    key.retain(|name, _| ["kty", "use", own].contains(&&**name) || numbers.contains(&&**name));
    if key.len() < before {
        differences.insert(OtherMember);
    }
    if own == "x5c" { with_one_certificate(key, differences) } else { Some(key) }
}

fn with_one_certificate(
    mut key: Map<String, Value>,
    differences: &mut BTreeSet<Difference>,
) -> Option<Map<String, Value>> {
    let chain = key.get_mut("x5c").and_then(Value::as_array_mut).filter(|chain| !chain.is_empty());
    let Some(chain) = chain else {
        differences.insert(NoCertificate);
        return None;
    };
    if chain.len() > 1 {
        chain.truncate(1);
        differences.insert(SecondCertificate);
    }
    let der = STANDARD.decode(chain[0].as_str().expect("a text")).expect("base64");
    if jwk_members(&der).is_none() {
        differences.insert(UnknownCurve);
        return None;
    }
    Some(key)
}

/// The smallest document of each difference. If go-spiffe accepts one, the difference is gone: then it
/// has no place above.
#[test]
fn every_difference_is_one() {
    let mut verdict = SpiffeVerdict::start();
    let key = |text: &str| Key(vec![]).with("kty", "\"EC\"").with("use", text);
    let mut seen = BTreeSet::new();
    for (difference, key) in [
        (UnknownType, x509(0).with("kty", "\"XX\"")),
        (UnknownType, x509(0).without(&["kty"])),
        (NoCertificate, x509(0).without(&["x5c"])),
        (NoCertificate, x509(0).with("x5c", "[]")),
        (SecondCertificate, {
            let one = x509(0).value("x5c").expect("a chain").trim_end_matches(']').to_owned();
            x509(0).with("x5c", &format!("{one}, {}", &x509(1).value("x5c").expect("a chain")[1..]))
        }),
        (UnknownUse, key("\"sig\"")),
        (UnknownUse, key("null")),
        (UnknownCurve, jwt(0).with("crv", "\"secp256k1\"")),
        (OtherMember, x509(0).with("alg", "{\"of\": \"tomorrow\"}")),
        (OtherMember, x509(0).with("x5t#S256", "\"AAAA\"")),
        (OtherMember, jwt(0).with("x5c", x509(1).value("x5c").expect("a chain"))),
    ] {
        let text = material::document(&[key]);
        let mut tally = Tally::default();
        judge(&[text], &mut verdict, &mut tally);
        assert!(tally.findings.is_empty(), "{:?}", tally.findings);
        assert_eq!(tally.differences, BTreeMap::from([(difference, 1)]));
        seen.insert(difference);
    }
    assert_eq!(seen, BTreeSet::from(OF_DOCUMENTS));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    Both,
    Neither,
    OnlyWe,
    OnlyThey,
}

use Accepts::*;

impl Accepts {
    fn of(ours: bool, theirs: bool) -> Self {
        match (ours, theirs) {
            (true, true) => Both,
            (false, false) => Neither,
            (true, false) => OnlyWe,
            (false, true) => OnlyThey,
        }
    }
}

/// The rules of the bundle format, by the numbers of docs/spiffe.md.
#[test]
fn each_rule_of_documents_has_two_verdicts() {
    let mut verdict = SpiffeVerdict::start();
    let with = |member: &str| format!("{{\"keys\": [], {member}}}");
    let of = |key: Key| material::document(&[key]);
    let x5c = x509(0).value("x5c").expect("a chain").to_owned();
    for (rule, accepts, text) in [
        (1, Both, "{\"keys\": []}".to_owned()),
        (1, Neither, "{}".to_owned()),
        (1, Neither, "{\"keys\": null}".to_owned()),
        // The last one counts for go-spiffe: an attacker's.
        (1, OnlyThey, with("\"keys\": []")),
        (1, OnlyThey, with("\"Keys\": []")),
        (2, OnlyWe, of(x509(0).without(&["kty"]))),
        (3, Both, of(x509(0).with("use", "\"X509-SVID\""))),
        (4, Both, of(x509(0))),
        (4, Both, of(x509(0).with("kid", "\"harmless\""))),
        (4, Neither, of(x509(0).with("x5c", "[\"AAAA\"]"))),
        (4, Neither, of(x509(0).without(&["crv", "x", "y"]))),
        (4, Neither, of(x509(0).without(&["y"]))),
        (4, Neither, of(x509(0).with("x5c", x509(1).value("x5c").expect("a chain")))),
        (5, Both, of(jwt(0))),
        (5, Neither, of(jwt(0).without(&["kid"]))),
        (5, Neither, of(jwt(0).with("kid", "\"\""))),
        (6, Both, with("\"spiffe_sequence\": 18446744073709551615")),
        (6, Neither, with("\"spiffe_sequence\": 18446744073709551616")),
        (6, Neither, with("\"spiffe_sequence\": -1")),
        (6, Neither, with("\"spiffe_sequence\": 1.5")),
        (7, Both, with("\"spiffe_refresh_hint\": 300")),
        (7, OnlyThey, with("\"spiffe_refresh_hint\": -1")),
        (7, Neither, with("\"spiffe_refresh_hint\": 9223372036854775808")),
        (7, Neither, with("\"spiffe_refresh_hint\": \"300\"")),
        (8, Both, with("\"new\": [1, {}]")),
        (8, Both, of(x509(0).with("new", "[1, {}]"))),
        (8, OnlyWe, of(x509(0).with("alg", "[1, {}]"))),
        (32, OnlyWe, of(x509(0).with("kty", "\"XX\""))),
        (32, Both, of(x509(0).with("use", "\"new\""))),
        (33, OnlyWe, of(x509(0).without(&["x5c"]))),
        (35, Both, of(jwt(0).with("x5c", &x5c))),
    ] {
        let theirs = is_ok(&verdict.ask(&question::bundle("td.test", &text)));
        let ours = Bundle::parse(text.as_bytes()).is_ok();
        assert_eq!(Accepts::of(ours, theirs), accepts, "rule {rule}: {text}");
    }
}

/// The rules of SPIFFE IDs.
#[test]
fn each_rule_of_ids_has_two_verdicts() {
    let mut verdict = SpiffeVerdict::start();
    let of_bytes = |bytes: usize| format!("spiffe://td/{}", "x".repeat(bytes - 12));
    let of_domain = |bytes: usize| format!("spiffe://{}/x", "a".repeat(bytes));
    for (rule, accepts, text) in [
        (44, Both, "spiffe://td.test/x".to_owned()),
        (44, Both, "spiffe://td.test".to_owned()),
        (44, Neither, "https://td.test/x".to_owned()),
        (44, Neither, "spiffe:///x".to_owned()),
        (44, Neither, "spiffe://td.test/x?y".to_owned()),
        (44, Neither, "spiffe://td.test/x#y".to_owned()),
        (44, OnlyWe, "SPIFFE://td.test/x".to_owned()),
        (45, Neither, "spiffe://me@td.test/x".to_owned()),
        (45, Neither, "spiffe://td.test:443/x".to_owned()),
        (46, Both, "spiffe://a-z_0.9/x".to_owned()),
        (46, OnlyWe, "spiffe://TD.test/x".to_owned()),
        (46, Neither, "spiffe://t%64/x".to_owned()),
        (46, Both, of_domain(255)),
        (46, OnlyThey, of_domain(256)),
        (47, Both, "spiffe://10.0.0.1/x".to_owned()),
        (47, Both, "spiffe://010.0.0.1/x".to_owned()),
        (47, Both, "spiffe://../x".to_owned()),
        (48, Both, "spiffe://td/A-z_0.9/...".to_owned()),
        (48, Neither, "spiffe://td/a%2Fb".to_owned()),
        (48, Neither, "spiffe://td//x".to_owned()),
        (48, Neither, "spiffe://td/./x".to_owned()),
        (48, Neither, "spiffe://td/x/..".to_owned()),
        (48, Neither, "spiffe://td/x/".to_owned()),
        (49, Both, of_bytes(2048)),
        (49, OnlyThey, of_bytes(2049)),
    ] {
        let theirs = is_ok(&verdict.ask(&question::id(&text)));
        let ours = SpiffeId::parse(&text).is_ok();
        assert_eq!(Accepts::of(ours, theirs), accepts, "rule {rule}: {text}");
    }
}
