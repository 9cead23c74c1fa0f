//! Bounds the connections of workloads. Every user of the machine may reach the socket, so those who get
//! nothing there share a few, and can't take the descriptors that the others need.

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// Below the usual limit of descriptors of a process, 1024.
const MOST_ALLOWED: usize = 800;
/// Enough to be told so.
const MOST_OTHERS: usize = 16;

pub(super) struct Connections {
    users: Arc<BTreeSet<u32>>,
    allowed: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(users: Arc<BTreeSet<u32>>) -> Self {
        let (allowed, others) = (Semaphore::new(MOST_ALLOWED), Semaphore::new(MOST_OTHERS));
        Self { users, allowed: Arc::new(allowed), others: Arc::new(others) }
    }

    /// None if there are too many; the connection is closed then.
    pub(super) fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let user = stream.peer_cred().ok().map(|it| it.uid());
        Some(Connection { stream, _place: self.place(user)? })
    }

    fn place(&self, user: Option<u32>) -> Option<OwnedSemaphorePermit> {
        let places = match user.is_some_and(|user| self.users.contains(&user)) {
            true => &self.allowed,
            false => &self.others,
        };
        places.clone().try_acquire_owned().ok()
    }
}

pub(super) struct Connection {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_get_nothing_take_no_place_from_those_who_do() {
        let connections = Connections::new(Arc::new(BTreeSet::from([7])));
        let flood = |user| {
            let places: Vec<_> = std::iter::from_fn(|| connections.place(user)).collect();
            places.len()
        };
        let others: Vec<_> = std::iter::from_fn(|| connections.place(Some(8))).collect();
        assert_eq!(others.len(), MOST_OTHERS);
        assert!(connections.place(None).is_none());
        assert_eq!(flood(Some(7)), MOST_ALLOWED);
        // Places come back with the end of a connection.
        drop(others);
        assert_eq!(flood(Some(9)), MOST_OTHERS);
    }
}
