//! All Routes, and the Secrets that a Route names, as the watches brought them.
//!
//! Plain synchronous code: no client, no queue, no lock. Every method answers which Routes have
//! to be decided again. Neither key nor certificate is kept: of a Secret its revision, and once it
//! was read the fingerprint of its pair.

mod secrets;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

pub use secrets::Arrival;
use secrets::{Content, SecretEntry};

use crate::{
    inject::{
        cache::write_backoffs::WriteBackoffs,
        decide::{
            facts::{Description, Holding, RequestedSecret, RouteFacts},
            secret_state::SecretState,
            source::{Agreement, Revision},
            state::{Reason, State},
            write::CompletedWrite,
        },
    },
    k8s::object_ref::ObjectRef,
    runtime::failpoints::{self, Bug},
    tls::{Fingerprint, Problem},
};

/// A watch may lag behind our own write for this long.
const OWN_WRITE_WINDOW: Duration = Duration::from_secs(30);
/// Pending Events older than this are dropped.
const OLD_NEWS: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub struct Index {
    /// Boxed: a table keeps room for twice as many as it holds.
    routes: HashMap<ObjectRef, Box<RouteEntry>>,
    /// Only Secrets that a Route names.
    secrets: HashMap<ObjectRef, Box<SecretEntry>>,
    /// One text of each namespace, for all that is in it.
    namespaces: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct RouteEntry {
    facts: RouteFacts,
    /// When we wrote what these are the facts of, while the watch is yet to bring it.
    own_write: Option<Instant>,
    /// Whether `injected-from` is believed: nobody but us changed what it stands beside since the
    /// Route was first listed.
    trusted: bool,
    last_state: Option<(Option<State>, Reason)>,
    pending: Option<PendingEvent>,
    ca_check: Option<Box<CaCheck>>,
    /// Only where it was written lately.
    backoffs: Option<Box<WriteBackoffs>>,
    /// When somebody else last changed it, as far as we know.
    changed: Instant,
}

/// How a pair got on with the Route's own `caCertificate`.
#[derive(Clone, Debug)]
struct CaCheck {
    pair: Fingerprint,
    ca_certificate: Fingerprint,
    problems: Box<[Problem]>,
}

/// A write of ours whose Event is yet to be published. Its text is made then: nearly every Route has
/// one after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    pub write: CompletedWrite,
    pub since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first list of this process.
    FirstList,
    /// A watch or a later list brought them, or the API server was asked.
    Server,
    /// The answer to our write of the pair, which the watch will bring as well.
    OwnPair,
    /// The same to our write of the status alone: it says nothing about the pair.
    OwnStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub enum KnownSecret {
    State(SecretState),
    Unread,
    /// An earlier version of our rules accepted it, and the Route holds it: the read can wait.
    UnreadByOurRules,
}

/// Part of the cluster that one watch covers: one namespace, or all.
pub type Scope = Option<Arc<str>>;

impl Index {
    /// Whether the watch brings our own last write, or a version from before it. Needs no facts, so
    /// it can be asked before a Route is read, which takes far longer.
    pub fn is_own_write(&mut self, at: &ObjectRef, uid: &str, version: &str, now: Instant) -> bool {
        let Some(entry) = self.entry(at, uid) else { return false };
        let Some(written) = entry.own_write else { return false };
        // After a while (a restored etcd counts from further back) whatever the watch says holds.
        if now.duration_since(written) >= OWN_WRITE_WINDOW {
            return false;
        }
        if *entry.facts.version == *version {
            // The facts at hand are those of the answer to that write.
            entry.own_write = None;
            return true;
        }
        is_older(version, &entry.facts.version)
    }

    /// A Route is there. Where anything that matters changed it has to be decided: answers its
    /// place as it is spelt here, so that nobody keeps another copy of it.
    pub fn route_applied(
        &mut self,
        mut facts: RouteFacts,
        origin: Origin,
        now: Instant,
    ) -> Option<ObjectRef> {
        if self.is_own_write(&facts.at, &facts.uid, &facts.version, now) {
            return None;
        }
        let known = self.routes.get_mut(&facts.at);
        if let Some(known) = &known {
            facts.keep_reading_of(&known.facts);
        }
        match known.filter(|entry| entry.facts.same_but_for_version(&facts)) {
            Some(entry) => {
                let is_news = entry.facts.version != facts.version && entry.is_refused();
                entry.facts.version = facts.version;
                entry.own_write = None;
                if is_news {
                    // Any change may remove what the API server minded: a label, or the size.
                    entry.changed = now;
                }
                is_news.then_some(facts.at)
            }
            None => Some(self.insert(facts, origin, now)),
        }
    }

    /// Our own write made this of the Route.
    pub fn route_written(&mut self, mut facts: RouteFacts, origin: Origin, now: Instant) {
        // A Route that was deleted meanwhile must not come back into the cache, and a change that
        // the watch brought before our answer came must not be hidden by it.
        let takes_it = |entry: &RouteEntry| {
            entry.facts.uid == facts.uid
                && (failpoints::has(Bug::WrittenHidesNewer)
                    || !is_older(&facts.version, &entry.facts.version))
        };
        if let Some(entry) = self.routes.get(&facts.at).filter(|entry| takes_it(entry)) {
            facts.keep_reading_of(&entry.facts);
            self.insert(facts, origin, now);
        }
    }

    /// A read brought these facts. They are kept because a decision is made from them: if the watch
    /// then repeats what it brought before, that is a change again.
    pub fn route_read(&mut self, mut facts: RouteFacts, now: Instant) {
        let Some(entry) = self.routes.get_mut(&facts.at) else { return };
        if is_older(&facts.version, &entry.facts.version) {
            return;
        }
        facts.keep_reading_of(&entry.facts);
        entry.facts.keep_reading_of(&facts);
        if entry.facts.same_but_for_version(&facts) {
            entry.facts.version = facts.version;
            return;
        }
        self.insert(facts, Origin::Server, now);
    }

    pub fn route_gone(&mut self, at: &ObjectRef) {
        if let Some(entry) = self.routes.remove(at) {
            self.stop_naming(&entry.facts);
        }
    }

    /// The Routes of this part of the cluster, for a list that begins.
    pub fn routes_of(&self, scope: &Scope) -> impl Iterator<Item = ObjectRef> {
        self.routes.keys().filter(|at| covers(scope, at)).cloned()
    }

    /// The Secrets of this part of the cluster that Routes name, for a list that begins.
    pub fn secrets_of(&self, scope: &Scope) -> impl Iterator<Item = ObjectRef> {
        self.secrets.keys().filter(|at| covers(scope, at)).cloned()
    }

    pub fn route(&self, at: &ObjectRef) -> Option<RouteFacts> {
        self.routes.get(at).map(|entry| entry.facts.clone())
    }

    /// Whether this very Route is still there.
    pub fn knows(&self, at: &ObjectRef, uid: &str) -> bool {
        self.routes.get(at).is_some_and(|entry| *entry.facts.uid == *uid)
    }

    /// Provided that the watches are current.
    pub fn known_secret(&self, route: &RouteFacts, at: &ObjectRef) -> KnownSecret {
        let (Some(secret), Some(entry)) = (self.secrets.get(at), self.routes.get(&route.at)) else {
            return KnownSecret::Unread;
        };
        match (&secret.content, secret.revision) {
            (Content::Usable(pair), Some(_)) => KnownSecret::State(SecretState::Usable(*pair)),
            // A user may have fixed the Secret and then changed the Route.
            (Content::Unusable(read), _) if read.1 >= entry.changed => {
                KnownSecret::State(read.0.clone())
            }
            (Content::Unread, Some(revision)) => entry.judged_earlier(route, revision),
            _ => KnownSecret::Unread,
        }
    }

    /// Why the router would refuse this pair because of the Route's own `caCertificate`: nothing
    /// where there is no such problem, none where that is yet to be found out.
    pub fn ca_problems(&self, route: &RouteFacts, pair: Fingerprint) -> Option<Box<[Problem]>> {
        let Some(ca_certificate) = route.ca_certificate() else { return Some(Box::default()) };
        let check = self.routes.get(&route.at)?.ca_check.as_ref()?;
        (check.pair == pair && check.ca_certificate == ca_certificate)
            .then(|| check.problems.clone())
    }

    pub fn ca_checked(&mut self, route: &RouteFacts, pair: Fingerprint, problems: Box<[Problem]>) {
        let Some(ca_certificate) = route.ca_certificate() else { return };
        if let Some(entry) = self.routes.get_mut(&route.at) {
            entry.ca_check = Some(Box::new(CaCheck { pair, ca_certificate, problems }));
        }
    }

    /// If other Routes share this Secret, when this Route last changed.
    pub fn share_after(&self, route: &ObjectRef, secret: &ObjectRef) -> Option<Instant> {
        let is_shared = self.secrets.get(secret).is_some_and(|entry| entry.routes.len() > 1);
        self.routes.get(route).filter(|_| is_shared).map(|entry| entry.changed)
    }

    /// When the watch brought the change of the Secret that makes this Route out of date; none
    /// where it was the Route that changed last.
    pub fn caused_by_secret(&self, route: &RouteFacts) -> Option<Instant> {
        let event = self.secrets.get(&route.secret()?)?.last_event;
        let changed = event.filter(|event| event.is_change)?.at;
        (changed > self.routes.get(&route.at)?.changed).then_some(changed)
    }

    pub(crate) fn backoffs(&mut self, at: &ObjectRef, uid: &str) -> Option<&mut WriteBackoffs> {
        Some(self.entry(at, uid)?.backoffs.get_or_insert_default())
    }

    /// Whether this write was refused as too large, and would be again.
    pub fn is_too_large(&self, at: &ObjectRef, write: Option<u64>, now: Instant) -> bool {
        let Some(entry) = self.routes.get(at) else { return false };
        let refusals = entry.backoffs.as_ref().and_then(|backoffs| backoffs.refusals.as_ref());
        refusals.is_some_and(|refusals| refusals.is_too_large(write, entry.changed, now))
    }

    /// When a change of this Route may lead to the next try, if the last one was refused.
    pub fn not_before(&self, at: &ObjectRef) -> Option<Instant> {
        self.routes.get(at)?.backoffs.as_ref()?.refusals.as_ref()?.not_before()
    }

    pub fn clear_refusals(&mut self, at: &ObjectRef) {
        let backoffs = self.routes.get_mut(at).and_then(|entry| entry.backoffs.as_mut());
        if let Some(backoffs) = backoffs {
            backoffs.refusals = None;
        }
    }

    pub fn set_last_state(&mut self, at: &ObjectRef, state: Option<State>, reason: Reason) {
        if let Some(entry) = self.routes.get_mut(at) {
            entry.last_state = Some((state, reason));
        }
    }

    /// The Route's certificate is no longer ours to judge.
    pub fn clear_last_state(&mut self, at: &ObjectRef) {
        if let Some(entry) = self.routes.get_mut(at) {
            entry.last_state = None;
        }
    }

    /// This Event is to be published about the Route, if it is still this one.
    pub fn keep_pending(&mut self, at: &ObjectRef, uid: &str, event: PendingEvent) {
        if let Some(entry) = self.entry(at, uid) {
            entry.pending = Some(event);
        }
    }

    /// Whether an Event about the Route is yet to be published.
    pub fn has_pending(&self, at: &ObjectRef) -> bool {
        self.routes.get(at).is_some_and(|entry| entry.pending.is_some())
    }

    /// The Event that the caller has to publish, if the Route is still this one.
    pub fn take_pending(&mut self, at: &ObjectRef, uid: &str) -> Option<PendingEvent> {
        self.entry(at, uid)?.pending.take()
    }

    /// Forgets old Events, finished back-offs and empty namespaces.
    pub fn tidy(&mut self, now: Instant) {
        let is_old = |event: &mut PendingEvent| now.duration_since(event.since) > OLD_NEWS;
        for entry in self.routes.values_mut() {
            entry.pending.take_if(is_old);
            entry.backoffs.take_if(|backoffs| backoffs.are_over(now));
        }
        self.namespaces.retain(|name| Arc::strong_count(name) > 1);
    }

    /// All Routes, in the order of their names: runs with the same seed must not differ.
    pub fn all(&self) -> Vec<ObjectRef> {
        let mut all: Vec<_> = self.routes.keys().cloned().collect();
        all.sort_unstable();
        all
    }

    /// How many Routes are known, and how many Secrets they name.
    pub fn sizes(&self) -> (usize, usize) {
        (self.routes.len(), self.secrets.len())
    }

    /// How many Routes are in which state; `None` where no TLS is terminated.
    pub fn states(&self) -> HashMap<(Option<State>, Reason), u64> {
        let mut counts = HashMap::new();
        for state in self.routes.values().filter_map(|entry| entry.last_state) {
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// The managed Routes and when the certificate in them ends.
    pub fn managed(&self) -> impl Iterator<Item = (&ObjectRef, DateTime<Utc>)> {
        self.held().map(|(at, held)| (at, held.validity.not_after))
    }

    /// How many managed Routes have a certificate that clients object to, and why.
    pub fn warnings(&self, now: DateTime<Utc>) -> HashMap<Reason, u64> {
        let mut counts = HashMap::new();
        for warning in self.held().flat_map(|(_, held)| held.warnings_at(now)) {
            *counts.entry(Reason::from(&warning)).or_default() += 1;
        }
        counts
    }

    /// None if the Route was deleted or made again.
    fn entry(&mut self, at: &ObjectRef, uid: &str) -> Option<&mut RouteEntry> {
        let entry = self.routes.get_mut(at).filter(|entry| *entry.facts.uid == *uid)?;
        Some(&mut **entry)
    }

    fn held(&self) -> impl Iterator<Item = (&ObjectRef, &Description)> {
        self.routes.iter().filter_map(|(at, entry)| match entry.last_state {
            Some((Some(State::Managed), _)) => Some((at, entry.facts.description()?)),
            _ => None,
        })
    }

    fn insert(&mut self, mut facts: RouteFacts, origin: Origin, now: Instant) -> ObjectRef {
        self.share_texts(&mut facts);
        let at = facts.at.clone();
        let before = self.routes.remove(&at);
        // In this order: a Secret that is still named keeps what is remembered of it.
        let keeps_old = failpoints::has(Bug::IndexKeepsOldName) && before.is_some();
        if let Some(secret) = facts.secret().filter(|_| !keeps_old) {
            let routes = &mut self.secrets.entry(secret).or_default().routes;
            if let Err(place) = routes.binary_search(&at.name) {
                routes.reserve_exact(1);
                routes.insert(place, at.name.clone());
            }
        }
        let renamed =
            |before: &&RouteEntry| before.facts.requested != facts.requested && !keeps_old;
        if let Some(before) = before.as_deref().filter(renamed) {
            self.stop_naming(&before.facts);
        }
        let same = before.filter(|before| before.facts.uid == facts.uid);
        let trusted = match origin {
            Origin::OwnPair => true,
            Origin::FirstList if same.is_none() => true,
            _ => same.as_ref().is_some_and(|same| same.trusts(&facts)),
        };
        let mut entry = same.unwrap_or_else(|| Box::new(RouteEntry::new(facts.clone(), now)));
        let is_own = matches!(origin, Origin::OwnPair | Origin::OwnStatus);
        entry.own_write = is_own.then_some(now);
        // Where a write was refused, whatever changed may be what the API server minded.
        if !is_own && (entry.is_refused() || !entry.facts.same_but_for_status(&facts)) {
            entry.changed = now;
        }
        (entry.facts, entry.trusted) = (facts, trusted);
        self.routes.insert(at.clone(), entry);
        at
    }

    /// Names of namespaces and Secrets, and a Route's uid, are kept in many places: one text of each
    /// is enough.
    fn share_texts(&mut self, facts: &mut RouteFacts) {
        facts.at.namespace = self.shared_namespace(&facts.at.namespace);
        if let Some((known, entry)) = self.routes.get_key_value(&facts.at) {
            facts.at = known.clone();
            if entry.facts.uid == facts.uid {
                facts.uid = entry.facts.uid.clone();
            }
        }
        let Some(secret) = facts.secret() else { return };
        if let Some((known, _)) = self.secrets.get_key_value(&secret) {
            facts.requested = RequestedSecret::Secret(known.name.clone());
        }
    }

    fn shared_namespace(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name) {
            return known.clone();
        }
        self.namespaces.insert(name.clone());
        name.clone()
    }

    fn stop_naming(&mut self, facts: &RouteFacts) {
        let Some(secret) = facts.secret() else { return };
        if let Some(entry) = self.secrets.get_mut(&secret) {
            entry.routes.retain(|name| *name != facts.at.name);
            if entry.routes.is_empty() {
                self.secrets.remove(&secret);
            }
        }
    }

    fn routes_by_secret(&self, secret: &ObjectRef) -> Vec<ObjectRef> {
        let Some((secret, entry)) = self.secrets.get_key_value(secret) else { return Vec::new() };
        let most = if failpoints::has(Bug::FirstRouteOnly) { 1 } else { usize::MAX };
        let names = entry.routes.iter().take(most);
        names.map(|name| ObjectRef::new(secret.namespace.clone(), name.clone())).collect()
    }
}

impl RouteEntry {
    fn new(facts: RouteFacts, now: Instant) -> Self {
        Self {
            facts,
            own_write: None,
            trusted: false,
            last_state: None,
            pending: None,
            ca_check: None,
            backoffs: None,
            changed: now,
        }
    }

    fn is_refused(&self) -> bool {
        self.backoffs.as_ref().is_some_and(|backoffs| backoffs.refusals.is_some())
    }

    /// Whether `injected-from` says that the pair came from this revision of the Secret.
    fn judged_earlier(&self, route: &RouteFacts, revision: Revision) -> KnownSecret {
        let (Some(source), Holding::Certificate(pair, _)) = (route.source, route.holding()) else {
            return KnownSecret::Unread;
        };
        if !self.trusted || !self.facts.has_same_claim(route) {
            return KnownSecret::Unread;
        }
        match source.agreement(revision) {
            Agreement::Same => KnownSecret::State(SecretState::Usable(pair)),
            _ if failpoints::has(Bug::BelievesOtherUid) => {
                KnownSecret::State(SecretState::Usable(pair))
            }
            Agreement::OtherRules => KnownSecret::UnreadByOurRules,
            Agreement::Different => KnownSecret::Unread,
        }
    }

    /// Whether what was believed of this entry holds for the new facts of the same Route: pair, marker
    /// and annotations are as they were.
    fn trusts(&self, facts: &RouteFacts) -> bool {
        self.trusted
            && (self.facts.has_same_claim(facts) || failpoints::has(Bug::BelievesForeignChange))
    }
}

/// Versions are compared as numbers, as Kubernetes guarantees since 1.35; where they are none,
/// no version is older than another.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

fn covers(scope: &Scope, at: &ObjectRef) -> bool {
    scope.as_ref().is_none_or(|namespace| *namespace == at.namespace)
}

#[cfg(test)]
mod tests;
