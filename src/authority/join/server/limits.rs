//! How many streams there may be at once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    authority::decide::join_audit::network,
    runtime::{lock::lock, tls_listener::PeerAddress},
    spiffe::id::SpiffeId,
};

/// Followers included: about a stream for each node of a large cluster.
const MOST_STREAMS: usize = 8192;
/// Of callers who have not proved anything yet. Each may make us hold a message of 64 KiB. Beyond it, a new
/// one ends the oldest that we wait for: an honest client answers at once, and silent ones must not keep
/// it out.
const MOST_JOINING: usize = 512;
const MOST_PER_ADDRESS: usize = 256;
/// Followers with the same foreign SPIFFE ID: three quarters of the connections that there may be. The nodes of a
/// cluster may share one; it must not keep everybody else out.
const MOST_PER_ID: usize = 3072;

pub(super) struct Limits {
    streams: Arc<Semaphore>,
    joining: Arc<Mutex<Joining>>,
    /// None where a router stands between: all clients have its address.
    by_address: Option<Counts<IpAddr>>,
    followers: Counts<String>,
}

/// Room for one stream, until it is dropped.
pub(super) struct StreamSlot {
    joining: Option<JoiningSlot>,
    _stream: OwnedSemaphorePermit,
    _of_address: Option<Share<IpAddr>>,
    _counted: Counted,
}

impl StreamSlot {
    /// Waits until a newer caller takes its slot.
    pub(super) async fn taken(&self) {
        match &self.joining {
            Some(slot) => slot.taken.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Keeps the slot while the caller is judged. Whether it still has it.
    pub(super) fn judged(&self) -> bool {
        self.joining.as_ref().is_none_or(JoiningSlot::judged)
    }

    /// Makes room for another caller: this one has proved who it is.
    pub(super) fn joined(&mut self) {
        self.joining = None;
    }
}

/// Streams that have not joined, by number.
#[derive(Default)]
struct Joining {
    next: u64,
    /// We wait for the client.
    waiting: BTreeMap<u64, CancellationToken>,
    /// The client waits for us.
    judged: BTreeSet<u64>,
}

struct JoiningSlot {
    all: Arc<Mutex<Joining>>,
    number: u64,
    taken: CancellationToken,
}

impl JoiningSlot {
    fn take(joining: &Arc<Mutex<Joining>>) -> Option<Self> {
        let mut all = lock(joining);
        if all.waiting.len() + all.judged.len() >= MOST_JOINING {
            let (_, oldest) = all.waiting.pop_first()?;
            oldest.cancel();
        }
        let (number, taken) = (all.next, CancellationToken::new());
        all.next += 1;
        all.waiting.insert(number, taken.clone());
        Some(Self { all: joining.clone(), number, taken })
    }

    fn judged(&self) -> bool {
        let mut all = lock(&self.all);
        let is_there = all.waiting.remove(&self.number).is_some();
        if is_there {
            all.judged.insert(self.number);
        }
        is_there
    }
}

impl Drop for JoiningSlot {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        all.waiting.remove(&self.number);
        all.judged.remove(&self.number);
    }
}

impl Limits {
    pub(super) fn new(peers: PeerAddress) -> Self {
        let by_address = match peers {
            PeerAddress::Connection => None,
            PeerAddress::ProxyHeader => Some(Counts::default()),
        };
        Self {
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            joining: Arc::default(),
            by_address,
            followers: Counts::default(),
        }
    }

    /// Room for a follower that joined with this foreign SPIFFE ID. None if there are too many of it.
    pub(super) fn follow(&self, id: &SpiffeId) -> Option<Share<String>> {
        Share::take(&self.followers, id.to_string(), MOST_PER_ID)
    }

    /// None if there are too many already.
    pub(super) fn take(&self, address: IpAddr, gauge: &Gauge) -> Option<StreamSlot> {
        let of_address = match &self.by_address {
            Some(counts) => Some(Share::take(counts, network(address), MOST_PER_ADDRESS)?),
            None => None,
        };
        let stream = self.streams.clone().try_acquire_owned().ok()?;
        Some(StreamSlot {
            // Last, so that nobody leaves in vain.
            joining: Some(JoiningSlot::take(&self.joining)?),
            _stream: stream,
            _of_address: of_address,
            _counted: Counted::new(gauge),
        })
    }
}

type Counts<K> = Arc<Mutex<HashMap<K, usize>>>;

/// One of those that are counted together, until it is dropped.
pub(super) struct Share<K: Eq + Hash> {
    counts: Counts<K>,
    key: K,
}

impl<K: Clone + Eq + Hash> Share<K> {
    fn take(counts: &Counts<K>, key: K, most: usize) -> Option<Self> {
        let mut all = lock(counts);
        let count = all.entry(key.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { counts: counts.clone(), key })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut all = lock(&self.counts);
        if let Some(count) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}

/// One more in a gauge, until it is dropped.
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn callers_who_proved_nothing_leave_room_for_those_who_joined() {
        let (limits, gauge) = (Limits::new(PeerAddress::Connection), Gauge::default());
        let mut slots: Vec<_> =
            (0..MOST_JOINING).map(|_| limits.take(address(1), &gauge).unwrap()).collect();
        assert!(slots.iter().all(StreamSlot::judged), "each has its slot");
        assert!(limits.take(address(2), &gauge).is_none(), "nobody is sent away who is judged");
        slots[0].joined();
        slots.push(limits.take(address(2), &gauge).unwrap());
        assert_eq!(gauge.get() as usize, MOST_JOINING + 1);
        drop(slots);
        assert_eq!(gauge.get(), 0);
        assert!(limits.take(address(2), &gauge).is_some());
    }

    #[test]
    fn the_oldest_caller_who_is_waited_for_makes_room_for_a_new_one() {
        let (limits, gauge) = (Limits::new(PeerAddress::Connection), Gauge::default());
        let take = || limits.take(address(1), &gauge).unwrap();
        let mut slots: Vec<_> = (0..MOST_JOINING).map(|_| take()).collect();
        assert!(slots[0].judged());
        let is_taken = |slot: &StreamSlot| slot.taken().now_or_never().is_some();
        slots.push(take());
        let taken: Vec<_> = (0..slots.len()).filter(|&at| is_taken(&slots[at])).collect();
        assert_eq!(taken, [1], "the first is judged");
        assert!(!slots[1].judged());
        drop(slots);
        let joining = lock(&limits.joining);
        assert_eq!((joining.waiting.len(), joining.judged.len()), (0, 0), "nothing stays");
    }

    #[test]
    fn one_address_leaves_room_for_others_where_addresses_are_known() {
        let (limits, gauge) = (Limits::new(PeerAddress::ProxyHeader), Gauge::default());
        let slots: Vec<_> =
            (0..MOST_PER_ADDRESS).map(|_| limits.take(address(1), &gauge).unwrap()).collect();
        assert!(limits.take(address(1), &gauge).is_none());
        assert!(limits.take(address(2), &gauge).is_some());
        drop(slots);
        assert!(limits.take(address(1), &gauge).is_some());
        assert!(lock(limits.by_address.as_ref().unwrap()).is_empty(), "nothing stays");
    }

    #[test]
    fn one_spiffe_id_leaves_room_for_the_followers_of_others() {
        let limits = Limits::new(PeerAddress::Connection);
        let [one, other] = ["one", "other"]
            .map(|name| SpiffeId::parse(&format!("spiffe://partner.test/{name}")).unwrap());
        let shares: Vec<_> = std::iter::from_fn(|| limits.follow(&one)).collect();
        assert_eq!(shares.len(), MOST_PER_ID);
        assert!(limits.follow(&other).is_some());
        drop(shares);
        assert!(lock(&limits.followers).is_empty(), "nothing stays");
    }
}
