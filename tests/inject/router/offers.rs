//! One Route by itself: served, or refused for the reasons that OpenShift's router has.

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use openssl::x509::{X509, X509Builder, X509Name};
use serde_json::{Value, json};
use testkit::{
    Pair, pair,
    router::plan::{Offer, Termination, offer},
};

use crate::router::route;

fn offered(tls: Value) -> Result<Offer, String> {
    offer(route("shop", tls).spec.tls.as_ref())
}

fn edge(pair: &Pair) -> Value {
    json!({ "termination": "edge", "certificate": pair.certificate, "key": pair.key })
}

fn edge_with(pair: &Pair, field: &str, text: &str) -> Value {
    let mut tls = edge(pair);
    tls[field] = json!(text);
    tls
}

/// Why a Route is refused. No refusal quotes a key.
fn refusal(tls: Value) -> String {
    let key = tls["key"].as_str().unwrap_or_default().to_owned();
    let why = offered(tls).expect_err("the Route is refused");
    assert!(key.lines().filter(|line| line.len() > 30).all(|line| !why.contains(line)));
    why
}

#[test]
fn a_good_pair_is_offered_with_the_leaf_first_and_the_key_last() {
    for good in [
        pair::issued("shop.example.com"),
        pair::rsa("shop.example.com"),
        pair::with_chain("shop.example.com"),
    ] {
        let offer = offered(edge(&good)).expect("it is served");
        assert_eq!(offer.termination, Termination::Edge);
        let served = offer.pair.expect("it has a certificate");
        assert!(served.expose() == format!("{}{}", good.certificate, good.key));
    }
}

#[test]
fn neither_dates_nor_host_names_are_looked_at() {
    for odd in [
        pair::expired("shop.example.com"),
        pair::not_yet_valid("shop.example.com"),
        pair::issued("other.example.com"),
    ] {
        assert!(offered(edge(&odd)).is_ok());
    }
}

#[test]
fn a_pair_that_is_none_is_refused() {
    let good = pair::issued("shop.example.com");
    let cases = [
        (edge(&pair::mismatched("shop.example.com")), "key: does not match the certificate"),
        (edge_with(&good, "key", ""), "key: no key specified"),
        (edge_with(&good, "key", "none"), "key: no private key"),
        (edge_with(&good, "certificate", "none"), "certificate: no certificate"),
        (edge_with(&good, "key", &ed25519_key()), "key: neither an RSA nor an ECDSA key"),
    ];
    for (tls, why) in cases {
        assert_eq!(refusal(tls), format!("spec.tls.{why}"));
    }
}

fn ed25519_key() -> String {
    let key = PKey::generate_ed25519().and_then(|key| key.private_key_to_pem_pkcs8());
    String::from_utf8(key.expect("a key")).expect("PEM is text")
}

#[test]
fn a_broken_block_is_refused() {
    let good = pair::issued("shop.example.com");
    let broken = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.remove(1);
        lines.join("\n")
    };
    let certificate = edge_with(&good, "certificate", &broken(&good.certificate));
    assert_eq!(refusal(certificate), "spec.tls.certificate: a certificate cannot be parsed");
    let key = edge_with(&good, "key", &broken(&good.key));
    assert_eq!(refusal(key), "spec.tls.key: the key cannot be parsed");
}

#[test]
fn blocks_that_the_router_does_not_know_are_refused() {
    let good = pair::issued("shop.example.com");
    let key = PKey::private_key_from_pem(good.key.as_bytes()).expect("a key");
    let encrypted = key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"word");
    let encrypted = String::from_utf8(encrypted.expect("an encrypted key")).expect("text");
    assert_eq!(
        refusal(edge_with(&good, "key", &encrypted)),
        "spec.tls.key: unrecognized PEM block ENCRYPTED PRIVATE KEY"
    );
    let with_header = good.certificate.replacen("-----\n", "-----\nComment: mine\n\n", 1);
    assert_eq!(
        refusal(edge_with(&good, "certificate", &with_header)),
        "spec.tls.certificate: block CERTIFICATE has PEM headers"
    );
}

#[test]
fn blocks_that_do_not_belong_to_a_field_are_refused_as_by_the_newest_router() {
    let good = pair::issued("shop.example.com");
    let key = PKey::private_key_from_pem(good.key.as_bytes()).expect("a key");
    let public = String::from_utf8(key.public_key_to_pem().expect("its public half"));
    let public = public.expect("PEM is text");
    let cases = [
        ("certificate", format!("{}{public}", good.certificate), "PUBLIC KEY"),
        ("key", format!("{}{public}", good.key), "PUBLIC KEY"),
        ("key", format!("{}{}", good.key, good.certificate), "CERTIFICATE"),
    ];
    for (field, text, label) in cases {
        assert_eq!(
            refusal(edge_with(&good, field, &text)),
            format!("spec.tls.{field}: block {label} does not belong there")
        );
    }
}

#[test]
fn parameters_before_an_ec_key_are_dropped() {
    let good = pair::issued("shop.example.com");
    let parameters =
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let offer = offered(edge_with(&good, "key", &format!("{parameters}{}", good.key)));
    let served = offer.expect("it is served").pair.expect("it has a certificate");
    assert!(!served.expose().contains("EC PARAMETERS"));
}

#[test]
fn a_key_alone_is_served_with_the_default_certificate() {
    let good = pair::issued("shop.example.com");
    let offer = offered(edge_with(&good, "certificate", "")).expect("it is admitted");
    assert!(offer.pair.is_none());
}

#[test]
fn the_leaf_must_verify_with_the_ca_certificate() {
    let (good, other) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let offer = offered(edge_with(&good, "caCertificate", &good.authority)).expect("it signed it");
    let served = offer.pair.expect("it has a certificate");
    assert!(served.expose().starts_with(&format!("{}{}", good.certificate, good.authority)));
    let why = "spec.tls.caCertificate: the certificate does not verify with it";
    assert_eq!(refusal(edge_with(&good, "caCertificate", &other.authority)), why);
    // The chain in `certificate` does not count.
    let chained = pair::with_chain("shop.example.com");
    assert_eq!(refusal(edge_with(&chained, "caCertificate", &chained.authority)), why);
}

#[test]
fn a_ca_certificate_need_be_neither_a_root_nor_in_date() {
    let chained = pair::with_chain("shop.example.com");
    let end = "-----END CERTIFICATE-----\n";
    let (leaf, intermediate) = chained.certificate.split_once(end).expect("two certificates");
    let pair = Pair { certificate: format!("{leaf}{end}"), ..chained.clone() };
    assert!(offered(edge_with(&pair, "caCertificate", intermediate)).is_ok());
    let expired = pair::expired("shop.example.com");
    assert!(offered(edge_with(&expired, "caCertificate", &expired.authority)).is_ok());
}

#[test]
fn sha1_is_refused_unless_the_certificate_is_its_own_authority() {
    let key = PKey::from_rsa(Rsa::generate(2048).expect("a key")).expect("a key");
    let tls = |certificate: X509| {
        let text = |pem: Vec<u8>| String::from_utf8(pem).expect("PEM is text");
        json!({
            "termination": "edge",
            "certificate": text(certificate.to_pem().expect("PEM")),
            "key": text(key.private_key_to_pem_pkcs8().expect("PEM")),
        })
    };
    assert!(offered(tls(signed_with_sha1(&key, "shop", "shop"))).is_ok());
    assert_eq!(
        refusal(tls(signed_with_sha1(&key, "shop", "authority"))),
        "spec.tls.certificate: a certificate is signed with sha1WithRSAEncryption"
    );
}

fn signed_with_sha1(key: &PKey<Private>, subject: &str, issuer: &str) -> X509 {
    let name = |text: &str| {
        let mut name = X509Name::builder().expect("a name");
        name.append_entry_by_text("CN", text).expect("an entry");
        name.build()
    };
    let build = || {
        let mut builder = X509Builder::new()?;
        builder.set_version(2)?;
        builder.set_subject_name(&name(subject))?;
        builder.set_issuer_name(&name(issuer))?;
        builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
        builder.set_not_after(Asn1Time::days_from_now(9)?.as_ref())?;
        builder.set_pubkey(key)?;
        builder.sign(key, MessageDigest::sha1())?;
        Ok::<_, openssl::error::ErrorStack>(builder.build())
    };
    build().expect("a certificate")
}

#[test]
fn passthrough_has_no_certificates() {
    assert_eq!(
        offered(json!({ "termination": "passthrough" })).map(|offer| offer.termination),
        Ok(Termination::Passthrough)
    );
    let good = pair::issued("shop.example.com");
    let fields = [
        ("certificate", &good.certificate),
        ("key", &good.key),
        ("caCertificate", &good.authority),
        ("destinationCACertificate", &good.authority),
    ];
    for (field, text) in fields {
        let why = refusal(json!({ "termination": "passthrough", field: text }));
        assert_eq!(why, format!("spec.tls.{field}: passthrough termination has no certificates"));
    }
}

#[test]
fn a_destination_is_for_reencrypt_alone() {
    let authority = pair::issued("backend.example.com").authority;
    let of = |termination: &str, text: &str| {
        offered(json!({ "termination": termination, "destinationCACertificate": text }))
            .map(|offer| offer.termination)
    };
    let trusting = |authorities| Ok(Termination::Reencrypt { authorities });
    assert_eq!(of("reencrypt", &authority), trusting(Some(authority.clone())));
    assert_eq!(of("reencrypt", ""), trusting(None));
    let why = "spec.tls.destinationCACertificate: no certificate";
    assert_eq!(of("reencrypt", "none"), Err(why.to_owned()));
    let why = "spec.tls.destinationCACertificate: edge termination has no TLS to the backend";
    assert_eq!(of("edge", &authority), Err(why.to_owned()));
}
