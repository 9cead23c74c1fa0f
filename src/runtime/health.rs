//! The pages `/livez`, `/readyz` and `/metrics`. Only the last may need a token.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::runtime::token_auth::{Access, TokenAuth};

pub struct Health {
    /// Reasons why the replica is not ready; empty if it is.
    pub waiting_for: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    pub registry: Registry,
    /// Guards `/metrics`; without it, everybody may read them.
    pub auth: Option<TokenAuth>,
}

pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(health))
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
    if let Some(auth) = &health.auth
        && let Err(refusal) = authorize(auth, &headers).await
    {
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
async fn authorize(auth: &TokenAuth, headers: &HeaderMap) -> Result<(), Response> {
    match auth.check(headers, "/metrics").await {
        Ok(Access::Allowed) => Ok(()),
        Ok(Access::Unauthenticated) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let text = "a bearer token that the API server knows is needed\n";
            Err((StatusCode::UNAUTHORIZED, challenge, text).into_response())
        }
        Ok(Access::Forbidden) => {
            let text = "the right to get the nonResourceURL /metrics is needed\n";
            Err((StatusCode::FORBIDDEN, text).into_response())
        }
        Err(error) => {
            tracing::warn!(%error, "authenticating /metrics request failed");
            let text = "who you are could not be found out; try again\n";
            Err((StatusCode::SERVICE_UNAVAILABLE, text).into_response())
        }
    }
}
