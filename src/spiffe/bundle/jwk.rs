//! One key of a bundle document.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::Value;

use super::{Authority, Flaw, document::is_alias};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkFlaw {
    #[error("is not an object")]
    NotObject,
    #[error("has a certificate (\"x5c\") that is not base64")]
    NotBase64,
    #[error("has a certificate that {0}")]
    Certificate(#[from] Flaw),
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

    fn bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
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
            (Some("EC" | "RSA" | "OKP"), Some("x509-svid")) => authority(key),
            (Some("EC"), Some("jwt-svid")) => jwt(key, elliptic(key)),
            (Some("RSA"), Some("jwt-svid")) => jwt(key, rsa(key).map(Some)),
            // JWT-SVIDs are signed with no other type.
            _ => Ok(Self::PassedOver),
        }
    }
}

/// Only the first certificate counts.
fn authority(key: &Value) -> Result<Jwk, JwkFlaw> {
    let Some(first) = key["x5c"].as_array().and_then(|chain| chain.first()) else {
        return Ok(Jwk::PassedOver);
    };
    let text = first.as_str().ok_or(JwkFlaw::NotBase64)?;
    let der = STANDARD.decode(text).map_err(|_| JwkFlaw::NotBase64)?;
    Ok(Jwk::X509(Authority::read(der)?))
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
    Ok(Some(PublicKey::Ec { curve, x: coordinate("x")?, y: coordinate("y")? }))
}

fn rsa(key: &Value) -> Result<PublicKey, JwkFlaw> {
    let without_zeros = |name: &str| {
        let number = number(key, name)?;
        let first = number.iter().position(|&byte| byte != 0)?;
        Some(number[first..].to_vec())
    };
    match (without_zeros("n"), without_zeros("e")) {
        (Some(n), Some(e)) => Ok(PublicKey::Rsa { n, e }),
        _ => Err(JwkFlaw::Numbers),
    }
}

fn number(key: &Value, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(key[name].as_str()?).ok()
}
