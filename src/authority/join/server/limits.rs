//! How many streams there may be at once.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    authority::decide::join_audit::network,
    runtime::{lock::lock, tls_listener::PeerAddress},
};

/// Followers included: about a stream for each node of a large cluster.
const MOST_STREAMS: usize = 8192;
/// Of callers who have not proved anything yet. Each may make us hold a message of 64 KiB.
const MOST_JOINING: usize = 512;
const MOST_PER_ADDRESS: usize = 256;

pub(super) struct Limits {
    streams: Arc<Semaphore>,
    joining: Arc<Semaphore>,
    /// None where a router stands between: all clients have its address.
    by_address: Option<Arc<Mutex<HashMap<IpAddr, usize>>>>,
}

/// Room for one stream, until it is dropped.
pub(super) struct Place {
    joining: Option<OwnedSemaphorePermit>,
    _stream: OwnedSemaphorePermit,
    _of_address: Option<OfAddress>,
    _counted: Counted,
}

impl Place {
    /// Makes room for another caller: this one has proved who it is.
    pub(super) fn joined(&mut self) {
        self.joining = None;
    }
}

impl Limits {
    pub(super) fn new(peers: PeerAddress) -> Self {
        let by_address = match peers {
            PeerAddress::Connection => None,
            PeerAddress::ProxyHeader => Some(Arc::default()),
        };
        Self {
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            joining: Arc::new(Semaphore::new(MOST_JOINING)),
            by_address,
        }
    }

    /// None if there are too many already.
    pub(super) fn take(&self, address: IpAddr, gauge: &Gauge) -> Option<Place> {
        let of_address = match &self.by_address {
            Some(counts) => Some(OfAddress::take(counts, network(address))?),
            None => None,
        };
        Some(Place {
            joining: Some(self.joining.clone().try_acquire_owned().ok()?),
            _stream: self.streams.clone().try_acquire_owned().ok()?,
            _of_address: of_address,
            _counted: Counted::new(gauge),
        })
    }
}

struct OfAddress {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl OfAddress {
    fn take(counts: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr) -> Option<Self> {
        let mut all = lock(counts);
        let count = all.entry(address).or_default();
        if *count >= MOST_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Self { counts: counts.clone(), address })
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut all = lock(&self.counts);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
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
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn callers_who_proved_nothing_leave_room_for_those_who_joined() {
        let (limits, gauge) = (Limits::new(PeerAddress::Connection), Gauge::default());
        let mut places: Vec<_> =
            (0..MOST_JOINING).map(|_| limits.take(address(1), &gauge).unwrap()).collect();
        assert!(limits.take(address(2), &gauge).is_none());
        places[0].joined();
        places.push(limits.take(address(2), &gauge).unwrap());
        assert_eq!(gauge.get() as usize, MOST_JOINING + 1);
        drop(places);
        assert_eq!(gauge.get(), 0);
        assert!(limits.take(address(2), &gauge).is_some());
    }

    #[test]
    fn one_address_leaves_room_for_others_where_addresses_are_known() {
        let (limits, gauge) = (Limits::new(PeerAddress::ProxyHeader), Gauge::default());
        let places: Vec<_> =
            (0..MOST_PER_ADDRESS).map(|_| limits.take(address(1), &gauge).unwrap()).collect();
        assert!(limits.take(address(1), &gauge).is_none());
        assert!(limits.take(address(2), &gauge).is_some());
        drop(places);
        assert!(limits.take(address(1), &gauge).is_some());
        assert!(lock(limits.by_address.as_ref().unwrap()).is_empty(), "nothing stays");
    }
}
