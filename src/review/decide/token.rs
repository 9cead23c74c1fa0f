//! Reads a token of a ServiceAccount. Nothing is verified here.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::identity::{Identity, Style};
use crate::jose::jws::{Algorithm, Jws, NotJws};

/// In bytes.
pub const LONGEST: usize = 16 * 1024;
/// What kube-apiserver signs with.
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];
/// In seconds since 1970.
const LATEST: f64 = (1_u64 << 53) as f64;

/// Never quotes the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token has more than {LONGEST} bytes")]
    Long,
    /// Base64 has no space, so a token with one ends here, and not at a cluster that would skip it.
    #[error("the token is not three parts in base64 with JSON in the first two")]
    Form,
    #[error("the token's algorithm is none of RS256, ES256, ES384 and ES512")]
    Algorithm,
    #[error("the token's header demands an extension (\"crit\"), and none is known")]
    Critical,
    #[error("the token names no issuer")]
    NoIssuer,
    #[error("the token's claims are not those of a ServiceAccount")]
    Claims,
}

impl From<NotJws> for TokenError {
    fn from(_: NotJws) -> Self {
        Self::Form
    }
}

/// Was not verified yet. Has no Debug: it holds a token.
pub struct Token<'a> {
    pub(super) jws: Jws<'a>,
    pub(super) algorithm: Algorithm,
    /// As the header names it.
    pub(super) algorithm_name: String,
    pub kid: Option<String>,
    pub issuer: String,
    pub identity: Identity,
    /// None for a legacy token, which is for the API server.
    pub audiences: Option<Vec<String>>,
    /// None for a legacy token, which has no end.
    pub expires: Option<DateTime<Utc>>,
    pub issued: Option<DateTime<Utc>>,
}

impl<'a> Token<'a> {
    /// Keys and addresses of keys in the header are ignored: whoever makes a token can write them.
    pub fn read(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > LONGEST {
            return Err(TokenError::Long);
        }
        let jws = Jws::read(token)?;
        let name = jws.parameter("alg").filter(|it| ALGORITHMS.contains(it));
        let algorithm = jws.algorithm().filter(|_| name.is_some());
        let (algorithm, name) = algorithm.zip(name).ok_or(TokenError::Algorithm)?;
        if jws.header.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let kid = match jws.header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or(TokenError::Form)?.to_owned()),
        };
        let issuer = jws.claims.get("iss").and_then(Value::as_str).ok_or(TokenError::NoIssuer)?;
        let identity = Identity::of(&jws.claims).ok_or(TokenError::Claims)?;
        let audiences = match jws.claims.get("aud") {
            None => None,
            Some(aud) => Some(texts(aud).ok_or(TokenError::Claims)?),
        };
        let expires = time(&jws, "exp")?;
        // Such a token is good for the API server, and for ever. Others must say for whom and how long.
        let is_legacy = identity.style == Style::Legacy;
        if !is_legacy && (audiences.is_none() || expires.is_none()) {
            return Err(TokenError::Claims);
        }
        Ok(Self {
            algorithm,
            algorithm_name: name.to_owned(),
            kid,
            issuer: issuer.to_owned(),
            identity,
            audiences,
            expires,
            issued: time(&jws, "iat")?,
            jws,
        })
    }
}

/// One text, or a list of them.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(only) => Some(vec![only.clone()]),
        Value::Array(all) => all.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// A claim that is a number of seconds since 1970, without their fraction.
fn time(jws: &Jws<'_>, claim: &str) -> Result<Option<DateTime<Utc>>, TokenError> {
    let Some(value) = jws.claims.get(claim) else { return Ok(None) };
    let seconds = value.as_f64().filter(|it| it.abs() < LATEST).ok_or(TokenError::Claims)?;
    // Fractions are cut off, as in Kubernetes.
    #[allow(clippy::cast_possible_truncation)]
    let at = DateTime::from_timestamp(seconds as i64, 0);
    at.ok_or(TokenError::Claims).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::testing::{Issuer, claims, token_of},
        *,
    };

    fn error(header: Value, claims: &Value) -> Option<TokenError> {
        Token::read(&token_of(&header, claims, b"signature")).err()
    }

    #[test]
    fn a_token_is_read_with_its_claims() {
        let issuer = Issuer::p256("one");
        let text = issuer.token(&claims());
        let token = Token::read(&text).ok().unwrap();
        assert_eq!(token.kid.as_deref(), Some("one"));
        assert_eq!(token.issuer, "https://kubernetes.default.svc");
        assert_eq!(token.audiences, Some(vec!["shop".to_owned(), "till".to_owned()]));
        assert_eq!(token.expires.unwrap().timestamp(), 1_900_003_600);
        assert_eq!(token.issued.unwrap().timestamp(), 1_900_000_000);
    }

    #[test]
    fn whitespace_and_control_characters_are_refused_wherever_they_are() {
        let text = Issuer::p256("one").token(&claims());
        for odd in [' ', '\t', '\n', '\r', '\0', '\u{7f}', '\u{a0}', '=', '+', '/'] {
            let middle = text.len() / 2;
            for at in [0, 1, middle, text.len()] {
                let mut other = text.clone();
                other.insert(at, odd);
                assert_eq!(Token::read(&other).err(), Some(TokenError::Form), "{odd:?} at {at}");
            }
        }
    }

    #[test]
    fn what_is_not_a_token_of_an_account_is_refused() {
        let header = json!({ "alg": "ES256", "kid": "one" });
        for text in ["a", "a.b", "e30.e30", "e30.e30.e30.e30", "..", "e30.W10.AA"] {
            assert_eq!(Token::read(text).err(), Some(TokenError::Form), "{text}");
        }
        for alg in ["none", "None", "HS256", "PS256", "RS512", "es256", "EdDSA", ""] {
            let found = error(json!({ "alg": alg }), &claims());
            assert_eq!(found, Some(TokenError::Algorithm), "{alg}");
        }
        assert_eq!(error(json!({}), &claims()), Some(TokenError::Algorithm));
        let critical = json!({ "alg": "ES256", "crit": ["b64"], "b64": false });
        assert_eq!(error(critical, &claims()), Some(TokenError::Critical));
        assert_eq!(error(json!({ "alg": "ES256", "kid": 1 }), &claims()), Some(TokenError::Form));
        let without = |claim: &str| {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove(claim);
            error(header.clone(), &claims)
        };
        assert_eq!(without("iss"), Some(TokenError::NoIssuer));
        for claim in ["sub", "aud", "exp", "kubernetes.io"] {
            assert_eq!(without(claim), Some(TokenError::Claims), "{claim}");
        }
        assert_eq!(without("iat"), None);
        for exp in [json!("soon"), json!(1e300), json!(null), json!([1])] {
            let mut claims = claims();
            claims["exp"] = exp.clone();
            assert_eq!(error(header.clone(), &claims), Some(TokenError::Claims), "{exp}");
        }
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(Token::read(&long).err(), Some(TokenError::Long));
    }

    #[test]
    fn keys_in_the_header_are_ignored() {
        let thief = json!({
            "alg": "ES256", "kid": "one", "jku": "https://thief.test/keys", "x5u": "https://thief.test",
            "jwk": Issuer::p256("thief").jwk(), "x5c": ["AAAA"],
        });
        assert_eq!(error(thief, &claims()), None);
    }
}
