//! Tokens without HTTP: what they say, and until when they are good.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use serde_json::{Value, json};

use super::*;
use crate::{
    kinds::{self, Kind},
    store::{Call, DeleteOptions},
    testing::KINDS,
};

const ISSUER: &str = "https://kubernetes.default.svc";

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// A server's tokens, with an account and a Secret in namespace `web`.
struct Stage {
    store: Store,
    tokens: Tokens,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self { store: Store::new(&KINDS, 1000, 7), tokens: Tokens::default() };
        stage.create(kinds::namespace(), "", "web");
        stage.create(kinds::service_account(), "web", "shop");
        stage.create(kinds::secret(), "web", "session");
        stage
    }

    fn create(&mut self, kind: &'static Kind, namespace: &str, name: &str) {
        let object = json!({ "metadata": { "name": name } });
        self.store.create(kind, namespace, object, &mut Call::at(noon())).unwrap();
    }

    fn delete(&mut self, kind: &'static Kind, name: &str) {
        let options = DeleteOptions::default();
        self.store.delete(kind, ("web", name), &options, &mut Call::at(noon())).unwrap();
    }

    fn issue(&mut self, secret: Option<&str>, audiences: &[&str]) -> String {
        let account = self.store.get(kinds::service_account(), "web", "shop").unwrap().clone();
        let secret =
            secret.map(|name| self.store.get(kinds::secret(), "web", name).unwrap().clone());
        let grant = Grant {
            namespace: "web",
            account: &account,
            secret: secret.as_deref(),
            audiences: audiences.iter().map(|it| (*it).to_owned()).collect(),
            seconds: 600,
            id: "b1946ac9-2492-4d23-8c1f-0a1b2c3d4e5f".to_owned(),
        };
        self.tokens.issue(grant, noon()).unwrap()
    }

    fn review(&self, token: &str) -> Result<Accepted, Refusal> {
        self.review_at(token, noon())
    }

    fn review_at(&self, token: &str, now: DateTime<Utc>) -> Result<Accepted, Refusal> {
        self.tokens.review(token, &[ISSUER.to_owned()], &self.store, now)
    }

    fn uid(&self, kind: &Kind, name: &str) -> String {
        let object = self.store.get(kind, "web", name).unwrap();
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn jwks(&mut self) -> Vec<String> {
        let keys = self.tokens.keys().jwks().unwrap();
        let keys = keys["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }
}

/// Header or claims.
fn part(token: &str, number: usize) -> Value {
    let part = token.split('.').nth(number).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn a_token_says_what_one_of_kube_apiserver_says() {
    let mut stage = Stage::new();
    let token = stage.issue(Some("session"), &["vault", "other"]);
    let kid = stage.jwks().remove(0);
    assert_eq!(part(&token, 0), json!({ "alg": "ES256", "kid": kid }));
    let named = |kind, name| json!({ "name": name, "uid": stage.uid(kind, name) });
    let expected = json!({
        "aud": ["vault", "other"], "exp": 1_800_000_600, "iat": 1_800_000_000, "iss": ISSUER,
        "jti": "b1946ac9-2492-4d23-8c1f-0a1b2c3d4e5f",
        "kubernetes.io": {
            "namespace": "web",
            "secret": named(kinds::secret(), "session"),
            "serviceaccount": named(kinds::service_account(), "shop"),
        },
        "nbf": 1_800_000_000, "sub": "system:serviceaccount:web:shop",
    });
    assert_eq!(part(&token, 1), expected);
}

#[test]
fn the_answer_names_account_groups_and_credential() {
    let mut stage = Stage::new();
    let token = stage.issue(None, &["vault", ISSUER]);
    let Accepted { user, audiences } = stage.review(&token).unwrap();
    assert_eq!(audiences, [ISSUER]);
    let expected = json!({
        "username": "system:serviceaccount:web:shop",
        "uid": stage.uid(kinds::service_account(), "shop"),
        "groups": ["system:serviceaccounts", "system:serviceaccounts:web", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/credential-id":
                ["JTI=b1946ac9-2492-4d23-8c1f-0a1b2c3d4e5f"],
        },
    });
    assert_eq!(user.to_value(), expected);
}

#[test]
fn a_token_is_good_a_minute_longer_than_it_says_and_a_minute_before() {
    let mut stage = Stage::new();
    let token = stage.issue(None, &[ISSUER]);
    let reviewed = |seconds| stage.review_at(&token, noon() + TimeDelta::seconds(seconds)).err();
    assert_eq!(reviewed(-61), Some(Refusal::NotYet));
    assert_eq!(reviewed(-60), None);
    assert_eq!(reviewed(660), None);
    assert_eq!(reviewed(661), Some(Refusal::Expired));
}

#[test]
fn a_token_ends_with_its_account_and_a_new_account_of_that_name_is_another() {
    let mut stage = Stage::new();
    let token = stage.issue(None, &[ISSUER]);
    assert!(stage.review(&token).is_ok());
    stage.delete(kinds::service_account(), "shop");
    let refused = stage.review(&token).unwrap_err();
    let words = r#"[invalid bearer token, serviceaccounts "shop" not found]"#;
    assert_eq!(refused.to_string(), words);
    stage.create(kinds::service_account(), "web", "shop");
    assert!(matches!(stage.review(&token), Err(Refusal::OtherAccount(..))));
}

#[test]
fn a_token_ends_with_the_secret_that_it_is_bound_to_and_no_other_does() {
    let mut stage = Stage::new();
    let (bound, free) = (stage.issue(Some("session"), &[ISSUER]), stage.issue(None, &[ISSUER]));
    assert!(stage.review(&bound).is_ok());
    stage.delete(kinds::secret(), "session");
    assert_eq!(stage.review(&bound), Err(Refusal::Invalidated));
    stage.create(kinds::secret(), "web", "session");
    assert!(matches!(stage.review(&bound), Err(Refusal::OtherSecret(..))));
    assert!(stage.review(&free).is_ok());
}

#[test]
fn a_token_for_others_is_refused_and_both_audiences_are_named() {
    let mut stage = Stage::new();
    let token = stage.issue(None, &["vault", "other"]);
    let words = "[invalid bearer token, token audiences [\"vault\" \"other\"] is invalid for the target \
        audiences [\"https://kubernetes.default.svc\"]]";
    assert_eq!(stage.review(&token).unwrap_err().to_string(), words);
}

#[test]
fn what_this_server_did_not_sign_is_no_token_of_it() {
    let mut stage = Stage::new();
    let token = stage.issue(None, &[ISSUER]);
    for garbage in ["", "x", "a.b.c", "e30.e30.AA", &token[1..], &format!(" {token}")] {
        assert_eq!(stage.review(garbage), Err(Refusal::NotOurs), "{garbage}");
    }
    let (rest, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = rest.split_once('.').unwrap();
    let mut other = part(&token, 1);
    other["sub"] = "system:serviceaccount:kube-system:admin".into();
    let other = URL_SAFE_NO_PAD.encode(other.to_string());
    assert_eq!(stage.review(&format!("{header}.{other}.{signature}")), Err(Refusal::Forged));
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert_eq!(stage.review(&format!("{none}.{claims}.")), Err(Refusal::Forged));
    let elsewhere = Stage::new().issue(None, &[ISSUER]);
    assert_eq!(stage.review(&elsewhere), Err(Refusal::UnknownKey));
}

#[test]
fn a_rotated_key_signs_and_the_one_before_still_verifies_until_it_retires() {
    let mut stage = Stage::new();
    let old = stage.issue(None, &[ISSUER]);
    let before = stage.jwks();
    let kid = stage.tokens.keys().rotate().unwrap();
    let new = stage.issue(None, &[ISSUER]);
    assert_eq!(part(&new, 0)["kid"], kid.as_str());
    assert_eq!(stage.jwks(), [before[0].clone(), kid.clone()]);
    assert!(stage.review(&old).is_ok() && stage.review(&new).is_ok());
    stage.tokens.keys().retire();
    assert_eq!(stage.jwks(), [kid]);
    assert_eq!(stage.review(&old), Err(Refusal::UnknownKey));
    assert!(stage.review(&new).is_ok());
}

#[test]
fn a_prepared_key_is_published_before_it_signs() {
    let mut stage = Stage::new();
    let first = stage.jwks();
    let kid = stage.tokens.keys().prepare(Publication::Now).unwrap();
    assert_eq!(stage.jwks(), [first[0].clone(), kid.clone()]);
    assert_eq!(part(&stage.issue(None, &[ISSUER]), 0)["kid"], first[0].as_str());
    assert_eq!(stage.tokens.keys().rotate().unwrap(), kid);
    assert_eq!(part(&stage.issue(None, &[ISSUER]), 0)["kid"], kid.as_str());
}

#[test]
fn a_key_can_sign_before_it_is_published() {
    let mut stage = Stage::new();
    let first = stage.jwks();
    let kid = stage.tokens.keys().prepare(Publication::Later).unwrap();
    stage.tokens.keys().rotate().unwrap();
    let token = stage.issue(None, &[ISSUER]);
    assert_eq!(part(&token, 0)["kid"], kid.as_str());
    assert_eq!(stage.jwks(), first);
    assert!(stage.review(&token).is_ok());
    stage.tokens.keys().publish_all();
    assert_eq!(stage.jwks(), [first[0].clone(), kid]);
}

#[test]
fn a_copied_key_is_published_and_verifies_nothing() {
    let (mut stage, mut other) = (Stage::new(), Stage::new());
    let token = other.issue(None, &[ISSUER]);
    let copied = other.tokens.keys().jwks().unwrap()["keys"].as_array().unwrap().clone();
    stage.tokens.keys().publish_copies(copied);
    assert!(stage.jwks().contains(&other.jwks()[0]));
    assert_eq!(stage.review(&token), Err(Refusal::UnknownKey));
}
