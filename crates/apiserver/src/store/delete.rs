//! Deletion: preconditions, finalizers, and the two steps in which a namespace goes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, List, Query, Store, meta, stored_as, timestamp};
use crate::{
    api_error::ApiError,
    kinds::{self, Kind, text},
};

/// These stay.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The parameters of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Only the object with this uid.
    pub uid: Option<String>,
    /// Only this version of it.
    pub version: Option<String>,
    /// How long it may take; of no effect on the kinds of the sandbox.
    pub grace: Option<i64>,
    /// How its dependents are treated.
    pub propagation: Option<Propagation>,
}

/// How the dependents of a deleted object are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It stays.
    Orphan,
    /// It goes afterwards.
    Background,
    /// It goes first.
    Foreground,
}

/// The outcome of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; this is what it was, under the version of its deletion.
    Gone(Arc<Value>),
    /// It waits for its finalizers; this is what it is now.
    Waiting(Arc<Value>),
}

impl Store {
    /// Deletes an object, or marks it where finalizers hold it.
    pub fn delete(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
        call: &mut Call,
    ) -> Result<Deleted, ApiError> {
        let current = self.get(kind, namespace, name).cloned();
        let current = current.ok_or_else(|| ApiError::not_found(kind, name))?;
        check_preconditions(kind, name, options, &current)?;
        if kind == kinds::namespace() {
            if IMMORTAL.contains(&name) {
                let why = "this namespace may not be deleted";
                return Err(ApiError::forbidden(kind, name, why));
            }
            if !meta::is_terminating(&current) {
                return Ok(self.terminate_namespace(name, &current, options, call));
            }
            if current["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
                return Ok(Deleted::Waiting(current));
            }
        }
        let mut object = Value::clone(&current);
        set_finalizers(&mut object, wanted_finalizers(kind, &current, options));
        if meta::finalizers(&object).is_empty() {
            return Ok(self.finish(kind, (namespace, name), &current, call));
        }
        if !meta::is_terminating(&current) {
            let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
            if generation > 0 {
                object["metadata"]["generation"] = (generation + 1).into();
            }
            object["metadata"]["deletionTimestamp"] = timestamp(call.now).into();
        }
        object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        if object == *current {
            return Ok(Deleted::Waiting(current));
        }
        if call.dry_run {
            return Ok(Deleted::Waiting(Arc::new(object)));
        }
        Ok(Deleted::Waiting(self.put(kind, namespace, name, object)))
    }

    /// Deletes all that a list would show. Answers that list.
    pub fn delete_all(
        &mut self,
        kind: &Kind,
        namespace: &str,
        query: &Query,
        options: &DeleteOptions,
        call: &mut Call,
    ) -> Result<List, ApiError> {
        let list = self.list(kind, namespace, query)?;
        for object in &list.items {
            let place = (text(object, &["metadata", "namespace"]), meta::name_of(object));
            match self.delete(kind, place, options, call) {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        Ok(list)
    }

    fn finish(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        current: &Arc<Value>,
        call: &Call,
    ) -> Deleted {
        if call.dry_run {
            return Deleted::Gone(current.clone());
        }
        self.remove(kind, namespace, name);
        let mut last = Value::clone(current);
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        Deleted::Gone(Arc::new(last))
    }

    /// A namespace is emptied by a controller before it goes.
    fn terminate_namespace(
        &mut self,
        name: &str,
        current: &Value,
        options: &DeleteOptions,
        call: &Call,
    ) -> Deleted {
        let mut object = current.clone();
        object["metadata"]["deletionTimestamp"] = timestamp(call.now).into();
        object["status"]["phase"] = "Terminating".into();
        set_finalizers(&mut object, wanted_finalizers(kinds::namespace(), current, options));
        if call.dry_run {
            return Deleted::Waiting(Arc::new(object));
        }
        Deleted::Waiting(self.put(kinds::namespace(), "", name, object))
    }
}

fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        meta::of(object).remove("finalizers");
    } else {
        meta::of(object).insert("finalizers".into(), json!(finalizers));
    }
}

/// The finalizers of an object that is to be deleted in the way that the options ask for.
fn wanted_finalizers(kind: &Kind, current: &Value, options: &DeleteOptions) -> Vec<String> {
    let given = meta::finalizers(current);
    let propagation = match options.propagation {
        // Events own nothing.
        _ if kind.kind == "Event" => Propagation::Background,
        Some(propagation) => propagation,
        None if given.contains(&ORPHAN) => Propagation::Orphan,
        None if given.contains(&FOREGROUND) => Propagation::Foreground,
        None => Propagation::Background,
    };
    let added = match propagation {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    if added.is_some_and(|added| given.contains(&added)) {
        return given.into_iter().map(str::to_owned).collect();
    }
    let others = given.into_iter().filter(|name| *name != ORPHAN && *name != FOREGROUND);
    others.chain(added).map(str::to_owned).collect()
}

fn check_preconditions(
    kind: &Kind,
    name: &str,
    options: &DeleteOptions,
    current: &Value,
) -> Result<(), ApiError> {
    let metadata = |field| text(current, &["metadata", field]);
    let checks = [
        ("UID", &options.uid, metadata("uid"), "deleted and then recreated"),
        ("ResourceVersion", &options.version, metadata("resourceVersion"), "modified"),
    ];
    for (what, wanted, actual, perhaps) in checks {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != actual) {
            if kind == kinds::namespace() {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
                );
                return Err(ApiError::conflict(kind, name, &why));
            }
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The object might have been {perhaps}"
            );
            return Err(ApiError::unmet_precondition(stored_as(kind), name, &why));
        }
    }
    Ok(())
}
