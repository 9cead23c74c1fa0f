//! Asks every trust domain that we federate with for its bundle, and says how it went.
//!
//! Each peer has a task of its own: one that is slow or dead delays nobody. The SPIRE server
//! fetches bundles for itself; this asks the same endpoint in the same way, to tell people.

mod error;
mod state;
mod warning;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
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
    bundle::fetch::{self, Endpoint, Trust},
    federate::{
        cache::bundle_cache::{self, CachedBundle, Memory},
        decide::{bootstrap_bundles::BootstrapBundles, validate},
    },
    k8s::gate::Gate,
    runtime::clock::Clock,
    spiffe::{bundle::Bundle, id::SpiffeId},
};
use state::{ATTEMPTS_PER_REFRESH_HINT, Answer, SHORTEST_HINT, told, worth_writing};

pub use error::{ErrorDetail, PeerError};
pub use state::{PeerState, hint};
pub use warning::PeerWarning;

/// Which endpoint is polled, and how. Polling restarts if any of it changes.
#[derive(Clone, Debug, PartialEq)]
struct PollTarget {
    peer: Peer,
    /// What an administrator brought of it, and of the trust domain of its server.
    brought: [Option<Arc<Bundle>>; 2],
    /// How often everything was forgotten before.
    term: u64,
}

/// Everybody that we federate with.
///
/// Where several locks are held, they are taken in the order in which they stand here.
pub struct Peers {
    clock: Clock,
    gate: Gate,
    roots: Arc<RootCertStore>,
    detail: ErrorDetail,
    /// Nobody waits longer than this for being asked again.
    longest_pause: OnceLock<Duration>,
    wanted: Mutex<Vec<Peer>>,
    known: Mutex<BTreeMap<String, PeerState>>,
    bootstrap_bundles: Mutex<BootstrapBundles>,
    remembered: Mutex<Memory>,
    /// What status says of them.
    told: Mutex<Vec<PeerStatus>>,
    /// How often everything was forgotten.
    terms: AtomicU64,
    wanted_changed: Notify,
    /// Told when a peer's state changed in more than a time.
    pub news: Notify,
}

impl Peers {
    /// Nobody so far.
    pub fn new(clock: Clock, gate: Gate, roots: Arc<RootCertStore>) -> Arc<Self> {
        Self::with_detail(ErrorDetail::default(), clock, gate, roots)
    }

    /// The same, and so much is told of what goes wrong.
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
            known: Mutex::default(),
            bootstrap_bundles: Mutex::default(),
            remembered: Mutex::default(),
            told: Mutex::default(),
            terms: AtomicU64::default(),
            wanted: Mutex::default(),
            wanted_changed: Notify::new(),
            news: Notify::new(),
        })
    }

    /// The CAs that peers by https_web are known by.
    pub fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }

    /// Has peers asked at least so often, whatever they ask for: for a demonstration, where nobody
    /// wants to wait. The first word counts.
    pub fn ask_at_least_every(&self, pause: Duration) {
        let _ = self.longest_pause.set(pause);
    }

    /// These are the peers from now on. Who is no longer one is forgotten; who changed is asked
    /// at once.
    pub fn set_peers(&self, peers: &[Peer]) {
        let find = |peers: &[Peer], trust_domain: &str| {
            peers.iter().find(|it| it.trust_domain == trust_domain).cloned()
        };
        let mut wanted = lock(&self.wanted);
        lock(&self.told).retain(|it| find(peers, &it.trust_domain).is_some());
        if *wanted == peers {
            return;
        }
        let mut all = lock(&self.known);
        all.retain(|trust_domain, _| find(peers, trust_domain).is_some());
        for peer in wanted.iter() {
            // Of another endpoint than before nothing is known, whatever was told of the old one.
            if find(peers, &peer.trust_domain).is_some_and(|it| it != *peer) {
                all.insert(peer.trust_domain.clone(), PeerState::default());
            }
        }
        drop(all);
        *wanted = peers.to_vec();
        drop(wanted);
        self.wanted_changed.notify_one();
    }

    /// These are the bundles that an administrator brought.
    pub fn set_bootstrap_bundles(&self, bootstrap_bundles: BootstrapBundles) {
        let wanted = lock(&self.wanted);
        let mut all = lock(&self.known);
        let mut standing = lock(&self.bootstrap_bundles);
        if *standing == bootstrap_bundles {
            return;
        }
        // A bundle that an administrator brings later counts more than one fetched before.
        for peer in wanted.iter().filter(by_spiffe) {
            let name = &peer.trust_domain;
            if standing.get(name) != bootstrap_bundles.get(name)
                && let Some(known) = all.get_mut(name)
            {
                known.bundle = None;
            }
        }
        *standing = bootstrap_bundles;
        drop((wanted, all, standing));
        self.wanted_changed.notify_one();
    }

    /// These are the bundles that were fetched earlier, by another process perhaps.
    pub fn remember(&self, memory: Memory) {
        *lock(&self.remembered) = memory;
    }

    /// What is to be remembered, where it is not what an administrator brought.
    pub fn memory(&self) -> Memory {
        let (wanted, all) = (lock(&self.wanted), lock(&self.known));
        let (bootstrap_bundles, remembered) =
            (lock(&self.bootstrap_bundles), lock(&self.remembered));
        let kept = |peer: &Peer| {
            let name = &peer.trust_domain;
            let Some(bootstrap_bundle) = bootstrap_bundles.get(name) else {
                // Nobody brought one, or nobody can say: it counts again with the one that it came from.
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

    /// Lets go of everything and asks nobody: another replica leads, and what this one knows grows old.
    pub fn forget(&self) {
        self.terms.fetch_add(1, Ordering::Relaxed);
        self.set_peers(&[]);
        lock(&self.remembered).clear();
    }

    /// What to write of these peers.
    pub fn statuses(&self, peers: &[Peer], standing: &[PeerStatus]) -> Vec<PeerStatus> {
        let all = lock(&self.known);
        let status = |peer: &Peer| {
            let standing = standing.iter().find(|it| it.trust_domain == peer.trust_domain);
            worth_writing(standing, all.get(&peer.trust_domain), &peer.trust_domain)
        };
        let statuses: Vec<_> = peers.iter().map(status).collect();
        lock(&self.told).clone_from(&statuses);
        statuses
    }

    /// What is known now, for metrics. Nothing where another replica leads.
    pub fn figures(&self) -> Vec<PeerStatus> {
        if !self.gate.is_open() {
            return Vec::new();
        }
        let (all, standing) = (lock(&self.known), lock(&self.told));
        let now = |old: &PeerStatus| told(Some(old), all.get(&old.trust_domain), &old.trust_domain);
        standing.iter().map(now).collect()
    }

    /// Whose bundle could not be fetched the last time, and why.
    pub fn failing(&self) -> Vec<(String, PeerError)> {
        let all = lock(&self.known);
        let failing =
            all.iter().filter_map(|(name, it)| Some((name.clone(), it.last_error.clone()?)));
        failing.collect()
    }

    /// What is odd about peers of which something was told.
    pub fn warnings(&self) -> Vec<(String, PeerWarning)> {
        let (all, standing) = (lock(&self.known), lock(&self.told));
        let of = |it: &PeerStatus| {
            let name = it.trust_domain.clone();
            let warnings = state::warnings(it, all.get(&name));
            warnings.into_iter().map(move |warning| (name.clone(), warning)).collect::<Vec<_>>()
        };
        standing.iter().flat_map(of).collect()
    }

    /// Keeps asking. Ends only when it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut running: Vec<(PollTarget, AbortHandle)> = Vec::new();
        loop {
            let mut wanted = self.asked();
            running.retain(|(asked, task)| {
                let stays = wanted.contains(asked) && !task.is_finished();
                if !stays {
                    // A running fetch is restarted.
                    task.abort();
                }
                stays
            });
            wanted.retain(|asked| running.iter().all(|(it, _)| it != asked));
            for asked in wanted {
                let task = tasks.spawn(self.clone().follow(asked.clone()));
                running.push((asked, task));
            }
            while tasks.try_join_next().is_some() {}
            self.wanted_changed.notified().await;
        }
    }

    /// Everybody who is to be asked.
    fn asked(&self) -> Vec<PollTarget> {
        let wanted = lock(&self.wanted);
        let bootstrap_bundles = lock(&self.bootstrap_bundles);
        wanted.iter().map(|peer| self.would_ask(peer, &bootstrap_bundles)).collect()
    }

    fn would_ask(&self, peer: &Peer, bootstrap_bundles: &BootstrapBundles) -> PollTarget {
        let term = self.terms.load(Ordering::Relaxed);
        PollTarget { peer: peer.clone(), brought: brought(peer, bootstrap_bundles), term }
    }

    async fn follow(self: Arc<Self>, asked: PollTarget) {
        loop {
            // A standby asks nobody: it has nothing to tell.
            self.gate.clone().opened().await;
            let started = Instant::now();
            let answer = AssertUnwindSafe(self.ask(&asked.peer)).catch_unwind().await;
            let answer = answer.unwrap_or_else(|_| Err(PeerError::Panicked).into());
            if matches!(answer.outcome, Err(PeerError::Unreachable(_))) {
                // Who refuses does so at once, and who drops what comes has us wait. Where the one is not to
                // be told from the other, it must not show in how long it takes either.
                tokio::time::sleep_until(started + fetch::PATIENCE).await;
            }
            let interval = self.record(&asked, answer);
            tokio::time::sleep_until(started + interval).await;
        }
    }

    async fn ask(&self, peer: &Peer) -> Answer {
        let endpoint = match self.endpoint(peer) {
            Ok(endpoint) => endpoint,
            Err(error) => return Err(error).into(),
        };
        let attempt = fetch::attempt(&endpoint, self.clock.now()).await;
        let outcome = attempt.outcome.map_err(|error| self.detail.of(error, attempt.internal));
        let outcome = outcome.and_then(|fetched| self.usable(fetched.bundle));
        Answer { outcome, warnings: attempt.warnings }
    }

    /// A bundle with which somebody can be verified.
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
            Profile::HttpsWeb => Trust::Web(self.roots.clone()),
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

    /// The newest bundle of the trust domain that the endpoint's own identity is of. It may be
    /// another than the one whose bundle is offered there.
    fn bundle_of(&self, trust_domain: &str) -> Option<Arc<Bundle>> {
        let fetched = lock(&self.known).get(trust_domain).and_then(|known| known.bundle.clone());
        if fetched.is_some() {
            return fetched;
        }
        let bootstrap_bundle = lock(&self.bootstrap_bundles).get(trust_domain).cloned()?;
        let brought = bootstrap_bundle.fingerprint();
        let remembered = lock(&self.remembered).get(trust_domain).cloned();
        let remembered = remembered.filter(|kept| kept.brought == brought);
        Some(remembered.map_or(bootstrap_bundle, |kept| kept.bundle))
    }

    fn record(&self, asked: &PollTarget, answer: Answer) -> Duration {
        let peer = &asked.peer;
        let wanted = lock(&self.wanted);
        let mut all = lock(&self.known);
        let same =
            wanted.contains(peer) && self.would_ask(peer, &lock(&self.bootstrap_bundles)) == *asked;
        if !same || !self.gate.is_open() {
            // While it was asked it was taken out, or is to be known by something else; or another
            // replica leads by now.
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

/// What an administrator brought of a peer, and of the trust domain of its server.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
