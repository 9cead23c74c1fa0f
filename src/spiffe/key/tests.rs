use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm,
};

use super::*;

fn request(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
    let key = KeyPair::generate_for(algorithm).unwrap();
    CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
}

#[test]
fn the_key_of_a_request_is_taken_if_it_signed_the_request() {
    for (algorithm, kind) in [
        (&PKCS_ECDSA_P256_SHA256, KeyKind::P256),
        (&PKCS_ECDSA_P384_SHA384, KeyKind::P384),
        (&PKCS_ED25519, KeyKind::Ed25519),
        (&PKCS_RSA_SHA256, KeyKind::Rsa),
    ] {
        let mut der = request(algorithm);
        assert_eq!(PublicKey::of_request(&der).unwrap().kind, kind);
        // The last byte is the signature's.
        *der.last_mut().unwrap() ^= 1;
        assert_eq!(PublicKey::of_request(&der), Err(RequestError::Signature), "{kind:?}");
    }
}

#[test]
fn a_kind_of_key_that_others_may_not_know_is_refused() {
    let error = PublicKey::of_request(&request(&PKCS_ECDSA_P521_SHA512));
    assert_eq!(error, Err(RequestError::Key(KeyError::Kind)));
}

#[test]
fn an_rsa_key_that_costs_too_much_or_protects_too_little_is_refused_before_it_is_used() {
    for bits in [1024, 16384] {
        let key = openssl::rsa::Rsa::generate(bits.min(2048)).unwrap();
        // The size alone decides, so a number that is no product of primes will do.
        let modulus = openssl::bn::BigNum::from_slice(&vec![0xff; bits as usize / 8]).unwrap();
        let public =
            openssl::rsa::Rsa::from_public_components(modulus, key.e().to_owned().unwrap());
        let der = public.unwrap().public_key_to_der().unwrap();
        let (_, info) = SubjectPublicKeyInfo::from_der(&der).unwrap();
        assert_eq!(PublicKey::read(&info), Err(KeyError::RsaSize(bits as usize)));
    }
}

#[test]
fn a_request_with_something_behind_it_is_refused() {
    let mut der = request(&PKCS_ECDSA_P256_SHA256);
    der.push(0);
    assert_eq!(PublicKey::of_request(&der), Err(RequestError::Unreadable));
    assert_eq!(PublicKey::of_request(&der[..40]), Err(RequestError::Unreadable));
}

/// What is not signed could be changed on the way, and other readers would say no.
#[test]
fn a_request_whose_signature_is_written_in_another_way_is_refused() {
    let der = request(&PKCS_ECDSA_P256_SHA256);
    let at = der.windows(4).rposition(|it| matches!(it, [3, 0x46..=0x49, 0, 0x30])).unwrap();
    // The number of bits that do not count, and the class of the tag.
    for (at, byte) in [(at + 2, 1), (at, 0x43)] {
        let mut other = der.clone();
        other[at] = byte;
        assert!(PublicKey::of_request(&other).is_err(), "{byte}");
    }
}

#[test]
fn bits_are_counted_without_leading_zeros() {
    for (number, count) in
        [(&[][..], 0), (&[0, 0], 0), (&[1], 1), (&[0, 0x80], 8), (&[1, 0], 9), (&[0xff; 256], 2048)]
    {
        assert_eq!(bits(number), count);
    }
}
