//! Compact JWS: a header, claims, and a signature over both.

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, general_purpose},
};
use serde_json::Value;

/// Like Go, ignores the unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    general_purpose::NO_PAD.with_decode_allow_trailing_bits(true),
);

/// Not verified yet. Has no Debug: it holds a token.
pub(super) struct Jws<'a> {
    pub header: Value,
    pub claims: Value,
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// None if it is none.
    pub fn read(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |part: &str| {
            let value: Value = serde_json::from_slice(&BASE64.decode(part).ok()?).ok()?;
            value.is_object().then_some(value)
        };
        let (header, claims) = (object(header)?, object(claims)?);
        Some(Self { header, claims, signed, signature: BASE64.decode(signature).ok()? })
    }
}

/// Header and claims as they are signed.
pub(super) fn to_sign(header: &Value, claims: &[u8]) -> String {
    let header = BASE64.encode(header.to_string());
    format!("{header}.{}", BASE64.encode(claims))
}

pub(super) fn signed(message: &str, signature: &[u8]) -> String {
    format!("{message}.{}", BASE64.encode(signature))
}
