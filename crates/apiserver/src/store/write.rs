//! Create, update and patch: decoded, admitted, completed, validated and stored in the API server's
//! order.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{
    Store,
    decode::{check_patched_type, decode, decoder_of},
    event_versions, meta, stored_as, timestamp,
};
use crate::{
    api_error::{ApiError, Cause},
    kinds::{self, Kind, text},
    patch, rules,
};

/// etcd's limit for a write.
const LARGEST: usize = 1_572_864;

/// Parameters of a write.
#[derive(Clone, Debug)]
pub struct Call {
    pub now: DateTime<Utc>,
    /// Whether it is a dry run.
    pub dry_run: bool,
    /// Treatment of unknown fields.
    pub unknown_fields: FieldValidation,
    /// Duplicate fields in the body.
    pub doubled_fields: Vec<String>,
    /// Warnings of the write.
    pub warnings: Vec<String>,
}

impl Call {
    /// Not a dry run.
    pub fn at(now: DateTime<Utc>) -> Self {
        Self {
            now,
            dry_run: false,
            unknown_fields: FieldValidation::Ignore,
            doubled_fields: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Treatment of unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// The written part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status, if that is a subresource.
    Main,
    /// The status alone.
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
}

/// A patch in the kind's own shape.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// RFC 6902.
    Json(Vec<patch::Operation>),
    /// A strategic merge patch, for built-in kinds.
    Strategic(Value),
}

impl Store {
    /// Stores a new object.
    pub fn create(
        &mut self,
        kind: &Kind,
        namespace: &str,
        object: Value,
        call: &mut Call,
    ) -> Result<Arc<Value>, ApiError> {
        let mut object = decode(kind, object, call)?;
        same_namespace(&object, namespace)?;
        meta::wipe_system_fields(&mut object);
        self.create_decoded(kind, namespace, object, call)
    }

    fn create_decoded(
        &mut self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        call: &mut Call,
    ) -> Result<Arc<Value>, ApiError> {
        self.admit(kind, namespace, meta::name_of(&object))?;
        self.fill_system_fields(&mut object, namespace, &timestamp(call.now));
        rules::prepare_create(kind, &mut object);
        let name = meta::name_of(&object).to_owned();
        let causes = created_causes(kind, &object);
        if !causes.is_empty() {
            return Err(refuse(kind, &object, causes));
        }
        call.warnings.extend(rules::warnings(kind, &object, None));
        rules::complete(kind, &mut object);
        let version = text(&object, &["metadata", "resourceVersion"]);
        if version.parse::<u64>().is_ok_and(|version| version > 0) && !call.dry_run {
            return Err(ApiError::version_on_create());
        }
        if let Some(existing) = self.get(kind, namespace, &name) {
            let mut error = ApiError::already_exists(kind, &name);
            if !text(&object, &["metadata", "generateName"]).is_empty() {
                error = ApiError::no_unique_name(stored_as(kind), &name);
            }
            if meta::is_terminating(existing) {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        if kind == kinds::service() {
            self.give_addresses(&mut object);
        }
        if call.dry_run {
            return Ok(Arc::new(object));
        }
        fits(&object)?;
        Ok(self.put(kind, namespace, &name, object))
    }

    /// Refuses creates in missing or terminating namespaces.
    pub(crate) fn admit(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        if namespace.is_empty() {
            return Ok(());
        }
        let found = self.get(kinds::namespace(), "", namespace);
        let found = found.ok_or_else(|| ApiError::not_found(kinds::namespace(), namespace))?;
        if meta::is_terminating(found) || text(found, &["status", "phase"]) == "Terminating" {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let message = format!("namespace {namespace} is being terminated");
            return Err(ApiError::forbidden(kind, name, &why).with_cause(
                "NamespaceTerminating",
                &message,
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    /// Replaces an object, or its status.
    pub fn update(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        part: Part,
        object: Value,
        call: &mut Call,
    ) -> Result<Arc<Value>, ApiError> {
        let object = decode(kind, object, call)?;
        same_name(&object, namespace, name)?;
        let uid = text(&object, &["metadata", "uid"]);
        let current = self.get(kind, namespace, name).cloned();
        let Some(current) = current else {
            if !kind.create_on_update || part != Part::Main {
                return Err(ApiError::not_found(kind, name));
            }
            if !uid.is_empty() {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: "
                );
                return Err(ApiError::conflict(kind, name, &why));
            }
            readable_version(&object)?;
            let mut object = object;
            if !call.dry_run {
                meta::of(&mut object).remove("resourceVersion");
            }
            return self.create_decoded(kind, namespace, object, call);
        };
        let actual = text(&current, &["metadata", "uid"]);
        if !uid.is_empty() && uid != actual {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
            );
            return Err(ApiError::conflict(kind, name, &why));
        }
        self.replace(kind, (namespace, name), part, object, &current, call)
    }

    /// Changes an object, or its status.
    pub fn patch(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        part: Part,
        patch: &Patch,
        call: &mut Call,
    ) -> Result<Arc<Value>, ApiError> {
        let current = self.get(kind, namespace, name).cloned();
        let current = current.ok_or_else(|| ApiError::not_found(kind, name))?;
        let mut object = event_versions::from_stored(kind, &current).into_owned();
        match patch {
            Patch::Merge(change) => patch::merge(&mut object, change),
            Patch::Json(operations) => patch::apply(&mut object, operations)?,
            Patch::Strategic(change) => patch::strategic(kind, &mut object, change)?,
        }
        check_patched_type(kind, name, &object)?;
        let object = decode(kind, object, call).map_err(|error| match error.code {
            400 => ApiError::invalid_patch(decoder_of(&error.message)),
            _ => error,
        })?;
        same_namespace(&object, namespace)?;
        same_name(&object, namespace, name)?;
        self.replace(kind, (namespace, name), part, object, &current, call)
    }

    fn replace(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        part: Part,
        mut object: Value,
        current: &Arc<Value>,
        call: &mut Call,
    ) -> Result<Arc<Value>, ApiError> {
        check_version(kind, name, &object, current)?;
        meta::carry_over(&mut object, current);
        rules::prepare_update(kind, part, &mut object, current);
        if kind == kinds::service() && part == Part::Main {
            self.give_addresses(&mut object);
        }
        if object == **current {
            call.warnings.extend(rules::warnings(kind, &object, Some(current)));
            return Ok(current.clone());
        }
        let mut causes = meta::validate(kind, &object);
        causes.extend(meta::validate_update(&object, current));
        match other_kind(kind, &object) {
            Some(cause) => causes.push(cause),
            None => rules::validate_update(kind, part, &object, current, &mut causes),
        }
        if !causes.is_empty() {
            return Err(refuse(kind, &object, causes));
        }
        call.warnings.extend(rules::warnings(kind, &object, Some(current)));
        fits(&object)?;
        if call.dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.store_or_finish(kind, (namespace, name), object))
    }

    /// Stores the object, or removes it if the change took its last finalizer.
    pub(super) fn store_or_finish(
        &mut self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        object: Value,
    ) -> Arc<Value> {
        if meta::is_terminating(&object) && rules::may_go(kind, &object) {
            self.remove(kind, namespace, name);
            return Arc::new(object);
        }
        self.put(kind, namespace, name, object)
    }
}

fn created_causes(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    // Events of the core group are validated in their own shape first.
    if kind == kinds::event() {
        rules::validate(kind, object, &mut causes);
        if causes.is_empty() {
            causes = meta::validate(kind, object);
        }
        return causes;
    }
    if let Some(cause) = other_kind(kind, object) {
        return vec![cause];
    }
    causes.extend(meta::validate(kind, object));
    rules::validate(kind, object, &mut causes);
    causes
}

fn readable_version(object: &Value) -> Result<(), ApiError> {
    match text(object, &["metadata", "resourceVersion"]) {
        "" => Ok(()),
        version if version.parse::<u64>().is_ok() => Ok(()),
        version => Err(ApiError::unreadable_version(version)),
    }
}

/// A custom resource may have any `kind` until it is validated here.
fn other_kind(kind: &Kind, object: &Value) -> Option<Cause> {
    let name = text(object, &["kind"]);
    let why = format!("must be {}", kind.kind);
    (name != kind.kind).then(|| Cause::invalid("kind", &format!("{name:?}"), why))
}

fn refuse(kind: &Kind, object: &Value, causes: Vec<Cause>) -> ApiError {
    let error = ApiError::invalid(stored_as(kind), meta::name_of(object), causes);
    match text(object, &["kind"]) {
        name if name != kind.kind => error.with_kind_name(kind, name),
        _ => error,
    }
}

fn check_version(kind: &Kind, name: &str, object: &Value, current: &Value) -> Result<(), ApiError> {
    let version = text(object, &["metadata", "resourceVersion"]);
    if matches!(version, "" | "0") {
        if kind.unconditional_update {
            return Ok(());
        }
        let why = "must be specified for an update";
        let cause = Cause::invalid("metadata.resourceVersion", "0", why);
        return Err(ApiError::invalid_resource(kind, name, vec![cause]));
    }
    match version.parse::<u64>() {
        Err(_) => Err(ApiError::unreadable_version(version)),
        Ok(_) if version == text(current, &["metadata", "resourceVersion"]) => Ok(()),
        Ok(_) => Err(ApiError::outdated(kind, name)),
    }
}

pub(crate) fn same_namespace(object: &Value, namespace: &str) -> Result<(), ApiError> {
    let named = text(object, &["metadata", "namespace"]);
    // The namespace of cluster-scoped objects is dropped.
    if named.is_empty() || namespace.is_empty() || named == namespace {
        return Ok(());
    }
    let why =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(ApiError::bad_request(why))
}

fn same_name(object: &Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    same_namespace(object, namespace)?;
    match meta::name_of(object) {
        "" => Err(ApiError::nameless(name)),
        other if other != name => Err(ApiError::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

fn fits(object: &Value) -> Result<(), ApiError> {
    // Escaping makes strings longer, so sizes near the limit are computed exactly.
    if weight(object) > LARGEST / 2 && object.to_string().len() > LARGEST {
        return Err(ApiError::too_large_for_store());
    }
    Ok(())
}

/// Total bytes of strings.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        _ => 8,
    }
}
