//! Serves a Router over HTTP, or over TLS if there is a certificate: our own pages to probes and to readers of
//! metrics, and an API to callers (`api.rs`).

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::runtime::{
    connection_limit::LimitedListener,
    tls_listener::{CertReloader, TlsListener},
};

pub use self::api::{ApiTls, CONNECTIONS, serve_api};

mod api;

/// For the headers of a request, the wait for the next one included.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

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
    let mut listener = LimitedListener::new(listener);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Frees what ended connections hold.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        connections.spawn(serve_connection(stream, router.clone(), stop.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// axum's own server has no limit on the time for a request's headers.
async fn serve_connection<S>(stream: S, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A client that breaks off is its own affair.
    let _ = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}
