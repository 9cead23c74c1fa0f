//! From a request's body to a stored object: of the right kind, without unknown fields, with
//! defaults.

use serde_json::{Map, Value};

use super::{Call, FieldValidation, event_versions, meta};
use crate::{
    api_error::{ApiError, Cause},
    kinds::{self, Kind, text},
    rules, schema,
};

/// Decodes the body of a request and sets defaults, without validation.
pub(crate) fn decode(kind: &Kind, body: Value, call: &mut Call) -> Result<Value, ApiError> {
    let mut object = match body {
        // Like Go's decoder, an object without fields.
        Value::Null if !kind.is_custom() => Value::Object(Map::new()),
        other => other,
    };
    check_type(kind, &object)?;
    let mut unknown = Vec::new();
    let refuse = |error: schema::DecodeError| {
        let kind_name = kind.kind;
        let version = kind.version;
        ApiError::bad_request(format!(
            "{kind_name} in version \"{version}\" cannot be handled as a {kind_name}: {error}"
        ))
    };
    if kind.is_custom() {
        let metadata = object["metadata"].take();
        let metadata = schema::decode(kinds::object_meta(), metadata, "metadata", &mut unknown);
        let metadata = metadata.map_err(refuse)?;
        schema::prune(&kind.schema, &mut object, "", &mut unknown);
        unknown.sort();
        schema::default(&kind.schema, &mut object);
        object["metadata"] = metadata;
    } else {
        object = schema::decode(&kind.schema, object, "", &mut unknown).map_err(refuse)?;
        meta::of(&mut object);
    }
    object["apiVersion"] = kind.api_version().into();
    if !kind.is_custom() {
        object["kind"] = kind.kind.into();
    }
    if text(&object, &["kind"]) == kind.kind {
        tell_unknown(kind, unknown, call)?;
    }
    if let Some(warning) = meta::without_duplicate_owners(&mut object) {
        call.warnings.push(warning);
    }
    rules::default(kind, &mut object);
    Ok(event_versions::to_stored(kind, object))
}

/// A patch may not change the kind.
pub(super) fn check_patched_type(kind: &Kind, name: &str, object: &Value) -> Result<(), ApiError> {
    let version = text(object, &["apiVersion"]);
    match (kind.is_custom(), version) {
        (false, "") => Err(ApiError::nameless(name)),
        (true, "") => {
            let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
            Err(ApiError::internal(why))
        }
        (true, version) if version != kind.api_version() => {
            let why = format!("must be {}", kind.api_version());
            let cause = Cause::invalid("apiVersion", &format!("{version:?}"), why);
            Err(ApiError::invalid(kind, name, vec![cause]))
        }
        _ => Ok(()),
    }
}

fn check_type(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let unrecognized = |why: &str| {
        let wanted = kind.kind;
        let message =
            format!("the object provided is unrecognized (must be of type {wanted}): {why}");
        Err(ApiError::bad_request(message))
    };
    if !object.is_object() {
        return unrecognized("couldn't get version/kind; json parse error");
    }
    let is_text = |field: &str| matches!(object[field], Value::Null | Value::String(_));
    if !is_text("apiVersion") || !is_text("kind") {
        return unrecognized("couldn't get version/kind; json parse error");
    }
    let (version, name) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    if version.matches('/').count() > 1 {
        return unrecognized("unexpected GroupVersion string");
    }
    let unhandled = |name: &str, version: &str| {
        let version = version.rsplit('/').next().unwrap_or_default();
        let wanted = kind.kind;
        let message = format!("{name} in version \"{version}\" cannot be handled as a {wanted}");
        Err(ApiError::bad_request(message))
    };
    if kind.is_custom() {
        if name.is_empty() {
            return unrecognized("Object 'Kind' is missing");
        }
        if version.is_empty() {
            return unhandled(name, version);
        }
    } else {
        let own = kind.api_version();
        let version = if version.is_empty() { own.as_str() } else { version };
        let name = if name.is_empty() { kind.kind } else { name };
        if kinds::built_in(version, name).is_none_or(|named| named.slot != kind.slot) {
            return unhandled(name, version);
        }
    }
    if !version.is_empty() && version != kind.api_version() {
        let wanted = kind.api_version();
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    Ok(())
}

fn tell_unknown(kind: &Kind, unknown: Vec<String>, call: &mut Call) -> Result<(), ApiError> {
    let doubled = std::mem::take(&mut call.doubled_fields);
    if unknown.is_empty() && doubled.is_empty() {
        return Ok(());
    }
    let doubled = doubled.iter().map(|field| format!("duplicate field \"{field}\""));
    let unknown = unknown.iter().map(|field| format!("unknown field \"{field}\""));
    let problems: Vec<String> = doubled.chain(unknown).collect();
    match call.unknown_fields {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => call.warnings.extend(problems),
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                kind.version,
                kind.kind,
                problems.join(", ")
            )));
        }
    }
    Ok(())
}

/// The message of the decoder without the prefix that names the kind.
pub(super) fn decoder_of(message: &str) -> &str {
    let error = message.split_once(" cannot be handled as a ").map(|(_, rest)| rest);
    error.and_then(|rest| rest.split_once(": ")).map_or(message, |(_, why)| why)
}
