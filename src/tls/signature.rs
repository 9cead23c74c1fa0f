//! Signatures on certificates: which digest, and whether one key made them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::asn1_rs::Tag;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::AlgorithmIdentifier;

use super::der::{self, INTEGER, OBJECT_IDENTIFIER, SEQUENCE};
use super::public_key::{Curve, PublicKey};

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
pub(super) enum Verification {
    Valid,
    Invalid,
    /// Made in a way that can't be checked here: the router can't either.
    Unsupported,
}

pub(super) fn digest(algorithm: &AlgorithmIdentifier<'_>) -> Digest {
    read(algorithm).1
}

/// Whether a key of this kind makes signatures of this algorithm.
pub(super) fn fits_key(algorithm: &AlgorithmIdentifier<'_>, key: &PublicKey) -> bool {
    let (scheme, _) = read(algorithm);
    match key {
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
pub(super) fn verify(
    child: &X509Certificate<'_>,
    parent: &X509Certificate<'_>,
    parent_key: &PublicKey,
) -> Verification {
    let (scheme, digest) = read(&child.signature_algorithm);
    let Some(algorithm) = algorithm(parent_key, scheme, digest) else {
        return Verification::Unsupported;
    };
    let key = &parent.public_key().subject_public_key.data;
    let signed = child.tbs_certificate.as_ref();
    let signature = &child.signature_value;
    // Go moves a signature with unused bits to the right, and then no key fits it.
    let whole = signature.unused_bits == 0;
    match UnparsedPublicKey::new(algorithm, key).verify(signed, &signature.data) {
        Ok(()) if whole => Verification::Valid,
        _ => Verification::Invalid,
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
        // Go insists that there are no parameters.
        [0x2b, 0x65, 0x70] if algorithm.parameters.is_none() => (Scheme::Ed25519, Digest::Unknown),
        _ => (Scheme::Unknown, Digest::Unknown),
    }
}

/// Go knows PSS in three forms: one digest everywhere, and a salt of its length.
fn pss_digest(algorithm: &AlgorithmIdentifier<'_>) -> Digest {
    const SHA_1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
    const SALT: u8 = 0xa2;
    let mut fields = match &algorithm.parameters {
        Some(parameters) if parameters.tag() == Tag::Sequence => parameters.data,
        Some(_) => return Digest::Unknown,
        None => &[],
    };
    // SHA-1 is meant where no digest is named.
    let named = der::next(&mut fields, 0xa0);
    let Some(hash) = named.map_or(Some(SHA_1), named_digest) else { return Digest::Unknown };
    let (digest, length) = match hash {
        SHA_1 => return Digest::Weak("SHA-1"),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 1] => (Digest::Sha256, 32),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 2] => (Digest::Sha384, 48),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 3] => (Digest::Sha512, 64),
        _ => return Digest::Unknown,
    };
    let same_mask = der::next(&mut fields, 0xa1).and_then(mask_digest) == Some(hash);
    let salt = der::next(&mut fields, SALT).and_then(|salt| der::only(salt, INTEGER));
    if same_mask && salt == Some(&[length]) && fields.is_empty() { digest } else { Digest::Unknown }
}

/// The digest that the mask is made with, by MGF1.
fn mask_digest(der: &[u8]) -> Option<&[u8]> {
    const MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08];
    let mut fields = der::only(der, SEQUENCE)?;
    let function = der::next(&mut fields, OBJECT_IDENTIFIER)?;
    (function == MGF1).then(|| named_digest(fields))?
}

fn named_digest(der: &[u8]) -> Option<&[u8]> {
    let mut fields = der::only(der, SEQUENCE)?;
    let digest = der::next(&mut fields, OBJECT_IDENTIFIER)?;
    matches!(fields, [] | [5, 0]).then_some(digest)
}
