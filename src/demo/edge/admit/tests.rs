use openssl::{
    asn1::Asn1Time,
    ec::{EcGroup, EcKey},
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKey, Private},
    rsa::Rsa,
    x509::{X509, X509NameBuilder},
};

use super::*;
use crate::demo::authority::Authority;

fn services() -> Arc<ClientConfig> {
    let authority = Authority::new("services", chrono::Utc::now()).unwrap();
    trust::in_services(authority.der()).unwrap()
}

fn self_signed(key: &PKey<Private>) -> String {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "shop.example.com").unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(9).unwrap()).unwrap();
    builder.sign(key, MessageDigest::sha256()).unwrap();
    String::from_utf8(builder.build().to_pem().unwrap()).unwrap()
}

fn holding(certificate: String, key: impl Into<String>) -> Result<Offer, String> {
    let tls = Tls {
        termination: "edge".to_owned(),
        certificate,
        key: Some(PrivateKeyPem::new(key)),
        ..Tls::default()
    };
    offer(&Spec { tls: Some(tls), ..Spec::default() }, &services())
}

fn sec1(curve: Nid) -> (PKey<Private>, String) {
    let key = EcKey::generate(&EcGroup::from_curve_name(curve).unwrap()).unwrap();
    let text = String::from_utf8(key.private_key_to_pem().unwrap()).unwrap();
    (PKey::from_ec_key(key).unwrap(), text)
}

#[test]
fn every_kind_of_key_that_the_router_serves_is_served() {
    let rsa = Rsa::generate(2048).unwrap();
    let pkcs1 = String::from_utf8(rsa.private_key_to_pem().unwrap()).unwrap();
    let mut keys = vec![(PKey::from_rsa(rsa).unwrap(), pkcs1)];
    keys.extend([Nid::X9_62_PRIME256V1, Nid::SECP384R1, Nid::SECP521R1].map(sec1));
    for (key, text) in keys {
        let pkcs8 = String::from_utf8(key.private_key_to_pem_pkcs8().unwrap()).unwrap();
        for text in [text, pkcs8] {
            let offer = holding(self_signed(&key), text).expect("it is admitted");
            assert!(offer.certificate.is_some() && offer.remark.is_none(), "{:?}", offer.remark);
        }
    }
}

#[test]
fn a_pair_that_rustls_cannot_serve_is_admitted_with_the_default_certificate_and_a_message() {
    let (key, text) = sec1(Nid::X9_62_PRIME256V1);
    let odd_label = text.replace("EC PRIVATE", "ECDSA PRIVATE");
    let offer = holding(self_signed(&key), odd_label).expect("the router admits it");
    assert!(offer.certificate.is_none());
    assert_eq!(
        offer.remark.unwrap(),
        "HAProxy could serve this pair, but rustls, which the sandbox's edge is built on, can't: \
         its key can't be read. The edge serves its default certificate."
    );
}

#[test]
fn a_pair_with_several_problems_is_refused_with_all_of_them_in_terms_of_the_route() {
    let refused = holding("no PEM".to_owned(), "").expect_err("it is refused");
    assert_eq!(
        refused,
        "spec.tls.certificate has no certificate: there is no -----BEGIN CERTIFICATE----- line; \
         spec.tls.key is missing or empty."
    );
}

#[test]
fn the_chain_that_clients_see_has_the_ca_certificate_in_it() {
    let authority = Authority::new("issuer", chrono::Utc::now()).unwrap();
    let issued = authority.issue(&["shop.example.com"], chrono::Utc::now()).unwrap();
    let tls = Tls {
        termination: "edge".to_owned(),
        certificate: issued.certificate.clone(),
        key: Some(issued.key.clone()),
        ca_certificate: authority.pem(),
        ..Tls::default()
    };
    let offer = offer(&Spec { tls: Some(tls), ..Spec::default() }, &services()).unwrap();
    let chain = &offer.certificate.unwrap().certified.cert;
    assert_eq!(*chain, [issued.der.clone(), authority.der().clone()]);
}
