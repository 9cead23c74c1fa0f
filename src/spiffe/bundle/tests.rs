use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;
use rcgen::{CustomExtension, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};
use serde_json::{Value, json};

use super::*;
use crate::spiffe::{
    id::{IdError, TrustDomain},
    testing::{Ca, bundle, ca_params, document, jwt_key, svid_params, uri_name},
};

fn parse(document: Value) -> Result<Bundle, BundleError> {
    Bundle::parse(document.to_string().as_bytes())
}

/// What becomes of a document with this one key.
fn with_key(key: Value) -> Result<Bundle, BundleError> {
    parse(json!({"keys": [key]}))
}

fn flaw(key: Value) -> JwkFlaw {
    match with_key(key) {
        Err(BundleError::Key { number: 1, flaw }) => flaw,
        other => panic!("{other:?}"),
    }
}

/// A member changed, or taken away.
fn changed(mut key: Value, member: &str, value: Option<Value>) -> Value {
    let members = key.as_object_mut().unwrap();
    match value {
        Some(value) => members.insert(member.to_owned(), value),
        None => members.remove(member),
    };
    key
}

fn rsa_key(kid: &str) -> Value {
    json!({"kty": "RSA", "use": "jwt-svid", "kid": kid, "n": "gggg", "e": "AQAB"})
}

fn is_empty(bundle: &Bundle) -> bool {
    bundle.x509.is_empty() && bundle.jwt.is_empty()
}

#[test]
fn a_document_is_authorities_jwt_keys_sequence_and_hint() {
    let ca = Ca::new("td-b");
    let keys = [ca.jwk(), jwt_key("one"), rsa_key("two")];

    let bundle =
        parse(json!({"keys": keys, "spiffe_sequence": 7, "spiffe_refresh_hint": 300})).unwrap();

    assert_eq!(bundle.x509.len(), 1);
    assert_eq!(*bundle.x509[0].der(), ca.der());
    let kids: Vec<_> = bundle.jwt.iter().map(|key| &*key.kid).collect();
    assert_eq!(kids, ["one", "two"]);
    assert_eq!(bundle.sequence, Some(7));
    assert_eq!(bundle.refresh_hint, Some(Duration::from_secs(300)));
}

#[test]
fn keys_must_be_there_and_may_be_empty() {
    assert!(is_empty(&parse(json!({"keys": []})).unwrap()));
    assert_eq!(parse(json!({})), Err(BundleError::NoKeys));
    assert_eq!(parse(json!({"keys": null})), Err(BundleError::NoKeys));
}

#[test]
fn what_is_no_document_is_told_where_and_not_quoted() {
    for text in [
        "",
        "<html>secret</html>",
        "[1]",
        "[[]]",
        "[[], 1, 300]",
        "{\"keys\": \"secret\"}",
        "{\"keys\": []} x",
    ] {
        let said = Bundle::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(said.starts_with("not a bundle document: "), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
    assert_eq!(
        Bundle::parse(b"<html>").unwrap_err().to_string(),
        "not a bundle document: it is not JSON (line 1, column 1)"
    );
    assert!(Bundle::parse(b"{\"keys\": [], \"x\": \"\xff\"}").is_err());
}

#[test]
fn a_member_that_is_there_twice_makes_the_document_ambiguous() {
    for name in ["keys", "spiffe_sequence", "spiffe_refresh_hint"] {
        let value = if name == "keys" { "[]" } else { "1" };
        let twice = format!(r#"{{"keys": [], "{name}": {value}, "{name}": {value}}}"#);
        assert_eq!(Bundle::parse(twice.as_bytes()), Err(BundleError::Twice(name)));
    }
}

#[test]
fn a_member_that_is_there_twice_makes_a_key_ambiguous() {
    let (ca, evil) = (Ca::new("td-b"), Ca::new("evil"));
    let (ca, evil) = (ca.jwk().to_string(), evil.jwk()["x5c"].to_string());
    for name in ["x5c", "\\u00785c"] {
        let twice = ca.replacen('{', &format!(r#"{{"{name}": {evil}, "#), 1);
        let document = format!(r#"{{"keys": [{twice}]}}"#);
        assert!(matches!(Bundle::parse(document.as_bytes()), Err(BundleError::Json(_))), "{name}");
    }
}

#[test]
fn what_is_nested_deeper_than_spire_reads_is_refused() {
    let nested = |depth: usize| {
        let value = "[".repeat(depth) + &"]".repeat(depth);
        let document = format!(r#"{{"keys": [], "new": {value}, "text": "[[\"[["}}"#);
        Bundle::parse(document.as_bytes())
    };
    assert!(nested(9_999).is_ok());
    assert_eq!(nested(10_000), Err(BundleError::Json("it is nested too deeply".to_owned())));
}

#[test]
fn a_member_that_spire_takes_for_another_makes_the_document_ambiguous() {
    let (ca, evil) = (Ca::new("td-b"), Ca::new("evil"));
    for name in ["Keys", "KEYS", "\u{212a}eys", "key\u{17f}", "\u{212a}EY\u{17f}"] {
        let document = json!({"keys": [ca.jwk()], name: [evil.jwk()]});
        assert_eq!(parse(document), Err(BundleError::Ambiguous), "{name}");
        assert_eq!(parse(json!({name: [evil.jwk()]})), Err(BundleError::Ambiguous), "{name}");
    }
    let escaped = br#"{"keys": [], "\u212aeys": []}"#;
    assert_eq!(Bundle::parse(escaped), Err(BundleError::Ambiguous));
    for name in ["Spiffe_Sequence", "spiffe_\u{17f}equence", "SPIFFE_REFRESH_HINT"] {
        assert_eq!(parse(json!({"keys": [], name: 1})), Err(BundleError::Ambiguous), "{name}");
    }
    for name in ["X5C", "Use", "u\u{17f}e", "\u{212a}ty", "N"] {
        let key = changed(ca.jwk(), name, Some(json!("other")));
        assert_eq!(with_key(key), Err(BundleError::Ambiguous), "{name}");
    }
    let others = json!({"keys": [changed(ca.jwk(), "x5t#S256", Some(json!("a")))], "Keyz": 1});
    assert_eq!(
        parse(others).unwrap().x509.len(),
        1,
        "what nobody takes for another is passed over"
    );
}

#[test]
fn keys_without_a_type_or_of_an_unknown_one_are_passed_over() {
    let ca = Ca::new("td-b");
    for key in [ca.jwk(), jwt_key("one")] {
        for kty in [None, Some(json!("XX")), Some(json!("ec")), Some(json!(1))] {
            assert!(is_empty(&with_key(changed(key.clone(), "kty", kty)).unwrap()));
        }
    }
}

#[test]
fn keys_without_a_use_or_of_an_unknown_one_are_passed_over_and_case_matters() {
    let ca = Ca::new("td-b");
    for key in [ca.jwk(), jwt_key("one")] {
        for usage in
            [None, Some(json!("sig")), Some(json!("X509-SVID")), Some(json!(["x509-svid"]))]
        {
            assert!(is_empty(&with_key(changed(key.clone(), "use", usage)).unwrap()));
        }
    }
}

#[test]
fn a_key_that_is_passed_over_leaves_the_others() {
    let ca = Ca::new("td-b");
    let unknown = json!({"kty": "new", "use": "new"});
    let bundle = parse(json!({"keys": [unknown, ca.jwk()]})).unwrap();
    assert_eq!(bundle.x509.len(), 1);
}

#[test]
fn a_key_that_is_no_object_is_an_error() {
    assert_eq!(flaw(json!("x509-svid")), JwkFlaw::NotObject);
}

#[test]
fn an_x509_key_without_a_certificate_is_passed_over() {
    let ca = Ca::new("td-b");
    for chain in [None, Some(json!([])), Some(json!(null))] {
        assert!(is_empty(&with_key(changed(ca.jwk(), "x5c", chain)).unwrap()));
    }
}

#[test]
fn the_certificates_of_an_x509_key_are_a_list_of_texts() {
    let ca = Ca::new("td-b");
    for chain in [ca.jwk()["x5c"][0].clone(), json!({}), json!([null]), json!([[]])] {
        assert_eq!(flaw(changed(ca.jwk(), "x5c", Some(chain))), JwkFlaw::NotBase64);
    }
}

#[test]
fn the_members_of_an_x509_key_are_there_and_those_of_its_certificate() {
    let (one, other) = (Ca::new("one").jwk(), Ca::new("other").jwk());
    assert_eq!(with_key(one.clone()).unwrap().x509.len(), 1);
    for member in ["crv", "x", "y"] {
        assert_eq!(flaw(changed(one.clone(), member, None)), JwkFlaw::NoMembers, "{member}");
        let null = changed(one.clone(), member, Some(json!(null)));
        assert_eq!(flaw(null), JwkFlaw::NoMembers, "{member}");
    }
    for (member, value) in [
        ("crv", json!("P-384")),
        ("x", other["x"].clone()),
        ("y", other["y"].clone()),
        ("y", json!("")),
        ("y", json!("%%")),
        ("y", json!(1)),
        ("kty", json!("OKP")),
        ("x5c", other["x5c"].clone()),
    ] {
        let changed = changed(one.clone(), member, Some(value));
        assert_eq!(flaw(changed), JwkFlaw::OtherKey, "{member}");
    }
    let (rsa, number) = (changed(one, "kty", Some(json!("RSA"))), Some(json!("AQAB")));
    assert_eq!(flaw(rsa.clone()), JwkFlaw::NoMembers);
    assert_eq!(flaw(changed(changed(rsa, "n", number.clone()), "e", number)), JwkFlaw::OtherKey);
}

#[test]
fn an_authority_may_have_an_ed25519_key() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let x = URL_SAFE_NO_PAD.encode(key.public_key_raw());
    let certificate = ca_params("td-b").self_signed(&key).unwrap();
    let with = |crv: &str, x: &str| {
        let x5c = [STANDARD.encode(certificate.der())];
        let key = json!({"kty": "OKP", "use": "x509-svid", "crv": crv, "x": x, "x5c": x5c});
        with_key(key).map(|bundle| bundle.x509.len())
    };
    let other = Err(BundleError::Key { number: 1, flaw: JwkFlaw::OtherKey });

    assert_eq!(with("Ed25519", &x), Ok(1));
    assert_eq!(with("Ed448", &x), other);
    assert_eq!(with("Ed25519", "AAAA"), other);
}

#[test]
fn only_the_first_certificate_of_an_x509_key_is_used() {
    let (first, second) = (Ca::new("first"), Ca::new("second"));
    let both = json!([first.jwk()["x5c"][0], second.jwk()["x5c"][0]]);

    let read = with_key(changed(first.jwk(), "x5c", Some(both))).unwrap();

    assert!(read.same_keys(&bundle(&[&first])));
}

#[test]
fn a_certificate_that_is_damaged_is_an_error_that_names_its_key() {
    let ca = Ca::new("td-b");
    let with = |text: &str| flaw(changed(ca.jwk(), "x5c", Some(json!([text]))));

    assert_eq!(with("%%%"), JwkFlaw::NotBase64);
    assert_eq!(with("AAAA"), JwkFlaw::Certificate(Flaw::Unreadable));
    let said = parse(json!({"keys": [ca.jwk(), changed(ca.jwk(), "x5c", Some(json!(["AAAA"])))]}));
    assert_eq!(
        said.unwrap_err().to_string(),
        "not a bundle document: key 2 has a certificate that is not a well-formed X.509 certificate"
    );
}

#[test]
fn a_certificate_that_go_does_not_read_is_an_error() {
    // Name constraints: one permitted DNS name.
    let constrained_to = |name: &[u8; 4]| {
        let content = [&b"\x30\x0a\xa0\x08\x30\x06\x82\x04"[..], name].concat();
        let constraints = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
        Ca::with("constrained", |ca| ca.custom_extensions = vec![constraints]).jwk()
    };

    assert_eq!(with_key(constrained_to(b"a.bc")).unwrap().x509.len(), 1);
    assert_eq!(flaw(constrained_to(b"a..b")), JwkFlaw::Certificate(Flaw::Unreadable));
}

#[test]
fn a_certificate_with_a_damaged_key_is_an_error() {
    let rsa = openssl::rsa::Rsa::generate(2048).and_then(|key| key.private_key_to_pem()).unwrap();
    let rsa = KeyPair::from_pem(&String::from_utf8(rsa).unwrap()).unwrap();
    let mut der = ca_params("td-b").self_signed(&rsa).unwrap().der().to_vec();
    // The zero before a number whose first bit is set. Without that bit it is one too many.
    let number = der.windows(5).position(|it| it == [2, 0x82, 1, 1, 0]).unwrap() + 5;
    let with = |der: &[u8]| {
        let x5c = [STANDARD.encode(der)];
        json!({"kty": "RSA", "use": "x509-svid", "n": "AQAB", "e": "AQAB", "x5c": x5c})
    };
    assert_eq!(flaw(with(&der)), JwkFlaw::OtherKey);
    der[number] &= 0x7f;
    assert_eq!(flaw(with(&der)), JwkFlaw::Certificate(Flaw::Unreadable));
}

#[test]
fn the_certificate_of_an_x509_key_is_an_authoritys() {
    let leaf = Ca::with("leaf", |ca| ca.is_ca = IsCa::ExplicitNoCa);
    let no_signer =
        Ca::with("no signer", |ca| ca.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let workload =
        Ca::with("workload", |ca| ca.subject_alt_names = vec![uri_name("spiffe://td/x")]);
    let domain = Ca::with("domain", |ca| ca.subject_alt_names = vec![uri_name("spiffe://td")]);
    let silent = Ca::with("silent", |ca| ca.key_usages.clear());

    assert_eq!(flaw(leaf.jwk()), JwkFlaw::Certificate(Flaw::NotAuthority));
    assert_eq!(flaw(no_signer.jwk()), JwkFlaw::Certificate(Flaw::MayNotSign));
    assert_eq!(flaw(workload.jwk()), JwkFlaw::Certificate(Flaw::OfWorkload));
    assert_eq!(bundle(&[&domain, &silent]).x509.len(), 2);
}

#[test]
fn a_jwt_key_has_a_name() {
    for kid in [None, Some(json!("")), Some(json!(5))] {
        assert_eq!(flaw(changed(jwt_key("one"), "kid", kid)), JwkFlaw::NoKid);
    }
}

#[test]
fn a_jwt_key_has_numbers() {
    for member in ["x", "y", "crv"] {
        assert_eq!(flaw(changed(jwt_key("one"), member, None)), JwkFlaw::Numbers);
    }
    assert_eq!(flaw(changed(jwt_key("one"), "x", Some(json!("gggg")))), JwkFlaw::Numbers);
    // Of the right length, and not on the curve.
    let beside = json!("A".repeat(43));
    assert_eq!(flaw(changed(jwt_key("one"), "x", Some(beside))), JwkFlaw::Numbers);
    for (member, value) in [("n", None), ("e", None), ("e", Some("AA")), ("n", Some("%%"))] {
        let value = value.map(|value| json!(value));
        assert_eq!(flaw(changed(rsa_key("one"), member, value)), JwkFlaw::Numbers);
    }
}

#[test]
fn a_jwt_key_on_an_unknown_curve_is_passed_over() {
    let key = changed(jwt_key("one"), "crv", Some(json!("secp256k1")));
    assert!(is_empty(&with_key(key).unwrap()));
}

#[test]
fn a_jwt_key_serves_jwt_svids_only() {
    let ca = Ca::new("td-b");
    let key = changed(jwt_key("one"), "x5c", Some(ca.jwk()["x5c"].clone()));

    let bundle = with_key(key).unwrap();

    assert!(bundle.x509.is_empty());
    assert_eq!(bundle.jwt.len(), 1);
}

#[test]
fn a_sequence_is_a_whole_number_of_64_bits() {
    let with = |sequence: Value| {
        parse(json!({"keys": [], "spiffe_sequence": sequence})).map(|bundle| bundle.sequence)
    };
    assert_eq!(with(json!(u64::MAX)), Ok(Some(u64::MAX)));
    assert_eq!(with(json!(null)), Ok(None));
    for wrong in [json!(-1), json!(1.5), json!("1"), json!([1])] {
        assert_eq!(with(wrong), Err(BundleError::Sequence));
    }
    let too_big = br#"{"keys": [], "spiffe_sequence": 18446744073709551616}"#;
    assert_eq!(Bundle::parse(too_big), Err(BundleError::Sequence));
}

#[test]
fn a_refresh_hint_is_whole_seconds_and_never_too_long_to_add_to_a_time() {
    let with = |hint: Value| {
        parse(json!({"keys": [], "spiffe_refresh_hint": hint})).map(|bundle| bundle.refresh_hint)
    };
    assert_eq!(with(json!(300)), Ok(Some(Duration::from_secs(300))));
    assert_eq!(with(json!(i64::MAX)), Ok(Some(LONGEST_HINT)));
    for wrong in [json!(-1), json!(0.5), json!("300"), json!(i64::MAX as u64 + 1)] {
        assert_eq!(with(wrong), Err(BundleError::RefreshHint));
    }
}

#[test]
fn what_the_standard_does_not_define_is_not_needed_and_does_no_harm() {
    let ca = Ca::new("td-b");
    let key = changed(ca.jwk(), "alg", Some(json!({"of": "tomorrow"})));
    let key = changed(key, "kid", Some(json!("not allowed, and no reason to refuse")));
    assert_eq!(parse(json!({"keys": [key], "new": [1, 2]})).unwrap().x509.len(), 1);
}

#[test]
fn the_first_authority_to_expire_sets_the_date() {
    let late = Ca::new("late");
    let soon = Ca::with("soon", |ca| ca.not_after = date_time_ymd(2031, 1, 1));

    let expiry = bundle(&[&late, &soon]).earliest_expiry().unwrap();

    assert_eq!(expiry.to_rfc3339(), "2031-01-01T00:00:00+00:00");
    assert_eq!(bundle(&[]).earliest_expiry(), None);
}

#[test]
fn the_same_keys_have_the_same_fingerprint_in_any_order() {
    let (a, b) = (Ca::new("a"), Ca::new("b"));
    let one = json!({"keys": [a.jwk(), jwt_key("one"), b.jwk(), rsa_key("two")]});
    let other = json!({
        "keys": [rsa_key("two"), b.jwk(), a.jwk(), a.jwk(), jwt_key("one")], "spiffe_sequence": 9
    });
    let (one, other) = (parse(one).unwrap(), parse(other).unwrap());

    assert!(one.same_keys(&other));
    assert_eq!(one.fingerprint(), other.fingerprint());
}

#[test]
fn other_keys_have_another_fingerprint() {
    let (a, b) = (Ca::new("a"), Ca::new("b"));
    let documents = [
        json!({"keys": []}),
        json!({"keys": [a.jwk()]}),
        json!({"keys": [b.jwk()]}),
        json!({"keys": [a.jwk(), b.jwk()]}),
        json!({"keys": [a.jwk(), jwt_key("one")]}),
        json!({"keys": [a.jwk(), jwt_key("two")]}),
        json!({"keys": [a.jwk(), rsa_key("one")]}),
    ];
    let bundles = documents.map(|document| parse(document).unwrap());
    for (index, bundle) in bundles.iter().enumerate() {
        for other in &bundles[..index] {
            assert!(!bundle.same_keys(other));
            assert_ne!(bundle.fingerprint(), other.fingerprint());
        }
    }
}

#[test]
fn a_fingerprint_is_sixteen_groups_of_four_digits() {
    let fingerprint = bundle(&[&Ca::new("a")]).fingerprint();
    let groups: Vec<_> = fingerprint.split(':').collect();
    assert_eq!(groups.len(), 16);
    assert!(groups.iter().all(|group| group.len() == 4 && hex::decode(group).is_ok()));
}

#[test]
fn pem_and_document_of_the_same_authorities_are_the_same() {
    let (a, b) = (Ca::new("a"), Ca::new("b"));
    let pem = Bundle::from_pem(&(b.0.pem() + "\n# a note\n" + &a.0.pem())).unwrap();

    assert!(pem.same_keys(&bundle(&[&a, &b])));
    assert_eq!(pem.fingerprint(), bundle(&[&a, &b]).fingerprint());
    assert_eq!((pem.sequence, pem.refresh_hint), (None, None));
}

#[test]
fn der_and_document_of_the_same_authorities_are_the_same() {
    let (a, b) = (Ca::new("a"), Ca::new("b"));
    let both = [a.der().to_vec(), b.der().to_vec()].concat();
    assert!(Bundle::from_der(&both).unwrap().same_keys(&bundle(&[&a, &b])));
    for damaged in [&both[..both.len() - 1], b"text", b""] {
        assert_eq!(Bundle::from_der(damaged).err(), Some(BundleError::NoCertificate));
    }
}

#[test]
fn pem_that_holds_no_authorities_alone_is_refused() {
    let ca = Ca::new("a");
    let leaf = ca.0.key().serialize_pem();
    let svid = svid_params(&["spiffe://td/x"]);
    let svid = svid.signed_by(ca.0.key(), &ca.0).unwrap().pem();

    let said = |text: &str| Bundle::from_pem(text).err();
    assert_eq!(said(""), Some(BundleError::NoCertificate));
    assert_eq!(said(&(ca.0.pem() + &leaf)), Some(BundleError::OtherBlock(2)));
    let flaw = Flaw::NotAuthority;
    assert_eq!(said(&(ca.0.pem() + &svid)), Some(BundleError::Certificate { number: 2, flaw }));
    let cut = &ca.0.pem()[..100];
    assert_eq!(said(cut), Some(BundleError::Pem));
}

#[test]
fn a_bundle_map_keeps_whose_each_bundle_is() {
    let (a, b) = (Ca::new("a"), Ca::new("b"));
    let text =
        json!({"trust_domains": {"td-a.test": document(&[&a]), "td-b.test": document(&[&b])}});

    let map = BundleMap::parse(text.to_string().as_bytes()).unwrap();

    let of = |name: &str| map.get(&TrustDomain::parse(name).unwrap());
    assert!(of("td-a.test").unwrap().same_keys(&bundle(&[&a])));
    assert!(of("td-b.test").unwrap().same_keys(&bundle(&[&b])));
    assert_eq!(of("td-c.test"), None);
    assert_eq!(map.iter().count(), 2);
}

#[test]
fn a_bundle_map_has_trust_domains_and_none_twice() {
    let said = |text: &str| BundleMap::parse(text.as_bytes()).err();
    let twice = TrustDomain::parse("td").unwrap();

    assert_eq!(said("{}"), Some(MapError::NoTrustDomains));
    assert_eq!(said(r#"{"trust_domains": {}}"#), None);
    for second in ["td", "TD"] {
        let text =
            format!(r#"{{"trust_domains": {{"td": {{"keys": []}}, "{second}": {{"keys": []}}}}}}"#);
        assert_eq!(said(&text), Some(MapError::Twice(twice.clone())));
    }
    let named = r#"{"trust_domains": {"spiffe://td": {"keys": []}}}"#;
    assert_eq!(said(named), Some(MapError::Name(IdError::NotBare)));
    let error = BundleError::NoKeys;
    let broken = Some(MapError::Bundle { trust_domain: twice, error });
    assert_eq!(said(r#"{"trust_domains": {"td": {}}}"#), broken);
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(bytes in any::<Vec<u8>>(), text in any::<String>()) {
        let _ = Bundle::parse(&bytes);
        let _ = BundleMap::parse(&bytes);
        let _ = Bundle::from_pem(&text);
        let key = json!({"kty": "EC", "use": "x509-svid", "x5c": [STANDARD.encode(&bytes)]});
        prop_assert!(with_key(key).is_err());
    }

    #[test]
    fn a_damaged_document_has_an_answer(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut text = json!({"keys": [jwt_key("one"), rsa_key("two")]}).to_string().into_bytes();
        let at = at.index(text.len());
        text[at] ^= 1 << bit;
        let _ = Bundle::parse(&text);
    }
}
