//! What tokens say, and which keys sign them: the same on both sides, but for generated values.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::Request;
use openssl::bn::{BigNum, BigNumRef};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use serde_json::{Value, json};

use crate::normalise::Numbering;
use crate::real::Real;
use crate::sandbox::sandbox;
use crate::side::Side;

/// The real server and the sandbox, each with an account and a Secret in namespace `of-tokens`.
async fn sides() -> [Side; 2] {
    let sides = [Real::shared().await.side("the real server").await, sandbox("the sandbox")];
    for side in &sides {
        // Another test may have made them.
        let named = |name: &str| json!({ "metadata": { "name": name } });
        post(side, "/api/v1/namespaces", named("of-tokens")).await;
        post(side, "/api/v1/namespaces/of-tokens/serviceaccounts", named("shop")).await;
        post(side, "/api/v1/namespaces/of-tokens/secrets", named("session")).await;
    }
    sides
}

pub(super) async fn post(side: &Side, path: &str, body: Value) -> Value {
    let request = Request::post(path).header("content-type", "application/json");
    side.call(request.body(body.to_string().into_bytes()).expect("a request")).await.body
}

async fn get(side: &Side, path: &str, accept: &str) -> Value {
    let request = Request::get(path).header("accept", accept).body(Vec::new());
    side.call(request.expect("a request")).await.body
}

async fn token(side: &Side, spec: Value) -> String {
    let path = "/api/v1/namespaces/of-tokens/serviceaccounts/shop/token";
    let answer = post(side, path, json!({ "spec": spec })).await;
    answer["status"]["token"].as_str().unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
}

/// Header or claims.
fn part(token: &str, number: usize) -> Value {
    let part = token.split('.').nth(number).expect("three parts");
    serde_json::from_slice(&BASE64.decode(part).expect("base64")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_say_the_same() {
    let sides = sides().await;
    let to_secret = json!({ "kind": "Secret", "apiVersion": "v1", "name": "session" });
    let specs = [
        json!({}),
        json!({ "audiences": ["vault", "other"], "expirationSeconds": 601 }),
        json!({ "boundObjectRef": to_secret }),
    ];
    for spec in specs {
        let mut said = Vec::new();
        for side in &sides {
            let token = token(side, spec.clone()).await;
            let mut claims = part(&token, 1);
            let issued = claims["iat"].as_i64().expect("a time");
            for time in ["exp", "iat", "nbf"] {
                claims[time] = (claims[time].as_i64().expect("a time") - issued).into();
            }
            let lengths = token.split('.').next_back().map(str::len);
            let all = json!({ "header": part(&token, 0), "claims": claims, "signature": lengths });
            said.push(Numbering::default().event(&all));
        }
        assert_eq!(said[0], said[1], "{spec}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_named_after_their_digest_and_their_id_is_in_the_token() {
    for side in sides().await {
        let keys = get(&side, "/openid/v1/jwks", "*/*").await;
        let keys = keys["keys"].as_array().expect("keys").clone();
        let digests: Vec<String> = keys.iter().map(digest).collect();
        let ids: Vec<&str> = keys.iter().filter_map(|key| key["kid"].as_str()).collect();
        assert_eq!(ids, digests, "{}", side.name);
        let header = part(&token(&side, json!({})).await, 0);
        assert!(ids.contains(&header["kid"].as_str().expect("an id")), "{}", side.name);
    }
}

/// SHA-256 of the key's DER.
fn digest(key: &Value) -> String {
    let number = |name: &str| {
        let bytes = BASE64.decode(key[name].as_str().expect("a number")).expect("base64");
        BigNum::from_slice(&bytes).expect("a number")
    };
    let of = |x: &BigNumRef, y: &BigNumRef| -> Result<String, openssl::error::ErrorStack> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = EcKey::from_public_key_affine_coordinates(&group, x, y)?;
        Ok(BASE64.encode(hash(MessageDigest::sha256(), &key.public_key_to_der()?)?))
    };
    of(&number("x"), &number("y")).expect("a key")
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_lists_the_token_of_an_account_in_the_same_way() {
    let all_at_once = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut seen = Vec::new();
    for side in sides().await {
        let list = get(&side, "/api/v1", "application/json").await;
        let one_by_one = find(&list["resources"], "name", "serviceaccounts/token");
        let list = get(&side, "/api", all_at_once).await;
        let accounts =
            find(&list["items"][0]["versions"][0]["resources"], "resource", "serviceaccounts");
        let list = get(&side, "/apis", all_at_once).await;
        let reviews = list["items"].as_array().into_iter().flatten();
        let mut reviews =
            reviews.filter(|group| group["metadata"]["name"] == "authentication.k8s.io");
        let reviews = reviews.next().expect("the group of reviews");
        let mut reviews = reviews["versions"][0]["resources"].clone();
        for review in reviews.as_array_mut().into_iter().flatten() {
            // A real server leaves them empty where they are those of the list.
            for (field, own) in [("group", "authentication.k8s.io"), ("version", "v1")] {
                let named = &mut review["responseKind"][field];
                if *named == "" {
                    *named = own.into();
                }
            }
        }
        seen.push([one_by_one, accounts["subresources"].clone(), reviews]);
    }
    assert_eq!(seen[0], seen[1]);
}

fn find(list: &Value, field: &str, name: &str) -> Value {
    let mut all = list.as_array().into_iter().flatten();
    all.find(|one| one[field] == name).unwrap_or_else(|| panic!("no {name}")).clone()
}
