//! What the watches told us: Routes, TLS Secrets, and which Routes ask for which Secret.
//!
//! Plain synchronous code: no client, no queue, no lock. Every method answers which Routes have
//! to be decided anew. Neither key nor certificate is kept.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::inject::{
    facts::{ObjectRef, RouteFacts, Wanted},
    plan::{Deed, SecretSeen},
    words::{Reason, State},
};
use crate::kit::seeded::{self, Bug};

/// For so long a watch may still bring what was before our own write.
const ECHO: Duration = Duration::from_secs(30);
/// After this long nobody is told any more that something happened.
const OLD_NEWS: Duration = Duration::from_secs(3_600);

/// The caches of the injector.
#[derive(Debug, Default)]
pub struct Index {
    /// Boxed: a table keeps room for twice as many as it holds.
    routes: HashMap<ObjectRef, Box<Entry>>,
    /// The names of the Routes that ask for a Secret, in order.
    asking: HashMap<ObjectRef, Vec<Arc<str>>>,
    secrets: HashMap<ObjectRef, Box<Known>>,
    missing: HashMap<ObjectRef, Instant>,
    /// One text of each namespace, for all that is in it.
    namespaces: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    facts: RouteFacts,
    /// Whether these are the facts of our own last write, and the watch is yet to bring it.
    awaits_echo: bool,
    settled: Option<(Option<State>, Reason)>,
    untold: Option<Untold>,
    changed: Instant,
}

/// What we did to a Route and have not told yet. The words are made when they are told: nearly every
/// Route waits to be told of after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untold {
    /// What.
    pub deed: Deed,
    /// And when.
    pub since: Instant,
}

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The watch brought them, or the API server was asked.
    Server,
    /// The answer to a write of ours, which the watch will bring as well.
    OurWrite,
}

#[derive(Debug)]
struct Known {
    seen: SecretSeen,
    /// When the watch brought a new pair; not set by a list.
    changed: Option<Instant>,
    /// When the API server was last asked, and said the same.
    read: Option<Instant>,
}

/// Part of the cluster that one watch covers: one namespace, or all.
pub type Scope = Option<Arc<str>>;

impl Index {
    /// Whether the watch brings our own last write, or a version from before it. Needs no facts, so
    /// it can be asked before a Route is read, which takes far longer.
    pub fn is_echo(&mut self, at: &ObjectRef, uid: &str, version: &str, now: Instant) -> bool {
        let Some(entry) = self.routes.get_mut(at).filter(|entry| *entry.facts.uid == *uid) else {
            return false;
        };
        // After a while (a restored etcd counts from further back) whatever the watch says holds.
        if !entry.awaits_echo || now.duration_since(entry.changed) >= ECHO {
            return false;
        }
        if *entry.facts.version == *version {
            // The facts at hand are those of the answer to that write.
            entry.awaits_echo = false;
            return true;
        }
        is_older(version, &entry.facts.version)
    }

    /// A Route is there. Where anything that matters changed it has to be decided: answers its
    /// place as it is spelt here, so that nobody keeps another copy of it.
    pub fn route_applied(&mut self, facts: RouteFacts, now: Instant) -> Option<ObjectRef> {
        if self.is_echo(&facts.at, &facts.uid, &facts.version, now) {
            return None;
        }
        let known = self.routes.get_mut(&facts.at);
        match known.filter(|entry| entry.facts.same_but_for_version(&facts)) {
            Some(entry) => {
                entry.facts.version = facts.version;
                entry.awaits_echo = false;
                None
            }
            None => Some(self.insert(facts, Source::Server, now)),
        }
    }

    /// Our own write made this of the Route.
    pub fn route_written(&mut self, facts: RouteFacts, now: Instant) {
        // A Route that was deleted meanwhile must not come back into the cache, and a change that
        // the watch brought before our answer came must not be hidden by it.
        let takes_it = |entry: &Entry| {
            entry.facts.uid == facts.uid
                && (seeded::has(Bug::WrittenHidesNewer)
                    || !is_older(&facts.version, &entry.facts.version))
        };
        if self.routes.get(&facts.at).is_some_and(|entry| takes_it(entry)) {
            self.insert(facts, Source::OurWrite, now);
        }
    }

    /// The API server was asked and said this. Kept, because a decision is made of it: where the
    /// watch brings next what it brought before, that is a change again.
    pub fn route_looked_at(&mut self, facts: RouteFacts, now: Instant) {
        let takes_it = |entry: &Entry| !is_older(&facts.version, &entry.facts.version);
        if self.routes.get(&facts.at).is_some_and(|entry| takes_it(entry)) {
            self.insert(facts, Source::Server, now);
        }
    }

    /// A Route is gone.
    pub fn route_gone(&mut self, at: &ObjectRef) {
        if let Some(entry) = self.routes.remove(at) {
            self.stop_asking(&entry.facts);
        }
    }

    /// The Routes of this part of the cluster, for a list that begins.
    pub fn routes_of(&self, scope: &Scope) -> impl Iterator<Item = ObjectRef> {
        self.routes.keys().filter(|at| covers(scope, at)).cloned()
    }

    /// The TLS Secrets of this part of the cluster, for a list that begins.
    pub fn secrets_of(&self, scope: &Scope) -> impl Iterator<Item = ObjectRef> {
        self.secrets.keys().filter(|at| covers(scope, at)).cloned()
    }

    /// A TLS Secret is there. Answers the Routes that its change concerns.
    pub fn secret_applied(
        &mut self,
        at: ObjectRef,
        seen: SecretSeen,
        changed: Option<Instant>,
    ) -> Vec<ObjectRef> {
        if !seeded::has(Bug::GraceNeverRestarts) {
            self.missing.remove(&at);
        }
        let same = self.secrets.get(&at).is_some_and(|known| known.seen == seen);
        if same {
            return Vec::new();
        }
        let concerned = self.asking_for(&at);
        // One text of the name serves both tables.
        let asked = self.asking.get_key_value(&at).map(|(shared, _)| shared.clone());
        let at = asked.unwrap_or_else(|| ObjectRef {
            namespace: self.shared_namespace(&at.namespace),
            name: at.name,
        });
        self.secrets.insert(at, Box::new(Known { seen, changed, read: None }));
        concerned
    }

    /// A TLS Secret is gone, or can't be decoded. Answers the Routes that this concerns.
    pub fn secret_gone(&mut self, at: &ObjectRef) -> Vec<ObjectRef> {
        // A new absence has a grace of its own, whatever an outdated answer left behind.
        if !seeded::has(Bug::GraceNeverRestarts) {
            self.missing.remove(at);
        }
        if seeded::has(Bug::SecretStaysCached) {
            return self.asking_for(at);
        }
        self.secrets.remove(at);
        // Known to the watch or not: a Route may hold its pair since a turn that asked the server.
        self.asking_for(at)
    }

    /// A list of TLS Secrets is through, and did not bring these: answers the Routes of all that
    /// are asked for and not there. One that came and went while the watch was down was never known
    /// here, and its pair may stand in a Route all the same.
    pub fn secrets_listed(&mut self, scope: &Scope, lost: &[ObjectRef]) -> Vec<ObjectRef> {
        for at in lost {
            self.secret_gone(at);
        }
        let not_there = |at: &&ObjectRef| covers(scope, at) && !self.secrets.contains_key(*at);
        let mut not_there: Vec<_> = self.asking.keys().filter(not_there).cloned().collect();
        not_there.sort_unstable();
        for at in &not_there {
            // Nobody knows since when: an answer of long ago must not take its grace.
            self.missing.remove(at);
        }
        not_there.iter().flat_map(|at| self.asking_for(at)).collect()
    }

    /// What is known of a Route.
    pub fn route(&self, at: &ObjectRef) -> Option<RouteFacts> {
        self.routes.get(at).map(|entry| entry.facts.clone())
    }

    /// What the watch said last about a TLS Secret. That there is nothing means only that no
    /// Secret *of that type* is known.
    pub fn secret(&self, at: &ObjectRef) -> Option<&SecretSeen> {
        self.secrets.get(at).map(|known| &known.seen)
    }

    /// Whether this very Route is still there.
    pub fn knows(&self, at: &ObjectRef, uid: &str) -> bool {
        self.routes.get(at).is_some_and(|entry| *entry.facts.uid == *uid)
    }

    /// Where others ask for the Route's Secret too: since when the Route is what it is.
    pub fn shares_since(&self, route: &ObjectRef, secret: &ObjectRef) -> Option<Instant> {
        let is_shared = self.asking.get(secret).is_some_and(|routes| routes.len() > 1);
        self.routes.get(route).filter(|_| is_shared).map(|entry| entry.changed)
    }

    /// When the watch brought the change of the Secret that makes this Route out of date; none
    /// where it was the Route that changed last.
    pub fn caused_by_secret(&self, route: &RouteFacts) -> Option<Instant> {
        let secret_changed = self.secrets.get(&route.secret()?)?.changed?;
        let route_changed = self.routes.get(&route.at)?.changed;
        (secret_changed > route_changed).then_some(secret_changed)
    }

    /// The API server says that there is no such Secret. Answers for how long by now.
    pub fn secret_missing(&mut self, at: &ObjectRef, now: Instant) -> Duration {
        // Nobody asks any more: there is nothing to remember.
        if !self.asking.contains_key(at) {
            return Duration::ZERO;
        }
        now.duration_since(*self.missing.entry(at.clone()).or_insert(now))
    }

    /// The API server says that there is such a Secret, whatever its type.
    pub fn secret_found(&mut self, at: &ObjectRef) {
        self.missing.remove(at);
    }

    /// The API server was asked at that time and said this. Where the watch said something else, one
    /// of them is behind: whatever the watch says next, even what it said before, must count as a
    /// change.
    pub fn secret_looked_at(&mut self, at: &ObjectRef, seen: Option<&SecretSeen>, asked: Instant) {
        if seeded::has(Bug::LookedAtForgotten) {
            return;
        }
        match self.secrets.get_mut(at) {
            Some(known) if Some(&known.seen) == seen => known.read = known.read.max(Some(asked)),
            Some(_) => {
                self.secrets.remove(at);
            }
            None => {}
        }
    }

    /// Whether what is known of the Route's Secret was also read since the Route is what it is: who
    /// changed the Secret and then the Route must not be told of what was before.
    pub fn secret_was_read_for(&self, route: &RouteFacts) -> bool {
        let read = route.secret().and_then(|secret| self.secrets.get(&secret)?.read);
        let entry = self.routes.get(&route.at);
        entry.is_some_and(|entry| read.is_some_and(|read| read >= entry.changed))
    }

    /// What the Route's certificate turned out to be.
    pub fn settled(&mut self, at: &ObjectRef, state: Option<State>, reason: Reason) {
        if let Some(entry) = self.routes.get_mut(at) {
            entry.settled = Some((state, reason));
        }
    }

    /// The Route's certificate is no longer ours to judge.
    pub fn unsettled(&mut self, at: &ObjectRef) {
        if let Some(entry) = self.routes.get_mut(at) {
            entry.settled = None;
        }
    }

    /// This is to be told of the Route, if it is still this one.
    pub fn keep_untold(&mut self, at: &ObjectRef, uid: &str, untold: Untold) {
        if let Some(entry) = self.routes.get_mut(at).filter(|entry| *entry.facts.uid == *uid) {
            entry.untold = Some(untold);
        }
    }

    /// Whether there is something to be told of the Route.
    pub fn has_untold(&self, at: &ObjectRef) -> bool {
        self.routes.get(at).is_some_and(|entry| entry.untold.is_some())
    }

    /// What is to be told of the Route, if it is still this one: from now on the caller's to tell.
    pub fn take_untold(&mut self, at: &ObjectRef, uid: &str) -> Option<Untold> {
        let entry = self.routes.get_mut(at).filter(|entry| *entry.facts.uid == *uid);
        entry?.untold.take()
    }

    /// Forgets what could not be told for so long that it is no news, and namespaces that nothing
    /// is in any more.
    pub fn tidy(&mut self, now: Instant) {
        let is_old = |untold: &mut Untold| now.duration_since(untold.since) > OLD_NEWS;
        for entry in self.routes.values_mut() {
            entry.untold.take_if(is_old);
        }
        self.namespaces.retain(|name| Arc::strong_count(name) > 1);
    }

    /// All Routes, in the order of their names: runs with the same seed must not differ.
    pub fn all(&self) -> Vec<ObjectRef> {
        let mut all: Vec<_> = self.routes.keys().cloned().collect();
        all.sort_unstable();
        all
    }

    /// How many Routes and TLS Secrets are known.
    pub fn sizes(&self) -> (usize, usize) {
        (self.routes.len(), self.secrets.len())
    }

    /// How many Routes are in which state; `None` where no TLS is terminated.
    pub fn states(&self) -> HashMap<(Option<State>, Reason), u64> {
        let mut counts = HashMap::new();
        for settled in self.routes.values().filter_map(|entry| entry.settled) {
            *counts.entry(settled).or_default() += 1;
        }
        counts
    }

    /// The managed Routes and when the certificate in them ends.
    pub fn managed(&self) -> impl Iterator<Item = (&ObjectRef, DateTime<Utc>)> {
        self.routes.iter().filter_map(|(at, entry)| match entry.settled {
            Some((Some(State::Managed), _)) => Some((at, entry.facts.validity?.not_after)),
            _ => None,
        })
    }

    fn insert(&mut self, mut facts: RouteFacts, source: Source, changed: Instant) -> ObjectRef {
        self.share_texts(&mut facts);
        let at = facts.at.clone();
        let before = self.routes.remove(&at);
        // In this order: a Secret that is still asked for keeps what is remembered of it.
        let keeps_old = seeded::has(Bug::IndexKeepsOldName) && before.is_some();
        if let Some(secret) = facts.secret().filter(|_| !keeps_old) {
            let routes = self.asking.entry(secret).or_insert_with(|| Vec::with_capacity(1));
            if let Err(place) = routes.binary_search(&at.name) {
                routes.insert(place, at.name.clone());
            }
        }
        let renamed = |before: &&Entry| before.facts.wanted != facts.wanted && !keeps_old;
        if let Some(before) = before.as_deref().filter(renamed) {
            self.stop_asking(&before.facts);
        }
        let same = before.filter(|before| before.facts.uid == facts.uid);
        let (settled, untold) = same.map_or((None, None), |same| (same.settled, same.untold));
        let awaits_echo = source == Source::OurWrite;
        let entry = Entry { facts, awaits_echo, settled, untold, changed };
        self.routes.insert(at.clone(), Box::new(entry));
        at
    }

    /// The names of namespaces and Secrets stand in many places, and a Route's uid in whatever is
    /// remembered of it; one text of each is enough.
    fn share_texts(&mut self, facts: &mut RouteFacts) {
        facts.at.namespace = self.shared_namespace(&facts.at.namespace);
        if let Some((known, entry)) = self.routes.get_key_value(&facts.at) {
            facts.at = known.clone();
            if entry.facts.uid == facts.uid {
                facts.uid = entry.facts.uid.clone();
            }
        }
        let Some(secret) = facts.secret() else { return };
        let asked = self.asking.get_key_value(&secret).map(|(known, _)| known);
        let known = asked.or_else(|| self.secrets.get_key_value(&secret).map(|(known, _)| known));
        if let Some(known) = known {
            facts.wanted = Wanted::Secret(known.name.clone());
        }
    }

    fn shared_namespace(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.namespaces.get(name) {
            return known.clone();
        }
        self.namespaces.insert(name.clone());
        name.clone()
    }

    fn stop_asking(&mut self, facts: &RouteFacts) {
        let Some(secret) = facts.secret() else { return };
        if let Some(routes) = self.asking.get_mut(&secret) {
            routes.retain(|name| *name != facts.at.name);
            if routes.is_empty() {
                self.asking.remove(&secret);
                self.missing.remove(&secret);
            }
        }
    }

    fn asking_for(&self, secret: &ObjectRef) -> Vec<ObjectRef> {
        let Some((secret, names)) = self.asking.get_key_value(secret) else { return Vec::new() };
        let most = if seeded::has(Bug::FirstRouteOnly) { 1 } else { usize::MAX };
        let names = names.iter().take(most);
        names.map(|name| ObjectRef::new(secret.namespace.clone(), name.clone())).collect()
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
