//! Patches: merge, JSON, and strategic merge. Pure.

mod json;
mod strategic;

use serde_json::{Map, Value};

pub use self::json::Operation;
use super::{api_error::ApiError, kinds::Kind};

/// A patch that can't be applied to the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// An operation of a JSON patch.
    #[error("{0}")]
    Operation(String),
    /// A directive of the wrong form.
    #[error("invalid patch format of {0}")]
    Format(String),
    /// Kubernetes answers it with 500 too.
    #[error("{0}")]
    Failed(String),
}

impl PatchError {
    fn bad(what: &str) -> Self {
        Self::Format(what.trim_end_matches('/').to_owned())
    }

    fn no_key(key: &str) -> Self {
        Self::Failed(format!("map does not contain key {key}: it is the merge key of its list"))
    }
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Operation(_) => Self::unprocessable(),
            PatchError::Format(_) => Self::bad_request(error.to_string()),
            PatchError::Failed(why) => Self::unexplained(&why),
        }
    }
}

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

/// A JSON patch. An error leaves the object half changed.
pub fn apply(object: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    json::apply(object, operations)
}

/// A strategic merge patch, for built-in kinds.
pub fn strategic(kind: &Kind, object: &mut Value, change: &Value) -> Result<(), PatchError> {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            strategic::merge_map(Some(&kind.schema), object, change.clone())
        }
        _ => Err(PatchError::Format("it is no object".to_owned())),
    }
}

#[cfg(test)]
mod tests;
