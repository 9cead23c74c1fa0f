//! Access to /metrics: answers, TokenReviews, and their cache.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;

const PATH: &str = "/metrics";

/// An API server that knows the tokens `reader` and `stranger`, and what it was asked.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<Value>>>);

impl Server {
    fn auth(&self) -> TokenAuth {
        let asked = self.0.clone();
        let service = service_fn(move |request: Request<Body>| {
            let asked = asked.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await?.to_bytes();
                let mut review: Value = serde_json::from_slice(&body)?;
                asked.lock().unwrap().push(review.clone());
                let (code, status) = answer(&path, &review["spec"]);
                review["status"] = status;
                let body = Body::from(serde_json::to_vec(&review)?);
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        TokenAuth::new(Client::new(service, "default"))
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn answer(path: &str, spec: &Value) -> (u16, Value) {
    if path.ends_with("/tokenreviews") {
        let token = spec["token"].as_str().unwrap();
        let known = ["reader", "stranger"].contains(&token);
        let user = json!({ "username": token, "groups": ["people"], "uid": "7" });
        return (
            201,
            json!({ "authenticated": known, "user": if known { user } else { json!({}) } }),
        );
    }
    (201, json!({ "allowed": spec["user"] == "reader" }))
}

fn headers(authorization: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::AUTHORIZATION, authorization.parse().unwrap())])
}

async fn access(auth: &TokenAuth, token: &str) -> Access {
    auth.check(&headers(&format!("Bearer {token}")), PATH).await.unwrap()
}

#[tokio::test]
async fn who_may_get_the_page_is_let_in_and_nobody_else() {
    let auth = Server::default().auth();
    assert_eq!(access(&auth, "reader").await, Access::Allowed);
    assert_eq!(access(&auth, "stranger").await, Access::Forbidden);
    assert_eq!(access(&auth, "forged").await, Access::Unauthenticated);
}

#[tokio::test]
async fn what_is_no_bearer_token_is_refused_without_asking() {
    let server = Server::default();
    let auth = server.auth();
    let long = format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
    let split = ["Bearer  reader", "Bearer reader ", "Bearer rea der", "Bearer\treader"];
    let others = ["", "reader", "Basic reader", "Bearer", "Bearer ", "Bearer rea\tder", &long];
    for value in split.into_iter().chain(others) {
        let access = auth.check(&headers(value), PATH).await;
        assert_eq!(access, Ok(Access::Unauthenticated), "{value:.20}");
    }
    assert_eq!(auth.check(&HeaderMap::new(), PATH).await, Ok(Access::Unauthenticated));
    assert_eq!(server.asked(), 0);
    assert_eq!(auth.check(&headers("bearer reader"), PATH).await, Ok(Access::Allowed));
}

#[tokio::test]
async fn the_api_server_decides_about_the_whole_user() {
    let server = Server::default();
    access(&server.auth(), "reader").await;
    let asked = server.0.lock().unwrap();
    let spec = json!({
        "user": "reader", "groups": ["people"], "uid": "7",
        "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
    });
    assert_eq!(asked[1]["spec"], spec);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_remembered_for_a_while_and_then_asked_for_again() {
    let server = Server::default();
    let auth = server.auth();
    for (token, lasts) in [("reader", ALLOWED_FOR), ("stranger", REFUSED_FOR)] {
        let before = server.asked();
        access(&auth, token).await;
        tokio::time::sleep(lasts - Duration::from_millis(10)).await;
        access(&auth, token).await;
        assert_eq!(server.asked() - before, 2, "{token}: one question, in two calls");
        tokio::time::sleep(Duration::from_millis(20)).await;
        access(&auth, token).await;
        assert_eq!(server.asked() - before, 4, "{token}: asked again");
    }
}

#[tokio::test]
async fn an_answer_about_one_page_is_none_about_another() {
    let server = Server::default();
    let auth = server.auth();
    access(&auth, "reader").await;
    auth.check(&headers("Bearer reader"), "/other").await.unwrap();
    assert_eq!(server.asked(), 4);
}

#[tokio::test]
async fn somebody_who_guesses_tokens_drives_nobody_out_and_fills_no_memory() {
    let server = Server::default();
    let auth = server.auth();
    access(&auth, "reader").await;
    for number in 0..2 * CACHE_SIZE {
        access(&auth, &format!("guess-{number}")).await;
        assert!(lock(&auth.cache).len() <= CACHE_SIZE);
    }
    let before = server.asked();
    access(&auth, "reader").await;
    assert_eq!(server.asked(), before, "still remembered");
}

#[tokio::test]
async fn an_api_server_that_fails_lets_nobody_in_and_is_not_remembered() {
    let service = service_fn(async |_: Request<Body>| {
        let status =
            json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden" });
        let body = Body::from(serde_json::to_vec(&status)?);
        Ok::<_, BoxError>(Response::builder().status(403).body(body)?)
    });
    let auth = TokenAuth::new(Client::new(service, "default"));
    let answer = auth.check(&headers("Bearer reader"), PATH).await;
    assert_eq!(answer, Err(ApiError::Forbidden));
    assert!(lock(&auth.cache).is_empty());
}

#[test]
fn of_two_headers_neither_has_the_token() {
    let one = headers("bearer reader");
    assert_eq!(bearer(&one), Some("reader"));
    let mut two = one;
    two.append(header::AUTHORIZATION, "Bearer other".parse().unwrap());
    assert_eq!(bearer(&two), None);
}
