use super::*;
use crate::{
    authority::decide::ca::{self, Policy},
    spiffe::{
        bundle::Bundle,
        svid,
        testing::{id, noon},
    },
};

fn policy() -> Policy {
    Policy {
        refresh_hint: TimeDelta::minutes(5),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    }
}

fn authority() -> (ca::AuthorityState, LocalSigner) {
    let made = make_ca("td-a.test", policy().ca_ttl, noon()).unwrap();
    let state = ca::first("td-a.test", made.ca, ca::Before::default(), &policy(), noon());
    let signer = LocalSigner::new("td-a.test", &state.cas[0], &made.key).unwrap();
    (state, signer)
}

#[test]
fn an_svid_that_we_sign_is_verified_with_the_bundle_that_we_publish() {
    let (state, signer) = authority();
    let bundle = Bundle::parse(state.document().unwrap().as_bytes()).unwrap();
    let svid = signer.sign(&id("spiffe://td-a.test/a"), TimeDelta::hours(1), noon()).unwrap();
    let verified = svid::verify(&svid.chain, &id("spiffe://td-a.test/a"), &bundle, noon());
    assert_eq!(verified, Ok(None));
    let late = noon() + TimeDelta::hours(1) + TimeDelta::seconds(1);
    let expired = svid::verify(&svid.chain, &id("spiffe://td-a.test/a"), &bundle, late);
    assert_eq!(expired, Err(svid::SvidError::Expired));
}

#[test]
fn an_svid_never_outlives_its_ca() {
    let (state, signer) = authority();
    let end = state.cas[0].not_after;
    let bundle = Bundle::parse(state.document().unwrap().as_bytes()).unwrap();
    let svid = signer
        .sign(&id("spiffe://td-a.test/a"), TimeDelta::hours(1), end - TimeDelta::minutes(1))
        .unwrap();
    assert!(svid::verify(&svid.chain, &id("spiffe://td-a.test/a"), &bundle, end).is_ok());
    let refused = signer.sign(&id("spiffe://td-a.test/a"), TimeDelta::hours(1), end);
    assert!(matches!(refused, Err(SignError::Expired)));
}

#[test]
fn two_cas_of_one_trust_domain_have_different_keys_and_names() {
    let [one, two] = [0, 1].map(|_| make_ca("td-a.test", policy().ca_ttl, noon()).unwrap());
    assert_ne!((&one.ca.id, &*one.key), (&two.ca.id, &*two.key));
}

#[test]
fn a_trust_domain_of_any_length_gets_a_ca() {
    for name in ["a", &"a".repeat(255)] {
        let made = make_ca(name, policy().ca_ttl, noon()).unwrap();
        let state = ca::first(name, made.ca, ca::Before::default(), &policy(), noon());
        assert!(state.document().is_ok(), "{name}");
    }
}

#[test]
fn the_key_of_another_ca_or_no_key_is_refused_without_being_quoted() {
    let (state, _) = authority();
    let error = LocalSigner::new("td-a.test", &state.cas[0], b"very secret").err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("the key of CA {} is missing or damaged in the Secret", state.cas[0].id)
    );
}

#[test]
fn a_key_of_somebody_else_gets_an_svid_and_nothing_that_its_request_asks_for() {
    let (state, signer) = authority();
    let bundle = Bundle::parse(state.document().unwrap().as_bytes()).unwrap();
    let workload = id("spiffe://td-a.test/bot/ci");
    let algorithms =
        [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256];
    for algorithm in algorithms {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut wishes = ca_params("evil.test", "0123456789abcdef");
        wishes.subject_alt_names =
            vec![SanType::URI("spiffe://td-a.test/admin".try_into().unwrap())];
        let request = wishes.serialize_request(&key).unwrap();
        let public = PublicKey::of_request(request.der()).unwrap();
        let issued = signer.sign_for(&public, &workload, TimeDelta::hours(1), noon()).unwrap();
        let verified = svid::verify(&issued.chain, &workload, &bundle, noon());
        assert_eq!(verified, Ok(None), "{algorithm:?}");
        let presented = svid::PresentedSvid::read(&issued.chain).unwrap();
        assert_eq!(presented.key().unwrap(), public);
        assert_eq!(presented.summary().serial, issued.serial);
        assert_eq!(presented.summary().subject, "O=trustplane");
    }
}

#[test]
fn a_renewal_with_the_same_key_has_a_serial_number_of_its_own() {
    let (_, signer) = authority();
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let public = PublicKey::of_request(request.der()).unwrap();
    let sign = || {
        let id = id("spiffe://td-a.test/bot/ci");
        signer.sign_for(&public, &id, TimeDelta::hours(1), noon()).unwrap()
    };
    assert_ne!(sign().serial, sign().serial);
}
