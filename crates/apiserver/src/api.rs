//! The Kubernetes HTTP API over a store, as a `tower::Service`.
//!
//! Every request but a watch is answered, and its write is in the store, when its future is polled
//! for the first time, provided that its body is in memory. Unsupported requests are refused plainly.

mod accept;
mod access_rules;
mod answer;
mod body;
mod discovery;
mod document;
mod list_options;
mod objects;
mod openapi;
mod params;
mod patches;
mod path;
mod payload;
mod protobuf;
mod reviews;
mod signing;
mod table;
mod watch;

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use http::{Method, Request, Response, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio::sync::Notify;

pub use self::body::Body;
use self::{answer::Answer, openapi::Documents, path::Path};
use crate::{
    api_error::ApiError,
    kinds::{self, Kinds},
    store::{Call, Store},
    tokens::Tokens,
};

/// kube-apiserver's limit.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// An API server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    /// Product name for `/version` and OpenAPI documents.
    name: &'static str,
    kinds: &'static Kinds,
    documents: Documents,
    store: Mutex<Store>,
    /// Locked before the store.
    tokens: Arc<Mutex<Tokens>>,
    /// Wakes the watches in the order in which they wait, so that a run can be repeated.
    changed: Notify,
    clock: Box<dyn Fn() -> DateTime<Utc> + Send + Sync>,
}

impl ApiServer {
    /// A server with the kinds of the store and the namespaces that every cluster has. Clients read
    /// `name` in `/version`.
    pub fn new(
        name: &'static str,
        store: Store,
        clock: impl Fn() -> DateTime<Utc> + Send + Sync + 'static,
    ) -> Self {
        Self::start(name, store, Arc::default(), Box::new(clock))
    }

    /// Another server of the same cluster, such as one that lags: it has the same keys for tokens.
    pub fn replica(
        &self,
        store: Store,
        clock: impl Fn() -> DateTime<Utc> + Send + Sync + 'static,
    ) -> Self {
        Self::start(self.inner.name, store, self.inner.tokens.clone(), Box::new(clock))
    }

    fn start(
        name: &'static str,
        store: Store,
        tokens: Arc<Mutex<Tokens>>,
        clock: Box<dyn Fn() -> DateTime<Utc> + Send + Sync>,
    ) -> Self {
        let kinds = store.kinds();
        let documents = Documents::new(kinds, name);
        let (store, changed) = (Mutex::new(store), Notify::new());
        let inner = Inner { name, kinds, documents, store, tokens, changed, clock };
        let server = Self { inner: Arc::new(inner) };
        let mut call = Call::at(server.now());
        server.with(|store| {
            for name in NAMESPACES {
                // Fails if the store has it already.
                let namespace = json!({ "metadata": { "name": name } });
                let _ = store.create(kinds::namespace(), "", namespace, &mut call);
            }
        });
        server
    }

    fn now(&self) -> DateTime<Utc> {
        (self.inner.clock)()
    }

    /// A client in the same process: no socket, no TLS, no retries.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Sends a request with a JSON body (none if null; a merge patch for PATCH). Returns code and body
    /// of the answer. Panics for watches, which are not answered at once.
    pub fn request(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.request_as(None, method, path, body)
    }

    /// The same with a bearer token.
    pub fn request_as(
        &self,
        token: Option<&str>,
        method: Method,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", content_type);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).expect("path and token fit into a request");
        let at_once = "only watches wait";
        let answer = self.clone().answer(request).now_or_never().expect(at_once);
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().now_or_never().expect(at_once);
        let body = body.unwrap_or_else(|never| match never {}).to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Reads or changes the store and wakes the watches.
    pub fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        // A poisoned lock must not hide the panic in `work` that caused it.
        let mut store = self.inner.store.lock().unwrap_or_else(PoisonError::into_inner);
        let before = store.version();
        let outcome = work(&mut store);
        if store.version() > before {
            store.collect_garbage(before, self.now());
        }
        let version = store.version();
        drop(store);
        if version > before {
            self.inner.changed.notify_waiters();
        }
        outcome
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let why = format!("Request entity too large: limit is {LARGEST_BODY}");
                return answer::error(&ApiError::too_large(why));
            }
            Err(_) => {
                return answer::error(&ApiError::bad_request("the request's body broke off"));
            }
        };
        match self.route(&parts, body) {
            Ok(answer) => answer.into_response(&parts),
            Err(error) => answer::error(&error),
        }
    }

    fn route(&self, parts: &Parts, body: Bytes) -> Result<Answer, ApiError> {
        let user = access_rules::user(self, &parts.headers)?;
        if !user.is_administrator() {
            access_rules::check(&user, parts)?;
        }
        match Path::parse(self.inner.kinds, parts.uri.path())? {
            Path::Object(target) => objects::serve(self, &target, parts, body),
            Path::Review(kind) => reviews::review(self, kind, &user, parts, &body),
            Path::Token { namespace, account } => {
                reviews::issue_token(self, (&namespace, &account), parts, &body)
            }
            Path::OpenIdConfiguration => signing::configuration(self, parts),
            Path::Jwks => signing::jwks(self, parts),
            path => self.read(path, parts),
        }
    }

    /// What everybody reads.
    fn read(&self, path: Path, parts: &Parts) -> Result<Answer, ApiError> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        match path {
            Path::Healthy => Ok(Answer::text("ok")),
            Path::Version => Ok(Answer::json(discovery::version(self.inner.name))),
            Path::OpenApi(path) => self.inner.documents.serve(&path, parts),
            Path::Discovery(path) => discovery::serve(self.inner.kinds, &path, parts),
            _ => Err(ApiError::no_such_path()),
        }
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiServer")
    }
}

#[cfg(test)]
mod tests;
