//! A cluster that would like to be another: by its key's name, by its issuer, or by a key of its own making.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};
use testkit::{
    proxy::Fault,
    review::{KeyKind, SigningKey, TokenOrder, leaks},
};

use super::stage::{Stage, credential, entry, is_authenticated, status};

/// What a token says, to be signed by somebody else.
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).expect("three parts");
    let claims = URL_SAFE_NO_PAD.decode(claims).expect("base64");
    serde_json::from_slice(&claims).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_publishes_a_key_of_its_own_under_anothers_name_takes_over_no_token() {
    let stage = Stage::get().await;
    let kid = stage.a.first_key().kid();
    // B's own document, with A's name on B's key.
    let script = move |request: &testkit::proxy::SeenRequest| {
        let kid = kid.clone();
        match request.path.ends_with("/openid/v1/jwks") {
            false => Fault::Forward,
            true => Fault::MangleBody(Box::new(move |body| {
                let mut document: Value = serde_json::from_slice(&body).expect("keys");
                let mut renamed = document["keys"][0].clone();
                renamed["kid"] = json!(kid);
                document["keys"].as_array_mut().expect("a list").insert(0, renamed);
                Bytes::from(document.to_string())
            })),
        }
    };
    let b = stage.b.disturbed(script).await;
    let credential = credential(&stage.b, 160 * 3600).await;
    let config = stage.config(&[entry(&stage.b, &b.recording.url(), &credential)]);
    let product = stage.another_ready("taken", config).await;
    for member in [&stage.a, &stage.b] {
        let account = member.account("taken", "app").await;
        let token = member.token(&account).await;
        let told = status(&product.review(&stage.caller, &token, &[]).await);
        let cluster = &told["user"]["extra"]["authentication.kubernetes.io/cluster-name"];
        assert_eq!(cluster, &json!([member.name()]), "{}", told["error"]);
        assert_eq!(b.recording.was_sent([&*token]), member.name() == "b");
    }
}

/// Tokens that look like those of an account of A, and are not.
async fn forgeries() -> Vec<(&'static str, String)> {
    let stage = Stage::get().await;
    let account = stage.a.account("forged", &format!("app-{}", fastrand::u32(..))).await;
    let good = claims(&stage.a.token_as(TokenOrder::of(&account)).await);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let a = stage.a.first_key();
    let thief = SigningKey::new(KeyKind::Rsa);
    let header = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid });
    let seconds = |by: i64| json!(good["exp"].as_i64().expect("seconds") + by);
    let critical = json!({ "alg": "RS256", "kid": a.kid(), "crit": ["b64"], "b64": true });
    let signed = a.token(&good);
    let (unsigned, _) = signed.rsplit_once('.').expect("three parts");
    vec![
        ("of another's key", thief.token(&good)),
        ("of another's key with A's name", thief.sign(&header("RS256", &a.kid()), &good)),
        ("of another's key without a name", thief.sign(&json!({ "alg": "RS256" }), &good)),
        ("with the algorithm of B's key", a.sign(&header("ES256", &a.kid()), &good)),
        ("with no algorithm", a.sign(&header("none", &a.kid()), &good)),
        ("of a foreign issuer", a.token(&with("iss", json!("https://foreign.test")))),
        ("of C's issuer", a.token(&with("iss", json!(stage.c.issuer())))),
        ("that expired long ago", a.token(&with("exp", seconds(-2 * 3600)))),
        ("of no account", a.token(&with("sub", json!("admin")))),
        ("with a demand that nobody knows", a.sign(&critical, &good)),
        ("without a signature", format!("{unsigned}.")),
        ("with a space in front", format!(" {signed}")),
        ("with a space behind", format!("{signed} ")),
        ("with a tab in front", format!("\t{signed}")),
        ("with a line's end behind", format!("{signed}\n")),
        ("with a space and more behind", format!("{signed} more")),
        ("that is one space", " ".to_owned()),
        ("that is too long", format!("{signed}{}", "A".repeat(16 * 1024))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_no_cluster_signed_is_refused_and_sent_to_none() {
    let stage = Stage::get().await;
    for (name, token) in forgeries().await {
        let told = stage.review(&token, &["shop"]).await;
        assert!(!is_authenticated(&told), "{name}");
        assert_eq!(told["user"], json!({}), "{name}");
        let words = "invalid bearer token";
        assert!(told["error"].as_str().is_some_and(|it| it.contains(words)), "{name}: {told}");
        if token.trim().len() < 80 {
            continue;
        }
        leaks::register("nobody", token.trim());
        for member in [&stage.a, &stage.b, &stage.c] {
            assert!(!member.proxy().was_sent([token.trim()]), "{name}, to {}", member.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_about_an_account_of_another_cluster_goes_to_the_one_whose_key_signed_it() {
    let stage = Stage::get().await;
    let account = stage.a.account("of-another", "app").await;
    let token = stage.b.first_key().token(&claims(&stage.a.token(&account).await));
    leaks::register("b", &token);
    // B has no such account.
    assert!(!is_authenticated(&stage.review(&token, &[]).await));
    assert!(stage.b.proxy().was_sent([&*token]));
    assert!(!stage.a.proxy().was_sent([&*token]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_refused_in_kubernetes_words() {
    let stage = Stage::get().await;
    let account = stage.a.account("expired", "app").await;
    let mut claims = claims(&stage.a.token(&account).await);
    let ago = |seconds: i64| json!(chrono::Utc::now().timestamp() - seconds);
    (claims["iat"], claims["nbf"], claims["exp"]) = (ago(7200), ago(7200), ago(3600));
    let token = stage.a.first_key().token(&claims);
    let (ours, direct) = (stage.review(&token, &[]).await, stage.a.review(&token, &[]).await);
    assert_eq!(ours["error"], direct["error"]);
    assert!(!is_authenticated(&ours));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_its_key_signed_is_good_whoever_wrote_it_down() {
    // So the forgeries above are refused for what is wrong with them.
    let stage = Stage::get().await;
    for member in [&stage.a, &stage.b, &stage.c] {
        let account = member.account("written", "app").await;
        let token = member.first_key().token(&claims(&member.token(&account).await));
        leaks::register(member.name(), &token);
        let told = stage.review(&token, &[]).await;
        assert!(is_authenticated(&told), "{}: {}", member.name(), told["error"]);
    }
}
