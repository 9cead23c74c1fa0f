//! One key of a bundle document.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    VerificationAlgorithm,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::Value;

use super::{Authority, Certificate, Flaw, document::is_alias};
use crate::spiffe::certificate::CertificateKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkFlaw {
    #[error("is not an object")]
    NotObject,
    #[error("has a certificate (\"x5c\") that is not base64")]
    NotBase64,
    #[error("has a certificate that {0}")]
    Certificate(#[from] Flaw),
    #[error("has a certificate for another key than its other members say")]
    OtherKey,
    /// RFC 7518 requires them, and readers in Go refuse the whole bundle without them.
    #[error(
        "has a certificate without the members of its key (crv, x, y or n, e), so that SPIRE refuses the bundle"
    )]
    NoMembers,
    #[error("is for JWT-SVIDs and has no \"kid\"")]
    NoKid,
    #[error("is for JWT-SVIDs, and its numbers are missing or not well-formed")]
    Numbers,
}

/// Verifies JWT-SVIDs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JwtKey {
    pub kid: String,
    key: PublicKey,
}

impl JwtKey {
    pub fn key(&self) -> &PublicKey {
        &self.key
    }
}

/// Numbers are big-endian.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublicKey {
    /// Both numbers have the curve's length.
    Ec { curve: Curve, x: Vec<u8>, y: Vec<u8> },
    /// Without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl PublicKey {
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        match self {
            Self::Ec { curve, x, y } => [curve.name().as_bytes(), x, y],
            Self::Rsa { n, e } => [b"RSA", n, e],
        }
    }
}

/// The curves that JWT-SVIDs may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    /// As in a JWK.
    pub fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    /// The curve whose coordinates have so many bytes.
    pub(super) fn of_length(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|curve| curve.bytes() == bytes)
    }

    fn bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn has_point(self, x: &[u8], y: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1,
            Self::P384 => &ECDSA_P384_SHA384_ASN1,
            Self::P521 => &ECDSA_P521_SHA512_ASN1,
        };
        // Uncompressed: both coordinates follow.
        ParsedPublicKey::new(algorithm, [&[4], x, y].concat()).is_ok()
    }
}

pub(super) enum Jwk {
    X509(Authority),
    Jwt(JwtKey),
    /// Its type or use is unknown, or it holds nothing to use.
    PassedOver,
}

/// The known members of a key.
const MEMBERS: [&str; 9] = ["kty", "use", "kid", "crv", "x", "y", "n", "e", "x5c"];

/// Whether another parser takes an unknown member for a known one.
pub(super) fn is_ambiguous(key: &Value) -> bool {
    key.as_object().is_some_and(|key| key.keys().any(|name| is_alias(name, &MEMBERS)))
}

impl Jwk {
    /// `use` is case-sensitive, as are all names of a JWK.
    pub(super) fn read(key: &Value) -> Result<Self, JwkFlaw> {
        if !key.is_object() {
            return Err(JwkFlaw::NotObject);
        }
        match (key["kty"].as_str(), key["use"].as_str()) {
            (Some(kty @ ("EC" | "RSA" | "OKP")), Some("x509-svid")) => authority(key, kty),
            (Some("EC"), Some("jwt-svid")) => jwt(key, elliptic(key)),
            (Some("RSA"), Some("jwt-svid")) => jwt(key, rsa(key).map(Some)),
            // JWT-SVIDs are signed with no other type.
            _ => Ok(Self::PassedOver),
        }
    }
}

/// Only the first certificate counts.
fn authority(key: &Value, kty: &str) -> Result<Jwk, JwkFlaw> {
    let first = match &key["x5c"] {
        Value::Null => None,
        Value::Array(chain) => chain.first(),
        _ => return Err(JwkFlaw::NotBase64),
    };
    let Some(first) = first else {
        return Ok(Jwk::PassedOver);
    };
    let text = first.as_str().ok_or(JwkFlaw::NotBase64)?;
    let der = STANDARD.decode(text).map_err(|_| JwkFlaw::NotBase64)?;
    let authority = Authority::read(der)?;
    match Certificate::read(authority.der())?.key() {
        // Nobody could verify an SVID with it.
        CertificateKey::Other => Ok(Jwk::PassedOver),
        _ if members_of(kty).iter().any(|name| key[*name].is_null()) => Err(JwkFlaw::NoMembers),
        of_certificate if is_described(key, kty, &of_certificate) => Ok(Jwk::X509(authority)),
        _ => Err(JwkFlaw::OtherKey),
    }
}

/// The members that a key of this type must have.
fn members_of(kty: &str) -> &'static [&'static str] {
    match kty {
        "EC" => &["crv", "x", "y"],
        "RSA" => &["n", "e"],
        _ => &["crv", "x"],
    }
}

/// Whether the members of a key are those of its certificate's key, as RFC 7517 (4.7) demands.
fn is_described(key: &Value, kty: &str, of_certificate: &CertificateKey<'_>) -> bool {
    let is_number =
        |name: &str, expected: &[u8]| number(key, name).is_some_and(|number| number == expected);
    // Of any length.
    let is_integer = |name: &str, expected: &[u8]| {
        number(key, name).is_some_and(|it| without_zeros(&it) == without_zeros(expected))
    };
    match (kty, of_certificate) {
        ("EC", CertificateKey::Ec { x, y }) => {
            let curve = Curve::of_length(x.len());
            curve.is_some_and(|curve| key["crv"] == *curve.name())
                && is_number("x", x)
                && is_number("y", y)
        }
        ("RSA", CertificateKey::Rsa { n, e }) => is_integer("n", n) && is_integer("e", e),
        ("OKP", CertificateKey::Ed25519(x)) => key["crv"] == *"Ed25519" && is_number("x", x),
        _ => false,
    }
}

fn jwt(key: &Value, public: Result<Option<PublicKey>, JwkFlaw>) -> Result<Jwk, JwkFlaw> {
    let kid = key["kid"].as_str().filter(|kid| !kid.is_empty()).ok_or(JwkFlaw::NoKid)?;
    Ok(match public? {
        Some(key) => Jwk::Jwt(JwtKey { kid: kid.to_owned(), key }),
        None => Jwk::PassedOver,
    })
}

/// None for an unknown curve.
fn elliptic(key: &Value) -> Result<Option<PublicKey>, JwkFlaw> {
    let name = key["crv"].as_str().ok_or(JwkFlaw::Numbers)?;
    let Some(curve) = Curve::ALL.into_iter().find(|curve| curve.name() == name) else {
        return Ok(None);
    };
    let coordinate = |name: &str| {
        number(key, name).filter(|number| number.len() == curve.bytes()).ok_or(JwkFlaw::Numbers)
    };
    let (x, y) = (coordinate("x")?, coordinate("y")?);
    match curve.has_point(&x, &y) {
        true => Ok(Some(PublicKey::Ec { curve, x, y })),
        false => Err(JwkFlaw::Numbers),
    }
}

fn rsa(key: &Value) -> Result<PublicKey, JwkFlaw> {
    let positive = |name: &str| {
        let number = number(key, name).ok_or(JwkFlaw::Numbers)?;
        match without_zeros(&number) {
            [] => Err(JwkFlaw::Numbers),
            digits => Ok(digits.to_vec()),
        }
    };
    Ok(PublicKey::Rsa { n: positive("n")?, e: positive("e")? })
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|&byte| byte != 0);
    &number[first.unwrap_or(number.len())..]
}

fn number(key: &Value, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(key[name].as_str()?).ok()
}
