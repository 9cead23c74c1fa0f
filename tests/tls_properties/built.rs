//! Correctly signed certificates with odd or wrong names and extensions.
//!
//! Flipped bits rarely reach the rules about names, constraints and policies, so these certificates
//! are built from pieces that such rules check.

use std::sync::LazyLock;

use openssl::{
    asn1::{Asn1Object, Asn1OctetString, Asn1Time},
    bn::BigNum,
    ec::{EcGroup, EcKey},
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKey, Private},
    x509::{X509, X509Extension, X509NameBuilder},
};
use proptest::prelude::*;
use testkit::der::tlv;

use crate::{material::noon, router::Case};

/// Keys of the leaf and of its issuer.
static KEYS: LazyLock<[PKey<Private>; 2]> = LazyLock::new(|| {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    [(); 2].map(|()| PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap())
});

/// An extension: its number below `2.5.29`, whether it is critical, and its value.
type Extension = (u8, bool, Vec<u8>);

const POLICIES: u8 = 32;
const NAMES: u8 = 17;

/// A leaf and its issuer, each with these extensions, and whether the issuer is the Route's
/// caCertificate.
pub fn case() -> impl Strategy<Value = Case> {
    let ca = prop_oneof![Just(false), Just(true)];
    (of_leaf(), of_issuer(), ca, prop::sample::select(vec![100, 100, -10]), any::<bool>()).prop_map(
        |(of_leaf, of_issuer, with_ca, until, in_chain)| {
            let issuer = certificate("issuer", 1, 1, &of_issuer, until);
            let leaf = certificate("leaf", 0, 1, &of_leaf, 100);
            let chain = if in_chain { leaf.clone() + &issuer } else { leaf };
            Case {
                certificate: chain.into_bytes(),
                key: KEYS[0].private_key_to_pem_pkcs8().unwrap(),
                ca: if with_ca { issuer.into_bytes() } else { Vec::new() },
            }
        },
    )
}

/// A leaf whose only name is a URI.
pub fn with_uri(uri: &str) -> Case {
    let leaf =
        certificate("leaf", 0, 0, &[(NAMES, false, tlv(0x30, &tlv(0x86, uri.as_bytes())))], 100);
    let key = KEYS[0].private_key_to_pem_pkcs8().unwrap();
    Case { certificate: leaf.into_bytes(), key, ca: Vec::new() }
}

/// Pieces of URIs, put together at random.
pub fn uri() -> impl Strategy<Value = String> {
    let scheme = prop::sample::select(vec!["https:", "HTTP:", "spiffe:", "a+b:", "1a:", ":", ""]);
    let slashes = prop::sample::select(vec!["//", "//", "//", "///", "/", ""]);
    let user =
        prop::sample::select(vec!["", "", "", "me@", "me:pw@", "a@b@", "m%20e@", "m%z@", "<@"]);
    let host = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "example",
            ".",
            "com",
            "-",
            "_",
            "%25",
            "%41",
            "%C3%A4",
            "%zz",
            "%",
            " ",
            "[",
            "]",
            "[::1]",
            "[fe80::1%25en0]",
            "[::ffff:1.2.3.4]",
            "::1",
            ":",
            ":80",
            ":port",
            "@",
            "<",
            "\"",
            "\\",
            "{",
            "~",
            "*",
            "10.0.0.1",
        ]),
        0..5,
    );
    let rest = prop::collection::vec(
        prop::sample::select(vec![
            "/", "a", "%2F", "%2", "?", "#", ":", " ", "\u{1}", "\u{7f}", "=", "[", "@",
        ]),
        0..5,
    );
    (scheme, slashes, user, host, rest).prop_map(|(scheme, slashes, user, host, rest)| {
        [&[scheme, slashes, user], &host[..], &rest[..]].concat().concat()
    })
}

fn domain() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "shop", "example", "com", "*", ".", ".", ".", "..", " ", "x-y", "\u{1f}", "EXAMPLE", "*op",
    ]);
    let made = prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat().into_bytes());
    let usual = prop::sample::select(vec![
        "shop.example.com",
        "*.example.com",
        "example.com",
        ".example.com",
        "com",
        "a.shop.example.com",
        "example.org",
    ]);
    prop_oneof![1 => made, 3 => usual.prop_map(|name| name.as_bytes().to_vec())]
}

fn mail() -> impl Strategy<Value = Vec<u8>> {
    let local =
        prop::sample::select(vec!["", "a@", "a.b@", "a..b@", "\"q\"@", "@", "a b@", "\\a@"]);
    (local, domain()).prop_map(|(local, domain)| [local.as_bytes(), &domain].concat())
}

fn range() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, 10, 127, 128, 240, 255]);
    let length = prop::sample::select(vec![8usize, 8, 8, 32, 4, 7, 16]);
    let drawn = length.prop_flat_map(move |length| prop::collection::vec(byte.clone(), length));
    let usual = (0u8..3, 0usize..5).prop_map(|(second, ones)| {
        let mask: Vec<u8> = (0..4).map(|at| if at < ones { 255 } else { 0 }).collect();
        [&[10, second, 0, 0], &mask[..]].concat()
    });
    prop_oneof![drawn, usual]
}

fn general_name(constraint: bool) -> impl Strategy<Value = Vec<u8>> {
    let address =
        prop::sample::select(vec![vec![10, 0, 0, 1], vec![10, 1, 2, 3], vec![0; 16], vec![1; 5]]);
    let addresses = if constraint { range().boxed() } else { address.boxed() };
    let uris =
        if constraint { domain().boxed() } else { uri().prop_map(String::into_bytes).boxed() };
    prop_oneof![
        8 => domain().prop_map(|name| tlv(0x82, &name)),
        2 => mail().prop_map(|name| tlv(0x81, &name)),
        2 => uris.prop_map(|name| tlv(0x86, &name)),
        3 => addresses.prop_map(|name| tlv(0x87, &name)),
        1 => Just(tlv(0x88, &[42, 3])),
        1 => Just(tlv(0xa4, &tlv(0x30, &[]))),
    ]
}

fn constraints() -> impl Strategy<Value = Vec<u8>> {
    let subtree = || general_name(true).prop_map(|name| tlv(0x30, &name));
    let trees = || prop::collection::vec(subtree(), 0..4).prop_map(|trees| trees.concat());
    (trees(), trees()).prop_map(|(permitted, excluded)| {
        let part = |tag, trees: Vec<u8>| if trees.is_empty() { trees } else { tlv(tag, &trees) };
        tlv(0x30, &[part(0xa0, permitted), part(0xa1, excluded)].concat())
    })
}

fn policies() -> impl Strategy<Value = Vec<u8>> {
    let number = prop::sample::select(vec![
        &[0x55u8, 0x1d, 0x20, 0x00][..],
        &[42, 3],
        &[42, 4],
        &[],
        &[0x80, 1],
        &[42, 0x80],
        &[42, 0xff, 0xff, 0xff, 0xff, 0x7f],
    ]);
    let qualifier = prop::sample::select(vec![vec![], tlv(0x30, &[]), vec![5]]);
    let one =
        (number, qualifier).prop_map(|(number, more)| tlv(0x30, &[tlv(6, number), more].concat()));
    prop::collection::vec(one, 0..4).prop_map(|each| tlv(0x30, &each.concat()))
}

fn number() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        vec![0u8],
        vec![1],
        vec![0, 1],
        vec![0x80],
        vec![],
        vec![1, 2, 3, 4, 5],
        vec![0, 0x80],
    ])
}

fn policy_constraints() -> impl Strategy<Value = Vec<u8>> {
    let part = |tag| {
        prop::option::of(number()).prop_map(move |it| it.map_or(Vec::new(), |it| tlv(tag, &it)))
    };
    (part(0x80), part(0x81)).prop_map(|(one, two)| tlv(0x30, &[one, two].concat()))
}

fn usages() -> impl Strategy<Value = Vec<u8>> {
    let usage = |last| tlv(6, &[0x2b, 6, 1, 5, 5, 7, 3, last]);
    let known = vec![
        usage(1),
        usage(2),
        usage(4),
        tlv(6, &[0x55, 0x1d, 0x25, 0]),
        tlv(6, &[42, 3]),
        tlv(6, &[]),
    ];
    prop::collection::vec(prop::sample::select(known), 0..3)
        .prop_map(|each| tlv(0x30, &each.concat()))
}

/// Any extension that Go reads and that leaf and issuer may have.
fn common() -> impl Strategy<Value = Extension> {
    let rare = || prop::bool::weighted(0.2);
    let access = prop::sample::select(vec![
        vec![],
        tlv(0x30, &[]),
        tlv(0x30, &tlv(0x30, &tlv(0xa0, &tlv(0xa0, &tlv(0x86, b"http://a"))))),
        vec![5, 0],
    ]);
    prop_oneof![
        (Just(POLICIES), rare(), policies()),
        (Just(36), rare(), policy_constraints()),
        (Just(54), rare(), number().prop_map(|it| tlv(2, &it))),
        (Just(37), rare(), usages()),
        (Just(31), rare(), access),
        (
            Just(33),
            rare(),
            (policies()).prop_map(|_| tlv(
                0x30,
                &tlv(0x30, &[tlv(6, &[42, 3]), tlv(6, &[42, 4])].concat())
            ))
        ),
        (Just(14), Just(false), Just(tlv(4, b"id"))),
        (Just(99), rare(), Just(vec![5, 0])),
    ]
}

fn some(others: impl Strategy<Value = Extension>) -> impl Strategy<Value = Vec<Extension>> {
    prop_oneof![
        2 => Just(Vec::new()),
        2 => prop::collection::vec(others, 1..3),
    ]
}

fn of_leaf() -> impl Strategy<Value = Vec<Extension>> {
    let names =
        prop::collection::vec(general_name(false), 0..3).prop_map(|each| tlv(0x30, &each.concat()));
    let names = (Just(NAMES), prop::bool::weighted(0.1), names);
    (names, some(common())).prop_map(|(names, others)| [vec![names], others].concat())
}

fn of_issuer() -> impl Strategy<Value = Vec<Extension>> {
    let basic = vec![
        tlv(0x30, &[1, 1, 255]),
        tlv(0x30, &[1, 1, 255]),
        tlv(0x30, &[1, 1, 255]),
        tlv(0x30, &[1, 1, 255, 2, 1, 0]),
        tlv(0x30, &[]),
        tlv(0x30, &[1, 1, 1]),
    ];
    let basic = (Just(19), any::<bool>(), prop::sample::select(basic));
    let usage = prop::sample::select(vec![vec![3u8, 2, 1, 6], vec![3, 2, 7, 128], vec![3, 1, 0]]);
    let others = prop_oneof![
        4 => (Just(30), any::<bool>(), constraints()),
        1 => (Just(15), any::<bool>(), usage),
        2 => common(),
    ];
    (basic, some(others)).prop_map(|(basic, others)| [vec![basic], others].concat())
}

/// PEM; `key` and `signer` are indices into `KEYS`.
fn certificate(
    name: &str,
    key: usize,
    signer: usize,
    extensions: &[Extension],
    days: i64,
) -> String {
    let named = |text: &str| {
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", text).unwrap();
        name.build()
    };
    let at = |days: i64| Asn1Time::from_unix(noon().timestamp() + days * 86_400).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&named(name)).unwrap();
    builder.set_issuer_name(&named(["leaf", "issuer"][signer])).unwrap();
    builder.set_not_before(&at(-100)).unwrap();
    builder.set_not_after(&at(days)).unwrap();
    builder.set_pubkey(&KEYS[key]).unwrap();
    for (number, critical, value) in extensions {
        let number = Asn1Object::from_str(&format!("2.5.29.{number}")).unwrap();
        let value = Asn1OctetString::new_from_bytes(value).unwrap();
        let extension = X509Extension::new_from_der(&number, *critical, &value).unwrap();
        builder.append_extension2(&extension).unwrap();
    }
    builder.sign(&KEYS[signer], MessageDigest::sha256()).unwrap();
    String::from_utf8(builder.build().to_pem().unwrap()).unwrap()
}
