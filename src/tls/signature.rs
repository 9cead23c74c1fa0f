//! Signatures on certificates: which digest, and whether one key made them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::AlgorithmIdentifier;

use super::certificate::Certificate;
use super::public_key::{Curve, PublicKey};

/// What a signature was made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256,
    Sha384,
    Sha512,
    /// Broken, by name: the router refuses it.
    Weak(&'static str),
    /// Part of the scheme (Ed25519), or not known here.
    Unknown,
}

/// How a signature was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    RsaPkcs1,
    RsaPss,
    Ecdsa,
    Dsa,
    Ed25519,
    Unknown,
}

/// Whether a certificate's signature was made by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Valid,
    Invalid,
    /// Made in a way that can't be checked here: the router can't either.
    Unsupported,
}

pub(super) fn digest(algorithm: &AlgorithmIdentifier<'_>) -> Digest {
    read(algorithm).1
}

/// Whether a certificate's own key is of the kind that its signature was made with.
pub(super) fn fits_own_key(certificate: &Certificate<'_>) -> bool {
    let (scheme, _) = read(&certificate.x509.signature_algorithm);
    match &certificate.key {
        PublicKey::Rsa { .. } => matches!(scheme, Scheme::RsaPkcs1 | Scheme::RsaPss),
        PublicKey::Ec { .. } | PublicKey::OtherCurve(_) => scheme == Scheme::Ecdsa,
        PublicKey::Other("Ed25519") => scheme == Scheme::Ed25519,
        PublicKey::Other("DSA") => scheme == Scheme::Dsa,
        PublicKey::Other(_) => false,
    }
}

/// Whether the parent's key made the child's signature.
///
/// Not `x509_parser::verify`: it knows neither P-521 nor SHA-512 with ECDSA.
pub(super) fn verify(child: &Certificate<'_>, parent: &Certificate<'_>) -> Verdict {
    let (scheme, digest) = read(&child.x509.signature_algorithm);
    let Some(algorithm) = algorithm(&parent.key, scheme, digest) else {
        return Verdict::Unsupported;
    };
    let key = &parent.x509.public_key().subject_public_key.data;
    let signed = child.x509.tbs_certificate.as_ref();
    match UnparsedPublicKey::new(algorithm, key).verify(signed, &child.x509.signature_value.data) {
        Ok(()) => Verdict::Valid,
        Err(_) => Verdict::Invalid,
    }
}

fn algorithm(
    key: &PublicKey,
    scheme: Scheme,
    digest: Digest,
) -> Option<&'static dyn VerificationAlgorithm> {
    use Digest::{Sha256, Sha384, Sha512};
    Some(match (key, scheme, digest) {
        (PublicKey::Rsa { .. }, Scheme::RsaPkcs1, Sha256) => &RSA_PKCS1_2048_8192_SHA256,
        (PublicKey::Rsa { .. }, Scheme::RsaPkcs1, Sha384) => &RSA_PKCS1_2048_8192_SHA384,
        (PublicKey::Rsa { .. }, Scheme::RsaPkcs1, Sha512) => &RSA_PKCS1_2048_8192_SHA512,
        (PublicKey::Rsa { .. }, Scheme::RsaPss, Sha256) => &RSA_PSS_2048_8192_SHA256,
        (PublicKey::Rsa { .. }, Scheme::RsaPss, Sha384) => &RSA_PSS_2048_8192_SHA384,
        (PublicKey::Rsa { .. }, Scheme::RsaPss, Sha512) => &RSA_PSS_2048_8192_SHA512,
        (PublicKey::Ec { curve, .. }, Scheme::Ecdsa, digest) => match (curve, digest) {
            (Curve::P256, Sha256) => &ECDSA_P256_SHA256_ASN1,
            (Curve::P256, Sha384) => &ECDSA_P256_SHA384_ASN1,
            (Curve::P256, Sha512) => &ECDSA_P256_SHA512_ASN1,
            (Curve::P384, Sha256) => &ECDSA_P384_SHA256_ASN1,
            (Curve::P384, Sha384) => &ECDSA_P384_SHA384_ASN1,
            (Curve::P384, Sha512) => &ECDSA_P384_SHA512_ASN1,
            (Curve::P521, Sha256) => &ECDSA_P521_SHA256_ASN1,
            (Curve::P521, Sha384) => &ECDSA_P521_SHA384_ASN1,
            (Curve::P521, Sha512) => &ECDSA_P521_SHA512_ASN1,
            _ => return None,
        },
        (PublicKey::Other("Ed25519"), Scheme::Ed25519, _) => &ED25519,
        _ => return None,
    })
}

fn read(algorithm: &AlgorithmIdentifier<'_>) -> (Scheme, Digest) {
    match algorithm.algorithm.as_bytes() {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, number] => match number {
            2 => (Scheme::RsaPkcs1, Digest::Weak("MD2")),
            4 => (Scheme::RsaPkcs1, Digest::Weak("MD5")),
            5 => (Scheme::RsaPkcs1, Digest::Weak("SHA-1")),
            10 => (Scheme::RsaPss, pss_digest(algorithm)),
            11 => (Scheme::RsaPkcs1, Digest::Sha256),
            12 => (Scheme::RsaPkcs1, Digest::Sha384),
            13 => (Scheme::RsaPkcs1, Digest::Sha512),
            _ => (Scheme::Unknown, Digest::Unknown),
        },
        // The same as PKCS#1's SHA-1, under the name that ISO gave it.
        [0x2b, 0x0e, 0x03, 0x02, 0x1d] => (Scheme::RsaPkcs1, Digest::Weak("SHA-1")),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] => (Scheme::Ecdsa, Digest::Weak("SHA-1")),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, number] => match number {
            2 => (Scheme::Ecdsa, Digest::Sha256),
            3 => (Scheme::Ecdsa, Digest::Sha384),
            4 => (Scheme::Ecdsa, Digest::Sha512),
            _ => (Scheme::Ecdsa, Digest::Unknown),
        },
        [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => (Scheme::Dsa, Digest::Weak("SHA-1")),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x02] => (Scheme::Dsa, Digest::Sha256),
        [0x2b, 0x65, 0x70] => (Scheme::Ed25519, Digest::Unknown),
        _ => (Scheme::Unknown, Digest::Unknown),
    }
}

/// Go knows PSS in three forms: one digest everywhere, and a salt of its length.
fn pss_digest(algorithm: &AlgorithmIdentifier<'_>) -> Digest {
    let Some(parameters) = &algorithm.parameters else {
        return Digest::Weak("SHA-1");
    };
    let Ok(parameters) = RsaSsaPssParams::try_from(parameters) else {
        return Digest::Unknown;
    };
    let hash = parameters.hash_algorithm_oid().as_bytes();
    let (digest, length) = match hash {
        [0x2b, 0x0e, 0x03, 0x02, 0x1a] => return Digest::Weak("SHA-1"),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 1] => (Digest::Sha256, 32),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 2] => (Digest::Sha384, 48),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 3] => (Digest::Sha512, 64),
        _ => return Digest::Unknown,
    };
    let same_mask = parameters.mask_gen_algorithm().is_ok_and(|mask| mask.hash.as_bytes() == hash);
    let usual = parameters.salt_length() == length && parameters.trailer_field() == 1;
    if same_mask && usual { digest } else { Digest::Unknown }
}
