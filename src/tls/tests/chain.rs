//! Signatures on certificates, and the order of chains.

use openssl::hash::MessageDigest;

use super::super::ChainOrder::{self, InOrder, Incomplete, OutOfOrder};
use super::material::{Issued, authority, block, day, leaf, rsa};
use super::{accepted, refusals};

fn joined(chain: &[&Issued]) -> String {
    chain.iter().map(|issued| issued.crt()).collect()
}

#[track_caller]
fn order(chain: &[&Issued]) -> ChainOrder {
    accepted(&joined(chain), &chain[0].pem()).facts().chain
}

fn hear(number: usize, digest: &str) -> String {
    format!(
        "certificate {number} of tls.crt is signed with {digest}, which the router refuses; have it reissued with SHA-256 or better"
    )
}

#[test]
fn weak_digests_are_refused_on_a_leaf_that_another_signed() {
    let root = authority("root").key(rsa(2048)).self_signed();
    let by_ecdsa = authority("other").self_signed();
    for (digest, name) in [(MessageDigest::sha1(), "SHA-1"), (MessageDigest::md5(), "MD5")] {
        let issued = leaf().digest(digest).by(&root);
        assert_eq!(refusals(&issued.crt(), &issued.pem()), [hear(1, name)]);
    }
    let issued = leaf().digest(MessageDigest::sha1()).by(&by_ecdsa);
    assert_eq!(refusals(&issued.crt(), &issued.pem()), [hear(1, "SHA-1")]);
}

#[test]
fn md2_is_refused_too_though_nothing_can_make_it_any_more() {
    let root = authority("root").key(rsa(2048)).self_signed();
    let mut der = leaf().digest(MessageDigest::md5()).by(&root).x509.to_der().unwrap();
    let md5 = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04];
    let places: Vec<_> =
        der.windows(9).enumerate().filter(|(_, w)| *w == md5).map(|(i, _)| i).collect();
    places.iter().for_each(|place| der[place + 8] = 2);
    let good = leaf().by(&root);
    let chain = format!("{}{}", good.crt(), block("CERTIFICATE", &der));
    assert_eq!(refusals(&chain, &good.pem()), [hear(2, "MD2")]);
}

#[test]
fn weak_digests_are_refused_on_every_intermediate_and_all_are_named() {
    let root = authority("root").self_signed();
    let one = authority("one").digest(MessageDigest::sha1()).by(&root);
    let two = authority("two").digest(MessageDigest::sha1()).by(&one);
    let issued = leaf().by(&two);
    assert_eq!(
        refusals(&joined(&[&issued, &two, &one]), &issued.pem()),
        [hear(2, "SHA-1"), hear(3, "SHA-1")]
    );
}

#[test]
fn a_self_signed_certificate_may_carry_any_digest() {
    let root = authority("root").digest(MessageDigest::sha1()).self_signed();
    let issued = leaf().by(&root);
    assert_eq!(order(&[&issued, &root]), InOrder);
    let alone = leaf().without_key_ids().digest(MessageDigest::sha1()).self_signed();
    assert_eq!(order(&[&alone]), InOrder);
}

#[test]
fn a_namesake_of_its_issuer_is_not_self_signed_if_the_key_ids_differ() {
    let root = authority("twin").self_signed();
    let issued = leaf().named("twin").digest(MessageDigest::sha1()).by(&root);
    assert_eq!(refusals(&issued.crt(), &issued.pem()), [hear(1, "SHA-1")]);
}

#[test]
fn a_chain_in_order_is_in_order_with_and_without_its_root() {
    let root = authority("root").self_signed();
    let middle = authority("middle").by(&root);
    let issued = leaf().by(&middle);
    assert_eq!(order(&[&issued, &middle, &root]), InOrder);
    assert_eq!(order(&[&issued, &middle]), InOrder);
    let issued = leaf().by(&root);
    assert_eq!(order(&[&issued]), InOrder);
    assert_eq!(order(&[&leaf().self_signed()]), InOrder);
}

#[test]
fn a_chain_of_ten_is_answered() {
    let mut chain = vec![authority("0").self_signed()];
    for number in 1..9 {
        let next = authority(&number.to_string()).by(chain.last().unwrap());
        chain.push(next);
    }
    let issued = leaf().by(chain.last().unwrap());
    chain.push(issued);
    let chain: Vec<_> = chain.iter().rev().collect();
    assert_eq!(order(&chain), InOrder);
    let mut swapped = chain.clone();
    swapped.swap(4, 5);
    assert_eq!(order(&swapped), OutOfOrder);
    let mut gap = chain.clone();
    gap.remove(5);
    assert_eq!(order(&gap), Incomplete);
}

#[test]
fn issuers_in_the_wrong_order_are_out_of_order() {
    let root = authority("root").self_signed();
    let middle = authority("middle").by(&root);
    let issued = leaf().by(&middle);
    assert_eq!(order(&[&issued, &root, &middle]), OutOfOrder);
    assert_eq!(order(&[&issued, &issued, &middle]), OutOfOrder);
}

#[test]
fn a_gap_before_the_root_is_incomplete() {
    let root = authority("root").self_signed();
    let middle = authority("middle").by(&root);
    let issued = leaf().by(&middle);
    assert_eq!(order(&[&issued, &root]), Incomplete);
}

#[test]
fn an_issuer_of_the_right_name_with_another_key_is_not_the_issuer() {
    let (root, impostor) = (
        authority("root").without_key_ids().self_signed(),
        authority("root").without_key_ids().self_signed(),
    );
    let issued = leaf().without_key_ids().by(&root);
    assert_eq!(order(&[&issued, &root]), InOrder);
    assert_eq!(order(&[&issued, &impostor]), Incomplete);
}

#[test]
fn what_follows_a_root_is_ignored() {
    let root = authority("root").self_signed();
    let other = authority("other").self_signed();
    let issued = leaf().by(&root);
    assert_eq!(order(&[&issued, &root, &other]), InOrder);
}

#[test]
fn a_lone_leaf_that_says_where_its_issuer_can_be_fetched_is_incomplete() {
    let root = authority("root").self_signed();
    let with = |value: &str| leaf().with("authorityInfoAccess", value).by(&root);
    let issued = with("caIssuers;URI:http://ca.example.com/middle.crt");
    assert_eq!(order(&[&issued]), Incomplete);
    assert_eq!(order(&[&issued, &root]), InOrder);
    assert_eq!(order(&[&with("caIssuers;URI:ldap:///CN=root")]), InOrder);
    assert_eq!(order(&[&with("OCSP;URI:http://ocsp.example.com")]), InOrder);
}

#[test]
fn encodings_that_go_does_not_read_are_refused() {
    let with = |oid: &str, critical, der: &[u8]| {
        let issued = leaf().dns(&[]).without_key_ids().with_raw(oid, critical, der).self_signed();
        refusals(&issued.crt(), &issued.pem())
    };
    let names = "2.5.29.17";
    assert_eq!(with(names, false, &[0x30, 3, 0x82, 1, b'a']), Vec::<String>::new());
    for (oid, critical, der) in [
        (names, false, &[0x30, 3, 0x82, 1, 0xff][..]),
        (names, false, &[0x30, 3, 0x87, 1, 1]),
        (names, false, &[0x30, 3, 0x86, 1, b'%']),
        (names, false, &[0x30, 0x81, 3, 0x82, 1, b'a']),
        ("2.5.29.14", true, &[4, 1, 1]),
        ("2.5.29.35", true, &[0x30, 0]),
        ("1.3.6.1.5.5.7.1.1", true, &[0x30, 0]),
        ("2.5.29.19", true, &[0x30, 3, 1, 1, 7]),
        ("2.5.29.19", true, &[4, 0]),
    ] {
        let problems = with(oid, critical, der);
        assert_eq!(problems.len(), 1, "{oid} {der:?}");
        assert!(
            problems[0].starts_with("certificate 1 of tls.crt can't be read: "),
            "{problems:?}"
        );
    }
}

#[test]
fn the_same_extension_twice_is_refused() {
    let issued = leaf()
        .with_raw("2.5.29.15", false, &[3, 2, 5, 0xa0])
        .with_raw("2.5.29.15", false, &[3, 2, 5, 0xa0])
        .self_signed();
    assert_eq!(
        refusals(&issued.crt(), &issued.pem()),
        ["certificate 1 of tls.crt can't be read: it has the same extension twice"]
    );
}

#[test]
fn a_name_with_a_line_break_in_it_is_no_host_and_makes_no_other() {
    let issued = leaf().dns(&["a.example.com\nshop.example.com", "b.example.com"]).self_signed();
    let pair = accepted(&issued.crt(), &issued.pem());
    assert_eq!(pair.facts().names().collect::<Vec<_>>(), ["b.example.com"]);
}

#[test]
fn a_leaf_without_names_has_a_serial_number_all_the_same() {
    let issued = leaf().dns(&[]).self_signed();
    let pair = accepted(&issued.crt(), &issued.pem());
    let facts = pair.facts();
    assert_eq!(facts.names().count(), 0);
    assert!(!facts.serial().is_empty());
}

#[test]
fn facts_tell_names_serial_and_validity() {
    let issued = leaf()
        .dns(&["Shop.Example.com", "*.example.org", "10.9.9.9"])
        .address("10.0.0.1")
        .address("2001:db8::1")
        .uri("spiffe://example.org/shop")
        .days(3, 33)
        .self_signed();
    let pair = accepted(&issued.crt(), &issued.pem());
    let facts = pair.facts();
    let names: Vec<_> = facts.names().collect();
    assert_eq!(names, ["shop.example.com", "*.example.org", "10.0.0.1", "2001:db8::1"]);
    assert_eq!((facts.validity.not_before, facts.validity.not_after), (day(3), day(33)));
    let serial = issued.x509.serial_number().to_bn().unwrap().to_hex_str().unwrap().to_lowercase();
    assert_eq!(facts.serial(), serial);
}
