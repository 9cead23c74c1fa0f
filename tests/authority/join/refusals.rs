//! Joins that are refused, all with the same text.

use std::{collections::BTreeSet, sync::Arc};

use chrono::Utc;
use http::Method;
use openssl::{
    asn1::Asn1Time, bn::BigNum, hash::MessageDigest, pkey::PKey, rsa::Rsa, x509::X509Builder,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use serde_json::json;
use testkit::eventually_equals;
use tonic::Code;

use super::{
    PARTNER, TOKENS,
    client::{Attempt, JoinClient, Joins, PartnerCa, bundle_of, csr, svid_params},
    create_token, scene,
};
use crate::stage::{FEDERATIONS, OWN, PATIENCE, Stage, eventually};

fn uri(path: &str) -> String {
    format!("spiffe://{PARTNER}{path}")
}

/// An attempt that holds but for what is changed.
fn but(ca: &PartnerCa, change: impl FnOnce(&mut Attempt)) -> Attempt {
    let mut attempt = Attempt::new(ca, "/ci/deploy");
    change(&mut attempt);
    attempt
}

/// An SVID that is right but for what is changed.
fn svid_but(ca: &PartnerCa, change: impl FnOnce(&mut CertificateParams)) -> Attempt {
    let mut params = svid_params(&[&uri("/ci/deploy")]);
    change(&mut params);
    Attempt::with(ca, params)
}

/// Trust domains beside the partner's.
struct Others {
    /// Federated, too.
    federated: PartnerCa,
    /// Federated, with a bundle that revokes everything.
    empty: PartnerCa,
    /// Federated, with a CA that has expired.
    old: PartnerCa,
    /// Was federated.
    deleted: PartnerCa,
    /// Another CA in the partner's bundle, which has expired.
    expired: PartnerCa,
}

/// A join that held, and the signature that somebody saw in it.
struct Seen {
    attempt: Attempt,
    signature: Vec<u8>,
}

/// What is wrong, the attempt, and the check that must fail.
type Case = (&'static str, Attempt, &'static str);

fn without_proof(ca: &PartnerCa, seen: Seen) -> Vec<Case> {
    let mut forged = csr(&CertificateParams::default());
    *forged.last_mut().unwrap() ^= 1;
    let with_uris = |uris: &[&str]| Attempt::with(ca, svid_params(uris));
    let other_csr = csr(&CertificateParams::default());
    let replay = |change: fn(&mut Attempt)| {
        let mut attempt = seen.attempt.clone();
        attempt.replayed = Some(seen.signature.clone());
        change(&mut attempt);
        attempt
    };
    let cases = vec![
        ("another key", but(ca, |it| it.key = Arc::new(KeyPair::generate().unwrap()))),
        ("a swapped request", but(ca, |it| it.signed_csr = Some(other_csr))),
        ("a relay to another server", but(ca, |it| it.server = "evil.test".to_owned())),
        ("another nonce", but(ca, |it| it.signed_nonce = Some(vec![7; 32]))),
        ("a replay on another stream", replay(|_| {})),
        ("a replay with another token", replay(|it| it.request.token = "agents".to_owned())),
        ("another token", but(ca, |it| it.signed_token = Some("agents".to_owned()))),
        ("a request that its key did not sign", but(ca, |it| it.request.csr = forged)),
        ("an expired SVID", svid_but(ca, |it| it.not_after = date_time_ymd(2020, 1, 1))),
        ("an SVID of tomorrow", svid_but(ca, |it| it.not_before = date_time_ymd(4000, 1, 1))),
        ("two URI SANs", with_uris(&[&uri("/ci/a"), &uri("/ci/b")])),
        ("no URI SAN", with_uris(&[])),
        ("no path", with_uris(&[&uri("")])),
        ("another scheme", with_uris(&["https://partner.test/ci/a"])),
        ("dots", with_uris(&[&uri("/ci/../admin")])),
        ("percent-encoding", with_uris(&[&uri("/ci/%2e%2e")])),
    ];
    cases.into_iter().map(|(what, attempt)| (what, attempt, "proof")).collect()
}

fn without_token(ca: &PartnerCa) -> Vec<Case> {
    let token = |name: &str| but(ca, |it| it.request.token = name.to_owned());
    let cases = vec![
        ("an unknown token", token("unknown")),
        ("a name that no token can have", token("../ci")),
        ("an expired token", token("expired")),
        ("a spent token", token("spent")),
        ("another role", token("agents")),
        ("an end that has passed", but(ca, |it| it.request.expires = 1)),
    ];
    cases.into_iter().map(|(what, attempt)| (what, attempt, "token")).collect()
}

fn without_trust(ca: &PartnerCa, others: &Others) -> Vec<Case> {
    let signs = |it: &mut CertificateParams| it.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let is_ca = |it: &mut CertificateParams| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let for_servers = |it: &mut CertificateParams| {
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let stranger = PartnerCa::new("stranger.test");
    let claimed = svid_params(&[&uri("/ci/deploy")]);
    let federation = "federation";
    vec![
        ("no federation", Attempt::new(&stranger, "/ci/a"), federation),
        ("our own trust domain", Attempt::new(&PartnerCa::new(OWN), "/ci/a"), federation),
        ("a deleted federation", Attempt::new(&others.deleted, "/ci/a"), federation),
        ("a federation without authorities", Attempt::new(&others.empty, "/ci/a"), federation),
        ("an expired CA", Attempt::new(&others.old, "/ci/a"), federation),
        ("an expired CA beside a good one", Attempt::new(&others.expired, "/ci/a"), "chain"),
        ("a CA of the same name", Attempt::new(&PartnerCa::new(PARTNER), "/ci/a"), "chain"),
        ("another trust domain's CA", Attempt::with(&others.federated, claimed), "chain"),
        ("a CA", svid_but(ca, is_ca), "chain"),
        ("the right to sign", svid_but(ca, signs), "chain"),
        ("no key usage", svid_but(ca, |it| it.key_usages.clear()), "chain"),
        ("for servers alone", svid_but(ca, for_servers), "chain"),
        ("a chain through a workload", through_a_workload(ca), "chain"),
        ("an ID of another trust domain", Attempt::new(&others.federated, "/ci/a"), "rules"),
        ("a star over a slash", Attempt::new(ca, "/ci/a/b"), "rules"),
        ("another case", Attempt::new(ca, "/CI/deploy"), "rules"),
        ("a longer name", Attempt::new(ca, "/cicada"), "rules"),
    ]
}

/// Signed by a workload of the partner, as if it were a CA.
fn through_a_workload(ca: &PartnerCa) -> Attempt {
    let key = &KeyPair::generate().unwrap();
    let params = svid_params(&[&uri("/ci/a")]);
    let workload = params.clone().signed_by(key, &ca.issuer).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, key);
    let mut attempt = Attempt::new(ca, "/ci/deploy");
    let params = svid_params(&[&uri("/ci/deploy")]);
    let leaf = params.signed_by(&*attempt.key, &issuer).unwrap();
    attempt.svid = [&leaf.der()[..], &workload.der()[..]].concat();
    attempt
}

/// Federations and tokens for the cases.
async fn prepare(stage: &Stage, ca: &PartnerCa, client: &JoinClient) -> (Others, Seen) {
    let expired = |it: &mut CertificateParams| it.not_after = date_time_ymd(2020, 1, 1);
    let others = Others {
        federated: PartnerCa::new("federated.test"),
        empty: PartnerCa::new("empty.test"),
        old: PartnerCa::with("old.test", expired),
        deleted: PartnerCa::new("deleted.test"),
        expired: PartnerCa::with(PARTNER, expired),
    };
    let nothing = json!({ "static": { "bundle": "{\"keys\":[]}" } });
    stage.create_federation("empty.test", nothing);
    for it in [&others.federated, &others.old, &others.deleted] {
        stage.create_federation(&it.trust_domain, it.source());
    }
    let both = json!({ "spec": { "bundleSource": bundle_of(&[ca, &others.expired]) } });
    stage.ask(Method::PATCH, &format!("{FEDERATIONS}/{PARTNER}"), both);

    let past = Utc::now() - chrono::TimeDelta::hours(1);
    create_token(stage, "expired", |spec| spec["expires"] = json!(past));
    create_token(stage, "agents", |spec| {
        spec["roles"] = json!(["Agent"]);
        spec.as_object_mut().unwrap().remove("botName");
    });
    create_token(stage, "spent", |spec| spec["maxUses"] = json!(1));
    let mut first = Attempt::new(ca, "/ci/first");
    first.request.token = "spent".to_owned();
    while client.join(&first).await.is_err() {}
    let attempt = Attempt::new(ca, "/ci/seen");
    let signature = client.join_and_tell(&attempt).await.unwrap();

    let is_synced = |name: &str| !stage.condition(name, "Trusted").0.is_empty();
    let all = ["empty.test", "old.test", "federated.test"];
    eventually("the others are synced", || all.into_iter().all(is_synced)).await;
    let is_known = || stage.trusted(PARTNER).is_some_and(|it| it.x509.len() == 2);
    eventually("the partner has two CAs", is_known).await;
    // The replica follows a moment later than the API server: first it trusts, then no more.
    until_checked(stage, client, &others.deleted, "rules").await;
    stage.delete(&format!("{FEDERATIONS}/deleted.test"));
    until_checked(stage, client, &others.deleted, "federation").await;
    until_checked(stage, client, &others.federated, "rules").await;
    (others, Seen { attempt, signature })
}

/// Waits until a join with an SVID of this CA fails by this check.
async fn until_checked(stage: &Stage, client: &JoinClient, ca: &PartnerCa, check: &str) {
    let is_checked = async || {
        let refused = client.join(&Attempt::new(ca, "/ci/a")).await.unwrap_err();
        let reference = refused.message().rsplit(' ').next().unwrap().to_owned();
        let records = stage.records();
        let found = records.iter().rfind(|it| it["id"] == reference);
        found.map(|it| it["check"].to_string())
    };
    let expected = Some(json!(check).to_string());
    eventually_equals(PATIENCE, "the replica has followed", expected, is_checked).await;
}

/// Of whatever is wrong, callers learn the same, and the audit log has the reason.
pub async fn are_all_alike(
    stage: &Stage,
    ca: &PartnerCa,
    ours: &JoinClient,
    client: &mut impl Joins,
) {
    let (others, seen) = prepare(stage, ca, ours).await;
    let mut cases = without_proof(ca, seen);
    cases.extend(without_token(ca));
    cases.extend(without_trust(ca, &others));
    assert!(cases.len() >= 30);
    let (mut texts, mut references) = (BTreeSet::new(), BTreeSet::new());
    let before = stage.get(TOKENS);
    for (what, attempt, check) in &cases {
        let status = client.join_once(attempt).await.map(|_| ()).expect_err(what);
        assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status}");
        let (text, reference) = status.message().rsplit_once(' ').unwrap();
        texts.insert(text.to_owned());
        let records = stage.records();
        let found: Vec<_> = records.iter().filter(|it| it["id"] == reference).collect();
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(found[0]["check"], *check, "{what}: {}", found[0]);
        assert!(!found[0]["reason"].as_str().unwrap().is_empty(), "{what}");
        assert_eq!((&found[0]["success"], &found[0]["event"]), (&json!(false), &json!("bot.join")));
        assert!(references.insert(reference.to_owned()), "{what}");
    }
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(stage.get(TOKENS)["items"], before["items"], "nothing was noted");
}

#[tokio::test]
async fn thirty_refusals_have_one_text_and_their_reason_in_the_audit_log() {
    let (stage, ca, replica, client) = scene().await;
    are_all_alike(&stage, &ca, &client, &mut vec![client.clone()]).await;
    replica.stop().await;
}

/// A certificate of the partner for an RSA key of this size. The size alone decides, so a number that is no
/// product of primes will do.
fn rsa(ca: &PartnerCa, bits: usize) -> Vec<u8> {
    let modulus = BigNum::from_slice(&vec![0xff; bits / 8]).unwrap();
    let key = Rsa::from_public_components(modulus, BigNum::from_u32(65537).unwrap()).unwrap();
    let signer = PKey::private_key_from_der(&ca.issuer.key().serialize_der()).unwrap();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    builder.set_pubkey(&PKey::from_rsa(key).unwrap()).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.sign(&signer, MessageDigest::sha256()).unwrap();
    builder.build().to_der().unwrap()
}

/// What is wrong, the attempt, and the code of its answer.
fn malformed(ca: &PartnerCa) -> Vec<(&'static str, Attempt, Code)> {
    let invalid = Code::InvalidArgument;
    vec![
        ("truncated", but(ca, |it| it.svid.truncate(100)), invalid),
        ("something behind it", but(ca, |it| it.svid.push(0)), invalid),
        ("nothing", but(ca, |it| it.svid.clear()), invalid),
        ("no certificate", but(ca, |it| it.svid = vec![0x30, 1, 7]), invalid),
        ("five intermediates", but(ca, |it| it.svid = it.svid.repeat(6)), invalid),
        ("RSA-1024", but(ca, |it| it.svid = rsa(ca, 1024)), invalid),
        ("RSA-16384", but(ca, |it| it.svid = rsa(ca, 16384)), invalid),
        ("a damaged request", but(ca, |it| it.request.csr.truncate(50)), invalid),
        ("no role", but(ca, |it| it.request.role = 0), invalid),
        ("an unknown role", but(ca, |it| it.request.role = 7), invalid),
        ("10 MB", but(ca, |it| it.svid = vec![0x30; 10 << 20]), Code::OutOfRange),
    ]
}

/// What is no join at all has codes of its own, and nothing is looked up for it.
pub async fn have_codes_of_their_own(stage: &Stage, ca: &PartnerCa, client: &mut impl Joins) {
    let before = stage.records().len();
    for (what, attempt, code) in malformed(ca) {
        let status = client.join_once(&attempt).await.map(|_| ()).expect_err(what);
        assert_eq!(status.code(), code, "{what}: {status}");
    }
    assert_eq!(stage.records().len(), before, "none of them was judged");
    client.join_once(&Attempt::new(ca, "/ci/after")).await.expect("the server goes on");
}
