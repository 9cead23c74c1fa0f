//! What holds for single kinds: defaults, what a write may not touch, and what is invalid. Pure.

use serde_json::{Value, json};

use super::{kinds::Kind, refusal::Cause, schema, store::Part};

/// Defaults of an object that was just decoded, in the kind's own shape.
pub(super) fn default(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "Secret" => secret_defaults(object),
        "Namespace" => namespace_defaults(object),
        _ => {}
    }
}

fn secret_defaults(object: &mut Value) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let texts = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    if let Some(Value::Object(texts)) = texts {
        if !object["data"].is_object() {
            object["data"] = json!({});
        }
        for (key, text) in texts {
            object["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    if object.get("type").is_none() {
        object["type"] = "Opaque".into();
    }
}

fn namespace_defaults(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// What a new object gets, and what of it a client can't set.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    if kind.is_custom() && kind.status {
        remove(object, "status");
    }
    match kind.kind {
        "Namespace" => {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        "Service" => object["status"] = json!({ "loadBalancer": {} }),
        "StatefulSet" => object["status"] = json!({ "replicas": 0, "availableReplicas": 0 }),
        _ => {}
    }
    if kind.generation {
        object["metadata"]["generation"] = 1.into();
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
}

/// Undoes what this kind of update may not touch; counts the generation.
pub(super) fn prepare_update(kind: &Kind, part: Part, object: &mut Value, current: &Value) {
    if !kind.status {
        return;
    }
    match part {
        Part::Main => restore(object, current, "status"),
        Part::Status => {
            let fields: Vec<String> = object
                .as_object()
                .into_iter()
                .flat_map(|fields| fields.keys())
                .chain(current.as_object().into_iter().flat_map(|fields| fields.keys()))
                .filter(|name| *name != "status" && *name != "metadata")
                .cloned()
                .collect();
            for field in fields {
                restore(object, current, &field);
            }
            if kind.is_custom() {
                restore(object, current, "metadata");
            }
        }
    }
    if kind.generation && part == Part::Main && differs(object, current) {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Whether anything but metadata and status differs.
fn differs(object: &Value, current: &Value) -> bool {
    let (Some(new), Some(old)) = (object.as_object(), current.as_object()) else { return false };
    let counts = |name: &&String| *name != "metadata" && *name != "status";
    let names = new.keys().chain(old.keys()).filter(counts);
    names.into_iter().any(|name| new.get(name) != old.get(name))
}

fn restore(object: &mut Value, current: &Value, field: &str) {
    match current.get(field) {
        Some(value) => object[field] = value.clone(),
        None => remove(object, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// What is wrong with a new object.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    if kind.is_custom() {
        return schema::validate(&kind.schema, object, None, "");
    }
    Vec::new()
}

/// What is wrong with a changed object.
pub(super) fn validate_update(
    kind: &Kind,
    _part: Part,
    object: &Value,
    current: &Value,
) -> Vec<Cause> {
    if kind.is_custom() {
        return schema::validate(&kind.schema, object, Some(current), "");
    }
    Vec::new()
}

/// Whether nothing holds an object any more that is to be deleted.
pub(super) fn may_go(kind: &Kind, object: &Value) -> bool {
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    none(&object["metadata"]["finalizers"])
        && (kind.kind != "Namespace" || none(&object["spec"]["finalizers"]))
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}
