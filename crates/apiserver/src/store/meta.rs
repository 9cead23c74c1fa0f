//! `metadata`: fields that the server sets, validation, and immutable fields.

use serde_json::{Map, Value};

use super::Store;
use crate::{
    api_error::Cause,
    kinds::{Kind, text},
    name_rules,
};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The metadata of an object that has some.
pub(super) fn of(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object just now"),
    }
}

pub(super) fn remove_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

pub(super) fn name_of(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// Removes fields that a client can't set on a new object.
pub(super) fn wipe_system_fields(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        of(object).remove(field);
    }
}

/// Removes duplicate owner references, with a warning.
pub(super) fn without_duplicate_owners(object: &mut Value) -> Option<String> {
    let owners = object["metadata"].get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = Vec::new();
    let mut twice = Vec::new();
    owners.retain(|owner| {
        let uid = text(owner, &["uid"]).to_owned();
        let new = !seen.contains(&uid);
        if new {
            seen.push(uid);
        } else if !twice.contains(&uid) {
            twice.push(uid);
        }
        new
    });
    let twice = twice.join(", ");
    (!twice.is_empty()).then(|| format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {twice}"
    ))
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect()
}

pub(super) fn is_terminating(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

impl Store {
    /// Fills in the metadata that the server sets on a new object.
    pub(super) fn fill_system_fields(&mut self, object: &mut Value, namespace: &str, now: &str) {
        let uid = self.new_uid();
        let prefix = text(object, &["metadata", "generateName"]).to_owned();
        let generated = name_of(object).is_empty() && !prefix.is_empty();
        let metadata = of(object);
        for field in ["selfLink", "managedFields"] {
            metadata.remove(field);
        }
        metadata.insert("creationTimestamp".into(), now.into());
        metadata.insert("uid".into(), uid.into());
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".into(), namespace.into());
        }
        if generated {
            // Longer prefixes leave no room for the suffix within 63 characters.
            let end = prefix.char_indices().map(|(at, letter)| at + letter.len_utf8());
            let end = end.take_while(|end| *end <= 58).last().unwrap_or(0);
            let name = format!("{}{}", &prefix[..end], self.new_suffix());
            of(object).insert("name".into(), name.into());
        }
    }
}

/// Copies the metadata that an update may not change from the stored object.
pub(super) fn carry_over(object: &mut Value, current: &Value) {
    let old = &current["metadata"];
    let metadata = of(object);
    metadata.remove("selfLink");
    metadata.remove("managedFields");
    if metadata.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("uid".into(), old["uid"].clone());
    }
    if old.get("namespace").is_none() {
        metadata.remove("namespace");
    }
    for field in ["creationTimestamp", "deletionTimestamp", "namespace"] {
        if let Some(value) = old.get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    if let Some(grace) = old.get("deletionGracePeriodSeconds") {
        metadata.entry("deletionGracePeriodSeconds").or_insert_with(|| grace.clone());
    }
    match old.get("generation") {
        Some(generation) => metadata.insert("generation".into(), generation.clone()),
        None => metadata.remove("generation"),
    };
    metadata.insert("resourceVersion".into(), old["resourceVersion"].clone());
}

/// Validates the metadata of a new or changed object.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    let prefix = text(metadata, &["generateName"]);
    if !prefix.is_empty() {
        for why in kind.names.prefix_problems(prefix) {
            causes.push(Cause::invalid("metadata.generateName", &format!("{prefix:?}"), why));
        }
    }
    let name = text(metadata, &["name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        for why in kind.names.problems(name) {
            causes.push(Cause::invalid("metadata.name", &format!("{name:?}"), why));
        }
    }
    if let Some(generation) = metadata["generation"].as_i64().filter(|number| *number < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &generation.to_string(), why));
    }
    validate_labels(&metadata["labels"], "metadata.labels", &mut causes);
    validate_annotations(&metadata["annotations"], &mut causes);
    validate_owners(&metadata["ownerReferences"], &mut causes);
    validate_finalizers(metadata, &mut causes);
    causes
}

/// Validates labels of the object or of a template.
pub(crate) fn validate_labels(labels: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for why in name_rules::qualified_name(key) {
            causes.push(Cause::invalid(path, &format!("{key:?}"), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in name_rules::label_value(value) {
            causes.push(Cause::invalid(path, &format!("{value:?}"), why));
        }
    }
}

fn validate_annotations(annotations: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        for why in name_rules::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &format!("{key:?}"), why));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
}

fn validate_owners(owners: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let api_version = text(owner, &["apiVersion"]);
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let kind = text(owner, &["kind"]);
        let mut refuse = |field: &str, why: &str| {
            causes.push(Cause::invalid(format!("{PATH}.{field}"), "\"\"", why));
        };
        if version.is_empty() {
            refuse("apiVersion", "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, &[field]).is_empty() {
                refuse(field, "must not be empty");
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid(PATH, "", why));
        }
        if owner["controller"] == true {
            let this = format!("{kind}/{}", text(owner, &["name"]));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    causes.push(Cause::invalid(PATH, "", why));
                }
            }
        }
    }
}

fn validate_finalizers(metadata: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "metadata.finalizers";
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    for finalizer in &finalizers {
        for why in name_rules::qualified_name(finalizer) {
            causes.push(Cause::invalid(PATH, &format!("{finalizer:?}"), why));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(PATH, "", why));
    }
}

/// Validates immutable metadata.
pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_terminating(current) {
        let old = finalizers(current);
        let mut new: Vec<&str> =
            finalizers(object).into_iter().filter(|one| !old.contains(one)).collect();
        new.sort_unstable();
        if !new.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", why));
        }
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (&object["metadata"][field], &current["metadata"][field]);
        if new != old {
            let path = format!("metadata.{field}");
            causes.push(Cause::invalid(path, &new.to_string(), "field is immutable"));
        }
    }
    causes
}
