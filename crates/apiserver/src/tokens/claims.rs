//! What a token says, and whether that is still so.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Refusal, user::User};
use crate::{
    kinds::{self, Kind, text},
    store::Store,
};

/// Clocks may differ by this.
const LEEWAY: TimeDelta = TimeDelta::minutes(1);

/// In the order of their names, as Kubernetes writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    #[serde(rename = "aud")]
    pub audiences: Vec<String>,
    #[serde(rename = "exp")]
    pub expires: i64,
    #[serde(rename = "iat")]
    pub issued: i64,
    #[serde(rename = "iss")]
    pub issuer: String,
    #[serde(rename = "jti")]
    pub id: String,
    #[serde(rename = "kubernetes.io")]
    pub bound: Bound,
    #[serde(rename = "nbf")]
    pub not_before: i64,
    #[serde(rename = "sub")]
    pub subject: String,
}

/// The objects without which the token ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Named>,
    #[serde(rename = "serviceaccount")]
    pub account: Named,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub name: String,
    pub uid: String,
}

impl Named {
    pub fn of(object: &Value) -> Self {
        let field = |name| text(object, &["metadata", name]).to_owned();
        Self { name: field("name"), uid: field("uid") }
    }
}

impl Claims {
    /// Whose token it is, if it has not ended.
    pub fn check(&self, store: &Store, now: DateTime<Utc>) -> Result<User, Refusal> {
        self.check_times(now)?;
        let Bound { namespace, secret, account } = &self.bound;
        let found = self.find(store, kinds::service_account(), account);
        let found = found.ok_or_else(|| Refusal::NoAccount(account.name.clone()))?;
        check_uid(found, account)
            .map_err(|actual| Refusal::OtherAccount(actual, account.uid.clone()))?;
        if is_gone(found, now) {
            return Err(Refusal::DeletedAccount(namespace.clone(), account.name.clone()));
        }
        if let Some(secret) = secret {
            let found = self.find(store, kinds::secret(), secret).ok_or(Refusal::Invalidated)?;
            check_uid(found, secret)
                .map_err(|actual| Refusal::OtherSecret(actual, secret.uid.clone()))?;
            if is_gone(found, now) {
                return Err(Refusal::Invalidated);
            }
        }
        Ok(User::account(namespace, account, &self.id))
    }

    fn check_times(&self, now: DateTime<Utc>) -> Result<(), Refusal> {
        let (early, late) = ((now - LEEWAY).timestamp(), (now + LEEWAY).timestamp());
        match () {
            () if late < self.not_before => Err(Refusal::NotYet),
            () if early > self.expires => Err(Refusal::Expired),
            () if late < self.issued => Err(Refusal::FromTheFuture),
            () => Ok(()),
        }
    }

    fn find<'a>(&self, store: &'a Store, kind: &Kind, named: &Named) -> Option<&'a Value> {
        store.get(kind, &self.bound.namespace, &named.name).map(|object| &**object)
    }
}

/// An error is the uid of the object that has the name now.
fn check_uid(object: &Value, named: &Named) -> Result<(), String> {
    let actual = text(object, &["metadata", "uid"]);
    if actual == named.uid { Ok(()) } else { Err(actual.to_owned()) }
}

/// An object that waits for its finalizers is there for a moment longer.
fn is_gone(object: &Value, now: DateTime<Utc>) -> bool {
    let deleted = DateTime::parse_from_rfc3339(text(object, &["metadata", "deletionTimestamp"]));
    deleted.is_ok_and(|deleted| deleted < now - LEEWAY)
}
