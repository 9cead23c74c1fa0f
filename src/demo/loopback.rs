//! Listens on 127.0.0.1, and nowhere else.

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

/// Which port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This one; 0 stands for any that is free.
    Exactly(u16),
    /// This one, or any other where it is taken.
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

/// Gives every connection a task of its own, until asked to stop; then all of them end at once.
pub async fn accept<F>(
    listener: TcpListener,
    stop: CancellationToken,
    mut serve: impl FnMut(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    /// An accept fails mostly for lack of file descriptors, which takes time to mend.
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
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
