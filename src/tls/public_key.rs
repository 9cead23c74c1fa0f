//! Public keys: what a certificate and a private key are compared by.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    VerificationAlgorithm,
};

use super::der::{self, INTEGER, OBJECT_IDENTIFIER, SEQUENCE};
use super::problem::{Part, Problem};

/// The sizes that both HAProxy and TLS clients take.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The curves that Go, OpenSSL and browsers have in common.
///
/// P-224 is not among them: Go reads it, but no browser accepts it in a certificate, so a Route
/// that serves it would look healthy and be unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// By the body of its object identifier.
    pub(super) fn of(identifier: &[u8]) -> Option<Self> {
        Some(match identifier {
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07] => Self::P256,
            [0x2b, 0x81, 0x04, 0x00, 0x22] => Self::P384,
            [0x2b, 0x81, 0x04, 0x00, 0x23] => Self::P521,
            _ => return None,
        })
    }

    /// The length of a private number, and of half a point.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn has_point(self, point: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1,
            Self::P384 => &ECDSA_P384_SHA384_ASN1,
            Self::P521 => &ECDSA_P521_SHA512_ASN1,
        };
        // Go takes the uncompressed form only.
        point.len() == 1 + 2 * self.bytes()
            && point.first() == Some(&4)
            && ParsedPublicKey::new(algorithm, point).is_ok()
    }
}

pub(super) fn curve_name(identifier: &[u8]) -> &'static str {
    match identifier {
        [0x2b, 0x81, 0x04, 0x00, 0x21] => "P-224",
        [0x2b, 0x81, 0x04, 0x00, 0x0a] => "secp256k1",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x01] => "P-192",
        [0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, ..] => "brainpool",
        _ => "(not a NIST curve)",
    }
}

/// Kinds of keys by the body of their algorithm's object identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Rsa,
    Ec,
    Other(&'static str),
}

impl KeyKind {
    pub(super) fn of(identifier: &[u8]) -> Self {
        match identifier {
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01] => Self::Rsa,
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01] => Self::Ec,
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a] => Self::Other(RSA_PSS),
            [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01] => Self::Other("DSA"),
            [0x2b, 0x65, 0x6e] => Self::Other("X25519"),
            [0x2b, 0x65, 0x6f] => Self::Other("X448"),
            [0x2b, 0x65, 0x70] => Self::Other(ED25519),
            [0x2b, 0x65, 0x71] => Self::Other(ED448),
            _ => Self::Other("(unknown)"),
        }
    }
}

const RSA_PSS: &str = "RSASSA-PSS";
const ED25519: &str = "Ed25519";
const ED448: &str = "Ed448";

/// A public key, in the one form that both certificate and private key can be brought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: u32 },
    Ec { curve: Curve, point: Vec<u8> },
    OtherCurve(&'static str),
    Other(&'static str),
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo. Errors say what is wrong, for the message.
    pub(super) fn of_info(info: &[u8]) -> Result<Self, &'static str> {
        let unreadable = "its public key is not well-formed";
        let mut info = der::only(info, SEQUENCE).ok_or(unreadable)?;
        let mut algorithm = der::next(&mut info, SEQUENCE).ok_or(unreadable)?;
        let kind = der::next(&mut algorithm, OBJECT_IDENTIFIER).ok_or(unreadable)?;
        let bits = der::next(&mut info, der::BIT_STRING).ok_or(unreadable)?;
        // The first byte counts the bits to leave out at the end; a key is whole bytes.
        let [0, key @ ..] = bits else { return Err(unreadable) };
        match KeyKind::of(kind) {
            // Go insists on the NULL.
            KeyKind::Rsa if algorithm != [0x05, 0x00] => {
                Err("its RSA public key has no NULL parameter")
            }
            KeyKind::Rsa => Self::of_rsa(key).ok_or("its RSA public key is not well-formed"),
            KeyKind::Ec => Self::of_ec(algorithm, key),
            KeyKind::Other(ED25519) if !algorithm.is_empty() || key.len() != 32 => {
                Err("its Ed25519 public key is not well-formed")
            }
            KeyKind::Other(kind) => Ok(Self::Other(kind)),
        }
    }

    fn of_rsa(key: &[u8]) -> Option<Self> {
        let mut key = der::only(key, SEQUENCE)?;
        let (modulus, exponent) = (der::next(&mut key, INTEGER)?, der::next(&mut key, INTEGER)?);
        key.is_empty().then(|| Self::rsa(modulus, exponent))?
    }

    /// From the bodies of two integers, of a certificate or of a private key.
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let negative = |digits: &[u8]| digits.first().is_none_or(|first| first & 0x80 != 0);
        if negative(modulus) || negative(exponent) {
            return None;
        }
        let exponent = der::without_leading_zeros(exponent)
            .iter()
            .try_fold(0u32, |n, digit| n.checked_mul(256)?.checked_add(u32::from(*digit)))?;
        // Go refuses 1 and what does not fit 31 bits; an even one is no RSA key at all.
        if exponent < 3 || exponent % 2 == 0 || exponent > i32::MAX as u32 {
            return None;
        }
        let modulus = der::without_leading_zeros(modulus).to_vec();
        Some(Self::Rsa { modulus, exponent })
    }

    fn of_ec(parameters: &[u8], point: &[u8]) -> Result<Self, &'static str> {
        let Some(identifier) = der::only(parameters, OBJECT_IDENTIFIER) else {
            return Err("its ECDSA public key does not name its curve");
        };
        match Curve::of(identifier) {
            Some(curve) if curve.has_point(point) => Ok(Self::Ec { curve, point: point.to_vec() }),
            Some(_) => Err("its ECDSA public key is not a point of its curve"),
            None => Ok(Self::OtherCurve(curve_name(identifier))),
        }
    }

    /// Why this key can't be served as the key of a leaf.
    pub(super) fn leaf_problem(&self, part: Part) -> Option<Problem> {
        match self {
            Self::Other(kind) => Some(Problem::KeyType { part, kind }),
            _ => self.chain_problem(part),
        }
    }

    /// Why this key can't stand in a chain: issuers may have kinds of keys that leaves may not.
    pub(super) fn chain_problem(&self, part: Part) -> Option<Problem> {
        match self {
            Self::Rsa { modulus, .. } => match der::bits(modulus) {
                bits if bits < *RSA_BITS.start() => Some(Problem::SmallRsaKey { part, bits }),
                bits if bits > *RSA_BITS.end() => Some(Problem::LargeRsaKey { part, bits }),
                _ => None,
            },
            Self::Ec { .. } | Self::Other(ED25519 | ED448 | RSA_PSS) => None,
            Self::OtherCurve(curve) => Some(Problem::Curve { part, curve }),
            // OpenSSL can't tell how strong it is, and HAProxy then refuses to start.
            Self::Other(kind) => Some(Problem::KeyType { part, kind }),
        }
    }
}
