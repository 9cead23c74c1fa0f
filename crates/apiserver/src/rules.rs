//! Rules of single kinds: defaults, fields that a write may not touch, validation. Pure.

mod config_map;
mod event;
mod lease;
mod namespace;
mod secret;
mod service;
mod stateful_set;

use serde_json::{Value, json};

use super::{
    api_error::Cause,
    kinds::{self, Kind},
    name_rules, schema,
    store::Part,
};

/// Sets defaults of a decoded object, in the kind's own shape.
pub(super) fn default(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "Secret" => secret::default(object),
        "Namespace" => namespace::default(object),
        "Service" => service::default(object),
        "StatefulSet" => stateful_set::default(object),
        _ => {}
    }
}

/// Sets the fields of a new object that a client can't set.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    match kind.kind {
        _ if kind.is_custom() && kind.status => remove(object, "status"),
        "Namespace" => namespace::prepare_create(object),
        "Lease" => lease::prepare(object),
        "Service" => object["status"] = json!({ "loadBalancer": {} }),
        "StatefulSet" => object["status"] = json!({ "replicas": 0, "availableReplicas": 0 }),
        _ => {}
    }
    if kind.generation {
        object["metadata"]["generation"] = 1.into();
    }
}

/// Reverts fields that this update may not change, and counts the generation.
pub(super) fn prepare_update(kind: &Kind, part: Part, object: &mut Value, current: &Value) {
    match (kind.kind, part) {
        ("Namespace", Part::Main) => {
            restore(object, current, "spec");
            restore(object, current, "status");
        }
        ("Namespace", Part::Finalize) => restore(object, current, "status"),
        ("Lease", _) => lease::prepare(object),
        ("Secret", _) => secret::prepare_update(object, current),
        ("Service", Part::Main) => service::prepare_update(object, current),
        _ => {}
    }
    if !kind.status {
        return;
    }
    match part {
        Part::Main => restore(object, current, "status"),
        Part::Status => keep_all_but_status(kind, object, current),
        Part::Finalize => {}
    }
    if kind.generation && part == Part::Main && differs(object, current) {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

fn keep_all_but_status(kind: &Kind, object: &mut Value, current: &Value) {
    let names = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
    };
    for field in names(object).into_iter().chain(names(current)) {
        if field != "status" && field != "metadata" {
            restore(object, current, &field);
        }
    }
    if kind.is_custom() {
        restore(object, current, "metadata");
    }
}

/// Whether anything but metadata and status differs.
fn differs(object: &Value, current: &Value) -> bool {
    let (Some(new), Some(old)) = (object.as_object(), current.as_object()) else { return false };
    let counts = |name: &&String| *name != "metadata" && *name != "status";
    let mut names = new.keys().chain(old.keys()).filter(counts);
    names.any(|name| new.get(name) != old.get(name))
}

fn restore(object: &mut Value, current: &Value, field: &str) {
    match current.get(field) {
        // Usually equal, and comparing is cheaper than copying.
        Some(value) if object.get(field) == Some(value) => {}
        Some(value) => object[field] = value.clone(),
        None => remove(object, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Validates a new object.
pub(super) fn validate(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    if kind.is_custom() {
        return schema::validate(&kind.schema, object, None, causes);
    }
    causes.extend(match kind.kind {
        "Secret" => secret::validate(object),
        "ConfigMap" => config_map::validate(object),
        "Lease" => lease::validate(object),
        "Event" => event::validate(kind, object),
        "Namespace" => namespace::validate(object),
        "Service" => service::validate(object),
        "StatefulSet" => stateful_set::validate(object),
        _ => Vec::new(),
    });
    if !matches!(kind.kind, "Lease" | "Event") {
        causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    }
}

/// Warnings about an object that is accepted.
pub(super) fn warnings(kind: &Kind, object: &Value, current: Option<&Value>) -> Vec<String> {
    if kind == kinds::secret() {
        return secret::warning(object).into_iter().collect();
    }
    if !kind.is_custom() {
        return Vec::new();
    }
    let finalizers = |object: &Value| -> Vec<String> {
        let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        list.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let known = current.map(finalizers).unwrap_or_default();
    let plain =
        |name: &String| !name.contains('/') && !STANDARD_FINALIZERS.contains(&name.as_str());
    let warning = |name: String| {
        format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        )
    };
    let new = finalizers(object).into_iter().filter(|name| plain(name) && !known.contains(name));
    new.map(warning).collect()
}

/// Completes a new object after validation.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    if kind == kinds::namespace() {
        namespace::complete(object);
    }
}

/// Validates a changed object.
pub(super) fn validate_update(
    kind: &Kind,
    part: Part,
    object: &Value,
    current: &Value,
    causes: &mut Vec<Cause>,
) {
    if kind.is_custom() {
        return schema::validate(&kind.schema, object, Some(current), causes);
    }
    if kind == kinds::namespace() {
        causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    }
    causes.extend(match (kind.kind, part) {
        ("Secret", _) => secret::validate_update(object, current),
        ("ConfigMap", _) => config_map::validate_update(object, current),
        ("Lease", _) => lease::validate(object),
        ("Event", _) => event::validate_update(kind, object, current),
        ("Namespace", Part::Status) => namespace::validate_status(object),
        ("Namespace", Part::Finalize) => namespace::validate_finalize(object),
        ("Service", Part::Main) => service::validate_update(object, current),
        ("StatefulSet", Part::Main) => stateful_set::validate_update(object, current),
        _ => Vec::new(),
    });
}

/// Whether an object under deletion can be removed.
pub(super) fn may_go(kind: &Kind, object: &Value) -> bool {
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    none(&object["metadata"]["finalizers"])
        && (kind != kinds::namespace() || none(&object["spec"]["finalizers"]))
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}

/// Built-in kinds know three finalizers without a domain.
fn finalizer_names(finalizers: &Value, path: &str) -> Vec<Cause> {
    let finalizers = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str);
    let unknown = finalizers
        .enumerate()
        .filter(|(_, name)| !name.contains('/') && !STANDARD_FINALIZERS.contains(name));
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    let cause = |(at, name): (usize, &str)| {
        Cause::invalid(format!("{path}[{at}]"), &format!("{name:?}"), why)
    };
    unknown.map(cause).collect()
}

/// Validates keys of `data` and the like, and returns the size of the values.
fn data_keys(data: &Value, path: &str, causes: &mut Vec<Cause>) {
    for key in data.as_object().into_iter().flat_map(|data| data.keys()) {
        for why in name_rules::data_key(key) {
            causes.push(Cause::invalid(format!("{path}[{key}]"), &format!("{key:?}"), why));
        }
    }
}

/// Decoded size of base64.
fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Limit of data in a Secret or ConfigMap.
const LARGEST: usize = 1024 * 1024;

fn unchanged(object: &Value, current: &Value, field: &str, told_as: &str) -> Option<Cause> {
    let (new, old) = (&object[field], &current[field]);
    (new != old).then(|| Cause::invalid(told_as, "", "field is immutable"))
}

/// Changes that `immutable: true` forbids.
fn kept_immutable(object: &Value, current: &Value, fields: &[&str]) -> Vec<Cause> {
    if current["immutable"] != true {
        return Vec::new();
    }
    let why = "field is immutable when `immutable` is set";
    let mut causes = Vec::new();
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", why));
    }
    let changed = fields.iter().filter(|field| object[**field] != current[**field]);
    causes.extend(changed.map(|field| Cause::forbidden(*field, why)));
    causes
}
