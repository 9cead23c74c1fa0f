//! One key of a bundle document.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Authority, Certificate, Flaw, document::is_alias};
use crate::{
    jose::jwk::{Curve, Malformed, PublicKey, number, without_zeros},
    spiffe::certificate::CertificateKey,
};

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
            (Some("EC" | "RSA"), Some("jwt-svid")) => jwt(key, PublicKey::read(key)),
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

fn jwt(key: &Value, public: Result<Option<PublicKey>, Malformed>) -> Result<Jwk, JwkFlaw> {
    let kid = key["kid"].as_str().filter(|kid| !kid.is_empty()).ok_or(JwkFlaw::NoKid)?;
    Ok(match public.map_err(|_| JwkFlaw::Numbers)? {
        Some(key) => Jwk::Jwt(JwtKey { kid: kid.to_owned(), key }),
        None => Jwk::PassedOver,
    })
}
