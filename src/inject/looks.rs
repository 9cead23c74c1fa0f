//! Reads of Secrets, and what they are worth.
//!
//! What is written is decided from a read, never from the cache alone. Where many Routes ask for
//! one Secret, one read serves all of them that waited for it: it is used until the watch has news of
//! the Secret, and for a few seconds at most, so that no key stays.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    api::secret::{Secret, TLS_TYPE},
    inject::{facts::ObjectRef, plan::SecretSeen},
    tls::{self, Pair},
};

/// A read serves others for so long.
pub const SHARED: Duration = Duration::from_secs(5);

/// A Secret as the API server has it, with the pair where it is usable.
pub struct Looked {
    /// What it is worth.
    pub seen: SecretSeen,
    /// The pair, where the router would serve it.
    pub pair: Option<Pair>,
}

impl Looked {
    /// There is no such Secret.
    pub fn missing(since: chrono::DateTime<chrono::Utc>) -> Self {
        Self { seen: SecretSeen::Missing { since }, pair: None }
    }

    /// What a Secret is worth by itself; cheaper where it is what it was.
    pub fn judge(secret: &Secret, known: Option<&SecretSeen>) -> Self {
        if secret.kind != TLS_TYPE {
            return Self { seen: SecretSeen::WrongType(secret.kind.as_str().into()), pair: None };
        }
        let known = match known {
            Some(SecretSeen::Usable(facts)) => Some(facts),
            _ => None,
        };
        let (certificate, key) = (secret.data.certificate.expose(), secret.data.key.expose());
        match tls::judge_again(certificate, key, known) {
            Err(problems) => Self { seen: SecretSeen::Invalid(problems), pair: None },
            Ok(pair) => Self { seen: SecretSeen::Usable(pair.facts().clone()), pair: Some(pair) },
        }
    }

    /// A good pair is no good to a Route whose own `caCertificate` makes the router refuse it.
    pub fn with_ca_certificate(self: Arc<Self>, ca_certificate: &str) -> Arc<Self> {
        let problems = match &self.pair {
            Some(pair) if !ca_certificate.is_empty() => tls::ca_problems(pair, ca_certificate),
            _ => Vec::new(),
        };
        if problems.is_empty() {
            return self;
        }
        Arc::new(Self { seen: SecretSeen::CaMismatch(problems), pair: None })
    }
}

/// Reads that several Routes may use.
#[derive(Default)]
pub struct Looks {
    slots: Mutex<HashMap<ObjectRef, Arc<Slot>>>,
}

/// The one read of a Secret: whoever comes first holds the lock while it is under way.
struct Slot {
    since: Instant,
    read: tokio::sync::Mutex<Read>,
}

enum Read {
    NotYet,
    Answered(Arc<Looked>),
    /// There was nothing to share: everybody asks for himself.
    Nothing,
}

impl Looks {
    /// Answers with a read that others use too, and that is no older than `since`, or makes one.
    /// Only a Secret that is there is worth sharing: the grace of one that is missing counts from
    /// each answer.
    pub async fn share<E>(
        &self,
        at: &ObjectRef,
        since: Instant,
        read: impl Future<Output = Result<Option<Arc<Looked>>, E>>,
    ) -> Result<Option<Arc<Looked>>, E> {
        let slot = self.slot(at, since);
        let mut shared = slot.read.lock().await;
        match &*shared {
            Read::Answered(looked) => return Ok(Some(looked.clone())),
            Read::Nothing => drop(shared),
            Read::NotYet => {
                // Should the read be given up half-way, those who wait ask for themselves.
                *shared = Read::Nothing;
                let answer = read.await;
                if let Ok(Some(looked)) = &answer {
                    *shared = Read::Answered(looked.clone());
                }
                return answer;
            }
        }
        read.await
    }

    /// The watch has news of this Secret: what was read before is not used any more.
    pub fn forget(&self, at: &ObjectRef) {
        self.slots().remove(at);
    }

    /// There was a gap in the news.
    pub fn clear(&self) {
        self.slots().clear();
    }

    /// Lets go of what is old.
    pub fn tidy(&self) {
        self.slots().retain(|_, slot| slot.since.elapsed() < SHARED);
    }

    fn slot(&self, at: &ObjectRef, since: Instant) -> Arc<Slot> {
        let fresh = |slot: &&Arc<Slot>| slot.since.elapsed() < SHARED && slot.since >= since;
        if let Some(slot) = self.slots().get(at).filter(fresh) {
            return slot.clone();
        }
        self.tidy();
        let slot = Slot { since: Instant::now(), read: tokio::sync::Mutex::new(Read::NotYet) };
        let slot = Arc::new(slot);
        self.slots().insert(at.clone(), slot.clone());
        slot
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<ObjectRef, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Server {
        looks: Looks,
        reads: AtomicUsize,
        started: Instant,
    }

    impl Server {
        fn new() -> Arc<Self> {
            Arc::new(Self { looks: Looks::default(), reads: 0.into(), started: Instant::now() })
        }

        /// One Route's read, which takes a second; `answer` is the Secret's type.
        async fn read(&self, answer: Result<Option<&str>, ()>) -> Result<Option<Arc<Looked>>, ()> {
            let ask = async {
                self.reads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let looked =
                    |kind: &str| Looked { seen: SecretSeen::WrongType(kind.into()), pair: None };
                answer.map(|kind| kind.map(looked).map(Arc::new))
            };
            let since = self.started;
            self.looks.share(&ObjectRef::new("web", "shop-tls"), since, ask).await
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
                let seen = read.unwrap().map(|looked| looked.is_some());
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
        server.looks.forget(&ObjectRef::new("web", "shop-tls"));
        let looked = server.read(Ok(Some("new"))).await.unwrap().unwrap();
        assert_eq!(looked.seen, SecretSeen::WrongType("new".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn news_that_come_while_it_is_read_are_not_missed_by_who_comes_after_them() {
        let server = Server::new();
        let slow = tokio::spawn({
            let server = server.clone();
            async move { server.read(Ok(Some("old"))).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.looks.forget(&ObjectRef::new("web", "shop-tls"));
        let looked = server.read(Ok(Some("new"))).await.unwrap().unwrap();
        assert_eq!(looked.seen, SecretSeen::WrongType("new".into()));
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
        server.looks.tidy();
        assert!(server.looks.slots().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_cannot_be_read_or_is_missing_does_not_line_everybody_up() {
        for answer in [Err(()), Ok(None)] {
            let server = Server::new();
            let start = Instant::now();
            server.all_read(16, answer).await;
            assert_eq!(start.elapsed().as_secs(), 2, "the first, then all others at once");
            assert_eq!(server.reads(), 16);
        }
    }
}
