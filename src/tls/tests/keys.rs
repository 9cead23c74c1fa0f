//! Kinds of keys, and which certificate they belong to.

use openssl::bn::{BigNum, BigNumContext};
use openssl::dsa::Dsa;
use openssl::ec::{EcGroup, EcKey, EcKeyRef, EcPoint, PointConversionForm};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};

use super::material::{Key, authority, block, ec, leaf, p256, pem, rsa, tlv};
use super::{accepted, refusals};

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).unwrap()
}

#[test]
fn rsa_keys_from_2048_to_8192_bits_are_served_in_pkcs1_and_pkcs8() {
    for bits in [2048, 3072, 4096, 8192] {
        let issued = leaf().key(rsa(bits)).self_signed();
        accepted(&issued.crt(), &issued.pem());
        accepted(&issued.crt(), &text(issued.key.rsa().unwrap().private_key_to_pem().unwrap()));
    }
}

#[test]
fn ecdsa_keys_are_served_in_sec1_and_pkcs8() {
    for curve in [Nid::X9_62_PRIME256V1, Nid::SECP384R1, Nid::SECP521R1] {
        let issued = leaf().key(ec(curve)).self_signed();
        accepted(&issued.crt(), &issued.pem());
        let sec1 = text(issued.key.ec_key().unwrap().private_key_to_pem().unwrap());
        accepted(&issued.crt(), &sec1);
        accepted(&issued.crt(), &sec1.replace("EC PRIVATE", "ECDSA PRIVATE"));
    }
}

/// A SEC 1 key by hand: with the curve or without, with a public point or without.
fn sec1(scalar: &[u8], curve: Option<&[u8]>, point: Option<&[u8]>) -> Vec<u8> {
    let mut fields = [tlv(2, &[1]), tlv(4, scalar)].concat();
    if let Some(curve) = curve {
        fields.extend(tlv(0xa0, &tlv(6, curve)));
    }
    if let Some(point) = point {
        fields.extend(tlv(0xa1, &tlv(3, &[&[0], point].concat())));
    }
    tlv(0x30, &fields)
}

fn pkcs8(curve: &[u8], inner: &[u8]) -> Vec<u8> {
    const EC: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let algorithm = tlv(0x30, &[tlv(6, &EC), tlv(6, curve)].concat());
    tlv(0x30, &[tlv(2, &[0]), algorithm, tlv(4, inner)].concat())
}

const CURVES: [(Nid, i32, &[u8]); 3] = [
    (Nid::X9_62_PRIME256V1, 32, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
    (Nid::SECP384R1, 48, &[0x2b, 0x81, 0x04, 0x00, 0x22]),
    (Nid::SECP521R1, 66, &[0x2b, 0x81, 0x04, 0x00, 0x23]),
];

fn point(key: &EcKeyRef<Private>, form: PointConversionForm) -> Vec<u8> {
    let mut context = BigNumContext::new().unwrap();
    key.public_key().to_bytes(key.group(), form, &mut context).unwrap()
}

#[test]
fn ecdsa_keys_are_served_with_and_without_the_public_key_inside() {
    for (nid, length, oid) in CURVES {
        let issued = leaf().key(ec(nid)).self_signed();
        let key = issued.key.ec_key().unwrap();
        let scalar = key.private_key().to_vec_padded(length).unwrap();
        let whole = point(&key, PointConversionForm::UNCOMPRESSED);
        let short = point(&key, PointConversionForm::COMPRESSED);
        for point in [None, Some(&whole[..]), Some(&short[..])] {
            accepted(&issued.crt(), &block("EC PRIVATE KEY", &sec1(&scalar, Some(oid), point)));
            for inner in [sec1(&scalar, None, point), sec1(&scalar, Some(oid), point)] {
                accepted(&issued.crt(), &block("PRIVATE KEY", &pkcs8(oid, &inner)));
            }
        }
        // Old tools drop leading zeros or add some.
        let padded = [&[0, 0], &scalar[..]].concat();
        accepted(&issued.crt(), &block("EC PRIVATE KEY", &sec1(&padded, Some(oid), None)));
    }
}

#[test]
fn a_public_key_inside_that_is_not_the_keys_own_is_not_trusted() {
    for (nid, length, oid) in CURVES {
        // The certificate is for the victim's key; the file claims to be that key but is another.
        let (victim, other) = (leaf().key(ec(nid)).self_signed(), ec(nid));
        let scalar = other.ec_key().unwrap().private_key().to_vec_padded(length).unwrap();
        let claimed = point(&victim.key.ec_key().unwrap(), PointConversionForm::UNCOMPRESSED);
        let inner = sec1(&scalar, Some(oid), Some(&claimed));
        let hear = ["tls.key can't be read: its numbers don't match each other, so it is damaged"];
        assert_eq!(refusals(&victim.crt(), &block("EC PRIVATE KEY", &inner)), hear);
        assert_eq!(refusals(&victim.crt(), &block("PRIVATE KEY", &pkcs8(oid, &inner))), hear);
    }
}

#[test]
fn ecdsa_numbers_outside_of_the_curve_are_refused() {
    let issued = leaf().self_signed();
    let (_, _, oid) = CURVES[0];
    let other_curve = CURVES[1].2;
    for bad in [
        sec1(&[0; 32], Some(oid), None),
        sec1(&[0xff; 32], Some(oid), None),
        sec1(&[1; 33], Some(oid), None),
        sec1(&[], Some(oid), None),
        sec1(&[1; 32], None, None),
        pkcs8(oid, &sec1(&[1; 32], Some(other_curve), None)),
        pkcs8(oid, &[0x30, 0]),
        pkcs8(oid, &[]),
    ] {
        let problems = refusals(&issued.crt(), &block("PRIVATE KEY", &bad));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("tls.key can't be read: "), "{problems:?}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let issued = leaf().self_signed();
    let hear = [
        "tls.key does not belong to the certificate in tls.crt; store a certificate and key that belong together",
    ];
    assert_eq!(refusals(&issued.crt(), &pem(&p256())), hear);
    assert_eq!(refusals(&issued.crt(), &pem(&rsa(2048))), hear);
    let issued = leaf().key(rsa(2048)).self_signed();
    assert_eq!(refusals(&issued.crt(), &pem(&rsa(3072))), hear);
}

#[test]
fn a_leaf_that_does_not_stand_first_is_pointed_out() {
    let root = authority("root").self_signed();
    let middle = authority("middle").by(&root);
    let issued = leaf().by(&middle);
    let chain = format!("{}{}{}", root.crt(), middle.crt(), issued.crt());
    let why = "tls.key belongs to certificate 3 of tls.crt; put that certificate first, before those of its issuers";
    assert_eq!(refusals(&chain, &issued.pem()), [why]);
}

#[test]
fn rsa_keys_under_2048_bits_are_refused_wherever_they_stand() {
    let hear = |whose| {
        format!(
            "{whose} is an RSA key of 1024 bits; with fewer than 2048, HAProxy rejects its whole configuration"
        )
    };
    let weak = leaf().key(rsa(1024)).self_signed();
    assert_eq!(
        refusals(&weak.crt(), &weak.pem()),
        [hear("the key of certificate 1 of tls.crt"), hear("tls.key")]
    );
    let root = authority("root").key(rsa(1024)).self_signed();
    let issued = leaf().by(&root);
    assert_eq!(
        refusals(&format!("{}{}", issued.crt(), root.crt()), &issued.pem()),
        [hear("the key of certificate 2 of tls.crt")]
    );
}

#[test]
fn an_rsa_key_one_bit_short_is_refused() {
    let key = PKey::from_rsa(openssl::rsa::Rsa::generate(2047).unwrap()).unwrap();
    let issued = leaf().key(key).self_signed();
    assert!(refusals(&issued.crt(), &issued.pem())[1].contains("of 2047 bits"));
}

/// A key that is too large to search for: the numbers only have to be long.
fn rsa_9000() -> Key {
    let number = |bits| {
        let mut number = BigNum::new().unwrap();
        number.rand(bits, openssl::bn::MsbOption::TWO_ONES, true).unwrap();
        number
    };
    let e = BigNum::from_u32(65537).unwrap();
    let half = || number(4500);
    let rsa = openssl::rsa::Rsa::from_private_components(
        number(9000),
        e,
        number(8999),
        half(),
        half(),
        half(),
        half(),
        half(),
    );
    PKey::from_rsa(rsa.unwrap()).unwrap()
}

#[test]
fn rsa_keys_over_8192_bits_are_refused() {
    let root = authority("root").self_signed();
    let issued = leaf().key(rsa_9000()).by(&root);
    let hear =
        |whose| format!("{whose} is an RSA key of 9000 bits; TLS clients refuse more than 8192");
    assert_eq!(
        refusals(&issued.crt(), &issued.pem()),
        [hear("the key of certificate 1 of tls.crt"), hear("tls.key")]
    );
}

#[test]
fn an_rsa_key_whose_numbers_do_not_fit_is_refused() {
    let issued = leaf().key(rsa(2048)).self_signed();
    let der = issued.key.rsa().unwrap().private_key_to_der().unwrap();
    // Somewhere in d, p, q and the rest; the modulus stays, so only a check of all numbers sees it.
    for place in [400, 600, 800, 1000, der.len() - 1] {
        let mut bad = der.clone();
        bad[place] ^= 1;
        let problems = refusals(&issued.crt(), &block("RSA PRIVATE KEY", &bad));
        assert_eq!(problems.len(), 1, "byte {place}");
        assert!(problems[0].starts_with("tls.key can't be read: "), "{problems:?}");
    }
}

#[test]
fn key_kinds_that_the_router_does_not_serve_are_refused_by_name() {
    let ed = leaf().key(PKey::generate_ed25519().unwrap()).self_signed();
    let hear =
        |whose| format!("{whose} is a key of type Ed25519; the router serves RSA and ECDSA only");
    assert_eq!(
        refusals(&ed.crt(), &ed.pem()),
        [hear("the key of certificate 1 of tls.crt"), hear("tls.key")]
    );

    let dsa = PKey::from_dsa(Dsa::generate(2048).unwrap()).unwrap();
    let issued = leaf().self_signed();
    assert_eq!(
        refusals(&issued.crt(), &pem(&dsa)),
        ["tls.key is a key of type DSA; the router serves RSA and ECDSA only"]
    );
    let issuer = authority("root").key(dsa).self_signed();
    let issued = leaf().by(&issuer);
    let why = "the key of certificate 2 of tls.crt is a key of type DSA; the router serves RSA and ECDSA only";
    assert_eq!(refusals(&format!("{}{}", issued.crt(), issuer.crt()), &issued.pem()), [why]);
}

#[test]
fn curves_that_clients_do_not_know_are_refused_by_name() {
    for (nid, name) in [
        (Nid::SECP224R1, "P-224"),
        (Nid::SECP256K1, "secp256k1"),
        (Nid::BRAINPOOL_P256R1, "brainpool"),
    ] {
        let issued = leaf().key(ec(nid)).self_signed();
        let hear = |whose| {
            format!(
                "{whose} is an ECDSA key on the curve {name}; only P-256, P-384 and P-521 can be served"
            )
        };
        assert_eq!(
            refusals(&issued.crt(), &issued.pem()),
            [hear("the key of certificate 1 of tls.crt"), hear("tls.key")]
        );
    }
}

#[test]
fn a_curve_that_is_spelled_out_is_refused() {
    let mut group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    group.set_asn1_flag(openssl::ec::Asn1Flag::EXPLICIT_CURVE);
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let issued = leaf().self_signed();
    let problems = refusals(&issued.crt(), &pem(&key));
    let why = "tls.key can't be read: it is an ECDSA key with explicit curve parameters instead of a named curve";
    assert_eq!(problems, [why]);
    let issued = leaf().key(key).self_signed();
    assert!(refusals(&issued.crt(), &pem(&p256()))[0].ends_with("does not name its curve"));
}

#[test]
fn a_point_that_is_not_on_its_curve_is_refused() {
    let root = authority("root").self_signed();
    let issued = leaf().by(&root);
    let whole = point(&root.key.ec_key().unwrap(), PointConversionForm::UNCOMPRESSED);
    let mut der = root.x509.to_der().unwrap();
    let place = der.windows(65).position(|window| window == whole).unwrap();
    der[place + 64] ^= 1;
    let problems =
        refusals(&format!("{}{}", issued.crt(), block("CERTIFICATE", &der)), &issued.pem());
    let why =
        "certificate 2 of tls.crt can't be read: its ECDSA public key is not a point of its curve";
    assert_eq!(problems, [why]);
    assert!(
        EcPoint::from_bytes(
            &EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap(),
            &der[place..place + 65],
            &mut BigNumContext::new().unwrap()
        )
        .is_err()
    );
}

#[test]
fn what_is_no_key_at_all_is_refused() {
    let issued = leaf().self_signed();
    for bad in
        [&[][..], &[0x30], &[0x30, 0], &[5, 0], &[0x30, 3, 2, 1, 0], &[0x30, 0x80, 0, 0], b"hello"]
    {
        let problems = refusals(&issued.crt(), &block("PRIVATE KEY", bad));
        let why = "tls.key can't be read: it is neither a PKCS#8, a PKCS#1 nor a SEC 1 key, or it was cut off";
        assert_eq!(problems, [why]);
    }
}
