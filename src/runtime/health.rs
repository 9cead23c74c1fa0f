//! The pages `/livez`, `/readyz` and `/metrics`, and those of a job. The first two need no token.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;

use crate::runtime::{
    printable,
    token_auth::{Access, TokenAuth},
};

pub struct Health {
    /// Reasons why the replica is not ready; empty if it is.
    pub waiting_for: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    pub registry: Registry,
    /// Guards `/metrics` and the job's pages; without it, everybody may read them.
    pub auth: Option<TokenAuth>,
    pub pages: Vec<Page>,
}

/// A page of a job, with what it shows at the moment.
pub struct Page {
    pub path: &'static str,
    pub content: Box<dyn Fn() -> Value + Send + Sync>,
}

pub fn router(mut health: Health) -> Router {
    let mut router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics));
    for page in std::mem::take(&mut health.pages) {
        let path = page.path;
        let page = Arc::new(page);
        let show = move |State(health): State<Arc<Health>>, headers: HeaderMap| {
            show(page.clone(), health, headers)
        };
        router = router.route(path, get(show));
    }
    router.with_state(Arc::new(health))
}

async fn show(page: Arc<Page>, health: Arc<Health>, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorize(&health, &headers, page.path).await {
        return refusal;
    }
    let text = printable::json(&(page.content)().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let waiting_for = (health.waiting_for)();
    if waiting_for.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", waiting_for.join("\n")))
    }
}

async fn metrics(State(health): State<Arc<Health>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorize(&health, &headers, "/metrics").await {
        return refusal;
    }
    let mut text = String::new();
    match encode(&mut text, &health.registry) {
        Ok(()) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        )
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The error is the response to an unauthorized request.
async fn authorize(
    health: &Health,
    headers: &HeaderMap,
    path: &'static str,
) -> Result<(), Response> {
    let Some(auth) = &health.auth else { return Ok(()) };
    match auth.check(headers, path).await {
        Ok(Access::Allowed) => Ok(()),
        Ok(Access::Unauthenticated) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let text = "a bearer token that the API server knows is needed\n";
            Err((StatusCode::UNAUTHORIZED, challenge, text).into_response())
        }
        Ok(Access::Forbidden) => {
            let text = format!("the right to get the nonResourceURL {path} is needed\n");
            Err((StatusCode::FORBIDDEN, text).into_response())
        }
        Err(error) => {
            tracing::warn!(%error, path, "authenticating a request failed");
            let text = "who you are could not be found out; try again\n";
            Err((StatusCode::SERVICE_UNAVAILABLE, text).into_response())
        }
    }
}
