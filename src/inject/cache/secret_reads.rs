//! Reads of Secrets, shared between Routes.
//!
//! The watch brings versions only; the content is read when a Route needs it, and judged off the
//! threads that everybody waits for. Where many Routes name one Secret, one read serves all of
//! them that waited for it: until the watch has news of the Secret, and for a few seconds at most, so
//! that no key stays.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    api::secret::{Secret, TLS_TYPE},
    inject::decide::{secret_state::SecretState, source::Revision, state},
    k8s::object_ref::ObjectRef,
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
    tls::{self, Fingerprint, Pair},
};

/// A read serves others for so long.
pub const SHARED: Duration = Duration::from_secs(5);
/// All reads that are kept for others hold this many bytes at most.
const SHARED_BYTES: usize = 8 << 20;
/// So many pairs are judged at once.
const JUDGES: usize = 2;
/// So many objects of one namespace are read at once: each may take megabytes.
const READS: usize = 4;

/// A pair, and the version of the Secret that it was read from.
#[derive(Clone, Debug)]
pub struct ReadPair {
    pub pair: Pair,
    /// The uid of the Secret.
    pub uid: Box<str>,
    pub version: Box<str>,
}

/// A Secret as the API server has it.
pub struct SecretRead {
    pub state: SecretState,
    /// Which version it is; none where there is no such Secret.
    pub revision: Option<Revision>,
    /// The pair, where the router would serve it.
    pub pair: Option<ReadPair>,
}

impl SecretRead {
    pub fn missing(since: DateTime<Utc>) -> Self {
        Self { state: SecretState::Missing { since }, revision: None, pair: None }
    }

    /// Judges a Secret by itself, whatever the Route's `caCertificate`.
    pub fn judge(secret: &Secret) -> Self {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        let (uid, version) = (text(&secret.metadata.uid), text(&secret.metadata.resource_version));
        let revision = Some(Revision::of(&uid, &version));
        if secret.kind != TLS_TYPE {
            let state = SecretState::WrongType(state::shortened(&secret.kind).into());
            return Self { state, revision, pair: None };
        }
        let (certificate, key) = (secret.data.certificate.expose(), secret.data.key.expose());
        match tls::judge(certificate, key) {
            Err(problems) => {
                let texts = str::from_utf8(certificate).ok().zip(str::from_utf8(key).ok());
                let texts = texts.filter(|_| !failpoints::has(Bug::ClearsByStricterRules));
                let pair = texts.map(|(certificate, key)| Fingerprint::of(certificate, key));
                let state = SecretState::Invalid { problems: problems.into(), pair };
                Self { state, revision, pair: None }
            }
            Ok(pair) => {
                let state = SecretState::Usable(pair.fingerprint());
                let pair = ReadPair { pair, uid: uid.into(), version: version.into() };
                Self { state, revision, pair: Some(pair) }
            }
        }
    }

    fn size(&self) -> usize {
        let size = |read: &ReadPair| read.pair.certificate().len() + read.pair.key().expose().len();
        self.pair.as_ref().map_or(0, size)
    }
}

/// Does work that takes a processor for long: on two threads at most, and for one namespace one
/// piece at a time, so that one tenant's certificates do not hold up another's.
pub struct Judge {
    /// None where everything is done in place, as in the simulator.
    threads: Option<Semaphore>,
    namespaces: Mutex<HashMap<Arc<str>, Arc<NamespaceLimits>>>,
}

/// Limits for the Routes of one namespace.
struct NamespaceLimits {
    work: tokio::sync::Mutex<()>,
    reads: Arc<Semaphore>,
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self { work: tokio::sync::Mutex::default(), reads: Arc::new(Semaphore::new(READS)) }
    }
}

impl Judge {
    pub fn on_threads() -> Self {
        Self { threads: Some(Semaphore::new(JUDGES)), namespaces: Mutex::default() }
    }

    pub fn in_place() -> Self {
        Self { threads: None, namespaces: Mutex::default() }
    }

    /// Runs the work after earlier work of that namespace.
    pub async fn run<T: Send + 'static>(
        &self,
        namespace: &Arc<str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let Some(threads) = &self.threads else { return work() };
        let limits = self.limits(namespace);
        let _guard = limits.work.lock().await;
        // The semaphore is never closed.
        let _permit = threads.acquire().await;
        match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome,
            // A panic is the Route's own, as if it had been done in place.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Waits until the namespace may read one more object; held until dropped.
    pub async fn read_permit(&self, namespace: &Arc<str>) -> Option<OwnedSemaphorePermit> {
        let reads = self.limits(namespace).reads.clone();
        // The semaphore is never closed.
        reads.acquire_owned().await.ok()
    }

    /// Forgets idle namespaces.
    pub fn tidy(&self) {
        let is_idle = |limits: &Arc<NamespaceLimits>| {
            Arc::strong_count(limits) == 1 && limits.reads.available_permits() == READS
        };
        self.namespaces().retain(|_, limits| !is_idle(limits));
    }

    fn limits(&self, namespace: &Arc<str>) -> Arc<NamespaceLimits> {
        self.namespaces().entry(namespace.clone()).or_default().clone()
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<NamespaceLimits>>> {
        lock(&self.namespaces)
    }
}

/// Reads that several Routes may use.
#[derive(Default)]
pub struct SharedReads {
    slots: Mutex<HashMap<ObjectRef, Arc<Slot>>>,
}

/// The one read of a Secret: the first caller holds the lock until it is done.
struct Slot {
    since: Instant,
    bytes: AtomicUsize,
    read: tokio::sync::Mutex<Read>,
}

enum Read {
    NotYet,
    Answered(Option<Arc<SecretRead>>),
    /// There is no answer to share: every caller reads.
    Failed,
}

impl SharedReads {
    /// A shared read that is no older than `since`, or a new one.
    pub async fn share<E>(
        &self,
        at: &ObjectRef,
        since: Instant,
        read: impl Future<Output = Result<Option<Arc<SecretRead>>, E>>,
    ) -> Result<Option<Arc<SecretRead>>, E> {
        let slot = self.slot(at, since);
        let mut shared = slot.read.lock().await;
        match &*shared {
            Read::Answered(read) => return Ok(read.clone()),
            Read::Failed => drop(shared),
            Read::NotYet => {
                // If this read is cancelled, those who wait read for themselves.
                *shared = Read::Failed;
                let answer = read.await;
                if let Ok(read) = &answer {
                    let bytes = read.as_deref().map_or(0, SecretRead::size);
                    slot.bytes.store(bytes, Ordering::Relaxed);
                    *shared = Read::Answered(read.clone());
                }
                return answer;
            }
        }
        read.await
    }

    /// The Secret changed, so earlier reads are outdated.
    pub fn forget(&self, at: &ObjectRef) {
        self.slots().remove(at);
    }

    /// The watch missed events.
    pub fn clear(&self) {
        self.slots().clear();
    }

    pub fn tidy(&self) {
        self.slots().retain(|_, slot| slot.since.elapsed() < SHARED);
    }

    fn slot(&self, at: &ObjectRef, since: Instant) -> Arc<Slot> {
        let mut slots = self.slots();
        let fresh = |slot: &&Arc<Slot>| slot.since.elapsed() < SHARED && slot.since >= since;
        if let Some(slot) = slots.get(at).filter(fresh) {
            return slot.clone();
        }
        make_room(&mut slots);
        let (bytes, read) = (AtomicUsize::new(0), tokio::sync::Mutex::new(Read::NotYet));
        let slot = Arc::new(Slot { since: Instant::now(), bytes, read });
        slots.insert(at.clone(), slot.clone());
        slot
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<ObjectRef, Arc<Slot>>> {
        lock(&self.slots)
    }
}

/// Drops old reads, and the oldest while all of them are too large.
fn make_room(slots: &mut HashMap<ObjectRef, Arc<Slot>>) {
    slots.retain(|_, slot| slot.since.elapsed() < SHARED);
    let bytes = |slot: &Slot| slot.bytes.load(Ordering::Relaxed);
    let mut kept: usize = slots.values().map(|slot| bytes(slot)).sum();
    while kept > SHARED_BYTES {
        let heavy = slots.iter().filter(|(_, slot)| bytes(slot) > 0);
        let Some((at, _)) = heavy.min_by_key(|(_, slot)| slot.since) else { return };
        let at = at.clone();
        kept -= slots.remove(&at).map_or(0, |slot| bytes(&slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::fixtures;

    struct Server {
        shared: SharedReads,
        reads: AtomicUsize,
        started: Instant,
    }

    impl Server {
        fn new() -> Arc<Self> {
            let (shared, started) = (SharedReads::default(), Instant::now());
            Arc::new(Self { shared, reads: 0.into(), started })
        }

        /// One Route's read, which takes a second; `answer` is the Secret's type.
        async fn read(
            &self,
            answer: Result<Option<&str>, ()>,
        ) -> Result<Option<Arc<SecretRead>>, ()> {
            let ask = async {
                self.reads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let read = |kind: &str| {
                    let state = SecretState::WrongType(kind.into());
                    SecretRead { state, revision: None, pair: None }
                };
                answer.map(|kind| kind.map(read).map(Arc::new))
            };
            let since = self.started;
            self.shared.share(&ObjectRef::new("web", "shop-tls"), since, ask).await
        }

        async fn all_read(
            self: &Arc<Self>,
            routes: usize,
            answer: Result<Option<&'static str>, ()>,
        ) {
            let reads = (0..routes).map(|_| {
                let server = self.clone();
                tokio::spawn(async move { server.read(answer).await })
            });
            for read in futures::future::join_all(reads).await {
                let seen = read.unwrap().map(|read| read.is_some());
                assert_eq!(seen, answer.map(|kind| kind.is_some()));
            }
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_routes_that_wait_for_one_secret_read_it_once() {
        let server = Server::new();
        server.all_read(1_000, Ok(Some("a"))).await;
        assert_eq!(server.reads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn after_news_of_the_secret_it_is_read_again() {
        let server = Server::new();
        server.read(Ok(Some("old"))).await.unwrap();
        server.shared.forget(&ObjectRef::new("web", "shop-tls"));
        let read = server.read(Ok(Some("new"))).await.unwrap().unwrap();
        assert_eq!(read.state, SecretState::WrongType("new".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn news_that_come_while_it_is_read_are_not_missed_by_who_comes_after_them() {
        let server = Server::new();
        let slow = tokio::spawn({
            let server = server.clone();
            async move { server.read(Ok(Some("old"))).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.shared.forget(&ObjectRef::new("web", "shop-tls"));
        let read = server.read(Ok(Some("new"))).await.unwrap().unwrap();
        assert_eq!(read.state, SecretState::WrongType("new".into()));
        slow.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn no_read_is_used_for_long_and_no_key_stays() {
        let server = Server::new();
        server.read(Ok(Some("a"))).await.unwrap();
        tokio::time::sleep(SHARED).await;
        server.read(Ok(Some("a"))).await.unwrap();
        assert_eq!(server.reads(), 2);
        tokio::time::sleep(SHARED).await;
        server.shared.tidy();
        assert!(server.shared.slots().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_routes_that_wait_for_a_missing_secret_ask_once() {
        let server = Server::new();
        server.all_read(1_000, Ok(None)).await;
        assert_eq!(server.reads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_cannot_be_read_does_not_line_everybody_up() {
        let server = Server::new();
        let start = Instant::now();
        server.all_read(16, Err(())).await;
        assert_eq!(start.elapsed().as_secs(), 2, "the first, then all others at once");
        assert_eq!(server.reads(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_for_others_is_bounded_and_the_oldest_goes_first() {
        let shared = SharedReads::default();
        for number in 0..40 {
            let at = ObjectRef::new("web", format!("tls-{number}"));
            let read = async { Ok::<_, ()>(Some(Arc::new(large()))) };
            shared.share(&at, Instant::now(), read).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        make_room(&mut shared.slots());
        let slots = shared.slots();
        let bytes: usize = slots.values().map(|slot| slot.bytes.load(Ordering::Relaxed)).sum();
        assert!(bytes <= SHARED_BYTES && slots.len() > 20, "{bytes} bytes of {}", slots.len());
        assert!(slots.contains_key(&ObjectRef::new("web", "tls-39")));
        assert!(!slots.contains_key(&ObjectRef::new("web", "tls-0")));
    }

    /// A good pair with much text around it.
    fn large() -> SecretRead {
        let (certificate, key) = fixtures::issued("shop.example.com");
        let padded = format!("{}\n{certificate}", " ".repeat(250 << 10));
        let secret = serde_json::from_value(fixtures::secret(padded, key)).unwrap();
        let read = SecretRead::judge(&secret);
        assert!(read.state.is_usable() && read.size() > 250 << 10);
        read
    }

    #[tokio::test]
    async fn one_namespaces_work_does_not_hold_up_anothers_and_a_panic_is_the_callers() {
        let judge = Arc::new(Judge::on_threads());
        let (hostile, other): (Arc<str>, Arc<str>) = ("hostile".into(), "other".into());
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let crowd: Vec<_> = (0..20)
            .map(|_| {
                let (judge, hostile, wait) = (judge.clone(), hostile.clone(), wait.clone());
                let work = move || wait.lock().unwrap().recv().is_ok();
                tokio::spawn(async move { judge.run(&hostile, work).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(judge.run(&other, || 7).await, 7, "it waits for none of them");
        drop(go);
        futures::future::join_all(crowd).await;
        let panics = tokio::spawn({
            let judge = judge.clone();
            async move { judge.run(&other, || panic!("a bug")).await }
        });
        assert!(panics.await.unwrap_err().is_panic());
        judge.tidy();
        assert!(judge.namespaces().is_empty());
    }

    #[test]
    fn of_a_type_of_any_length_only_its_beginning_is_kept() {
        let secret = serde_json::json!({
            "metadata": { "name": "shop-tls" }, "type": "x".repeat(1_400_000), "data": {},
        });
        let read = SecretRead::judge(&serde_json::from_value(secret).unwrap());
        let SecretState::WrongType(kept) = &read.state else { panic!("{:?}", read.state) };
        assert_eq!(kept.len(), 63);
    }
}
