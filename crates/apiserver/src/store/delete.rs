//! Deletion: preconditions, finalizers, and the two steps of a namespace's deletion.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, List, Query, Store, meta, stored_as, timestamp};
use crate::{
    api_error::ApiError,
    kinds::{self, Kind, text},
};

/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Precondition: the uid.
    pub uid: Option<String>,
    /// Precondition: the version.
    pub version: Option<String>,
    /// Has no effect on the supported kinds.
    pub grace: Option<i64>,
    /// Treatment of dependents.
    pub propagation: Option<Propagation>,
}

/// Treatment of a deleted object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; its last state, with the version of the deletion.
    Gone(Arc<Value>),
    /// The object waits for its finalizers; its current state.
    Waiting(Arc<Value>),
}

impl Store {
    /// Deletes an object, or marks it if it has finalizers.
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

    /// Deletes all objects of a list. Returns the list.
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

    /// A controller empties a namespace before it is removed.
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

/// The finalizers for a deletion with these options.
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
