//! Tokens of ServiceAccounts: issued, and reviewed as kube-apiserver does it. The store and the time
//! are arguments. A token ends with its account, and with the Secret that it is bound to.

mod claims;
mod jws;
mod keys;
#[cfg(test)]
mod tests;
mod user;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

pub use self::keys::{KeyError, Publication};
pub(crate) use self::user::User;
use self::{
    claims::{Bound, Claims, Named},
    jws::Jws,
    keys::{ALGORITHM, Keys},
};
use crate::{kinds::text, store::Store};

/// How a server issues tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// In all of its tokens. Several servers may have the same.
    pub issuer: String,
    /// The server's own audiences; the issuer if there are none.
    pub audiences: Vec<String>,
    /// As the discovery document has it; `/openid/v1/jwks` of the issuer if none.
    pub jwks_uri: Option<String>,
    /// Tokens that are to live longer are shortened, as clouds do.
    pub longest_life: Option<Duration>,
}

impl Default for TokenOptions {
    fn default() -> Self {
        Self {
            issuer: "https://kubernetes.default.svc".to_owned(),
            audiences: Vec::new(),
            jwks_uri: None,
            longest_life: None,
        }
    }
}

/// Keys and options of a server. Has no Debug: it holds private keys.
#[derive(Default)]
pub(crate) struct Tokens {
    pub options: TokenOptions,
    keys: Keys,
}

/// What a new token is for.
pub(crate) struct Grant<'a> {
    pub namespace: &'a str,
    pub account: &'a Value,
    pub secret: Option<&'a Value>,
    pub audiences: Vec<String>,
    pub seconds: i64,
    pub id: String,
}

/// A token that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub user: User,
    pub audiences: Vec<String>,
}

/// Why a token is none, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("invalid bearer token")]
    NotOurs,
    #[error("[invalid bearer token, invalid signature, no keys found]")]
    UnknownKey,
    #[error("[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]")]
    Forged,
    #[error(
        "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
        quoted(.0), quoted(.1)
    )]
    OtherAudience(Vec<String>, Vec<String>),
    #[error("[invalid bearer token, service account token has expired]")]
    Expired,
    #[error("[invalid bearer token, service account token is not valid yet]")]
    NotYet,
    #[error("[invalid bearer token, service account token is issued in the future]")]
    FromTheFuture,
    #[error("[invalid bearer token, serviceaccounts {0:?} not found]")]
    NoAccount(String),
    #[error("[invalid bearer token, service account UID ({0}) does not match claim ({1})]")]
    OtherAccount(String, String),
    #[error("[invalid bearer token, service account {0}/{1} has been deleted]")]
    DeletedAccount(String, String),
    #[error("[invalid bearer token, service account token has been invalidated]")]
    Invalidated,
    #[error(
        "[invalid bearer token, secret UID ({0}) does not match service account secret ref claim ({1})]"
    )]
    OtherSecret(String, String),
}

/// A list as Go prints it with %q.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

impl Tokens {
    /// The server's own audiences.
    pub fn audiences(&self) -> Vec<String> {
        match self.options.audiences.as_slice() {
            [] => vec![self.options.issuer.clone()],
            audiences => audiences.to_vec(),
        }
    }

    pub fn keys(&mut self) -> &mut Keys {
        &mut self.keys
    }

    /// The signed token.
    pub fn issue(&mut self, grant: Grant<'_>, now: DateTime<Utc>) -> Result<String, KeyError> {
        let account = Named::of(grant.account);
        let now = now.timestamp();
        let claims = Claims {
            audiences: grant.audiences,
            expires: now + grant.seconds,
            issued: now,
            issuer: self.options.issuer.clone(),
            id: grant.id,
            subject: user::account_name(grant.namespace, &account.name),
            bound: Bound {
                namespace: grant.namespace.to_owned(),
                secret: grant.secret.map(Named::of),
                account,
            },
            not_before: now,
        };
        let header = json!({ "alg": ALGORITHM, "kid": self.keys.signing_id()? });
        let claims = serde_json::to_vec(&claims).map_err(|_| KeyError)?;
        let message = jws::to_sign(&header, &claims);
        let signature = self.keys.sign(&message)?;
        Ok(jws::signed(&message, &signature))
    }

    /// Whose token it is. It must be for one of the audiences.
    pub fn review(
        &self,
        token: &str,
        audiences: &[String],
        store: &Store,
        now: DateTime<Utc>,
    ) -> Result<Accepted, Refusal> {
        let token = Jws::read(token).ok_or(Refusal::NotOurs)?;
        if text(&token.claims, &["iss"]) != self.options.issuer {
            return Err(Refusal::NotOurs);
        }
        let id = Some(text(&token.header, &["kid"])).filter(|id| !id.is_empty());
        let verified = self.keys.verify(id, token.signed, &token.signature);
        let verified = verified.ok_or(Refusal::UnknownKey)?;
        let is_plain = text(&token.header, &["alg"]) == ALGORITHM;
        if !verified || !is_plain || token.header.get("crit").is_some() {
            return Err(Refusal::Forged);
        }
        // We signed it, so it reads well.
        let claims =
            serde_json::from_value::<Claims>(token.claims).map_err(|_| Refusal::NotOurs)?;
        let both = audiences.iter().filter(|it| claims.audiences.contains(it)).cloned();
        let both: Vec<String> = both.collect();
        if both.is_empty() {
            return Err(Refusal::OtherAudience(claims.audiences, audiences.to_vec()));
        }
        Ok(Accepted { user: claims.check(store, now)?, audiences: both })
    }

    /// The OpenID discovery document.
    pub fn configuration(&self) -> Value {
        let issuer = &self.options.issuer;
        let keys = self.options.jwks_uri.clone();
        json!({
            "issuer": issuer,
            "jwks_uri": keys.unwrap_or_else(|| format!("{issuer}/openid/v1/jwks")),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        })
    }
}
