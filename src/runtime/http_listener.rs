//! Serves a Router over HTTP, or over TLS if there is a certificate.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{Router, serve::Listener};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::runtime::{
    connection_limit::LimitedListener,
    tls_listener::{CertReloader, TlsListener},
};

/// Also answers the address, which has the port that was chosen for port 0.
pub async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = match TcpListener::bind(address).await {
        // `[::]` means every address, but a kernel without IPv6 has only those of IPv4.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await?
        }
        bound => bound?,
    };
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until asked to stop: TLS if there is a certificate, plain HTTP otherwise.
pub async fn serve(
    listener: TcpListener,
    certificate: Option<Arc<CertReloader>>,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    match certificate {
        None => serve_on(listener, router, stop).await,
        Some(certificate) => serve_on(TlsListener::new(listener, certificate)?, router, stop).await,
    }
}

/// Serves on any listener, with a limit on its connections. Answers requests under way at the end.
pub async fn serve_on<L>(listener: L, router: Router, stop: CancellationToken) -> io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    axum::serve(LimitedListener::new(listener), router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}
