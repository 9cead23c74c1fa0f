//! Polls the bundle endpoint of every peer, and reports how it went.
//!
//! Each peer has a task of its own, so a slow or dead one delays no other. The SPIRE server fetches
//! bundles for itself; this polls the same endpoint in the same way, for status, Events and metrics.

mod error;
mod state;
mod warning;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use rustls::RootCertStore;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::{
    api::spire_server::{Peer, PeerStatus, Profile},
    bundle::fetch::{self, Endpoint, Redirects, Trust},
    federate::{
        cache::bundle_cache::{self, BundleCache, CachedBundle},
        decide::{bootstrap_bundles::BootstrapBundles, validate},
    },
    k8s::gate::Gate,
    runtime::{clock::Clock, lock::lock},
    spiffe::{bundle::Bundle, id::SpiffeId},
};
use state::{Answer, SHORTEST_HINT, current_status, worth_writing};

pub use error::{ErrorDetail, PeerError};
pub(crate) use state::{ATTEMPTS_PER_REFRESH_HINT, PeerState, hint};
pub use warning::PeerWarning;

/// Which endpoint is polled, and how. Polling restarts if any of it changes.
#[derive(Clone, Debug, PartialEq)]
struct PollTarget {
    peer: Peer,
    /// The bootstrap bundles of the peer, and of the trust domain of its server.
    brought: [Option<Arc<Bundle>>; 2],
    /// How often everything had been forgotten when polling began.
    term: u64,
}

/// The peers that we federate with.
///
/// Several locks at once are taken in the order of these fields.
pub struct Peers {
    clock: Clock,
    gate: Gate,
    roots: Arc<RootCertStore>,
    detail: ErrorDetail,
    /// The longest pause between two polls of a peer.
    longest_pause: OnceLock<Duration>,
    peers: Mutex<Vec<Peer>>,
    states: Mutex<BTreeMap<String, PeerState>>,
    bootstrap_bundles: Mutex<BootstrapBundles>,
    cached: Mutex<BundleCache>,
    /// The peers as the status reports them.
    reported: Mutex<Vec<PeerStatus>>,
    /// How often everything was forgotten.
    terms: AtomicU64,
    targets_changed: Notify,
    /// Notified when a peer's state changed in more than a time.
    pub news: Notify,
}

impl Peers {
    pub fn new(clock: Clock, gate: Gate, roots: Arc<RootCertStore>) -> Arc<Self> {
        Self::with_detail(ErrorDetail::default(), clock, gate, roots)
    }

    pub fn with_detail(
        detail: ErrorDetail,
        clock: Clock,
        gate: Gate,
        roots: Arc<RootCertStore>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            gate,
            roots,
            detail,
            longest_pause: OnceLock::new(),
            states: Mutex::default(),
            bootstrap_bundles: Mutex::default(),
            cached: Mutex::default(),
            reported: Mutex::default(),
            terms: AtomicU64::default(),
            peers: Mutex::default(),
            targets_changed: Notify::new(),
            news: Notify::new(),
        })
    }

    /// The CAs that verify `https_web` peers.
    pub fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }

    /// Polls peers at least this often, whatever their refresh hint: for the demo. Only the first
    /// call counts.
    pub fn ask_at_least_every(&self, pause: Duration) {
        let _ = self.longest_pause.set(pause);
    }

    /// Replaces the peers. Removed ones are forgotten, changed ones are polled at once. Answers which changed.
    pub fn set_peers(&self, peers: &[Peer]) -> Vec<String> {
        let find = |peers: &[Peer], trust_domain: &str| {
            peers.iter().find(|it| it.trust_domain == trust_domain).cloned()
        };
        let mut wanted = lock(&self.peers);
        lock(&self.reported).retain(|it| find(peers, &it.trust_domain).is_some());
        let mut changed = Vec::new();
        if *wanted == peers {
            return changed;
        }
        let mut all = lock(&self.states);
        all.retain(|trust_domain, _| find(peers, trust_domain).is_some());
        for peer in wanted.iter() {
            // The state of the old endpoint says nothing about a new one.
            if find(peers, &peer.trust_domain).is_some_and(|it| it != *peer) {
                all.insert(peer.trust_domain.clone(), PeerState::default());
                changed.push(peer.trust_domain.clone());
            }
        }
        drop(all);
        *wanted = peers.to_vec();
        drop(wanted);
        self.targets_changed.notify_one();
        changed
    }

    pub fn set_bootstrap_bundles(&self, bootstrap_bundles: BootstrapBundles) {
        let wanted = lock(&self.peers);
        let mut all = lock(&self.states);
        let mut existing = lock(&self.bootstrap_bundles);
        if *existing == bootstrap_bundles {
            return;
        }
        // A bundle that an administrator brings later counts more than one fetched before.
        for peer in wanted.iter().filter(by_spiffe) {
            let name = &peer.trust_domain;
            if existing.get(name) != bootstrap_bundles.get(name)
                && let Some(known) = all.get_mut(name)
            {
                known.bundle = None;
            }
        }
        *existing = bootstrap_bundles;
        drop((wanted, all, existing));
        self.targets_changed.notify_one();
    }

    pub fn set_cached(&self, cached: BundleCache) {
        *lock(&self.cached) = cached;
    }

    /// The bundles to store: those that differ from the bootstrap bundle.
    pub fn to_cache(&self) -> BundleCache {
        let (wanted, all) = (lock(&self.peers), lock(&self.states));
        let (bootstrap_bundles, remembered) = (lock(&self.bootstrap_bundles), lock(&self.cached));
        let kept = |peer: &Peer| {
            let name = &peer.trust_domain;
            let Some(bootstrap_bundle) = bootstrap_bundles.get(name) else {
                // Keep it: it counts again once the bootstrap bundle that it came from is back.
                return Some((name.clone(), remembered.get(name)?.clone()));
            };
            let brought = bootstrap_bundle.fingerprint();
            let kept = match all.get(name).and_then(|known| known.bundle.clone()) {
                Some(bundle) => CachedBundle { brought, bundle },
                None => remembered.get(name).filter(|it| it.brought == brought)?.clone(),
            };
            let news = !bundle_cache::same_authorities(&kept.bundle, bootstrap_bundle);
            news.then(|| (name.clone(), kept))
        };
        wanted.iter().filter(by_spiffe).filter_map(kept).collect()
    }

    /// For a replica that no longer leads.
    pub fn forget(&self) {
        self.terms.fetch_add(1, Ordering::Relaxed);
        self.set_peers(&[]);
        lock(&self.cached).clear();
    }

    /// The status to write for these peers.
    pub fn statuses(&self, peers: &[Peer], existing: &[PeerStatus]) -> Vec<PeerStatus> {
        let all = lock(&self.states);
        let status = |peer: &Peer| {
            let existing = existing.iter().find(|it| it.trust_domain == peer.trust_domain);
            worth_writing(existing, all.get(&peer.trust_domain), &peer.trust_domain)
        };
        let statuses: Vec<_> = peers.iter().map(status).collect();
        lock(&self.reported).clone_from(&statuses);
        statuses
    }

    /// The current state, for metrics. Empty if another replica leads.
    pub fn figures(&self) -> Vec<PeerStatus> {
        if !self.gate.is_open() {
            return Vec::new();
        }
        let (all, existing) = (lock(&self.states), lock(&self.reported));
        let now = |old: &PeerStatus| {
            current_status(Some(old), all.get(&old.trust_domain), &old.trust_domain)
        };
        existing.iter().map(now).collect()
    }

    /// The peers whose last fetch failed, and why.
    pub fn failing(&self) -> Vec<(String, PeerError)> {
        let all = lock(&self.states);
        let failing =
            all.iter().filter_map(|(name, it)| Some((name.clone(), it.last_error.clone()?)));
        failing.collect()
    }

    /// The warnings of all reported peers.
    pub fn warnings(&self) -> Vec<(String, PeerWarning)> {
        let (all, existing) = (lock(&self.states), lock(&self.reported));
        let of = |it: &PeerStatus| {
            let name = it.trust_domain.clone();
            let warnings = state::warnings(it, all.get(&name));
            warnings.into_iter().map(move |warning| (name.clone(), warning)).collect::<Vec<_>>()
        };
        existing.iter().flat_map(of).collect()
    }

    /// Never ends; stop it by dropping it.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut running: Vec<(PollTarget, AbortHandle)> = Vec::new();
        loop {
            let mut targets = self.targets();
            running.retain(|(target, task)| {
                let stays = targets.contains(target) && !task.is_finished();
                if !stays {
                    // A running fetch is restarted.
                    task.abort();
                }
                stays
            });
            targets.retain(|target| running.iter().all(|(it, _)| it != target));
            for target in targets {
                let task = tasks.spawn(self.clone().poll(target.clone()));
                running.push((target, task));
            }
            while tasks.try_join_next().is_some() {}
            self.targets_changed.notified().await;
        }
    }

    fn targets(&self) -> Vec<PollTarget> {
        let wanted = lock(&self.peers);
        let bootstrap_bundles = lock(&self.bootstrap_bundles);
        wanted.iter().map(|peer| self.target(peer, &bootstrap_bundles)).collect()
    }

    fn target(&self, peer: &Peer, bootstrap_bundles: &BootstrapBundles) -> PollTarget {
        let term = self.terms.load(Ordering::Relaxed);
        PollTarget { peer: peer.clone(), brought: brought(peer, bootstrap_bundles), term }
    }

    async fn poll(self: Arc<Self>, target: PollTarget) {
        loop {
            // A standby polls nobody.
            self.gate.clone().opened().await;
            let started = Instant::now();
            let answer = AssertUnwindSafe(self.fetch(&target.peer)).catch_unwind().await;
            let answer = answer.unwrap_or_else(|_| Err(PeerError::Panicked).into());
            if matches!(answer.outcome, Err(PeerError::Unreachable(_))) {
                // A refused connection fails at once, a dropped one after a timeout. If the error must not
                // reveal which it was, neither may the time that it takes.
                tokio::time::sleep_until(started + fetch::PATIENCE).await;
            }
            let interval = self.record(&target, answer);
            tokio::time::sleep_until(started + interval).await;
        }
    }

    async fn fetch(&self, peer: &Peer) -> Answer {
        let endpoint = match self.endpoint(peer) {
            Ok(endpoint) => endpoint,
            Err(error) => return Err(error).into(),
        };
        let attempt = fetch::attempt(&endpoint, Redirects::Follow, self.clock.now()).await;
        let outcome = attempt.outcome.map_err(|error| self.detail.of(error, attempt.internal));
        let outcome = outcome.and_then(|fetched| self.usable(fetched.bundle));
        Answer { outcome, warnings: attempt.warnings }
    }

    /// Refuses a bundle that can verify nobody.
    fn usable(&self, bundle: Bundle) -> Result<Bundle, PeerError> {
        // With none, every identity of that trust domain would be invalid.
        if bundle.x509.is_empty() {
            return Err(PeerError::Empty);
        }
        let now = self.clock.now();
        if bundle.x509.iter().any(|authority| authority.is_valid_at(now)) {
            return Ok(bundle);
        }
        let coming = bundle.x509.iter().map(|it| it.not_before).filter(|it| *it > now).min();
        Err(coming.map_or(PeerError::Ended, |from| PeerError::NotYetValid { from }))
    }

    fn endpoint(&self, peer: &Peer) -> Result<Endpoint, PeerError> {
        let unusable = |why: &dyn std::fmt::Display| PeerError::Unusable(why.to_string());
        let url = validate::https_url(&peer.bundle_endpoint_url).map_err(|why| unusable(&why))?;
        let trust = match peer.bundle_endpoint_profile {
            Profile::HttpsWeb => Trust::web(self.roots.clone()),
            Profile::HttpsSpiffe => {
                let id = peer.endpoint_spiffe_id.as_deref().unwrap_or_default();
                let id = SpiffeId::parse(id).map_err(|why| unusable(&why))?;
                let of = id.trust_domain().to_string();
                let bundle = self.bundle_of(&of).ok_or_else(|| {
                    let expected = peer.trust_domain.clone();
                    match of == expected {
                        true => PeerError::NoBootstrap { trust_domain: of },
                        false => PeerError::Elsewhere { found: of, expected },
                    }
                })?;
                Trust::Spiffe { id, bundle }
            }
        };
        Ok(Endpoint { url, trust })
    }

    /// The newest bundle of the trust domain in the endpoint's SPIFFE ID, which may differ from the trust
    /// domain whose bundle it serves.
    fn bundle_of(&self, trust_domain: &str) -> Option<Arc<Bundle>> {
        let fetched = lock(&self.states).get(trust_domain).and_then(|known| known.bundle.clone());
        if fetched.is_some() {
            return fetched;
        }
        let bootstrap_bundle = lock(&self.bootstrap_bundles).get(trust_domain).cloned()?;
        let brought = bootstrap_bundle.fingerprint();
        let remembered = lock(&self.cached).get(trust_domain).cloned();
        let remembered = remembered.filter(|kept| kept.brought == brought);
        Some(remembered.map_or(bootstrap_bundle, |kept| kept.bundle))
    }

    fn record(&self, target: &PollTarget, answer: Answer) -> Duration {
        let peer = &target.peer;
        let wanted = lock(&self.peers);
        let mut all = lock(&self.states);
        let same =
            wanted.contains(peer) && self.target(peer, &lock(&self.bootstrap_bundles)) == *target;
        if !same || !self.gate.is_open() {
            // Meanwhile the peer or its bootstrap bundle changed, or another replica leads.
            return SHORTEST_HINT / ATTEMPTS_PER_REFRESH_HINT;
        }
        let known = all.entry(peer.trust_domain.clone()).or_default();
        let before = known.status(&peer.trust_domain);
        if let Err(error) = &answer.outcome {
            let error = error.detail();
            tracing::warn!(trust_domain = %peer.trust_domain, %error, "bundle not fetched");
        }
        known.record(answer, self.clock.now());
        let after = known.status(&peer.trust_domain);
        let usual = known.interval();
        let interval = self.longest_pause.get().map_or(usual, |longest| usual.min(*longest));
        drop((wanted, all));
        let same = PeerStatus { last_success_time: after.last_success_time, ..before };
        if same != after {
            self.news.notify_one();
        }
        interval
    }
}

/// The bootstrap bundles of a peer, and of the trust domain of its server.
fn brought(peer: &Peer, bootstrap_bundles: &BootstrapBundles) -> [Option<Arc<Bundle>>; 2] {
    let server = || {
        let id = peer.endpoint_spiffe_id.as_deref().and_then(|id| SpiffeId::parse(id).ok())?;
        bootstrap_bundles.get(id.trust_domain().as_str()).cloned()
    };
    match by_spiffe(&peer) {
        true => [bootstrap_bundles.get(&peer.trust_domain).cloned(), server()],
        false => [None, None],
    }
}

fn by_spiffe(peer: &&Peer) -> bool {
    peer.bundle_endpoint_profile == Profile::HttpsSpiffe
}

#[cfg(test)]
mod tests;
