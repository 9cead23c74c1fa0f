//! Who is let in, who is asked about, and what is remembered.

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
    fn access(&self) -> TokenAuth {
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

async fn verdict(access: &TokenAuth, token: &str) -> Verdict {
    access.check(&headers(&format!("Bearer {token}")), PATH).await.unwrap()
}

#[tokio::test]
async fn who_may_get_the_page_is_let_in_and_nobody_else() {
    let access = Server::default().access();
    assert_eq!(verdict(&access, "reader").await, Verdict::Allowed);
    assert_eq!(verdict(&access, "stranger").await, Verdict::Refused);
    assert_eq!(verdict(&access, "forged").await, Verdict::Unknown);
}

#[tokio::test]
async fn what_is_no_bearer_token_is_refused_without_asking() {
    let server = Server::default();
    let access = server.access();
    let long = format!("Bearer {}", "x".repeat(LONGEST + 1));
    for value in ["", "reader", "Basic reader", "Bearer", "Bearer ", &long] {
        let verdict = access.check(&headers(value), PATH).await;
        assert_eq!(verdict, Ok(Verdict::Unknown), "{value:.20}");
    }
    assert_eq!(access.check(&HeaderMap::new(), PATH).await, Ok(Verdict::Unknown));
    assert_eq!(server.asked(), 0);
    assert_eq!(access.check(&headers("bearer reader"), PATH).await, Ok(Verdict::Allowed));
}

#[tokio::test]
async fn the_api_server_decides_about_the_whole_user() {
    let server = Server::default();
    verdict(&server.access(), "reader").await;
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
    let access = server.access();
    for (token, lasts) in [("reader", ALLOWED_FOR), ("stranger", REFUSED_FOR)] {
        let before = server.asked();
        verdict(&access, token).await;
        tokio::time::sleep(lasts - Duration::from_millis(10)).await;
        verdict(&access, token).await;
        assert_eq!(server.asked() - before, 2, "{token}: one question, in two calls");
        tokio::time::sleep(Duration::from_millis(20)).await;
        verdict(&access, token).await;
        assert_eq!(server.asked() - before, 4, "{token}: asked again");
    }
}

#[tokio::test]
async fn an_answer_about_one_page_is_none_about_another() {
    let server = Server::default();
    let access = server.access();
    verdict(&access, "reader").await;
    access.check(&headers("Bearer reader"), "/other").await.unwrap();
    assert_eq!(server.asked(), 4);
}

#[tokio::test]
async fn somebody_who_guesses_tokens_drives_nobody_out_and_fills_no_memory() {
    let server = Server::default();
    let access = server.access();
    verdict(&access, "reader").await;
    for number in 0..2 * REMEMBERED {
        verdict(&access, &format!("guess-{number}")).await;
        assert!(access.remembered().len() <= REMEMBERED);
    }
    let before = server.asked();
    verdict(&access, "reader").await;
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
    let access = TokenAuth::new(Client::new(service, "default"));
    let answer = access.check(&headers("Bearer reader"), PATH).await;
    assert_eq!(answer, Err(ApiError::Forbidden));
    assert!(access.remembered().is_empty());
}
