//! Bounds the connections of workloads. Every user of the machine may reach the socket, so those who get
//! nothing there share a few, and can't take the descriptors that the others need.

use std::{
    collections::{BTreeMap, BTreeSet},
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
/// Of these each allowed user gets its share, and as many at least.
const SMALLEST_SHARE: usize = 64;
/// Enough to be told so.
const MOST_OTHERS: usize = 16;

pub(super) struct Connections {
    allowed: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// What is left of its share, for each allowed user.
    shares: BTreeMap<u32, Arc<Semaphore>>,
}

/// Room for one connection, until it is dropped.
struct ConnectionSlot {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<OwnedSemaphorePermit>,
}

impl Connections {
    pub(super) fn new(users: &BTreeSet<u32>) -> Self {
        let (allowed, others) = (Semaphore::new(MOST_ALLOWED), Semaphore::new(MOST_OTHERS));
        let share = (MOST_ALLOWED / users.len().max(1)).max(SMALLEST_SHARE);
        let shares = users.iter().map(|user| (*user, Arc::new(Semaphore::new(share)))).collect();
        Self { allowed: Arc::new(allowed), others: Arc::new(others), shares }
    }

    /// None if there are too many; the connection is closed then.
    pub(super) fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let user = stream.peer_cred().ok().map(|it| it.uid());
        Some(Connection { stream, _slot: self.slot(user)? })
    }

    fn slot(&self, user: Option<u32>) -> Option<ConnectionSlot> {
        let take = |slots: &Arc<Semaphore>| slots.clone().try_acquire_owned().ok();
        let share = user.and_then(|user| self.shares.get(&user));
        Some(match share {
            Some(share) => {
                ConnectionSlot { _of_share: Some(take(share)?), _of_all: take(&self.allowed)? }
            }
            None => ConnectionSlot { _of_share: None, _of_all: take(&self.others)? },
        })
    }
}

pub(super) struct Connection {
    stream: UnixStream,
    _slot: ConnectionSlot,
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
        let connections = Connections::new(&BTreeSet::from([7]));
        let flood = |user| {
            let slots: Vec<_> = std::iter::from_fn(|| connections.slot(user)).collect();
            slots.len()
        };
        let others: Vec<_> = std::iter::from_fn(|| connections.slot(Some(8))).collect();
        assert_eq!(others.len(), MOST_OTHERS);
        assert!(connections.slot(None).is_none());
        assert_eq!(flood(Some(7)), MOST_ALLOWED);
        // Slots come back with the end of a connection.
        drop(others);
        assert_eq!(flood(Some(9)), MOST_OTHERS);
    }

    #[test]
    fn one_allowed_user_leaves_places_for_the_others() {
        let connections = Connections::new(&BTreeSet::from([7, 8]));
        let flood: Vec<_> = std::iter::from_fn(|| connections.slot(Some(7))).collect();
        assert_eq!(flood.len(), MOST_ALLOWED / 2);
        assert!(connections.slot(Some(8)).is_some());
        let many = Connections::new(&(0..100).collect());
        let flood: Vec<_> = std::iter::from_fn(|| many.slot(Some(7))).collect();
        assert_eq!(flood.len(), SMALLEST_SHARE);
    }
}
