//! Tokens and reviews as clients see them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{Request, header};
use http_body_util::{BodyExt, Full};

use super::*;
use crate::{store::Store, testing::KINDS, tokens::TokenOptions};

const ACCOUNTS: &str = "/api/v1/namespaces/web/serviceaccounts";
const TOKEN: &str = "/api/v1/namespaces/web/serviceaccounts/shop/token";
const SECRETS: &str = "/api/v1/namespaces/web/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const ISSUER: &str = "https://kubernetes.default.svc";

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// With namespace `web`, and account and Secret `shop` in it.
fn server() -> ApiServer {
    let server = ApiServer::new("test", Store::new(&KINDS, 1000, 7), noon);
    let named = |name: &str| json!({ "metadata": { "name": name } });
    for (path, name) in [("/api/v1/namespaces", "web"), (ACCOUNTS, "shop"), (SECRETS, "shop")] {
        assert_eq!(post(&server, path, named(name)).0, 201);
    }
    server
}

fn post(server: &ApiServer, path: &str, body: Value) -> (u16, Value) {
    server.request(Method::POST, path, &body)
}

/// The message and code of a refusal.
fn refused(server: &ApiServer, path: &str, body: Value) -> (u16, String) {
    let (code, status) = post(server, path, body);
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

fn token(server: &ApiServer, spec: Value) -> String {
    let (code, request) = post(server, TOKEN, json!({ "spec": spec }));
    assert_eq!(code, 201, "{request}");
    request["status"]["token"].as_str().unwrap().to_owned()
}

fn review(server: &ApiServer, token: &str) -> Value {
    let (code, review) = post(server, REVIEWS, json!({ "spec": { "token": token } }));
    assert_eq!(code, 201, "{review}");
    review["status"].clone()
}

#[test]
fn a_request_for_a_token_is_answered_with_everything_that_it_left_out() {
    let server = server();
    let (code, mut request) = post(&server, TOKEN, json!({}));
    assert_eq!(code, 201);
    assert!(request["metadata"]["uid"].take().is_string());
    assert!(request["status"]["token"].take().as_str().unwrap().starts_with("ey"));
    let expected = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": "shop", "namespace": "web", "uid": null, "creationTimestamp": "2027-01-15T08:00:00Z",
        },
        "spec": { "audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null },
        "status": { "token": null, "expirationTimestamp": "2027-01-15T09:00:00Z" },
    });
    assert_eq!(request, expected);
}

#[test]
fn requests_for_tokens_that_kubernetes_refuses_are_refused_in_its_words() {
    let server = server();
    let bound = |kind: &str, version: &str, name: &str| json!({ "spec": { "boundObjectRef": { "kind": kind, "apiVersion": version, "name": name } } });
    let seconds = |seconds: i64| json!({ "spec": { "expirationSeconds": seconds } });
    let short = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: \
        599: may not specify a duration less than 10 minutes";
    let of_config_map = "cannot bind token to object of type /v1, Kind=ConfigMap";
    let cases = [
        (seconds(599), 422, short),
        (bound("Secret", "v1", "none"), 404, "secrets \"none\" not found"),
        (bound("Pod", "v1", "shop"), 404, "pods \"shop\" not found"),
        (bound("ConfigMap", "v1", "shop"), 400, of_config_map),
        (bound("Secret", "v1", ""), 400, "Name parameter required."),
    ];
    for (body, code, words) in cases {
        assert_eq!(refused(&server, TOKEN, body), (code, words.to_owned()));
    }
    assert_eq!(refused(&server, TOKEN, seconds(1 << 33)).0, 422);
    let nobody = TOKEN.replace("shop", "nobody");
    assert_eq!(refused(&server, &nobody, json!({})).1, "serviceaccounts \"nobody\" not found");
    let other = json!({ "metadata": { "name": "other" } });
    assert_eq!(refused(&server, TOKEN, other).0, 422);
    assert_eq!(refused(&server, TOKEN, json!({ "metadata": { "uid": "b1946ac9" } })).0, 409);
    let mut old = bound("Secret", "v1", "shop");
    old["spec"]["boundObjectRef"]["uid"] = "b1946ac9".into();
    assert_eq!(refused(&server, TOKEN, old).0, 409);
    assert_eq!(server.request(Method::GET, TOKEN, &Value::Null).0, 405);
}

#[test]
fn a_life_beyond_the_servers_longest_is_shortened_with_a_warning() {
    let server = server();
    let longest_life = Some(Duration::from_secs(7200));
    server.set_token_options(TokenOptions { longest_life, ..TokenOptions::default() });
    let asked = json!({ "spec": { "expirationSeconds": 86_400 } }).to_string();
    let request = Request::post(TOKEN).body(Full::from(asked)).unwrap();
    let (head, body) = answered(&server, request);
    let warning = "299 - \"requested expiration of 86400 seconds shortened to 7200 seconds\"";
    assert_eq!(head.headers["warning"], warning);
    assert_eq!(body["spec"]["expirationSeconds"], 7200);
    assert_eq!(body["status"]["expirationTimestamp"], "2027-01-15T10:00:00Z");
}

fn answered(
    server: &ApiServer,
    request: Request<Full<bytes::Bytes>>,
) -> (http::response::Parts, Value) {
    use futures::FutureExt;
    let answer = server.clone().answer(request).now_or_never().unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
    (head, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn a_good_token_is_reviewed_as_its_account_for_the_audiences_that_both_have() {
    let server = server();
    let token = token(&server, json!({ "audiences": ["vault", "other"] }));
    let spec = json!({ "token": token, "audiences": ["more", "other"] });
    let (code, review) = post(&server, REVIEWS, json!({ "spec": spec }));
    assert_eq!((code, &review["spec"]), (201, &spec));
    let status = &review["status"];
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["other"])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:web:shop");
}

#[test]
fn a_review_without_a_token_is_a_bad_request() {
    let why = "token is required for TokenReview in authentication".to_owned();
    assert_eq!(refused(&server(), REVIEWS, json!({ "spec": {} })), (400, why));
}

#[test]
fn a_refused_token_leaves_the_user_and_audiences_that_the_caller_sent() {
    let server = server();
    let sent = json!({
        "spec": { "token": "x" },
        "status": { "authenticated": true, "user": { "username": "admin" }, "audiences": ["vault"] },
    });
    let (_, review) = post(&server, REVIEWS, sent);
    let expected = json!({
        "user": { "username": "admin" }, "audiences": ["vault"], "error": "invalid bearer token",
    });
    assert_eq!(review["status"], expected);
    assert_eq!(self::review(&server, "x"), json!({ "user": {}, "error": "invalid bearer token" }));
}

#[test]
fn a_token_is_refused_at_once_when_its_account_or_secret_is_deleted() {
    let server = server();
    let bound = json!({ "kind": "Secret", "apiVersion": "v1", "name": "shop" });
    let (bound, free) =
        (token(&server, json!({ "boundObjectRef": bound })), token(&server, json!({})));
    assert_eq!(review(&server, &bound)["authenticated"], true);
    server.request(Method::DELETE, &format!("{SECRETS}/shop"), &Value::Null);
    let ended = "[invalid bearer token, service account token has been invalidated]";
    assert_eq!(review(&server, &bound)["error"], ended);
    assert_eq!(review(&server, &free)["authenticated"], true);
    server.request(Method::DELETE, &format!("{ACCOUNTS}/shop"), &Value::Null);
    let ended = r#"[invalid bearer token, serviceaccounts "shop" not found]"#;
    assert_eq!(review(&server, &free)["error"], ended);
}

#[test]
fn reviews_can_only_be_created_and_have_no_names_or_namespaces() {
    let server = server();
    let named = format!("{REVIEWS}/x");
    let namespaced = REVIEWS.replace("/tokenreviews", "/namespaces/web/tokenreviews");
    for (method, path, code) in [
        (Method::GET, REVIEWS, 405),
        (Method::PUT, REVIEWS, 405),
        (Method::POST, &*named, 404),
        (Method::POST, &*namespaced, 404),
    ] {
        assert_eq!(server.request(method, path, &json!({})).0, code, "{path}");
    }
    let other = json!({ "apiVersion": "v1", "kind": "Secret", "spec": { "token": "x" } });
    assert_eq!(refused(&server, REVIEWS, other).0, 400);
    let unknown = json!({ "spec": { "token": "x", "tokens": [] } });
    let strict = format!("{REVIEWS}?fieldValidation=Strict");
    assert_eq!(refused(&server, &strict, unknown).0, 400);
}

#[test]
fn reviews_are_read_in_yaml_too() {
    let body = Full::from("spec:\n  token: x\n");
    let request = Request::post(REVIEWS).header(header::CONTENT_TYPE, "application/yaml");
    let (head, body) = answered(&server(), request.body(body).unwrap());
    assert_eq!(
        (head.status.as_u16(), &body["status"]["error"]),
        (201, &json!("invalid bearer token"))
    );
}

#[test]
fn an_account_may_do_what_tokens_are_about_and_nothing_else() {
    let server = server();
    let token = token(&server, json!({}));
    let code = |method: Method, path: &str, body: &Value| {
        server.request_as(Some(&token), method, path, body).0
    };
    let review = json!({ "spec": { "token": "x" } });
    let access = json!({ "spec": { "user": "me", "nonResourceAttributes": { "path": "/", "verb": "get" } } });
    for (path, body) in [(REVIEWS, review), (TOKEN, json!({})), (SELF, json!({})), (ACCESS, access)]
    {
        assert_eq!(code(Method::POST, path, &body), 201, "{path}");
    }
    let open =
        ["/api", "/apis", "/api/v1", "/apis/authentication.k8s.io/v1", "/openapi/v3", "/version"];
    for path in [&open[..], &["/openid/v1/jwks", "/.well-known/openid-configuration"]].concat() {
        assert_eq!(code(Method::GET, path, &Value::Null), 200, "{path}");
    }
    let shop = format!("{SECRETS}/shop");
    for (method, path) in [
        (Method::GET, SECRETS),
        (Method::GET, &shop),
        (Method::DELETE, &shop),
        (Method::POST, ACCOUNTS),
        (Method::GET, REVIEWS),
        (Method::GET, "/api/v1/secrets?watch=true"),
        (Method::GET, "/apis/route.openshift.io/v1/routes"),
        (Method::GET, "/nonsense"),
    ] {
        assert_eq!(code(method, path, &json!({})), 403, "{path}");
    }
    let (_, status) = server.request_as(Some(&token), Method::GET, &shop, &Value::Null);
    let why = "secrets \"shop\" is forbidden: User \"system:serviceaccount:web:shop\" cannot get resource \
        \"secrets\" in API group \"\" in the namespace \"web\"";
    assert_eq!(status["message"], why);
}

#[test]
fn a_token_that_is_wrong_or_for_others_opens_no_door() {
    let server = server();
    let (old, other) =
        (token(&server, json!({})), token(&server, json!({ "audiences": ["vault"] })));
    let code = |token: &str| {
        let body = json!({ "spec": { "token": "x" } });
        server.request_as(Some(token), Method::POST, REVIEWS, &body).0
    };
    assert_eq!((code(&old), code(&other), code("x"), code("")), (201, 401, 401, 401));
    server.request(Method::DELETE, &format!("{ACCOUNTS}/shop"), &Value::Null);
    assert_eq!(code(&old), 401);
}

#[test]
fn an_account_learns_who_it_is() {
    let server = server();
    let token = token(&server, json!({}));
    let (code, review) = server.request_as(Some(&token), Method::POST, SELF, &json!({}));
    let user = &review["status"]["userInfo"];
    assert_eq!((code, &user["username"]), (201, &json!("system:serviceaccount:web:shop")));
    let (_, review) = post(&server, SELF, json!({}));
    assert_eq!(review["status"]["userInfo"]["groups"][0], "system:masters");
}

#[test]
fn a_review_of_access_tells_what_this_server_would_do() {
    let server = server();
    let allowed = |user: Value, verb: &str, group: &str, resource: &str| {
        let asked = json!({ "verb": verb, "group": group, "resource": resource });
        let mut spec = user;
        spec["resourceAttributes"] = asked;
        let (code, review) = post(&server, ACCESS, json!({ "spec": spec }));
        assert_eq!(code, 201, "{review}");
        review["status"]["allowed"] == true
    };
    let account = || json!({ "user": "system:serviceaccount:web:shop" });
    assert!(allowed(account(), "create", "authentication.k8s.io", "tokenreviews"));
    assert!(!allowed(account(), "get", "", "secrets"));
    assert!(allowed(json!({ "groups": ["system:masters"] }), "get", "", "secrets"));
    assert!(!allowed(
        json!({ "user": "somebody" }),
        "create",
        "authentication.k8s.io",
        "tokenreviews"
    ));
    let (code, _) = refused(&server, ACCESS, json!({ "spec": {} }));
    assert_eq!(code, 422);
}

#[test]
fn the_discovery_document_leads_to_the_keys() {
    let server = server();
    let get = |path| answered(&server, Request::get(path).body(Full::default()).unwrap());
    let (_, configuration) = get("/.well-known/openid-configuration");
    let expected = json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    assert_eq!(configuration, expected);
    let (head, keys) = get("/openid/v1/jwks");
    assert_eq!(head.headers["content-type"], "application/jwk-set+json");
    // As kube-apiserver, which is strict about this one.
    let json = Request::get("/openid/v1/jwks").header("accept", "application/json");
    assert_eq!(answered(&server, json.body(Full::default()).unwrap()).0.status, 406);
    let kid = server.rotate_signing_key().unwrap();
    assert_ne!(keys["keys"][0]["kid"], kid.as_str());
    assert_eq!(get("/openid/v1/jwks").1["keys"][1]["kid"], kid.as_str());
}

#[test]
fn a_replica_takes_tokens_of_the_same_keys_for_what_its_own_store_knows() {
    let server = server();
    let lagging = server.replica(server.with(|store| store.clone()), noon);
    let token = token(&server, json!({}));
    server.request(Method::DELETE, &format!("{ACCOUNTS}/shop"), &Value::Null);
    assert!(review(&server, &token).get("authenticated").is_none());
    assert_eq!(review(&lagging, &token)["authenticated"], true);
}

#[test]
fn two_servers_can_share_an_issuer_and_neither_takes_a_token_of_the_other() {
    let options =
        || TokenOptions { issuer: "https://one.example".into(), ..TokenOptions::default() };
    let (a, b) = (server(), server());
    a.set_token_options(options());
    b.set_token_options(options());
    let token = token(&a, json!({}));
    assert_eq!(review(&a, &token)["authenticated"], true);
    assert!(review(&b, &token).get("authenticated").is_none());
}

#[test]
fn discovery_lists_reviews_and_the_token_of_an_account() {
    let server = server();
    let names = |path: &str| -> Vec<(String, Value)> {
        let (_, list) = server.request(Method::GET, path, &Value::Null);
        let name = |it: &Value| (it["name"].as_str().unwrap().to_owned(), it["verbs"].clone());
        list["resources"].as_array().unwrap().iter().map(name).collect()
    };
    let create = json!(["create"]);
    let reviews = ["selfsubjectreviews", "tokenreviews"].map(|it| (it.to_owned(), create.clone()));
    assert_eq!(names("/apis/authentication.k8s.io/v1"), reviews);
    assert!(names("/api/v1").contains(&("serviceaccounts/token".to_owned(), create)));
}
