//! One of the two servers, and its answers.

use std::sync::{Arc, Mutex};

use apiserver::api::ApiServer;
use futures::TryStreamExt;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, BodyStream};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use testkit::Access;
use tower::ServiceExt;

#[derive(Clone)]
pub struct Side {
    pub name: &'static str,
    pub client: Client,
    pub server: Server,
}

/// Where clients with other tokens lead.
#[derive(Clone)]
pub enum Server {
    Real(Access),
    Sandbox(ApiServer),
    /// Has defects, and no accounts.
    Defective,
}

/// Answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub content_type: String,
    pub warnings: Vec<String>,
    /// A string if it is not JSON.
    pub body: Value,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn head(code: u16, headers: &HeaderMap) -> Self {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let content_type = headers.get("content-type").map(text).unwrap_or_default();
        let warnings = headers.get_all("warning").iter().map(text).collect();
        Self { code, content_type, warnings, body: Value::Null }
    }
}

/// An open watch and its events so far. Dropping it closes it.
pub struct Watching {
    events: Arc<Mutex<Vec<Value>>>,
    reading: tokio::task::JoinHandle<()>,
}

impl Watching {
    pub fn events(&self) -> Vec<Value> {
        self.events.lock().expect("no reader panicked").clone()
    }

    /// Whether the server has ended it.
    pub fn has_ended(&self) -> bool {
        self.reading.is_finished()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Side {
    /// Sends a request and reads the whole answer.
    pub async fn call(&self, request: Request<Vec<u8>>) -> Answer {
        let response = self.send(request).await;
        self.whole(response).await
    }

    /// The same side for the owner of a token.
    pub async fn bearing(&self, token: String) -> Self {
        let client = match &self.server {
            Server::Real(admin) => admin.with_token(token).client_without_retries().await,
            Server::Sandbox(server) => bearing(server, &token),
            Server::Defective => panic!("{} has no accounts", self.name),
        };
        Self { client, ..self.clone() }
    }

    /// Opens a watch; the answer is its head, or a refusal.
    pub async fn watch(&self, request: Request<Vec<u8>>) -> (Answer, Option<Watching>) {
        let response = self.send(request).await;
        if response.status() != 200 {
            return (self.whole(response).await, None);
        }
        let head = Answer::head(200, response.headers());
        let events = Arc::new(Mutex::new(Vec::new()));
        let reading = tokio::spawn(read(response.into_body(), events.clone()));
        (head, Some(Watching { events, reading }))
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Response<Body> {
        let asked = format!("{} {}", request.method(), request.uri());
        let sent = self.client.send(request.map(Body::from)).await;
        sent.unwrap_or_else(|error| panic!("{} did not answer {asked}: {error}", self.name))
    }

    async fn whole(&self, response: Response<Body>) -> Answer {
        let head = Answer::head(response.status().as_u16(), response.headers());
        let bytes = response.into_body().collect().await;
        let bytes = bytes.unwrap_or_else(|error| panic!("{} broke off: {error}", self.name));
        let bytes = bytes.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Answer { body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()), ..head }
    }
}

fn bearing(server: &ApiServer, token: &str) -> Client {
    let header = HeaderValue::try_from(format!("Bearer {token}")).expect("a token");
    let bearing = server.clone().map_request(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, header.clone());
        request
    });
    Client::new(bearing, "default")
}

/// Events are one line each.
async fn read(body: Body, events: Arc<Mutex<Vec<Value>>>) {
    let mut frames = BodyStream::new(body);
    let mut held = Vec::new();
    while let Ok(Some(frame)) = frames.try_next().await {
        held.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            let text = || Value::String(String::from_utf8_lossy(&line).into_owned());
            let event = serde_json::from_slice(&line).unwrap_or_else(|_| text());
            events.lock().expect("no reader panicked").push(event);
        }
    }
    // An error, or a watch that broke off.
    if !held.is_empty() {
        let text = || Value::String(String::from_utf8_lossy(&held).into_owned());
        let rest = serde_json::from_slice(&held).unwrap_or_else(|_| text());
        events.lock().expect("no reader panicked").push(rest);
    }
}
