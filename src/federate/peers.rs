//! Asks every trust domain that we federate with for its bundle, and says how it went.
//!
//! Each peer has a task of its own: one that is slow or dead delays nobody. The SPIRE server
//! fetches bundles for itself; this asks the same endpoint in the same way, to tell people.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, SubsecRound, Utc};
use futures::FutureExt;
use rustls::RootCertStore;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::{
    api::spire_server::{Peer, PeerStatus, Profile},
    bundle::fetch::{self, Endpoint, FetchError, Trust},
    federate::{
        memory::{self, Kept, Memory},
        validate,
    },
    kit::{client::Gate, clock::Clock, printable::printable},
    spiffe::{bundle::Bundle, id::SpiffeId},
};

/// Without a hint in the bundle, as the specification has it.
const USUAL_HINT: Duration = Duration::from_secs(300);
const SHORTEST_HINT: Duration = Duration::from_secs(60);
const LONGEST_HINT: Duration = Duration::from_secs(24 * 3_600);
/// So many times a hint a peer is asked, as SPIRE does: a rotation is seen in good time.
const ASKED_PER_HINT: u32 = 4;

/// What is known of a peer.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last good bundle.
    pub bundle: Option<Arc<Bundle>>,
    /// Since when it has these keys.
    pub since: Option<DateTime<Utc>>,
    /// Whether we saw the keys before these.
    changed: bool,
    /// When it was fetched last.
    pub last_success: Option<DateTime<Utc>>,
    /// What went wrong the last time.
    pub last_error: Option<PeerError>,
}

/// Why a peer's bundle was not fetched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// What the SpireServer says of it can't work.
    #[error("{0}")]
    Unusable(String),
    /// There is nothing to know its server by.
    #[error(
        "there is no bundle of {trust_domain} to know its server by. Fetch one with: trustplane federation bootstrap FROM TO, where FROM is the kubeconfig's context of that cluster, and TO that of this one"
    )]
    NoBootstrap {
        /// Of whose server.
        trust_domain: String,
    },
    /// The endpoint is to prove an identity of a trust domain that nobody knows, and not of its own.
    #[error(
        "endpointSpiffeId is of the trust domain {found}, not of {expected}, and there is no bundle of {found}. Is it a mistake?"
    )]
    Elsewhere {
        /// The trust domain in the identity.
        found: String,
        /// The peer's own.
        expected: String,
    },
    /// It offers nothing that is still good.
    #[error(
        "all authorities for X.509 in its bundle have ended, so none of its workloads can be verified"
    )]
    Ended,
    /// It offers nothing to verify with.
    #[error("its bundle has no authority for X.509, so none of its workloads can be verified")]
    Empty,
    /// A fault of ours.
    #[error("trustplane failed on what it answered; its log says more. Please report it")]
    Panicked,
    /// The endpoint was asked in vain.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl PeerError {
    /// What an Event about it is known by: its words, but where the peer has a say in them.
    pub fn topic(&self) -> String {
        use FetchError::{Bundle, Handshake, Redirected, Status, Svid};
        match self {
            Self::Fetch(Handshake(_) | Svid(_) | Bundle(_) | Redirected { .. } | Status(_)) => {
                format!("what it says: {}", self.category())
            }
            ours => ours.to_string(),
        }
    }

    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "unusable",
            Self::NoBootstrap { .. } => "no-bootstrap",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Ended => "ended",
            Self::Empty => "empty",
            Self::Panicked => "panic",
            Self::Fetch(error) => error.category(),
        }
    }
}

/// How often a peer with this hint is to be asked, as far as we do it.
pub fn hint(said: Option<Duration>) -> Duration {
    said.unwrap_or(USUAL_HINT).clamp(SHORTEST_HINT, LONGEST_HINT)
}

impl Known {
    /// How long to wait until the next try.
    pub fn interval(&self) -> Duration {
        self.hint() / ASKED_PER_HINT
    }

    /// How often the peer asks to be asked.
    fn hint(&self) -> Duration {
        hint(self.bundle.as_ref().and_then(|bundle| bundle.refresh_hint))
    }

    fn learn(&mut self, outcome: Result<Bundle, PeerError>, now: DateTime<Utc>) {
        match outcome {
            Ok(bundle) => {
                let same = self.bundle.as_ref().is_some_and(|known| known.same_keys(&bundle));
                if !same {
                    self.changed = self.bundle.is_some();
                    self.since = Some(now);
                }
                self.bundle = Some(Arc::new(bundle));
                self.last_success = Some(now);
                self.last_error = None;
            }
            // The last good bundle stays, as it does in the SPIRE server.
            Err(error) => self.last_error = Some(error),
        }
    }

    /// In the words of `status.federation.peers`.
    pub fn status(&self, trust_domain: &str) -> PeerStatus {
        let bundle = self.bundle.as_deref();
        let (reachable, verified) = match &self.last_error {
            None => (self.last_success.is_some(), self.last_success.is_some()),
            Some(PeerError::Fetch(error)) => (error.reached(), error.verified()),
            Some(PeerError::Empty | PeerError::Ended) => (true, true),
            Some(_) => (false, false),
        };
        let whole = |time: Option<DateTime<Utc>>| time.map(|time| time.trunc_subsecs(0));
        PeerStatus {
            trust_domain: trust_domain.to_owned(),
            reachable,
            profile_verified: verified,
            last_success_time: whole(self.last_success),
            bundle_since: whole(self.since),
            // The API holds numbers of 63 bits, and would refuse all of the status.
            sequence: bundle.and_then(|it| it.sequence).map(|it| it.min(i64::MAX as u64)),
            refresh_hint: bundle.and_then(|it| it.refresh_hint).map(|hint| hint.as_secs()),
            x509_authorities: bundle.map(|it| it.x509.len()),
            jwt_authorities: bundle.map(|it| it.jwt.len()),
            earliest_expiry: whole(bundle.and_then(Bundle::earliest_expiry)),
            latest_expiry: whole(bundle.and_then(Bundle::latest_expiry)),
            last_error: self.last_error.as_ref().map(|it| printable(&it.to_string()).into_owned()),
        }
    }
}

/// What is known of a peer: where this process knows nothing of its bundle, what an earlier one told.
fn told(standing: Option<&PeerStatus>, known: Option<&Known>, trust_domain: &str) -> PeerStatus {
    let now = known.map(|known| known.status(trust_domain));
    let (Some(old), Some(now), Some(known)) = (standing, &now, known) else {
        let one = standing.cloned().or(now);
        return one.unwrap_or_else(|| Known::default().status(trust_domain));
    };
    if known.bundle.is_none() {
        let PeerStatus { reachable, profile_verified, last_error, .. } = now.clone();
        return PeerStatus { reachable, profile_verified, last_error, ..old.clone() };
    }
    let content = |it: &PeerStatus| {
        (it.sequence, it.x509_authorities, it.jwt_authorities, it.earliest_expiry)
    };
    let same = !known.changed && content(old) == content(now);
    let bundle_since = if same { old.bundle_since } else { now.bundle_since };
    PeerStatus { bundle_since, ..now.clone() }
}

/// What to write of a peer: what stands there, unless there is news. A time of success that is only
/// a little newer is none.
fn worth_writing(
    standing: Option<&PeerStatus>,
    known: Option<&Known>,
    trust_domain: &str,
) -> PeerStatus {
    let new = told(standing, known, trust_domain);
    let (Some(old), Some(known)) = (standing, known) else { return new };
    let aged = PeerStatus { last_success_time: old.last_success_time, ..new.clone() };
    let passed = old.last_success_time.zip(new.last_success_time).map(|(old, new)| new - old);
    // One in the future, from a clock that was wrong, does not stand.
    let little = passed.and_then(|it| it.to_std().ok()).is_some_and(|it| it < known.hint());
    if aged == *old && little { aged } else { new }
}

/// Bundles by trust domain to know servers by, from the ClusterFederatedTrustDomains.
pub type Anchors = BTreeMap<String, Arc<Bundle>>;

/// Whoever is asked, and why just so. Where any of it changes, the asking begins anew.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
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
    wanted: Mutex<Vec<Peer>>,
    known: Mutex<BTreeMap<String, Known>>,
    anchors: Mutex<Anchors>,
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
        Arc::new(Self {
            clock,
            gate,
            roots,
            known: Mutex::default(),
            anchors: Mutex::default(),
            remembered: Mutex::default(),
            told: Mutex::default(),
            terms: AtomicU64::default(),
            wanted: Mutex::default(),
            wanted_changed: Notify::new(),
            news: Notify::new(),
        })
    }

    /// These are the peers from now on. Who is no longer one is forgotten; who changed is asked
    /// at once.
    pub fn want(&self, peers: &[Peer]) {
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
                all.insert(peer.trust_domain.clone(), Known::default());
            }
        }
        drop(all);
        *wanted = peers.to_vec();
        drop(wanted);
        self.wanted_changed.notify_one();
    }

    /// These are the bundles that an administrator brought.
    pub fn trust(&self, anchors: Anchors) {
        let wanted = lock(&self.wanted);
        let mut all = lock(&self.known);
        let mut standing = lock(&self.anchors);
        if *standing == anchors {
            return;
        }
        // What an administrator brings anew counts more than what was fetched before.
        for peer in wanted.iter().filter(by_spiffe) {
            let name = &peer.trust_domain;
            if standing.get(name) != anchors.get(name)
                && let Some(known) = all.get_mut(name)
            {
                known.bundle = None;
            }
        }
        *standing = anchors;
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
        let (anchors, remembered) = (lock(&self.anchors), lock(&self.remembered));
        let kept = |peer: &Peer| {
            let name = &peer.trust_domain;
            let Some(anchor) = anchors.get(name) else {
                // Nobody brought one, or nobody can say: it counts again with the one that it came from.
                return Some((name.clone(), remembered.get(name)?.clone()));
            };
            let brought = anchor.fingerprint();
            let kept = match all.get(name).and_then(|known| known.bundle.clone()) {
                Some(bundle) => Kept { brought, bundle },
                None => remembered.get(name).filter(|it| it.brought == brought)?.clone(),
            };
            let news = !memory::same_authorities(&kept.bundle, anchor);
            news.then(|| (name.clone(), kept))
        };
        wanted.iter().filter(by_spiffe).filter_map(kept).collect()
    }

    /// Lets go of everything and asks nobody: another replica leads, and what this one knows grows old.
    pub fn forget(&self) {
        self.terms.fetch_add(1, Ordering::Relaxed);
        self.want(&[]);
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

    /// Keeps asking. Ends only when it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut running: Vec<(Asked, AbortHandle)> = Vec::new();
        loop {
            let mut wanted = self.asked();
            running.retain(|(asked, task)| {
                let stays = wanted.contains(asked) && !task.is_finished();
                if !stays {
                    // A fetch under way is begun anew.
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
    fn asked(&self) -> Vec<Asked> {
        let wanted = lock(&self.wanted);
        let anchors = lock(&self.anchors);
        wanted.iter().map(|peer| self.would_ask(peer, &anchors)).collect()
    }

    fn would_ask(&self, peer: &Peer, anchors: &Anchors) -> Asked {
        let term = self.terms.load(Ordering::Relaxed);
        Asked { peer: peer.clone(), brought: brought(peer, anchors), term }
    }

    async fn follow(self: Arc<Self>, asked: Asked) {
        loop {
            // A standby asks nobody: it has nothing to tell.
            self.gate.clone().opened().await;
            let started = Instant::now();
            let outcome = AssertUnwindSafe(self.ask(&asked.peer)).catch_unwind().await;
            let interval = self.learn(&asked, outcome.unwrap_or(Err(PeerError::Panicked)));
            tokio::time::sleep_until(started + interval).await;
        }
    }

    async fn ask(&self, peer: &Peer) -> Result<Bundle, PeerError> {
        let endpoint = self.endpoint(peer)?;
        let bundle = fetch::fetch(&endpoint, self.clock.now()).await?.bundle;
        // With none, every identity of that trust domain would be invalid.
        if bundle.x509.is_empty() {
            return Err(PeerError::Empty);
        }
        let now = self.clock.now();
        let ended = bundle.x509.iter().all(|authority| authority.not_after < now);
        if ended { Err(PeerError::Ended) } else { Ok(bundle) }
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
        let anchor = lock(&self.anchors).get(trust_domain).cloned()?;
        let brought = anchor.fingerprint();
        let remembered = lock(&self.remembered).get(trust_domain).cloned();
        let remembered = remembered.filter(|kept| kept.brought == brought);
        Some(remembered.map_or(anchor, |kept| kept.bundle))
    }

    fn learn(&self, asked: &Asked, outcome: Result<Bundle, PeerError>) -> Duration {
        let peer = &asked.peer;
        let wanted = lock(&self.wanted);
        let mut all = lock(&self.known);
        let same = wanted.contains(peer) && self.would_ask(peer, &lock(&self.anchors)) == *asked;
        if !same || !self.gate.is_open() {
            // While it was asked it was taken out, or is to be known by something else; or another
            // replica leads by now.
            return SHORTEST_HINT / ASKED_PER_HINT;
        }
        let known = all.entry(peer.trust_domain.clone()).or_default();
        let before = known.status(&peer.trust_domain);
        if let Err(error) = &outcome {
            tracing::warn!(trust_domain = %peer.trust_domain, %error, "bundle not fetched");
        }
        known.learn(outcome, self.clock.now());
        let after = known.status(&peer.trust_domain);
        let interval = known.interval();
        drop((wanted, all));
        let same = PeerStatus { last_success_time: after.last_success_time, ..before };
        if same != after {
            self.news.notify_one();
        }
        interval
    }
}

/// What an administrator brought of a peer, and of the trust domain of its server.
fn brought(peer: &Peer, anchors: &Anchors) -> [Option<Arc<Bundle>>; 2] {
    let server = || {
        let id = peer.endpoint_spiffe_id.as_deref().and_then(|id| SpiffeId::parse(id).ok())?;
        anchors.get(id.trust_domain().as_str()).cloned()
    };
    match by_spiffe(&peer) {
        true => [anchors.get(&peer.trust_domain).cloned(), server()],
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
