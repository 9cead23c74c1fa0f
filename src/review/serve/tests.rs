use std::sync::Mutex;

use futures::FutureExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{
    review::{
        decide::testing::{Issuer, claims, noon},
        forward::Forwarder,
        keys::KeyStore,
        testing::{self, Stage},
    },
    runtime::{clock::Clock, lock::lock},
};

/// Lets everybody in but those who say who they are.
struct Anybody;

impl Callers for Anybody {
    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Result<String, Failure>> {
        let admitted = match text(&head.headers, &header::AUTHORIZATION) {
            None => Ok("anybody".to_owned()),
            Some("Bearer viewer") => Err(Failure::forbidden("viewer")),
            Some(_) => Err(Failure::unauthorized()),
        };
        async { admitted }.boxed()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Audit for Lines {
    fn record(&self, record: Record<'_>) {
        let Record { id, caller, audiences, outcome, .. } = record;
        let Ok(reviewed) = outcome else { return };
        let cluster = reviewed.cluster.as_deref().unwrap_or("-");
        let why = reviewed.refused.as_ref().map(ToString::to_string);
        lock(&self.0).push(format!("{id} {caller} {cluster} {audiences:?} {why:?}"));
    }

    fn caller_refused(&self, _: &Failure) {}
}

struct Served {
    stage: Stage,
    router: Router,
    lines: Lines,
}

impl Served {
    async fn start() -> Self {
        let stage = Stage::start().await;
        let lines = Lines::default();
        let prefixes = Prefixes { username: "b:".to_owned(), groups: "b:".to_owned() };
        let prefixes = BTreeMap::from([("b".into(), prefixes)]);
        let (reviewer, limits) = (Arc::new(stage.another_reviewer()), Arc::default());
        let audit = Arc::new(lines.clone());
        let service = Service::new(reviewer, Box::new(Anybody), audit, prefixes, limits);
        let service = Arc::new(service);
        Self { stage, router: router(move || service.clone()), lines }
    }

    async fn ask(&self, request: http::Request<Body>) -> (http::response::Parts, Value) {
        let (head, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn post(&self, path: &str, document: &Value) -> (u16, Value) {
        let request = http::Request::post(path).body(Body::from(document.to_string())).unwrap();
        let (head, body) = self.ask(request).await;
        (head.status.as_u16(), body)
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_is_answered_as_kube_apiserver_answers_it() {
    let served = Served::start().await;
    let token = served.stage.of_a.token(&claims());
    let review = json!({ "spec": { "token": token, "audiences": ["shop"] } });
    let request = http::Request::post(REVIEWS).header("Audit-ID", "4711");
    let request = request.body(Body::from(review.to_string())).unwrap();
    let (head, body) = served.ask(request).await;
    assert_eq!(head.status, 201);
    assert_eq!(head.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(head.headers[AUDIT_ID], "4711");
    assert_eq!(body["kind"], "TokenReview");
    assert_eq!(body["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(body["spec"]["token"], token.as_str());
    assert_eq!(body["status"]["authenticated"], true);
    assert_eq!(body["status"]["audiences"], json!(["shop"]));
    assert_eq!(body["status"]["user"]["username"], "system:serviceaccount:shop:cart");
    assert_eq!(served.stage.a.reviews()[0].audit_id.as_deref(), Some("4711"));
    assert_eq!(lock(&served.lines.0)[..], [r#"4711 anybody a ["shop"] None"#]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_token_is_an_answer_and_no_error() {
    let served = Served::start().await;
    let (code, body) = served.post(REVIEWS, &json!({ "spec": { "token": "no-token" } })).await;
    assert_eq!(code, 201);
    assert_eq!(body["status"], json!({ "user": {}, "error": "invalid bearer token" }));
    let line = lock(&served.lines.0).pop().unwrap();
    assert!(line.contains("not three parts") && !line.contains("no-token"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn other_paths_methods_and_bodies_get_the_codes_of_kube_apiserver() {
    let served = Served::start().await;
    let review = json!({ "spec": { "token": "t" } }).to_string();
    let large = format!("{}{}", " ".repeat(LONGEST_BODY), review);
    for (method, path, body, kind, expected) in [
        ("GET", REVIEWS, "", "application/json", (405, "MethodNotAllowed")),
        ("PUT", REVIEWS, &*review, "application/json", (405, "MethodNotAllowed")),
        ("POST", "/", &*review, "application/json", (404, "NotFound")),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews/x",
            &*review,
            "application/json",
            (404, "NotFound"),
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1beta1/tokenreviews",
            &*review,
            "application/json",
            (404, "NotFound"),
        ),
        ("POST", REVIEWS, &*review, "text/plain", (415, "UnsupportedMediaType")),
        ("POST", REVIEWS, &*large, "application/json", (413, "RequestEntityTooLarge")),
        ("POST", REVIEWS, "{}", "application/json", (400, "BadRequest")),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews?timeout=abc",
            &*review,
            "application/json",
            (400, "BadRequest"),
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews?dryRun=x",
            &*review,
            "application/json",
            (422, "Invalid"),
        ),
    ] {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, kind);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (head, body) = served.ask(request).await;
        let found = (head.status.as_u16(), body["reason"].as_str().unwrap_or_default());
        assert_eq!(found, expected, "{method} {path} {kind}");
        assert_eq!(body["kind"], "Status", "{method} {path}");
        assert_eq!(body["code"], expected.0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_not_ask_is_refused_before_the_body_is_read() {
    let served = Served::start().await;
    for (caller, code) in [("Bearer viewer", 403), ("Bearer nobody", 401)] {
        // Whoever read it would wait until the deadline, and answer 503.
        let endless = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let request = http::Request::post(REVIEWS).header(header::AUTHORIZATION, caller);
        let (head, _) = served.ask(request.body(Body::from_stream(endless)).unwrap()).await;
        assert_eq!(head.status, code, "{caller}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_has_a_time_to_come_back_and_is_no_verdict() {
    let served = Served::start().await;
    *lock(&served.stage.a.code) = Some(503);
    let review = json!({ "spec": { "token": served.stage.of_a.token(&claims()) } });
    let request = http::Request::post(REVIEWS).body(Body::from(review.to_string())).unwrap();
    let (head, body) = served.ask(request).await;
    assert_eq!(head.status, 503);
    assert_eq!(head.headers[header::RETRY_AFTER], "1");
    assert_eq!(body["reason"], "ServiceUnavailable");
    assert!(body["status"] == "Failure");
}

#[tokio::test(start_paused = true)]
async fn a_kube_apiserver_is_told_names_with_a_prefix_only() {
    let served = Served::start().await;
    let review = |token: String| json!({ "spec": { "token": token } });
    let of_a = review(served.stage.of_a.token(&claims()));
    let of_b = review(served.stage.of_b.token(&claims()));
    let (code, body) = served.post(WEBHOOK, &of_a).await;
    assert_eq!((code, &body["apiVersion"]), (201, &json!("authentication.k8s.io/v1beta1")));
    assert_eq!(body["status"], json!({ "user": {}, "error": "invalid bearer token" }));
    // It is not asked either: it may be the one that asks.
    assert!(served.stage.a.reviews().is_empty());
    let (_, body) = served.post(WEBHOOK, &of_b).await;
    assert_eq!(body["status"]["user"]["username"], "b:system:serviceaccount:shop:cart");
    // The same name wherever it is asked for.
    let (_, body) = served.post(REVIEWS, &of_b).await;
    assert_eq!(body["status"]["user"]["username"], "b:system:serviceaccount:shop:cart");
    assert_eq!(body["status"]["user"]["groups"][0], "b:system:serviceaccounts");
    let (_, body) = served.post(REVIEWS, &of_a).await;
    assert_eq!(body["status"]["user"]["username"], "system:serviceaccount:shop:cart");
    assert!(lock(&served.lines.0)[0].contains("no prefix"));
}

#[tokio::test(start_paused = true)]
async fn a_field_that_nobody_knows_is_warned_of() {
    let served = Served::start().await;
    let review = json!({ "spec": { "token": "t", "tok\"en": 1 } }).to_string();
    let request = http::Request::post(REVIEWS).body(Body::from(review)).unwrap();
    let (head, _) = served.ask(request).await;
    assert_eq!(head.status, 201);
    let warning = head.headers[header::WARNING].to_str().unwrap();
    assert!(warning.starts_with("299 - \"unknown field "), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn large_bodies_under_way_are_bounded_together() {
    let served = Served::start().await;
    // Bodies that never end, each of just under the limit.
    let piece = vec![b' '; LONGEST_BODY - 1];
    let mut under_way = Vec::new();
    for _ in 0..MORE_PIECES * PIECE / LONGEST_BODY {
        let first = futures::stream::once({
            let piece = piece.clone();
            async move { Ok::<_, std::io::Error>(bytes::Bytes::from(piece)) }
        });
        let endless = futures::StreamExt::chain(first, futures::stream::pending());
        let request = http::Request::post(REVIEWS).body(Body::from_stream(endless)).unwrap();
        under_way.push(tokio::spawn(served.router.clone().oneshot(request)));
    }
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    let one_more = format!("{}{}", " ".repeat(LONGEST_BODY - 100), r#"{"spec": {"token": "t"}}"#);
    let request = http::Request::post(REVIEWS).body(Body::from(one_more)).unwrap();
    let (head, _) = served.ask(request).await;
    assert_eq!(head.status, 429);
    let (code, _) = served.post(REVIEWS, &json!({ "spec": { "token": "t" } })).await;
    assert_eq!(code, 201, "small ones have room left");
    for request in under_way {
        assert_eq!(request.await.unwrap().unwrap().status(), 503, "the deadline came");
    }
    let (code, _) = served.post(REVIEWS, &json!({ "spec": { "token": "t" } })).await;
    assert_eq!(code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_body_with_any_number_of_unknown_fields_is_answered_with_a_few_warnings() {
    let served = Served::start().await;
    let mut review = json!({ "spec": { "token": "t" } });
    for number in 0..40_000 {
        review[format!("field{number}")] = 0.into();
    }
    let request = http::Request::post(REVIEWS).body(Body::from(review.to_string())).unwrap();
    let (head, _) = served.ask(request).await;
    assert_eq!(head.status, 201);
    let warnings = head.headers.get_all(header::WARNING).iter().count();
    assert!((1..100).contains(&warnings), "{warnings}");
}

#[tokio::test(start_paused = true)]
async fn a_review_that_waits_for_keys_is_answered_though_its_configuration_was_replaced() {
    let stage = Stage::start().await;
    let service = |reviewer: Reviewer| {
        let (lines, limits) = (Arc::new(Lines::default()), Arc::default());
        Service::new(Arc::new(reviewer), Box::new(Anybody), lines, BTreeMap::new(), limits)
    };
    let keys = KeyStore::new(
        [("a".into(), testing::config(), stage.a.client())],
        Duration::from_secs(300),
    );
    let forwarder = Arc::new(Forwarder::new([("a".into(), stage.a.client())]));
    let mut tasks = JoinSet::new();
    tasks.spawn(keys.clone().keep("a".into()));
    let reviewer = Reviewer::new(keys.clone(), forwarder, Clock::from_fn(noon));
    let current = Arc::new(Mutex::new(Arc::new(service(reviewer).fetching(tasks))));
    let of_the_moment = current.clone();
    let router = router(move || lock(&of_the_moment).clone());
    while !keys.missing().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let new = Issuer::p256("new");
    stage.a.publish(&[&new]);
    let review = json!({ "spec": { "token": new.token(&claims()) } });
    let request = http::Request::post(REVIEWS).body(Body::from(review.to_string())).unwrap();
    let asked = tokio::spawn(router.oneshot(request));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!asked.is_finished());
    *lock(&current) = Arc::new(service(stage.another_reviewer()));
    let body = asked.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["status"]["authenticated"], true, "{body}");
}
