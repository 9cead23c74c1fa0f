//! A limit on connections under which idle ones make room for new ones, and none goes in mid-request.
//!
//! `connection_limit` closes the oldest, which among callers with long connections is the best one. Here a
//! connection is idle until its first request is complete, and whenever none is under way; the longest idle one
//! goes first. So connections that only stand there cost nobody anything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::runtime::lock::lock;

/// Connections that may take a moment to say goodbye after they made room.
const LEAVING: usize = 64;

pub struct IdleFirst {
    most: usize,
    open: Mutex<Open>,
    leaving: Semaphore,
}

#[derive(Default)]
struct Open {
    /// Connections that have a place.
    count: usize,
    /// Numbers moments in their order.
    moments: u64,
    /// By the moment since when they are idle.
    idle: BTreeMap<u64, Arc<Connection>>,
}

/// A connection, as far as the limit knows it.
struct Connection {
    limit: Arc<IdleFirst>,
    requests: watch::Sender<Requests>,
    /// The moment, if it is among the idle ones.
    idle_since: AtomicU64,
    /// It has no place any more.
    displaced: CancellationToken,
}

#[derive(Clone, Copy, Default)]
struct Requests {
    begun: u64,
    under_way: usize,
}

/// The room that one connection takes, until it is dropped.
pub struct Slot(Arc<Connection>);

/// A request until its answer is sent, or dropped.
pub struct UnderWay(Arc<Connection>);

impl IdleFirst {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default(), leaving: Semaphore::new(LEAVING) })
    }

    /// A place for a new connection. The longest idle one loses its own if there is none left; if each has a
    /// request under way, there is no place.
    pub fn admit(self: &Arc<Self>) -> Option<Slot> {
        let mut open = lock(&self.open);
        if open.count >= self.most {
            let (_, longest_idle) = open.idle.pop_first()?;
            longest_idle.displaced.cancel();
            open.count -= 1;
        }
        let connection = Arc::new(Connection {
            limit: self.clone(),
            requests: watch::Sender::default(),
            idle_since: AtomicU64::default(),
            displaced: CancellationToken::new(),
        });
        open.count += 1;
        open.idles(&connection);
        Some(Slot(connection))
    }
}

impl Open {
    fn idles(&mut self, connection: &Arc<Connection>) {
        self.moments += 1;
        connection.idle_since.store(self.moments, Relaxed);
        self.idle.insert(self.moments, connection.clone());
    }
}

impl Connection {
    fn request(self: &Arc<Self>) -> UnderWay {
        let mut open = lock(&self.limit.open);
        open.idle.remove(&self.idle_since.load(Relaxed));
        self.requests.send_modify(|it| {
            it.begun += 1;
            it.under_way += 1;
        });
        UnderWay(self.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut open = lock(&connection.limit.open);
        connection.requests.send_modify(|it| it.under_way -= 1);
        // It was displaced, or has ended, and this request was its last.
        let has_place = !connection.displaced.is_cancelled();
        if has_place && connection.requests.borrow().under_way == 0 {
            open.idles(connection);
        }
    }
}

impl Slot {
    /// A request begins. To be called before anybody waits for anything, since the connection is idle until then.
    pub fn request(&self) -> UnderWay {
        self.0.request()
    }

    pub fn is_displaced(&self) -> bool {
        self.0.displaced.is_cancelled()
    }

    /// Waits until another connection takes the place of this one.
    pub async fn displaced(&self) {
        self.0.displaced.cancelled().await;
    }

    /// Whether a connection that was displaced may end in order: not if it never had a request, nor if many others
    /// are doing so.
    pub fn may_take_leave(&self) -> Option<Leave<'_>> {
        let requests = *self.0.requests.borrow();
        match self.0.limit.leaving.try_acquire() {
            Ok(permit) if requests.begun > 0 => Some(Leave { _permit: Some(permit) }),
            // It began after this connection was chosen.
            _ if requests.under_way > 0 => Some(Leave { _permit: None }),
            _ => None,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.0.requests.borrow().under_way == 0
    }

    /// Waits for the next request.
    pub async fn next_request(&self) {
        let mut requests = self.0.requests.subscribe();
        let begun = requests.borrow_and_update().begun;
        // The sender is ours, so the wait does not fail.
        let _ = requests.wait_for(|it| it.begun > begun).await;
    }

    /// Waits until no request was under way for so long.
    pub async fn idle_for(&self, time: Duration) {
        let mut requests = self.0.requests.subscribe();
        loop {
            let _ = requests.wait_for(|it| it.under_way == 0).await;
            if timeout(time, requests.wait_for(|it| it.under_way > 0)).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut open = lock(&connection.limit.open);
        if !connection.displaced.is_cancelled() {
            connection.displaced.cancel();
            open.idle.remove(&connection.idle_since.load(Relaxed));
            open.count -= 1;
        }
    }
}

/// Until it is dropped, one fewer of the others may.
pub struct Leave<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_makes_room_and_none_with_a_request_under_way() {
        let limit = IdleFirst::new(4);
        let places: Vec<_> = (0..4).map(|_| limit.admit().unwrap()).collect();
        let of_first = places[0].request();
        drop(places[1].request());
        // The first is busy, and the second was so after the third had come.
        let fifth = limit.admit().unwrap();
        assert_eq!([0, 1, 2, 3].map(|it| places[it].is_displaced()), [false, false, true, false]);
        let sixth = limit.admit().unwrap();
        assert_eq!([0, 1, 2, 3].map(|it| places[it].is_displaced()), [false, false, true, true]);
        let seventh = limit.admit().unwrap();
        assert!(places[1].is_displaced() && !fifth.is_displaced());
        drop(of_first);
        let eighth = limit.admit().unwrap();
        assert!(fifth.is_displaced() && !places[0].is_displaced());
        assert!([sixth, seventh, eighth].iter().all(|it| !it.is_displaced()));
    }

    #[test]
    fn where_each_connection_has_a_request_under_way_a_new_one_is_refused_until_one_ends() {
        let limit = IdleFirst::new(2);
        let (first, second) = (limit.admit().unwrap(), limit.admit().unwrap());
        let (of_first, _of_second) = (first.request(), second.request());
        assert!(limit.admit().is_none());
        let another = first.request();
        drop(of_first);
        assert!(limit.admit().is_none(), "it has a second one");
        drop(another);
        assert!(limit.admit().is_some());
        assert!(first.is_displaced() && !second.is_displaced());
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place_whatever_of_it_ends_last() {
        let limit = IdleFirst::new(1);
        for _ in 0..10 {
            let place = limit.admit().unwrap();
            let request = place.request();
            drop(place);
            let next = limit.admit().unwrap();
            drop(request);
            let third = limit.admit().unwrap();
            assert!(next.is_displaced());
            drop(next);
            assert!(!third.is_displaced());
        }
        let open = lock(&limit.open);
        assert_eq!((open.count, open.idle.len()), (0, 0));
    }

    #[test]
    fn a_displaced_connection_takes_leave_if_it_was_used_and_not_all_do_at_once() {
        let limit = IdleFirst::new(1);
        let never_used = limit.admit().unwrap();
        let used = limit.admit().unwrap();
        drop(used.request());
        assert!(never_used.may_take_leave().is_none());
        let leaving: Vec<_> = (0..LEAVING).map(|_| used.may_take_leave().unwrap()).collect();
        assert!(used.may_take_leave().is_none());
        drop(leaving);
        assert!(used.may_take_leave().is_some());
    }
}
