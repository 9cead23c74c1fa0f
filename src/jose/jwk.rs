//! Public keys as JSON has them (RFC 7517, RFC 7518).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    VerificationAlgorithm,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// A number of the key is missing or not well-formed, or a point is not on its curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has numbers that are missing or not well-formed")]
pub struct Malformed;

/// Numbers are big-endian.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublicKey {
    /// Both numbers have the curve's length.
    Ec { curve: Curve, x: Vec<u8>, y: Vec<u8> },
    /// Without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl PublicKey {
    /// None for a type or curve that signs no token.
    pub fn read(key: &Value) -> Result<Option<Self>, Malformed> {
        match key["kty"].as_str() {
            Some("EC") => elliptic(key),
            Some("RSA") => rsa(key).map(Some),
            _ => Ok(None),
        }
    }

    pub fn parts(&self) -> [&[u8]; 3] {
        match self {
            Self::Ec { curve, x, y } => [curve.name().as_bytes(), x, y],
            Self::Rsa { n, e } => [b"RSA", n, e],
        }
    }
}

/// The curves of keys that sign tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub fn of_length(bytes: usize) -> Option<Self> {
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

/// None for an unknown curve.
fn elliptic(key: &Value) -> Result<Option<PublicKey>, Malformed> {
    let name = key["crv"].as_str().ok_or(Malformed)?;
    let Some(curve) = Curve::ALL.into_iter().find(|curve| curve.name() == name) else {
        return Ok(None);
    };
    let coordinate = |name: &str| {
        number(key, name).filter(|number| number.len() == curve.bytes()).ok_or(Malformed)
    };
    let (x, y) = (coordinate("x")?, coordinate("y")?);
    match curve.has_point(&x, &y) {
        true => Ok(Some(PublicKey::Ec { curve, x, y })),
        false => Err(Malformed),
    }
}

fn rsa(key: &Value) -> Result<PublicKey, Malformed> {
    let positive = |name: &str| {
        let number = number(key, name).ok_or(Malformed)?;
        match without_zeros(&number) {
            [] => Err(Malformed),
            digits => Ok(digits.to_vec()),
        }
    };
    Ok(PublicKey::Rsa { n: positive("n")?, e: positive("e")? })
}

pub fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|&byte| byte != 0);
    &number[first.unwrap_or(number.len())..]
}

/// A member that is a number in base64.
pub fn number(key: &Value, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(key[name].as_str()?).ok()
}
