//! `/livez`, `/readyz` and `/metrics`: the first two for everybody, the third for those who may.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::runtime::{
    connection_limit::LimitedListener,
    tls_listener::{CertReloader, SecureListener},
    token_auth::{TokenAuth, Verdict},
};

/// What the endpoints tell.
pub struct Health {
    /// What is not ready yet, in words; empty when all is.
    pub waiting_for: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// What `/metrics` shows.
    pub registry: Registry,
    /// Who may see it; everybody where there is none.
    pub access: Option<TokenAuth>,
}

/// Takes the port; answers which one it is, for port 0.
pub async fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = match TcpListener::bind(address).await {
        // A kernel without IPv6 has no `[::]`, which means every address there is.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await?
        }
        bound => bound?,
    };
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Answers until asked to stop: over TLS where there is a pair for it.
pub async fn serve(
    listener: TcpListener,
    pair: Option<Arc<CertReloader>>,
    health: Arc<Health>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    let stop = stop.cancelled_owned();
    match pair {
        None => {
            axum::serve(LimitedListener::over(listener), router).with_graceful_shutdown(stop).await
        }
        Some(pair) => {
            let listener = SecureListener::over(listener, pair)?;
            axum::serve(LimitedListener::over(listener), router).with_graceful_shutdown(stop).await
        }
    }
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
    if let Some(access) = &health.access
        && let Err(refusal) = admit(access, &headers).await
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

/// Lets the sender in, or says why not.
async fn admit(access: &TokenAuth, headers: &HeaderMap) -> Result<(), Response> {
    match access.check(headers, "/metrics").await {
        Ok(Verdict::Allowed) => Ok(()),
        Ok(Verdict::Unknown) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let text = "a bearer token that the API server knows is needed\n";
            Err((StatusCode::UNAUTHORIZED, challenge, text).into_response())
        }
        Ok(Verdict::Refused) => {
            let text = "the right to get the nonResourceURL /metrics is needed\n";
            Err((StatusCode::FORBIDDEN, text).into_response())
        }
        Err(error) => {
            tracing::warn!(%error, "who asks for /metrics could not be found out");
            let text = "who you are could not be found out; try again\n";
            Err((StatusCode::SERVICE_UNAVAILABLE, text).into_response())
        }
    }
}
