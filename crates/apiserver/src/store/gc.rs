//! Garbage collection and emptying of terminating namespaces: the work of controllers in a cluster,
//! done here right after the change.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Call, Change, DeleteOptions, Propagation, Store, meta};
use crate::kinds::{self, Kind, Kinds, text};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Address of an object.
type ObjectAddress = (&'static Kind, Box<str>, Box<str>);

/// Slot of the kind, namespace and name.
type Key = (usize, Box<str>, Box<str>);

/// Dependents by the uid of their owner.
#[derive(Clone, Default)]
pub(super) struct Dependents(HashMap<Box<str>, BTreeSet<Key>>);

impl Dependents {
    pub(super) fn replace(&mut self, change: &Change) {
        let place = (change.kind.slot, change.namespace.clone(), change.name.clone());
        for owner in change.before.iter().flat_map(|object| owners(object)) {
            let uid = text(owner, &["uid"]);
            if let Some(places) = self.0.get_mut(uid) {
                places.remove(&place);
                if places.is_empty() {
                    self.0.remove(uid);
                }
            }
        }
        for owner in change.after.iter().flat_map(|object| owners(object)) {
            self.0.entry(text(owner, &["uid"]).into()).or_default().insert(place.clone());
        }
    }

    fn of(&self, uid: &str, kinds: &'static Kinds) -> Vec<ObjectAddress> {
        let places = self.0.get(uid).into_iter().flatten();
        places
            .filter_map(|(slot, namespace, name)| {
                Some((kinds.stored_in(*slot)?, namespace.clone(), name.clone()))
            })
            .collect()
    }
}

pub(super) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

impl Store {
    fn dependents_of(&self, uid: &str) -> Vec<ObjectAddress> {
        self.dependents.of(uid, self.kinds)
    }

    /// Processes the changes after that version, until nothing is left to do.
    pub fn collect_garbage(&mut self, since: u64, now: DateTime<Utc>) {
        let mut seen = since;
        while seen < self.version {
            let Ok(changes) = self.unlisted(seen) else { return };
            let changes: Vec<Change> =
                changes.filter(|change| calls_for_work(change)).cloned().collect();
            seen = self.version;
            for change in changes {
                self.follow_up(&change, now);
            }
        }
    }

    fn follow_up(&mut self, change: &Change, now: DateTime<Utc>) {
        match &change.after {
            None => {
                if let Some(object) = &change.before {
                    self.owner_gone(object, now);
                }
                self.empty_if_terminating(&change.namespace, now);
            }
            Some(after) => {
                if meta::is_terminating(after) {
                    if change.kind == kinds::namespace() {
                        self.empty_if_terminating(&change.name, now);
                    }
                    self.release_dependents(change, after, now);
                }
                if owners(after).next().is_some() {
                    self.judge(&(change.kind, change.namespace.clone(), change.name.clone()), now);
                }
            }
        }
    }

    fn owner_gone(&mut self, gone: &Value, now: DateTime<Utc>) {
        for place in self.dependents_of(text(gone, &["metadata", "uid"])) {
            self.judge(&place, now);
        }
        // An owner may have waited for this one.
        for owner in owners(gone) {
            let namespace = text(gone, &["metadata", "namespace"]);
            if let Some((kind, place, found)) = self.owner(owner, namespace) {
                let waits = meta::finalizers(&found).contains(&FOREGROUND);
                if waits && meta::is_terminating(&found) {
                    self.finish_foreground(kind, &place, &found);
                }
            }
        }
    }

    /// The owner of a reference, if it exists.
    fn owner(&self, owner: &Value, namespace: &str) -> Option<(&'static Kind, String, Arc<Value>)> {
        let kind = self.kinds.named(text(owner, &["apiVersion"]), text(owner, &["kind"]))?;
        let place = if kind.namespaced { namespace } else { "" };
        let found = self.get(kind, place, text(owner, &["name"]))?;
        let same = text(found, &["metadata", "uid"]) == text(owner, &["uid"]);
        same.then(|| (kind, place.to_owned(), found.clone()))
    }

    /// Deletes an object without remaining owners, or removes references to missing owners.
    fn judge(&mut self, (kind, namespace, name): &ObjectAddress, now: DateTime<Utc>) {
        let Some(object) = self.get(kind, namespace, name).cloned() else { return };
        let known = |owner: &Value| {
            self.kinds.named(text(owner, &["apiVersion"]), text(owner, &["kind"])).is_some()
        };
        let (mut present, mut absent, mut blocked) = (Vec::new(), 0, false);
        for owner in owners(&object) {
            match self.owner(owner, namespace) {
                Some((_, _, found)) => {
                    let goes_first = meta::is_terminating(&found)
                        && meta::finalizers(&found).contains(&FOREGROUND);
                    blocked |= goes_first && owner["blockOwnerDeletion"] == true;
                    present.push(owner.clone());
                }
                // Owners of unknown kinds may exist.
                None if !known(owner) => present.push(owner.clone()),
                None => absent += 1,
            }
        }
        let mut call = Call::at(now);
        if present.is_empty() || blocked && absent + present.len() == 1 {
            let given = meta::finalizers(&object);
            let propagation = match () {
                () if given.contains(&ORPHAN) => Propagation::Orphan,
                () if given.contains(&FOREGROUND) => Propagation::Foreground,
                () => Propagation::Background,
            };
            let options = DeleteOptions {
                uid: Some(text(&object, &["metadata", "uid"]).to_owned()),
                propagation: Some(propagation),
                ..DeleteOptions::default()
            };
            if !meta::is_terminating(&object) {
                // Fails only if it is gone already.
                let _ = self.delete(kind, (namespace, name), &options, &mut call);
            }
        } else if absent > 0 {
            let mut changed = Value::clone(&object);
            changed["metadata"]["ownerReferences"] = present.into();
            self.put(kind, namespace, name, changed);
        }
    }

    /// Processes the finalizers `orphan` and `foregroundDeletion`.
    fn release_dependents(&mut self, change: &Change, owner: &Arc<Value>, now: DateTime<Utc>) {
        let finalizers = meta::finalizers(owner);
        let uid = text(owner, &["metadata", "uid"]);
        if finalizers.contains(&ORPHAN) {
            for (kind, namespace, name) in self.dependents_of(uid) {
                self.disown(kind, &namespace, &name, uid);
            }
            self.drop_finalizer(change.kind, &change.namespace, &change.name, ORPHAN);
        } else if finalizers.contains(&FOREGROUND) {
            for place in self.dependents_of(uid) {
                self.judge(&place, now);
            }
            self.finish_foreground(change.kind, &change.namespace, owner);
        }
    }

    fn disown(&mut self, kind: &Kind, namespace: &str, name: &str, uid: &str) {
        let Some(object) = self.get(kind, namespace, name) else { return };
        let mut object = Value::clone(object);
        if let Some(Value::Array(owners)) = object["metadata"].get_mut("ownerReferences") {
            owners.retain(|owner| text(owner, &["uid"]) != uid);
            if owners.is_empty() {
                meta::of(&mut object).remove("ownerReferences");
            }
        }
        self.put(kind, namespace, name, object);
    }

    /// The owner is removed once no dependent blocks it.
    fn finish_foreground(&mut self, kind: &Kind, namespace: &str, owner: &Value) {
        let uid = text(owner, &["metadata", "uid"]);
        let blocks = |(kind, namespace, name): &ObjectAddress| {
            let object = self.get(kind, namespace, name);
            object.is_some_and(|object| {
                owners(object)
                    .any(|one| text(one, &["uid"]) == uid && one["blockOwnerDeletion"] == true)
            })
        };
        if !self.dependents_of(uid).iter().any(blocks) {
            let name = meta::name_of(owner).to_owned();
            self.drop_finalizer(kind, namespace, &name, FOREGROUND);
        }
    }

    fn drop_finalizer(&mut self, kind: &Kind, namespace: &str, name: &str, finalizer: &str) {
        let Some(object) = self.get(kind, namespace, name) else { return };
        let mut object = Value::clone(object);
        if let Some(Value::Array(finalizers)) = object["metadata"].get_mut("finalizers") {
            finalizers.retain(|one| one != finalizer);
            if finalizers.is_empty() {
                meta::of(&mut object).remove("finalizers");
            }
        }
        self.store_or_finish(kind, (namespace, name), object);
    }

    /// Deletes the content of a terminating namespace, then the namespace.
    fn empty_if_terminating(&mut self, name: &str, now: DateTime<Utc>) {
        let Some(namespace) = self.get(kinds::namespace(), "", name).cloned() else { return };
        if name.is_empty() || !meta::is_terminating(&namespace) {
            return;
        }
        let mut left = 0;
        let mut call = Call::at(now);
        for kind in self.kinds.all().filter(|kind| kind.namespaced) {
            let options = DeleteOptions {
                propagation: Some(Propagation::Background),
                ..DeleteOptions::default()
            };
            // Neither call fails for objects of the store.
            let _ = self.delete_all(kind, name, &super::Query::default(), &options, &mut call);
            left +=
                self.list(kind, name, &super::Query::default()).map_or(0, |list| list.items.len());
        }
        if left == 0 {
            let mut object = Value::clone(&namespace);
            meta::remove_field(&mut object["spec"], "finalizers");
            self.store_or_finish(kinds::namespace(), ("", name), object);
        }
    }
}

/// Whether a change needs processing; most do not.
fn calls_for_work(change: &Change) -> bool {
    match &change.after {
        None => true,
        Some(after) => meta::is_terminating(after) || owners(after).next().is_some(),
    }
}
