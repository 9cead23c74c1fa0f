//! Tokens of ServiceAccounts: requests for them, reviews, and the documents about their keys.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::call::{Body, Call, Until};

mod keys;
mod times;

const ACCOUNTS: &str = "/api/v1/namespaces/${a}/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/${a}/secrets";
const TOKEN: &str = "/api/v1/namespaces/${a}/serviceaccounts/shop/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const CONFIGURATION: &str = "/.well-known/openid-configuration";
const JWKS: &str = "/openid/v1/jwks";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// All cases, each in its own namespaces.
pub fn scenarios() -> Vec<(&'static str, Vec<Call>)> {
    vec![
        ("requests for tokens", after_setup(requests())),
        ("tokens that are bound to an object", after_setup(bound_tokens())),
        ("reviews of good tokens", after_setup(good_tokens())),
        ("reviews of what is no token", after_setup(bad_tokens())),
        ("reviews as HTTP requests", after_setup(odd_reviews())),
        ("tokens of a deleted account", after_setup(deleted_account())),
        ("tokens of a deleted Secret", after_setup(deleted_secret())),
        ("what an account may not do", after_setup(accounts())),
        ("reviews of access", access()),
        ("documents about tokens", documents()),
    ]
}

/// A token with one thing changed, and the signature of the original.
pub fn altered(how: &str, token: &str) -> String {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { return token.to_owned() };
    let with = |part: &str, name: &str, value: Value| {
        let bytes = BASE64.decode(part).expect("a part of a token");
        let mut object: Value = serde_json::from_slice(&bytes).expect("JSON");
        object[name] = value;
        BASE64.encode(object.to_string())
    };
    match how {
        "forged" => {
            let claims = with(claims, "sub", json!("system:serviceaccount:kube-system:admin"));
            format!("{header}.{claims}.{signature}")
        }
        "foreign" => {
            let claims = with(claims, "iss", json!("https://issuer.example"));
            format!("{header}.{claims}.{signature}")
        }
        "keyless" => format!("{}.{claims}.{signature}", with(header, "kid", json!("none"))),
        "anonymous" => format!("{}.{claims}.{signature}", with(header, "kid", json!(""))),
        "hmac" => format!("{}.{claims}.{signature}", with(header, "alg", json!("HS256"))),
        "unsigned" => format!("{}.{claims}.", with(header, "alg", json!("none"))),
        "cut" => format!("{header}.{claims}"),
        _ => panic!("there is no placeholder {how}"),
    }
}

fn after_setup(calls: Vec<Call>) -> Vec<Call> {
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let setup = [Call::post(ACCOUNTS, named("shop")), Call::post(SECRETS, named("session"))];
    setup.into_iter().chain(calls).collect()
}

fn request(spec: Value) -> Call {
    Call::post(TOKEN, json!({ "spec": spec }))
}

fn bound(kind: &str, version: &str, name: &str) -> Value {
    json!({ "boundObjectRef": { "kind": kind, "apiVersion": version, "name": name } })
}

fn to_secret() -> Value {
    bound("Secret", "v1", "session")
}

fn token() -> String {
    format!("${{token {TOKEN}}}")
}

fn review(token: impl Into<String>) -> Call {
    Call::post(REVIEWS, json!({ "spec": { "token": token.into() } }))
}

fn review_for(audiences: &[&str]) -> Call {
    Call::post(REVIEWS, json!({ "spec": { "token": token(), "audiences": audiences } }))
}

fn text(path: &str, content_type: &'static str, body: &str) -> Call {
    let call = Call::post(path, Value::Null).header("content-type", content_type);
    Call { body: Body::Text(body.to_owned()), ..call }
}

fn requests() -> Vec<Call> {
    let with_metadata = |metadata: Value| Call::post(TOKEN, json!({ "metadata": metadata }));
    vec![
        Call::post(TOKEN, json!({})),
        Call::post(TOKEN, Value::Null),
        request(json!({ "audiences": ["vault", "other", "vault"], "expirationSeconds": 600 })),
        request(json!({ "audiences": [""] })),
        request(json!({ "expirationSeconds": null })),
        request(json!({ "expirationSeconds": 4_294_967_296_i64 })),
        request(json!({ "expirationSeconds": 4_294_967_297_i64 })),
        request(json!({ "expirationSeconds": 599 })),
        request(json!({ "expirationSeconds": 0 })),
        request(json!({ "expirationSeconds": -1 })),
        request(json!({ "expirationSeconds": "600" })),
        request(json!({ "audiences": "vault" })),
        request(json!({ "nonsense": 1 })),
        request(json!({ "nonsense": 1 })).with("fieldValidation", "Strict"),
        request(json!({})).with("dryRun", "All"),
        request(json!({})).with("dryRun", "nonsense"),
        Call::post(TOKEN, json!({ "status": { "token": "x", "nonsense": 1 } })),
        with_metadata(json!({ "name": "shop", "namespace": "${a}", "labels": { "a": "b" } })),
        with_metadata(json!({ "name": "other" })),
        with_metadata(json!({ "namespace": "${b}" })),
        with_metadata(json!({ "uid": format!("${{uid {ACCOUNTS}/shop}}") })),
        with_metadata(json!({ "uid": "0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e" })),
        Call::post(TOKEN, json!({ "apiVersion": "v1", "kind": "ServiceAccount" })),
        Call::post(TOKEN.replace("shop", "nobody"), json!({})),
        Call::post(TOKEN.replace("${a}", "no-such-namespace"), json!({})),
        Call::get(TOKEN),
        Call::put(TOKEN, json!({})),
        Call::merge(TOKEN, json!({})),
        Call::delete(TOKEN),
        Call::post(format!("{TOKEN}/more"), json!({})),
        text(TOKEN, "application/yaml", "spec: {audiences: [vault]}\n"),
        text(TOKEN, "application/x-www-form-urlencoded", "a=b"),
        text(TOKEN, "application/json", "{"),
        text(TOKEN, PROTOBUF, &protobuf("TokenRequest", "\u{12}\u{8}\u{a}\u{6}vault2")),
    ]
}

/// An object of authentication.k8s.io/v1 in protobuf. Everything in it is shorter than 128 bytes.
fn protobuf(kind: &str, object: &str) -> String {
    let field = |number: u8, content: &str| {
        let length = u8::try_from(content.len()).expect("it is short");
        format!("{}{}{content}", char::from(number << 3 | 2), char::from(length))
    };
    let types = field(1, "authentication.k8s.io/v1") + &field(2, kind);
    format!("k8s\0{}{}", field(1, &types), field(2, object))
}

fn bound_tokens() -> Vec<Call> {
    let with_uid = |uid: &str| {
        let mut spec = to_secret();
        spec["boundObjectRef"]["uid"] = uid.into();
        request(spec)
    };
    vec![
        request(to_secret()),
        review(token()),
        with_uid(&format!("${{uid {SECRETS}/session}}")),
        with_uid("0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e"),
        request(bound("Secret", "v1", "none")),
        request(bound("Secret", "", "session")),
        request(bound("Secret", "v1", "")),
        request(bound("Pod", "v1", "none")),
        request(bound("Pod", "v1", "")),
        request(bound("Node", "v1", "no-such-node")),
        request(bound("ConfigMap", "v1", "session")),
        request(bound("Deployment", "apps/v1", "session")),
        request(json!({ "boundObjectRef": {} })),
        request(json!({ "boundObjectRef": { "kind": "Pod" }, "expirationSeconds": 1 })),
    ]
}

fn good_tokens() -> Vec<Call> {
    let own = "https://kubernetes.default.svc";
    let status = json!({
        "authenticated": false, "error": "old", "user": { "username": "me", "extra": { "a": ["b"] } },
        "audiences": ["old"],
    });
    vec![
        request(json!({})),
        review(token()),
        review_for(&[]),
        review_for(&[own]),
        review_for(&["vault", own, own]),
        review_for(&["vault"]),
        review_for(&["vault", "two words", "\"quoted\""]),
        Call::post(REVIEWS, json!({ "spec": { "token": token() }, "status": status })),
        request(json!({ "audiences": ["b", "a", "b"] })),
        review(token()),
        review_for(&["a", "b"]),
        review_for(&["b"]),
        review_for(&["A"]),
    ]
}

fn bad_tokens() -> Vec<Call> {
    let altered = |how: &str| review(format!("${{{how} {TOKEN}}}"));
    let status = json!({
        "authenticated": true, "error": "old", "user": { "username": "admin", "groups": ["system:masters"] },
        "audiences": ["vault"],
    });
    vec![
        request(json!({})),
        review("x"),
        review("a.b.c"),
        review("e30.e30."),
        review("e30.e30.AA"),
        review(format!("{}x", token())),
        review(format!("x{}", token())),
        review(format!("{}.x", token())),
        altered("forged"),
        altered("foreign"),
        altered("keyless"),
        altered("anonymous"),
        altered("hmac"),
        altered("unsigned"),
        altered("cut"),
        Call::post(REVIEWS, json!({ "spec": { "token": "x" }, "status": status })),
    ]
}

fn odd_reviews() -> Vec<Call> {
    let spec = || json!({ "token": "x" });
    vec![
        Call::post(REVIEWS, json!({})),
        Call::post(REVIEWS, Value::Null),
        Call::post(REVIEWS, json!([])),
        Call::post(REVIEWS, json!({ "spec": { "token": "" } })),
        Call::post(REVIEWS, json!({ "spec": { "token": 1 } })),
        Call::post(REVIEWS, json!({ "spec": { "token": "x", "audiences": "vault" } })),
        Call::post(REVIEWS, json!({ "kind": "TokenReview", "spec": spec() })),
        Call::post(REVIEWS, json!({ "apiVersion": "v1", "kind": "Secret", "spec": spec() })),
        Call::post(
            REVIEWS,
            json!({ "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "spec": spec() }),
        ),
        Call::post(
            REVIEWS,
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }),
        ),
        Call::post(
            REVIEWS,
            json!({ "metadata": { "name": "a", "namespace": "b", "labels": { "c": "d" } }, "spec": spec() }),
        ),
        Call::post(REVIEWS, json!({ "spec": spec(), "nonsense": 1 })),
        Call::post(REVIEWS, json!({ "spec": spec(), "nonsense": 1 }))
            .with("fieldValidation", "Strict"),
        Call::post(REVIEWS, json!({ "spec": spec(), "nonsense": 1 }))
            .with("fieldValidation", "Ignore"),
        review("x").with("dryRun", "All"),
        review("x").with("dryRun", "nonsense"),
        review("x").with("fieldValidation", "nonsense"),
        review("x").header("accept", "application/xml"),
        review("x")
            .header("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        text(REVIEWS, "application/yaml", "spec: {token: x}\n"),
        text(REVIEWS, "application/x-www-form-urlencoded", "a=b"),
        text(REVIEWS, "application/json", ""),
        text(REVIEWS, PROTOBUF, &protobuf("TokenReview", "\u{12}\u{a}\u{a}\u{1}x\u{12}\u{5}vault")),
        text(REVIEWS, PROTOBUF, &protobuf("TokenReview", "")),
        Call::post(REVIEWS, json!({ "spec": { "token": "x".repeat(3_200_000) } })),
        Call::get(REVIEWS),
        Call::watch(REVIEWS),
        Call::put(REVIEWS, json!({ "spec": spec() })),
        Call::delete(REVIEWS),
        Call::get(format!("{REVIEWS}/x")),
        Call::post(format!("{REVIEWS}/x"), json!({ "spec": spec() })),
        Call::post(REVIEWS.replace("/tokenreviews", "/namespaces/${a}/tokenreviews"), json!({})),
        Call::post(REVIEWS.replace("/v1/", "/v1beta1/"), json!({ "spec": spec() })),
        Call::get("/apis/authentication.k8s.io"),
        Call::get("/apis/authentication.k8s.io/v1"),
        Call::get("/apis/authentication.k8s.io/v1/tokenrequests"),
        Call::get("/apis/coordination.k8s.io/v9/leases"),
    ]
}

/// A real server reads accounts and Secrets from a cache, which takes a moment.
fn review_soon() -> Call {
    review(token()).until(Until::Code(201))
}

fn deleted_account() -> Vec<Call> {
    vec![
        request(json!({})),
        Call::delete(format!("{ACCOUNTS}/shop")),
        review_soon(),
        Call::post(ACCOUNTS, json!({ "metadata": { "name": "shop" } })),
        review_soon(),
        request(json!({})),
        review(token()),
    ]
}

fn deleted_secret() -> Vec<Call> {
    let free = "/api/v1/namespaces/${a}/serviceaccounts/other/token";
    vec![
        Call::post(ACCOUNTS, json!({ "metadata": { "name": "other" } })),
        Call::post(free, json!({})),
        request(to_secret()),
        Call::delete(format!("{SECRETS}/session")),
        review_soon(),
        review(format!("${{token {free}}}")),
        Call::post(SECRETS, json!({ "metadata": { "name": "session" } })),
        review_soon(),
        request(to_secret()),
        review(token()),
    ]
}

/// With an account that has no more rights than every account.
fn accounts() -> Vec<Call> {
    let secret = format!("{SECRETS}/session");
    let calls = [
        Call::post(SELF, json!({})),
        Call::post(
            SELF,
            json!({ "metadata": { "name": "x" }, "status": { "userInfo": { "username": "admin" } } }),
        ),
        Call::get(SELF),
        Call::get(SECRETS),
        Call::get(secret.clone()),
        Call::get("/api/v1/secrets"),
        Call::get("/api/v1/secrets").with("watch", "true").with("timeoutSeconds", "1"),
        Call::post(SECRETS, json!({})),
        Call::put(secret.clone(), json!({})),
        Call::merge(secret.clone(), json!({})),
        Call::delete(secret),
        Call::delete(SECRETS),
        Call::get("/api/v1/namespaces/${a}"),
        Call::put("/api/v1/namespaces/${a}/status", json!({})),
        Call::get("/api/v1/namespaces"),
        Call::get("/apis/route.openshift.io/v1/namespaces/${a}/routes"),
        Call::get("/apis/nonsense.example.com/v1/things/one/more"),
        Call::get("/nonsense"),
        Call::get("/metrics"),
        Call::get("/apis/authentication.k8s.io/v1"),
        Call::get(JWKS),
        Call::get(CONFIGURATION),
        Call::get(REVIEWS),
        Call::post("/version", json!({})),
    ];
    let calls = calls.map(|call| call.bearing(token()));
    let wrong = [
        review("x").bearing("no.such.token"),
        review("x").bearing(format!("${{forged {TOKEN}}}")),
        request(json!({ "audiences": ["vault"] })),
        review("x").bearing(token()),
    ];
    [request(json!({}))].into_iter().chain(calls).chain(wrong).collect()
}

fn access() -> Vec<Call> {
    let secrets = || json!({ "verb": "get", "resource": "secrets" });
    let path = || json!({ "verb": "get", "path": "/metrics" });
    let account = "system:serviceaccount:${a}:shop";
    let specs = [
        json!({}),
        json!({ "user": "me" }),
        json!({ "resourceAttributes": secrets() }),
        json!({ "user": "me", "resourceAttributes": secrets() }),
        json!({ "user": "me", "nonResourceAttributes": path() }),
        json!({ "user": "me", "nonResourceAttributes": path(), "resourceAttributes": secrets() }),
        json!({ "user": "me", "resourceAttributes": {} }),
        json!({ "groups": ["system:masters"], "resourceAttributes": secrets() }),
        json!({ "user": "me", "groups": ["x"], "uid": "u", "extra": { "a": ["b"] }, "nonResourceAttributes": path() }),
        json!({ "user": account, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": secrets() }),
        json!({ "user": account, "groups": ["system:serviceaccounts", "system:authenticated"], "nonResourceAttributes": path() }),
    ];
    let calls = specs.map(|spec| Call::post(ACCESS, json!({ "spec": spec })));
    let spec = || json!({ "user": "me", "resourceAttributes": secrets() });
    let odd = [
        Call::post(ACCESS, json!({ "metadata": { "name": "x" }, "spec": spec() })),
        Call::post(ACCESS, json!({ "metadata": { "namespace": "x" }, "spec": spec() })),
        Call::post(ACCESS, json!({ "spec": spec(), "status": { "allowed": true, "reason": "x" } })),
        Call::get(ACCESS),
        Call::post(format!("{ACCESS}/x"), json!({ "spec": spec() })),
    ];
    calls.into_iter().chain(odd).collect()
}

fn documents() -> Vec<Call> {
    let mut calls = Vec::new();
    for path in [CONFIGURATION, JWKS] {
        calls.extend([
            Call::get(path),
            Call::get(format!("{path}/")),
            Call::get(format!("{path}/more")),
            Call::get(path).with("pretty", "true"),
            Call::get(path).header("accept", "*/*"),
            Call::get(path).header("accept", "application/json"),
            Call::get(path).header("accept", "application/xml, application/jwk-set+json;q=0.9"),
            Call::get(path).header("accept", "application/xml"),
            Call::post(path, json!({})),
            Call::delete(path),
        ]);
    }
    calls.extend([Call::get("/openid/v1"), Call::get("/.well-known")]);
    calls
}
