//! Parses patches, and words the errors for unreadable ones.

use serde_json::{Map, Value};

use super::{document, payload::place_of};
use crate::{
    api_error::ApiError,
    kinds::Kind,
    patch::Operation,
    store::{Call, FieldValidation, Patch},
};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MOST_OPERATIONS: usize = 10_000;

/// Whether the kind supports patches of that type.
pub(super) fn check_type(kind: &Kind, content_type: &str) -> Result<(), ApiError> {
    match content_type {
        MERGE | JSON => Ok(()),
        STRATEGIC if !kind.is_custom() => Ok(()),
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            Err(ApiError::unsupported_media_type(
                "the sandbox has no server-side apply: use kubectl apply without --server-side, or a merge patch",
            ))
        }
        _ if kind.is_custom() => {
            Err(ApiError::unknown_format(&[JSON, MERGE, "application/apply-patch+yaml"]))
        }
        _ => Err(ApiError::unsupported_patch_type()),
    }
}

/// Parses a patch.
pub(super) fn read(content_type: &str, body: &[u8], call: &mut Call) -> Result<Patch, ApiError> {
    match content_type {
        MERGE => merge(body, call),
        JSON => operations(body, call),
        _ => strategic(body, call),
    }
}

/// Clients that ignore unknown fields get a shorter decoding error, as from Kubernetes.
fn is_lenient(call: &Call) -> bool {
    call.unknown_fields == FieldValidation::Ignore
}

fn merge(body: &[u8], call: &mut Call) -> Result<Patch, ApiError> {
    let no_patch = || ApiError::bad_request("Invalid JSON Patch");
    let undecodable = |why: &str| match is_lenient(call) {
        true => no_patch(),
        false => ApiError::bad_request(format!("error decoding patch: {why}")),
    };
    let (change, doubled) =
        document::parse(body).map_err(|error| undecodable(&place_of(&error)))?;
    match change {
        Value::Object(_) => {
            call.doubled_fields = doubled;
            Ok(Patch::Merge(change))
        }
        Value::Null => Err(no_patch()),
        // A list would replace the object.
        Value::Array(_) if is_lenient(call) => {
            Err(ApiError::invalid_patch("couldn't get version/kind; json parse error"))
        }
        _ => Err(undecodable("json: cannot unmarshal it into a map")),
    }
}

fn operations(body: &[u8], call: &Call) -> Result<Patch, ApiError> {
    let read: serde_json::Result<Option<Vec<Operation>>> = serde_json::from_slice(body);
    let operations = match read {
        Ok(operations) => operations.unwrap_or_default(),
        Err(error) if !is_lenient(call) => {
            let why = format!("error decoding patch: {}", place_of(&error));
            return Err(ApiError::bad_request(why));
        }
        // Invalid operations are reported when they are applied.
        Err(_) if serde_json::from_slice::<Vec<Map<String, Value>>>(body).is_ok() => {
            return Err(ApiError::unprocessable());
        }
        Err(error) => return Err(ApiError::bad_request(place_of(&error))),
    };
    let many = operations.len();
    if many > MOST_OPERATIONS {
        return Err(ApiError::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {many}"
        )));
    }
    Ok(Patch::Json(operations))
}

fn strategic(body: &[u8], call: &mut Call) -> Result<Patch, ApiError> {
    let (change, doubled) =
        document::parse(body).map_err(|error| ApiError::bad_request(place_of(&error)))?;
    call.doubled_fields = doubled;
    match change {
        Value::Object(_) => Ok(Patch::Strategic(change)),
        Value::Null => Ok(Patch::Strategic(Value::Object(Map::new()))),
        _ => Err(ApiError::bad_request("json: cannot unmarshal it into a map")),
    }
}
