//! What Go's parsers make of certificates: what they refuse, and what they take.

use super::material::{authority, block, leaf, tlv};
use super::{accepted, refusals};
use crate::tls::uri;

/// The chain of a good leaf and an issuer with this extension.
fn with_extension(oid: &str, value: &[u8]) -> Vec<String> {
    let root = authority("root").with_raw(oid, false, value).self_signed();
    let issued = leaf().by(&root);
    refusals(&(issued.crt() + &root.crt()), &issued.pem())
}

#[track_caller]
fn assert_refused(problems: &[String], why: &str) {
    assert_eq!(problems, [format!("certificate 2 of tls.crt can't be read: {why}")]);
}

fn permitted(names: &[(u8, &[u8])]) -> Vec<u8> {
    let subtrees: Vec<_> = names.iter().map(|(tag, name)| tlv(0x30, &tlv(*tag, name))).collect();
    tlv(0x30, &tlv(0xa0, &subtrees.concat()))
}

const NAME_CONSTRAINTS: &str = "2.5.29.30";
const POLICIES: &str = "2.5.29.32";
const POLICY_CONSTRAINTS: &str = "2.5.29.36";

#[test]
fn malformed_name_constraints_are_refused() {
    let why = "one of its name constraints is not well-formed";
    let refused = |tag: u8, name: &[u8]| {
        assert_refused(&with_extension(NAME_CONSTRAINTS, &permitted(&[(tag, name)])), why);
    };
    let (mail, dns, uri, address) = (0x81, 0x82, 0x86, 0x87);
    for name in ["a..b", "example.com.", ".", "..a", "two words", "tab\t"] {
        [mail, dns, uri].iter().for_each(|tag| refused(*tag, name.as_bytes()));
    }
    refused(mail, b"@example.com");
    refused(mail, b"a..b@example.com");
    refused(uri, b"10.0.0.1");
    refused(address, &[10, 0, 0, 0]);
    refused(address, &[10, 0, 0, 0, 255, 0, 255, 0]);
    refused(address, &[10, 0, 0, 0, 0x0f, 0, 0, 0]);
    assert_refused(&with_extension(NAME_CONSTRAINTS, &tlv(0x30, &tlv(0xa0, &[]))), why);
}

#[test]
fn well_formed_name_constraints_are_accepted() {
    let names: [(u8, &[u8]); 8] = [
        (0x82, b""),
        (0x82, b"example.com"),
        (0x82, b".example.com"),
        (0x81, b"somebody@example.com"),
        (0x81, b".example.com"),
        (0x86, b"example.com"),
        (0x87, &[10, 0, 0, 0, 255, 0xf0, 0, 0]),
        (0x87, &[0; 32]),
    ];
    assert!(with_extension(NAME_CONSTRAINTS, &permitted(&names)).is_empty());
}

#[test]
fn malformed_certificate_policies_are_refused() {
    let policies = |numbers: &[&[u8]]| {
        let each: Vec<_> = numbers.iter().map(|number| tlv(0x30, &tlv(6, number))).collect();
        with_extension(POLICIES, &tlv(0x30, &each.concat()))
    };
    let why = "an extension breaks the rules of X.509";
    for bad in [&[][..], &[0x80, 1], &[0x55, 0x80, 1], &[0x55, 0x81]] {
        assert_refused(&policies(&[bad]), why);
    }
    assert_refused(&policies(&[&[0x55, 1], &[0x55, 1]]), why);
    // Longer numbers than Go takes elsewhere.
    let long: &[u8] = &[0x55, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(policies(&[&[0x55, 1], &[0x55, 2], long]).is_empty());
}

#[test]
fn policy_constraints_with_needless_zeros_are_refused() {
    let limits = |number: &[u8]| with_extension(POLICY_CONSTRAINTS, &tlv(0x30, &tlv(0x80, number)));
    assert!(limits(&[1]).is_empty());
    assert_refused(&limits(&[0, 1]), "an extension breaks the rules of X.509");
}

#[test]
fn a_malformed_ed25519_key_of_an_issuer_is_refused() {
    let root =
        authority("root").key(openssl::pkey::PKey::generate_ed25519().unwrap()).self_signed();
    let issued = leaf().by(&root);
    let der = root.x509.to_der().unwrap();
    accepted(&(issued.crt() + &block("CERTIFICATE", &der)), &issued.pem());
    // The only object identifier of that algorithm which a NULL fits behind is the key's.
    let info = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let place = der.windows(info.len()).position(|window| window == info).unwrap();
    let mut short = der.clone();
    // The key of 32 bytes becomes one of 30 and a NULL of 2 before it.
    short[place..place + 14].copy_from_slice(&[
        0x30, 0x2a, 0x30, 0x07, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x05, 0x00, 0x03, 0x1f, 0x00,
    ]);
    assert_refused(
        &refusals(&(issued.crt() + &block("CERTIFICATE", &short)), &issued.pem()),
        "its Ed25519 public key is not well-formed",
    );
}

#[test]
fn uris_that_go_accepts_are_served() {
    let uris = [
        "spiffe://example.org/shop",
        "https://shop.example.com:8443/",
        "https://shop.example.com:/",
        "https://user:pa%20ss@shop.example.com/a%2Fb?c=%zz#d%2F",
        "https://a@b@example.com/",
        "https://[::1]/",
        "https://[2001:db8::1]:443/path",
        "https://[::ffff:10.0.0.1]/",
        "https://[fe80::1%25en0]/",
        "postgres://a:1,b:2/",
        "urn:example:a%zz",
        "mailto:somebody@example.com",
        "https:///path",
        "spiffe://a%25b/",
        "//example.com/path",
        "path/with/no/scheme",
        "/a b",
        "",
    ];
    for uri in uris {
        let issued = leaf().uri(uri).self_signed();
        assert!(refusals(&issued.crt(), &issued.pem()).is_empty(), "{uri}");
    }
}

#[test]
fn uris_that_go_refuses_are_refused() {
    let uris = [
        ":no-scheme",
        "1a:relative",
        "https://exa mple.com/",
        "https://example.com:port/",
        "https://a:1:2/",
        "https://example..com/",
        "https://example.com./",
        "https://.example.com/",
        "https://[::1/",
        "https://a[::1]/",
        "https://[10.0.0.1]/",
        "https://[::1]x/",
        "https://[::1%25]/",
        "https://[fe80::1%25a%20b]/",
        "https://[:::1]/",
        "https://a%20b/",
        "https://b%C3%A4ckerei.example/",
        "https://example.com/%zz",
        "https://example.com/%2",
        "https://example.com/#%zz",
        "https://us<er@example.com/",
        "https://user%zz@example.com/",
        "https://example.com/\u{7f}",
        "https://example.com/\n",
    ];
    for uri in uris {
        let issued = leaf().uri(uri).self_signed();
        let why = "certificate 1 of tls.crt can't be read: one of its alternative names is not well-formed";
        assert_eq!(refusals(&issued.crt(), &issued.pem()), [why], "{uri}");
        assert!(!uri::is_accepted(uri));
    }
}
