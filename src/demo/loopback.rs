//! Listens on 127.0.0.1 only.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This port; 0 for any free one.
    Exactly(u16),
    /// This port, or any free one if it is taken.
    Rather(u16),
}

pub async fn listen(port: Port) -> io::Result<TcpListener> {
    let bind = async |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    match port {
        Port::Exactly(port) => bind(port).await,
        Port::Rather(port) => match bind(port).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => bind(0).await,
            bound => bound,
        },
    }
}

/// Serves every connection in its own task, and aborts all of them when it stops.
pub async fn accept<F>(
    listener: TcpListener,
    stop: CancellationToken,
    mut serve: impl FnMut(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    /// Accepting fails mostly for lack of file descriptors, which takes time to recover from.
    const AFTER_FAILURE: Duration = Duration::from_millis(50);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve(stream, peer));
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
