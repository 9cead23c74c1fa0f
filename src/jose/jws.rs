//! Compact JWS (RFC 7515): a header, claims, and a signature over both.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{
    json::Unique,
    jwk::{Curve, PublicKey},
};

/// The text is not three parts in base64 with a JSON object in the first two, or one of them has a member twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a compact JWS")]
pub struct NotJws;

/// Was not verified yet. Has no Debug: it holds a token.
pub struct Jws<'a> {
    pub header: Map<String, Value>,
    pub claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    pub fn read(token: &'a str) -> Result<Self, NotJws> {
        let (signed, signature) = token.rsplit_once('.').ok_or(NotJws)?;
        let (header, claims) = signed.split_once('.').ok_or(NotJws)?;
        let (header, claims) = (object(header)?, object(claims)?);
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NotJws)?;
        Ok(Self { header, claims, signed, signature })
    }

    /// A member of the header that is text.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.header.get(name).and_then(Value::as_str)
    }

    /// None if it is missing or not known. "none" and those with a shared secret are not known.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.parameter("alg").and_then(Algorithm::named)
    }

    pub fn is_signed_by(&self, key: &PublicKey, algorithm: Algorithm) -> bool {
        let (message, signature) = (self.signed.as_bytes(), &self.signature);
        match (algorithm.0, key) {
            (Kind::Ec(expected, algorithm), PublicKey::Ec { curve, x, y })
                if *curve == expected =>
            {
                let point = [&[4], &x[..], &y[..]].concat();
                UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
            }
            (Kind::Rsa(parameters), PublicKey::Rsa { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy)]
pub struct Algorithm(Kind);

#[derive(Clone, Copy)]
enum Kind {
    Ec(Curve, &'static dyn VerificationAlgorithm),
    Rsa(&'static RsaParameters),
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        Some(Self(match name {
            "ES256" => Kind::Ec(Curve::P256, &ECDSA_P256_SHA256_FIXED),
            "ES384" => Kind::Ec(Curve::P384, &ECDSA_P384_SHA384_FIXED),
            "ES512" => Kind::Ec(Curve::P521, &ECDSA_P521_SHA512_FIXED),
            "RS256" => Kind::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Kind::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Kind::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Kind::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => Kind::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => Kind::Rsa(&RSA_PSS_2048_8192_SHA512),
            _ => return None,
        }))
    }
}

fn object(part: &str) -> Result<Map<String, Value>, NotJws> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| NotJws)?;
    match serde_json::from_slice(&json) {
        Ok(Unique(Value::Object(members))) => Ok(members),
        _ => Err(NotJws),
    }
}
