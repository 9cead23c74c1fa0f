//! Tokens before and after their time. No real server can be asked for one, so these are signed with its
//! key; the sandbox's clock is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use chrono::{DateTime, TimeDelta, Utc};
use openssl::ec::EcKey;
use openssl::ecdsa::EcdsaSig;
use openssl::hash::{MessageDigest, hash};
use serde_json::{Value, json};
use trustplane::runtime::clock::Clock;

use super::keys::post;
use crate::normalise::Numbering;
use crate::real::Real;
use crate::sandbox::sandbox_at;
use crate::side::Side;

const LIFE: i64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_refused_before_and_after_their_time_in_the_same_words() {
    let real = Real::shared().await;
    let left = real.side("the real server").await;
    let shift = Arc::new(AtomicI64::new(0));
    let start = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
    let clock = {
        let shift = shift.clone();
        Clock::from_fn(move || start + TimeDelta::seconds(shift.load(Ordering::Relaxed)))
    };
    let right = sandbox_at("the sandbox", clock);
    let (good, moved) = (issued(&left).await, issued(&right).await);
    // Seconds since the token was issued.
    for (age, is_good) in [(-90, false), (-45, true), (LIFE + 45, true), (LIFE + 90, false)] {
        let aged = signed(&at_age(&good, age), &real.signing_key());
        shift.store(age, Ordering::Relaxed);
        let (one, two) = (status(&left, &aged).await, status(&right, &moved).await);
        assert_eq!(one["authenticated"] == true, is_good, "{age}: {one}");
        assert_eq!(one, two, "{age}");
    }
}

async fn issued(side: &Side) -> String {
    let named = |name: &str| json!({ "metadata": { "name": name } });
    post(side, "/api/v1/namespaces", named("of-times")).await;
    let accounts = "/api/v1/namespaces/of-times/serviceaccounts";
    post(side, accounts, named("shop")).await;
    let spec = json!({ "spec": { "expirationSeconds": LIFE } });
    let answer = post(side, &format!("{accounts}/shop/token"), spec).await;
    answer["status"]["token"].as_str().unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
}

async fn status(side: &Side, token: &str) -> Value {
    let review = json!({ "spec": { "token": token } });
    let answer = post(side, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    Numbering::default().event(&answer["status"])
}

/// Header and claims of a token that was issued so long ago.
fn at_age(token: &str, age: i64) -> String {
    let (message, _) = token.rsplit_once('.').expect("three parts");
    let (header, claims) = message.split_once('.').expect("three parts");
    let bytes = BASE64.decode(claims).expect("base64");
    let mut claims: Value = serde_json::from_slice(&bytes).expect("JSON");
    let issued = Utc::now().timestamp() - age;
    (claims["iat"], claims["nbf"], claims["exp"]) =
        (issued.into(), issued.into(), (issued + LIFE).into());
    format!("{header}.{}", BASE64.encode(claims.to_string()))
}

fn signed(message: &str, key: &[u8]) -> String {
    let sign = || -> Result<Vec<u8>, openssl::error::ErrorStack> {
        let key = EcKey::private_key_from_pem(key)?;
        let digest = hash(MessageDigest::sha256(), message.as_bytes())?;
        let signature = EcdsaSig::sign(&digest, &key)?;
        Ok([signature.r().to_vec_padded(32)?, signature.s().to_vec_padded(32)?].concat())
    };
    format!("{message}.{}", BASE64.encode(sign().expect("a signature")))
}
