//! Whether a JWT-SVID proves a SPIFFE ID.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::{
    bundle::Bundle,
    id::{IdError, SpiffeId, TrustDomain},
};
use crate::jose::jws::{Jws, NotJws};

/// In bytes.
const LONGEST: usize = 16 * 1024;
/// Header parameters that say how to verify, or bring something to verify with. JWT-SVIDs have none of them.
const NOT_TAKEN: [&str; 5] = ["b64", "crit", "jwk", "nonce", "x5c"];
/// In seconds. Clocks differ, and issuers write when they signed.
const LEEWAY: f64 = 60.0;
/// In seconds since 1970. Other readers overflow beyond it.
const LATEST: f64 = (1_u64 << 62) as f64;

/// Never quotes the token, which is a secret while it is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    #[error("the JWT-SVID has more than {LONGEST} bytes")]
    Long,
    #[error(
        "not a JWT-SVID: it is not three parts in base64 with JSON in the first two, or that has a member twice"
    )]
    Form,
    #[error("the JWT-SVID's type (\"typ\") is neither JWT nor JOSE")]
    Type,
    #[error("the JWT-SVID's algorithm (\"alg\") is none of RS, PS and ES with 256, 384 and 512")]
    Algorithm,
    #[error("the JWT-SVID has header parameters that are not taken: b64, crit, jwk, nonce or x5c")]
    Parameter,
    #[error("the JWT-SVID does not name its key (\"kid\")")]
    NoKid,
    #[error("the JWT-SVID's subject is no SPIFFE ID: {0}")]
    Subject(#[from] IdError),
    #[error("the JWT-SVID has no subject")]
    NoSubject,
    #[error("the JWT-SVID is not for this audience")]
    Audience,
    #[error("the JWT-SVID has no expiry, or it is not a number")]
    NoExpiry,
    #[error("the JWT-SVID has expired")]
    Expired,
    #[error("the JWT-SVID is not valid yet: do the clocks agree?")]
    NotYetValid,
    #[error("the JWT-SVID was issued in the future: do the clocks agree?")]
    IssuedLater,
    #[error("the JWT-SVID's issuer (\"iss\") or its own name (\"jti\") is no text")]
    NoText,
    #[error("the trust domain {0} is not trusted")]
    NoBundle(TrustDomain),
    #[error("the bundle of {0} has no key of the name that the JWT-SVID says")]
    NoKey(TrustDomain),
    #[error("the JWT-SVID's signature is not valid")]
    Signature,
}

impl From<NotJws> for JwtError {
    fn from(_: NotJws) -> Self {
        Self::Form
    }
}

/// A JWT-SVID that was verified.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtSvid {
    pub id: SpiffeId,
    pub claims: Map<String, Value>,
}

/// Verifies a JWT-SVID for this audience with the bundle of its subject's trust domain.
pub fn verify<'a>(
    token: &str,
    audience: &str,
    bundle_of: impl FnOnce(&TrustDomain) -> Option<&'a Bundle>,
    now: DateTime<Utc>,
) -> Result<JwtSvid, JwtError> {
    if token.len() > LONGEST {
        return Err(JwtError::Long);
    }
    let token = Jws::read(token)?;
    let claims = &token.claims;
    if token.header.get("typ").is_some_and(|it| *it != "JWT" && *it != "JOSE") {
        return Err(JwtError::Type);
    }
    if NOT_TAKEN.iter().any(|it| token.header.contains_key(*it)) {
        return Err(JwtError::Parameter);
    }
    let algorithm = token.algorithm().ok_or(JwtError::Algorithm)?;
    let kid = token.parameter("kid").ok_or(JwtError::NoKid)?;
    let subject = claims.get("sub").and_then(Value::as_str).ok_or(JwtError::NoSubject)?;
    let id = SpiffeId::parse(subject)?;
    let trust_domain = id.trust_domain();
    let bundle = bundle_of(trust_domain).ok_or_else(|| JwtError::NoBundle(trust_domain.clone()))?;
    let mut keys = bundle.jwt.iter().filter(|key| key.kid == kid).peekable();
    keys.peek().ok_or_else(|| JwtError::NoKey(trust_domain.clone()))?;
    if !keys.any(|key| token.is_signed_by(key.key(), algorithm)) {
        return Err(JwtError::Signature);
    }
    check_claims(claims, audience, now)?;
    Ok(JwtSvid { id, claims: token.claims })
}

fn check_claims(
    claims: &Map<String, Value>,
    audience: &str,
    now: DateTime<Utc>,
) -> Result<(), JwtError> {
    let is_meant = match claims.get("aud") {
        Some(Value::String(only)) => only == audience,
        Some(Value::Array(all)) if all.iter().all(Value::is_string) => {
            all.iter().any(|it| it == audience)
        }
        _ => false,
    };
    if !is_meant {
        return Err(JwtError::Audience);
    }
    let number = |it: &Value| it.as_f64().filter(|it| it.abs() < LATEST);
    let seconds = |claim: &str| claims.get(claim).map(number);
    let now = now.timestamp() as f64;
    match seconds("exp").flatten() {
        None => return Err(JwtError::NoExpiry),
        Some(end) if now >= end => return Err(JwtError::Expired),
        Some(_) => {}
    }
    if seconds("nbf").is_some_and(|start| start.is_none_or(|start| now < start)) {
        return Err(JwtError::NotYetValid);
    }
    if seconds("iat").is_some_and(|at| at.is_none_or(|at| now + LEEWAY < at)) {
        return Err(JwtError::IssuedLater);
    }
    match ["iss", "jti"].iter().filter_map(|it| claims.get(*it)).all(Value::is_string) {
        true => Ok(()),
        false => Err(JwtError::NoText),
    }
}

#[cfg(test)]
mod tests;
