//! `/livez`, `/readyz` and `/metrics` over plain HTTP.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the endpoints tell.
pub struct Health {
    /// What is not ready yet, in words; empty when all is.
    pub waiting_for: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// What `/metrics` shows.
    pub registry: Registry,
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

/// Answers until asked to stop.
pub async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let waiting_for = (health.waiting_for)();
    if waiting_for.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", waiting_for.join("\n")))
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
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
