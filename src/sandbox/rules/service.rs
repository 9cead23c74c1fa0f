//! Services.

use serde_json::Value;

use crate::sandbox::refusal::Cause;

pub(super) fn default(_object: &mut Value) {}

pub(super) fn prepare_update(_object: &mut Value, _current: &Value) {}

pub(super) fn validate(_object: &Value) -> Vec<Cause> {
    Vec::new()
}

pub(super) fn validate_update(_object: &Value, _current: &Value) -> Vec<Cause> {
    Vec::new()
}
