//! Of the Secrets that Routes name: their revision, and what was read of it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::Index;
use crate::{
    inject::{
        cache::secret_reads::SecretRead,
        decide::{secret_state::SecretState, source::Revision},
    },
    k8s::object_ref::ObjectRef,
    runtime::failpoints::{self, Bug},
    tls::Fingerprint,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first list of this process.
    FirstList,
    Relist,
    Event,
}

/// A Secret that a Route names.
#[derive(Debug, Default)]
pub(super) struct SecretEntry {
    /// The names of the Routes that name it, in order.
    pub(super) routes: Vec<Arc<str>>,
    /// The version that the watch or a read brought last; none where there is no such Secret, or
    /// nobody knows.
    pub(super) revision: Option<Revision>,
    /// Whether one Route's read brought that version: the others are yet to hear of it from the watch.
    pub(super) read_ahead: bool,
    pub(super) content: Content,
    pub(super) last_event: Option<LastEvent>,
    /// When the API server first said that there is no such Secret.
    pub(super) missing_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LastEvent {
    pub(super) at: Instant,
    /// Whether that was a change, and not what a first list brought.
    pub(super) is_change: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Content {
    #[default]
    Unread,
    Usable(Fingerprint),
    /// Not usable, or not there, as of this time.
    Unusable(Box<(SecretState, Instant)>),
}

impl Index {
    /// The watch brought this version of a TLS Secret. Answers the Routes that its change concerns.
    pub fn secret_applied(
        &mut self,
        at: &ObjectRef,
        revision: Revision,
        arrival: Arrival,
        now: Instant,
    ) -> Vec<ObjectRef> {
        let Some(entry) = self.secrets.get_mut(at) else { return Vec::new() };
        if !failpoints::has(Bug::GraceNeverRestarts) {
            entry.missing_since = None;
        }
        let is_missed = arrival == Arrival::Relist
            && entry.revision.is_some()
            && failpoints::has(Bug::BelievesOlderVersion);
        if is_missed || entry.revision == Some(revision) && !entry.read_ahead {
            return Vec::new();
        }
        if entry.revision != Some(revision) {
            entry.content = Content::Unread;
        }
        (entry.revision, entry.read_ahead) = (Some(revision), false);
        entry.last_event = Some(LastEvent { at: now, is_change: arrival != Arrival::FirstList });
        self.routes_by_secret(at)
    }

    /// A TLS Secret is gone, or can't be decoded. Answers the Routes that this concerns.
    pub fn secret_gone(&mut self, at: &ObjectRef, now: Instant) -> Vec<ObjectRef> {
        let Some(entry) = self.secrets.get_mut(at) else { return Vec::new() };
        // A new absence has a grace of its own, whatever an outdated answer left behind.
        if !failpoints::has(Bug::GraceNeverRestarts) {
            entry.missing_since = None;
        }
        if !failpoints::has(Bug::SecretStaysCached) {
            entry.forget();
            entry.last_event = Some(LastEvent { at: now, is_change: true });
        }
        self.routes_by_secret(at)
    }

    /// A list of TLS Secrets is through, and did not bring these that Routes name: answers the
    /// Routes of all that were not known to be absent. One that came and went while the watch was
    /// down was never seen here, and its pair may stand in a Route all the same.
    pub fn secrets_listed(&mut self, unlisted: &[ObjectRef], now: Instant) -> Vec<ObjectRef> {
        let mut concerned = Vec::new();
        for at in unlisted {
            let is_known =
                self.secrets.get(at).is_none_or(|entry| entry.is_not_listed() && !entry.read_ahead);
            if !is_known {
                concerned.extend(self.secret_gone(at, now));
            }
        }
        concerned
    }

    /// Since when the API server says that there is no such Secret.
    pub fn missing_since(&self, at: &ObjectRef) -> Option<Instant> {
        self.secrets.get(at)?.missing_since
    }

    /// A read brought this; none if there is no such Secret.
    pub fn secret_read(
        &mut self,
        at: &ObjectRef,
        read: Option<&SecretRead>,
        asked: Instant,
        now: Instant,
    ) {
        let Some(entry) = self.secrets.get_mut(at) else { return };
        match read {
            Some(_) if failpoints::has(Bug::GraceNeverRestarts) => {}
            Some(_) => entry.missing_since = None,
            None => {
                entry.missing_since.get_or_insert(now);
            }
        }
        // Secrets of other types are not watched, so that no event will tell of this revision.
        let is_watched = |read: &&SecretRead| !matches!(read.state, SecretState::WrongType(_));
        let revision = read.filter(is_watched).and_then(|read| read.revision);
        let is_overtaken = entry.last_event.is_some_and(|event| event.at > asked)
            && !failpoints::has(Bug::ReadHidesNewer);
        // A missing revision may be a gap in the cache: it confirms no late 404.
        if is_overtaken && (revision.is_none() || revision != entry.revision) {
            // One of the two is behind, and nobody knows which: it has to be read again.
            entry.forget();
            return;
        }
        entry.read_ahead |= entry.revision != revision;
        entry.revision = revision;
        let missing = SecretState::Missing { since: DateTime::<Utc>::MIN_UTC };
        entry.content = match read.map_or(&missing, |read| &read.state) {
            SecretState::Usable(pair) => Content::Usable(*pair),
            unusable => Content::Unusable(Box::new((unusable.clone(), asked))),
        };
    }

    /// Forgets what was read of every Secret in one part of all, so that it is read and compared with
    /// its Routes. Answers these.
    pub fn mark_unverified(&mut self, part: u64, parts: u64) -> Vec<ObjectRef> {
        let is_due = |at: &ObjectRef| {
            let mut hasher = DefaultHasher::new();
            at.hash(&mut hasher);
            hasher.finish() % parts == part
        };
        let mut due: Vec<_> = self.secrets.keys().filter(|at| is_due(at)).cloned().collect();
        due.sort_unstable();
        let mut concerned = Vec::new();
        for at in due {
            if let Some(entry) = self.secrets.get_mut(&at) {
                entry.content = Content::Unread;
            }
            let routes = self.routes_by_secret(&at);
            for route in &routes {
                if let Some(entry) = self.routes.get_mut(route) {
                    entry.trusted = false;
                }
            }
            concerned.extend(routes);
        }
        concerned
    }
}

impl SecretEntry {
    /// Nothing is known of it any more.
    fn forget(&mut self) {
        (self.revision, self.read_ahead, self.content) = (None, false, Content::Unread);
    }

    /// Whether a list of TLS Secrets can't bring it, as far as was read.
    fn is_not_listed(&self) -> bool {
        let Content::Unusable(read) = &self.content else { return false };
        let state = &read.0;
        self.revision.is_none()
            && matches!(state, SecretState::Missing { .. } | SecretState::WrongType(_))
    }
}
