//! Which connections are open, and which of them ends where there are too many.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

/// Beyond it, each new connection closes the oldest that has no follower.
const MOST_CONNECTIONS: usize = 4096;
/// A connection without a stream is closed.
const IDLE: Duration = Duration::from_secs(10);

/// A connection, as far as others must know of it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    close: CancellationToken,
    followers: AtomicUsize,
    streams: watch::Sender<usize>,
}

/// A stream that is served, until it is dropped.
pub(super) struct OpenStream(Arc<Connection>);

/// A stream that goes on after a join, until it is dropped.
pub(super) struct OpenFollower(Arc<Connection>);

impl OpenStream {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.streams.send_modify(|it| *it += 1);
        Self(connection.clone())
    }

    /// From now on no other connection takes the place of this one.
    pub(super) fn follower(&self) -> OpenFollower {
        self.0.followers.fetch_add(1, Ordering::Relaxed);
        OpenFollower(self.0.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.send_modify(|it| *it -= 1);
    }
}

impl Drop for OpenFollower {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// Waits until another one takes its place.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// Waits until it had no stream for a while.
    pub(super) async fn idle(&self) {
        let mut streams = self.streams.subscribe();
        loop {
            // The sender is ours, so neither wait fails.
            let _ = streams.wait_for(|it| *it == 0).await;
            if timeout(IDLE, streams.wait_for(|it| *it > 0)).await.is_err() {
                return;
            }
        }
    }
}

#[derive(Default)]
pub(super) struct OpenConnections {
    /// The oldest first.
    all: VecDeque<Weak<Connection>>,
}

impl OpenConnections {
    /// None if all connections have followers.
    pub(super) fn admit(&mut self) -> Option<Arc<Connection>> {
        if self.all.len() >= MOST_CONNECTIONS {
            self.all.retain(|it| it.strong_count() > 0);
        }
        if self.all.len() >= MOST_CONNECTIONS {
            let is_without = |it: &Arc<Connection>| it.followers.load(Ordering::Relaxed) == 0;
            let (at, oldest) = self.all.iter().enumerate().find_map(|(at, it)| {
                it.upgrade().filter(is_without).map(|connection| (at, connection))
            })?;
            oldest.close.cancel();
            self.all.remove(at);
        }
        let connection = Arc::new(Connection::default());
        self.all.push_back(Arc::downgrade(&connection));
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_who_proved_nothing_push_each_other_out_and_never_a_follower() {
        let mut open = OpenConnections::default();
        let mut all: Vec<_> = (0..MOST_CONNECTIONS).map(|_| open.admit().unwrap()).collect();
        let _follower = OpenStream::new(&all[0]).follower();
        all.push(open.admit().unwrap());
        assert!(!all[0].close.is_cancelled(), "the follower stays");
        assert!(all[1].close.is_cancelled(), "the oldest of the others goes");
        assert!(!all[2].close.is_cancelled());

        let mut followers: Vec<_> = all.iter().map(|it| OpenStream::new(it).follower()).collect();
        assert!(open.admit().is_none(), "there are followers alone");
        all.pop();
        followers.pop();
        assert!(open.admit().is_some(), "one that ended leaves its place");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_a_while_without_streams() {
        let connection = Arc::new(Connection::default());
        let stream = OpenStream::new(&connection);
        assert!(timeout(IDLE * 10, connection.idle()).await.is_err(), "a stream is open");
        drop(stream);
        let idle = timeout(IDLE * 2, connection.idle()).await;
        assert!(idle.is_ok());
    }
}
