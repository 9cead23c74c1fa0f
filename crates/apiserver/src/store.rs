//! Objects, versions and history. Pure and synchronous: no clock (the time is an argument), no
//! log, no async.
//!
//! This file holds what etcd would: objects by kind, namespace and name, a version counter and
//! recent changes. The API server's part (defaults, rules, patches, finalizers) is in the modules
//! below: `write` for create, update and patch, `delete` for deletion, and `gc` for the work of
//! controllers after a deletion.

mod address;
mod decode;
mod delete;
mod event_versions;
mod gc;
mod list;
mod meta;
mod write;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

pub(super) use self::{decode::decode, meta::validate_labels, write::same_namespace};
pub use self::{
    delete::{DeleteOptions, Deleted, Propagation},
    event_versions::{from_stored, to_stored},
    list::{List, Query, VersionMatch},
    write::{Call, FieldValidation, Part, Patch},
};
use crate::kinds::{self, Kind, Kinds};

type Objects = BTreeMap<Arc<str>, Arc<Value>>;

/// Objects by kind, namespace and name, with a bounded history. Cloning is cheap and makes a
/// snapshot.
#[derive(Clone)]
pub struct Store {
    kinds: &'static Kinds,
    version: u64,
    /// By slot of the kind; keys are `namespace/name`, or `name` for cluster-scoped kinds. Lists
    /// are in the order of the keys, as in etcd.
    objects: Vec<Arc<Objects>>,
    /// One for each version, without gaps.
    changes: Arc<VecDeque<Change>>,
    remembered: usize,
    compacted: u64,
    dependents: Arc<gc::Dependents>,
    random: fastrand::Rng,
}

#[derive(Clone)]
pub struct Change {
    /// The new version.
    pub version: u64,
    /// The stored kind: Events are of the core group.
    pub kind: &'static Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// None for a create.
    pub before: Option<Arc<Value>>,
    /// None for a delete.
    pub after: Option<Arc<Value>>,
}

/// The version was compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Gone {
    pub asked: u64,
    /// The oldest that a watch may start from.
    pub oldest: u64,
}

impl Store {
    /// An empty store. `history` is the number of changes kept for watches; uids and generated
    /// names depend on `seed`.
    pub fn new(kinds: &'static Kinds, history: usize, seed: u64) -> Self {
        Self {
            kinds,
            version: 1,
            objects: vec![Arc::default(); kinds.slots()],
            changes: Arc::default(),
            remembered: history,
            compacted: 1,
            dependents: Arc::default(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    pub fn kinds(&self) -> &'static Kinds {
        self.kinds
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// An object as it is stored: an Event in the shape of the core group.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects[kind.slot].get(&*key(namespace, name))
    }

    /// All objects of a kind, as they are stored, in the order of their keys.
    pub fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Value>> {
        self.of_kind(kind).values()
    }

    /// All kept changes, oldest first, even compacted ones.
    pub fn history(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    /// The changes after that version, oldest first.
    pub fn changes_since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Gone> {
        if version < self.compacted {
            return Err(Gone { asked: version, oldest: self.compacted });
        }
        self.unlisted(version)
    }

    /// The same for an open watch, which compaction does not affect.
    pub(super) fn unlisted(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Gone> {
        let oldest = self.changes.front().map_or(self.version, |change| change.version - 1);
        let seen = version.checked_sub(oldest).ok_or(Gone { asked: version, oldest })?;
        let seen = usize::try_from(seen).unwrap_or(usize::MAX).min(self.changes.len());
        Ok(self.changes.range(seen..))
    }

    /// Compacts changes up to and including that version: new watches from before it get a 410.
    /// Open watches go on, as with etcd.
    pub fn compact(&mut self, through: u64) {
        self.compacted = self.compacted.max(through.min(self.version));
    }

    fn of_kind(&self, kind: &Kind) -> &Objects {
        &self.objects[kind.slot]
    }

    /// Stores the object under the next version.
    fn put(&mut self, kind: &Kind, namespace: &str, name: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let after = Arc::new(object);
        let objects = Arc::make_mut(&mut self.objects[kind.slot]);
        let before = objects.insert(key(namespace, name).into(), after.clone());
        self.remember(kind, namespace, name, before, Some(after.clone()));
        after
    }

    /// Removes the object under the next version.
    fn remove(&mut self, kind: &Kind, namespace: &str, name: &str) {
        let objects = Arc::make_mut(&mut self.objects[kind.slot]);
        if let Some(before) = objects.remove(&*key(namespace, name)) {
            self.version += 1;
            self.remember(kind, namespace, name, Some(before), None);
        }
    }

    fn remember(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        let change = Change {
            version: self.version,
            // Every kind has a slot.
            kind: self.kinds.stored_in(kind.slot).unwrap_or(kinds::event()),
            namespace: namespace.into(),
            name: name.into(),
            before,
            after,
        };
        let owned = |object: &Option<Arc<Value>>| {
            object.as_ref().is_some_and(|object| gc::owners(object).next().is_some())
        };
        if owned(&change.before) || owned(&change.after) {
            Arc::make_mut(&mut self.dependents).replace(&change);
        }
        let changes = Arc::make_mut(&mut self.changes);
        changes.push_back(change);
        if changes.len() > self.remembered {
            changes.pop_front();
            let oldest = changes.front().map_or(self.version, |change| change.version - 1);
            self.compacted = self.compacted.max(oldest);
        }
    }

    pub(super) fn new_uid(&mut self) -> String {
        // A version 4 uuid, as Kubernetes' are.
        let random = self.random.u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let digits = format!("{random:032x}");
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    }

    /// The random suffix of a generated name.
    fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(LETTERS[self.random.usize(..LETTERS.len())])).collect()
    }
}

/// Without objects, which may hold keys.
impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match (&self.before, &self.after) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "changed",
        };
        let Self { version, kind, namespace, name, .. } = self;
        write!(f, "Change({version}: {} {namespace}/{name} {what})", kind.plural)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let objects: usize = self.objects.iter().map(|objects| objects.len()).sum();
        write!(f, "Store({objects} objects, version {})", self.version)
    }
}

fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The kind in whose shape objects of this kind are stored.
pub(super) fn stored_as(kind: &Kind) -> &Kind {
    if kind == kinds::new_event() { kinds::event() } else { kind }
}

/// A time in the format of `metadata`.
fn timestamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests;
