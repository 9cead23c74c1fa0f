//! Our own token for a remote cluster.

use std::fmt;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use super::token::{Token, TokenError};
use crate::runtime::redact::BearerToken;

/// The time that a credential is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub issued: DateTime<Utc>,
    pub expires: DateTime<Utc>,
}

impl Life {
    pub fn length(self) -> TimeDelta {
        self.expires - self.issued
    }
}

/// A ServiceAccount of the remote cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

impl Account {
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A token, and what it says of itself. Its signature is for its cluster to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub token: BearerToken,
    pub account: Account,
    pub issuer: String,
    pub life: Life,
}

impl Credential {
    /// The text may end with a newline, as files do.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let token = Token::read(text)?;
        let identity = token.identity;
        // They become part of a path.
        if ![&identity.namespace, &identity.account].iter().all(|it| is_name(it)) {
            return Err(TokenError::Claims);
        }
        Ok(Self {
            account: Account { namespace: identity.namespace, name: identity.account },
            issuer: token.issuer,
            life: Life {
                issued: token.issued.unwrap_or(DateTime::UNIX_EPOCH),
                // A legacy token has no end, which is longer than anybody asks for.
                expires: token.expires.unwrap_or(DateTime::<Utc>::MAX_UTC),
            },
            token: BearerToken::new(text),
        })
    }

    /// As the server says when it grants a token. Some are told an earlier end than their claims have.
    pub fn ending(mut self, told: DateTime<Utc>) -> Self {
        self.life.expires = self.life.expires.min(told.trunc_subsecs(0));
        self
    }

    pub fn has_ended(&self, now: DateTime<Utc>) -> bool {
        self.life.expires <= now
    }
}

fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_inner) && text.chars().all(|c| is_inner(c) || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::{
        super::testing::{Issuer, claims, legacy_claims, noon},
        *,
    };

    #[test]
    fn a_file_may_end_with_a_newline() {
        let token = Issuer::p256("a").token(&claims());
        let read = Credential::read(&format!("{token}\r\n")).unwrap();
        assert_eq!(read.token.expose(), token);
        assert_eq!(read.account.to_string(), "shop/cart");
        assert_eq!(read.account.username(), "system:serviceaccount:shop:cart");
        assert_eq!(read.life, Life { issued: noon(), expires: noon() + TimeDelta::hours(1) });
        assert!(!format!("{read:?}").contains(&token));
    }

    #[test]
    fn what_is_no_token_of_an_account_is_none_of_ours() {
        for text in ["", "\n", "opaque", "a b"] {
            assert_eq!(Credential::read(text), Err(TokenError::Form), "{text}");
        }
    }

    #[test]
    fn an_account_whose_name_leads_elsewhere_is_none() {
        for name in ["../secrets", "a/b", "a?b", "a#b", "a%2fb", "A", ".."] {
            let mut claims = claims();
            claims["sub"] = format!("system:serviceaccount:shop:{name}").into();
            claims["kubernetes.io"]["serviceaccount"]["name"] = name.into();
            let token = Issuer::p256("a").token(&claims);
            assert_eq!(Credential::read(&token), Err(TokenError::Claims), "{name}");
        }
    }

    #[test]
    fn a_token_without_an_end_is_older_than_any_and_ends_never() {
        let token = Issuer::rsa("a").token(&legacy_claims());
        let life = Credential::read(&token).unwrap().life;
        assert!(life.issued < noon() && life.expires > noon() + TimeDelta::days(100_000));
    }

    #[test]
    fn the_earlier_end_counts() {
        let read = || Credential::read(&Issuer::p256("a").token(&claims())).unwrap();
        let (minute, hour) = (TimeDelta::minutes(1), TimeDelta::hours(1));
        assert_eq!(read().ending(noon() + minute).life.expires, noon() + minute);
        assert_eq!(read().ending(noon() + hour * 2).life.expires, noon() + hour);
    }
}
