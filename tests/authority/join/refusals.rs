//! Joins that are refused, all with the same text.

use std::collections::BTreeSet;

use chrono::Utc;
use openssl::{
    asn1::Asn1Time, bn::BigNum, hash::MessageDigest, pkey::PKey, rsa::Rsa, x509::X509Builder,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use serde_json::json;
use tonic::Code;

use super::{
    PARTNER, TOKENS,
    client::{Attempt, PartnerCa, csr, svid_params},
    create_token, scene,
};
use crate::stage::{OWN, eventually};

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

/// What is wrong, the attempt, and the check that must fail.
fn refused(
    ca: &PartnerCa,
    empty: &PartnerCa,
    old: &PartnerCa,
) -> Vec<(&'static str, Attempt, &'static str)> {
    let signs = |it: &mut CertificateParams| it.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let other = PartnerCa::new(PARTNER);
    let below = other.issuer.key();
    let mut forged = csr(&CertificateParams::default());
    *forged.last_mut().unwrap() ^= 1;
    let with_uris = |uris: &[&str]| Attempt::with(ca, svid_params(uris));
    vec![
        ("another key", but(ca, |it| it.key = KeyPair::generate().unwrap()), "proof"),
        (
            "a swapped request",
            but(ca, |it| it.signed_csr = Some(csr(&CertificateParams::default()))),
            "proof",
        ),
        ("a relay to another server", but(ca, |it| it.server = "evil.test".to_owned()), "proof"),
        (
            "a replay from another stream",
            but(ca, |it| it.signed_nonce = Some(vec![7; 32])),
            "proof",
        ),
        (
            "a replay with another token",
            but(ca, |it| it.signed_token = Some("other".to_owned())),
            "proof",
        ),
        ("a request that its key did not sign", but(ca, |it| it.request.csr = forged), "proof"),
        ("an expired SVID", svid_but(ca, |it| it.not_after = date_time_ymd(2020, 1, 1)), "proof"),
        (
            "an SVID of tomorrow",
            svid_but(ca, |it| it.not_before = date_time_ymd(4000, 1, 1)),
            "proof",
        ),
        ("two URI SANs", with_uris(&[&uri("/ci/a"), &uri("/ci/b")]), "proof"),
        ("no URI SAN", with_uris(&[]), "proof"),
        ("no path", with_uris(&[&uri("")]), "proof"),
        ("another scheme", with_uris(&["https://partner.test/ci/a"]), "proof"),
        ("dots", with_uris(&[&uri("/ci/../admin")]), "proof"),
        ("percent-encoding", with_uris(&[&uri("/ci/%2e%2e")]), "proof"),
        ("an unknown token", but(ca, |it| it.request.token = "unknown".to_owned()), "token"),
        (
            "a name that no token can have",
            but(ca, |it| it.request.token = "../ci".to_owned()),
            "token",
        ),
        ("an expired token", but(ca, |it| it.request.token = "expired".to_owned()), "token"),
        ("a spent token", but(ca, |it| it.request.token = "spent".to_owned()), "token"),
        ("another role", but(ca, |it| it.request.token = "agents".to_owned()), "token"),
        ("an end that has passed", but(ca, |it| it.request.expires = 1), "token"),
        ("no federation", Attempt::new(&PartnerCa::new("stranger.test"), "/ci/a"), "federation"),
        ("our own trust domain", Attempt::new(&PartnerCa::new(OWN), "/ci/a"), "federation"),
        ("a federation without authorities", Attempt::new(empty, "/ci/a"), "federation"),
        ("the CA of another", Attempt::new(&other, "/ci/a"), "chain"),
        ("an expired CA", Attempt::new(old, "/ci/a"), "federation"),
        ("a CA", svid_but(ca, |it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)), "chain"),
        ("the right to sign", svid_but(ca, signs), "chain"),
        ("no key usage", svid_but(ca, |it| it.key_usages.clear()), "chain"),
        (
            "for servers alone",
            svid_but(ca, |it| {
                it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            "chain",
        ),
        ("a chain through a workload", through_a_workload(ca, below), "chain"),
        ("a star over a slash", Attempt::new(ca, "/ci/a/b"), "rules"),
        ("another case", Attempt::new(ca, "/CI/deploy"), "rules"),
        ("a longer name", Attempt::new(ca, "/cicada"), "rules"),
    ]
}

/// Signed by a workload of the partner, as if it were a CA.
fn through_a_workload(ca: &PartnerCa, key: &KeyPair) -> Attempt {
    let params = svid_params(&[&uri("/ci/a")]);
    let workload = params.clone().signed_by(key, &ca.issuer).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, key);
    let mut attempt = Attempt::new(ca, "/ci/deploy");
    let params = svid_params(&[&uri("/ci/deploy")]);
    let leaf = params.signed_by(&attempt.key, &issuer).unwrap();
    attempt.svid = [&leaf.der()[..], &workload.der()[..]].concat();
    attempt
}

#[tokio::test]
async fn thirty_refusals_have_one_text_and_their_reason_in_the_audit_log() {
    let (stage, ca, replica, client) = scene().await;
    let empty = PartnerCa::new("empty.test");
    stage.create_federation("empty.test", json!({ "static": { "bundle": "{\"keys\":[]}" } }));
    let old = PartnerCa::with("old.test", |it| it.not_after = date_time_ymd(2020, 1, 1));
    stage.create_federation("old.test", old.source());
    let past = Utc::now() - chrono::TimeDelta::hours(1);
    create_token(&stage, "expired", |spec| spec["expires"] = json!(past));
    create_token(&stage, "agents", |spec| {
        spec["roles"] = json!(["Agent"]);
        spec.as_object_mut().unwrap().remove("botName");
    });
    create_token(&stage, "spent", |spec| spec["maxUses"] = json!(1));
    let mut first = Attempt::new(&ca, "/ci/first");
    first.request.token = "spent".to_owned();
    while client.join(&first).await.is_err() {}
    let is_synced = |name: &str| !stage.condition(name, "Trusted").0.is_empty();
    eventually("the others are synced", || is_synced("empty.test") && is_synced("old.test")).await;

    let (mut texts, mut references) = (BTreeSet::new(), BTreeSet::new());
    let cases = refused(&ca, &empty, &old);
    assert!(cases.len() >= 30);
    let before = stage.get(TOKENS);
    for (what, attempt, check) in &cases {
        let status = client.join(attempt).await.map(|_| ()).expect_err(what);
        assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status}");
        let (text, reference) = status.message().rsplit_once(' ').unwrap();
        texts.insert(text.to_owned());
        let records = stage.records();
        let found: Vec<_> = records.iter().filter(|it| it["id"] == reference).collect();
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(found[0]["check"], *check, "{what}: {}", found[0]);
        assert_eq!((&found[0]["success"], &found[0]["event"]), (&json!(false), &json!("bot.join")));
        assert!(references.insert(reference.to_owned()), "{what}");
    }
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(stage.get(TOKENS)["items"], before["items"], "nothing was noted");
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
pub fn malformed(ca: &PartnerCa) -> Vec<(&'static str, Attempt, Code)> {
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
