//! A remote cluster: publishes keys, grants tokens of accounts, and reviews tokens.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};
use tokio::time::Instant;
use trustplane::review::decide::token::Token;

use super::signing::key;
use crate::{cluster::lock, journal::Actor};

/// Of every cluster, so that tokens are told apart by their signatures alone.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Ours, and that of a workload whose tokens are reviewed.
pub const OWN_ACCOUNT: &str = "trustplane-review";
pub const WORKLOAD: &str = "cart";

/// A token that the cluster granted, or that somebody made there.
#[derive(Clone, Debug)]
pub struct Granted {
    pub text: String,
    pub issued: DateTime<Utc>,
    pub expires: DateTime<Utc>,
    pub revoked: Option<Instant>,
    /// The cluster never accepts it.
    pub is_void: bool,
    /// What it was asked for with.
    pub from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Keys,
    /// A TokenRequest.
    Grant,
    /// A TokenReview of the token that it is sent with.
    Trial,
    Review,
}

/// A request that reached the cluster.
#[derive(Clone, Debug)]
pub struct Received {
    pub by: Actor,
    pub purpose: Purpose,
    pub bearer: String,
    /// Of a review.
    pub token: String,
    pub audiences: Vec<String>,
    pub sent: Instant,
    pub at: Instant,
    pub code: u16,
    /// What a review answered.
    pub authenticated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Answers 503.
    Broken,
    /// Answers nothing.
    Hanging,
}

#[derive(Default)]
pub struct State {
    /// Keys that it publishes, by their numbers. It signs with the first.
    pub keys: Vec<usize>,
    pub tokens: Vec<Granted>,
    by_text: HashMap<String, usize>,
    /// Whether our account lacks the right to create tokens of itself, and TokenReviews.
    pub forbids_tokens: bool,
    pub forbids_reviews: bool,
    /// The longest life that it grants.
    pub cap: Option<TimeDelta>,
    /// Tokens that it grants now are never accepted.
    pub grants_void: bool,
    pub down: Option<Down>,
    /// Only its keys can't be fetched.
    pub hides_keys: bool,
    /// How long a review takes. It is answered as things stood when it arrived.
    pub review_takes: Duration,
    pub received: Vec<Received>,
}

pub struct Remote {
    pub name: &'static str,
    state: Mutex<State>,
}

/// A request on its way.
pub struct Arriving<'a> {
    pub by: Actor,
    pub path: &'a str,
    pub bearer: &'a str,
    pub body: &'a [u8],
    pub sent: Instant,
    pub now: DateTime<Utc>,
}

impl Remote {
    pub fn new(name: &'static str, number: usize) -> Self {
        Self { name, state: Mutex::new(State { keys: vec![number], ..State::default() }) }
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub fn answer(&self, arriving: &Arriving<'_>) -> (u16, Value) {
        let mut state = self.state();
        let body: Value = serde_json::from_slice(arriving.body).unwrap_or_default();
        let token = body["spec"]["token"].as_str().unwrap_or_default().to_owned();
        let purpose = match arriving.path {
            path if path.ends_with("/jwks") => Purpose::Keys,
            path if path.ends_with("/token") => Purpose::Grant,
            _ if token == arriving.bearer => Purpose::Trial,
            _ => Purpose::Review,
        };
        let audiences = body["spec"]["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> =
            audiences.map(|it| it.as_str().unwrap_or_default().to_owned()).collect();
        let (code, answer) = state.answer(purpose, arriving, &body, &token, &audiences);
        state.received.push(Received {
            by: arriving.by,
            purpose,
            bearer: arriving.bearer.to_owned(),
            token,
            audiences,
            sent: arriving.sent,
            at: Instant::now(),
            code,
            authenticated: answer["status"]["authenticated"] == true,
        });
        (code, answer)
    }

    /// A token that somebody makes by hand.
    pub fn make(&self, account: &str, life: TimeDelta, now: DateTime<Utc>) -> String {
        self.state().grant(account, life, now, None)
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let message = "the cluster says so";
    (code, json!({ "kind": "Status", "code": code, "reason": reason, "message": message }))
}

impl State {
    fn answer(
        &mut self,
        purpose: Purpose,
        arriving: &Arriving<'_>,
        body: &Value,
        token: &str,
        audiences: &[String],
    ) -> (u16, Value) {
        if !self.works(arriving.bearer, arriving.now) {
            return failure(401, "Unauthorized");
        }
        match purpose {
            Purpose::Keys if self.hides_keys => failure(503, "ServiceUnavailable"),
            Purpose::Keys => {
                let keys: Vec<Value> = self.keys.iter().map(|number| key(*number).jwk()).collect();
                (200, json!({ "keys": keys }))
            }
            Purpose::Grant if self.forbids_tokens => failure(403, "Forbidden"),
            Purpose::Grant => {
                let asked = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
                let life = TimeDelta::seconds(asked).min(self.cap.unwrap_or(TimeDelta::MAX));
                let end = (arriving.now + life).to_rfc3339_opts(SecondsFormat::Secs, true);
                let from = Some(arriving.bearer.to_owned());
                let token = self.grant(OWN_ACCOUNT, life, arriving.now, from);
                (201, json!({ "status": { "token": token, "expirationTimestamp": end } }))
            }
            Purpose::Trial | Purpose::Review if self.forbids_reviews => failure(403, "Forbidden"),
            Purpose::Trial | Purpose::Review => {
                (201, json!({ "status": self.reviewed(token, audiences, arriving.now) }))
            }
        }
    }

    fn reviewed(&self, text: &str, asked: &[String], now: DateTime<Utc>) -> Value {
        let invalid = json!({ "user": {}, "error": "invalid bearer token" });
        let Ok(token) = Token::read(text) else { return invalid };
        let own = token.audiences.unwrap_or_default();
        let both: Vec<&String> = match asked.is_empty() {
            true => own.iter().collect(),
            false => asked.iter().filter(|it| own.contains(it)).collect(),
        };
        if !self.works(text, now) || both.is_empty() {
            return invalid;
        }
        let identity = &token.identity;
        let user = json!({
            "username": identity.username(), "uid": identity.uid, "groups": identity.groups(),
            "extra": identity.extra(),
        });
        json!({ "authenticated": true, "audiences": both, "user": user })
    }

    pub fn granted(&self, text: &str) -> Option<&Granted> {
        self.by_text.get(text).map(|number| &self.tokens[*number])
    }

    /// Whether the cluster accepts the token now.
    pub fn works(&self, text: &str, now: DateTime<Utc>) -> bool {
        self.granted(text).is_some_and(|it| !it.is_void && it.revoked.is_none() && it.expires > now)
    }

    fn grant(
        &mut self,
        account: &str,
        life: TimeDelta,
        now: DateTime<Utc>,
        from: Option<String>,
    ) -> String {
        let (issued, expires) = (now.timestamp(), (now + life).timestamp());
        let text = key(self.keys[0]).sign(&json!({
            "iss": ISSUER,
            "sub": format!("system:serviceaccount:{account}:{account}"),
            "aud": [ISSUER, "shop"],
            "iat": issued, "nbf": issued, "exp": expires, "jti": format!("t-{}", self.tokens.len()),
            "kubernetes.io": {
                "namespace": account, "serviceaccount": { "name": account, "uid": "u-1" },
            },
        }));
        let time = |seconds| DateTime::from_timestamp(seconds, 0).unwrap_or(now);
        self.by_text.insert(text.clone(), self.tokens.len());
        self.tokens.push(Granted {
            text: text.clone(),
            issued: time(issued),
            expires: time(expires),
            revoked: None,
            is_void: self.grants_void && from.is_some(),
            from,
        });
        text
    }

    /// As where the account is deleted and made again.
    pub fn revoke(&mut self, account: &str) {
        let now = Instant::now();
        for token in self.tokens.iter_mut().filter(|it| is_of(&it.text, account)) {
            token.revoked.get_or_insert(now);
        }
    }
}

fn is_of(text: &str, account: &str) -> bool {
    Token::read(text).is_ok_and(|token| token.identity.account == account)
}
