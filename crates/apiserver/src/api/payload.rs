//! Bodies of requests, in the formats that clients send.

use http::{header::CONTENT_TYPE, request::Parts};
use serde_json::{Value, error::Category};

use super::{document, protobuf};
use crate::{api_error::ApiError, kinds::Kind, store::Call};

/// Without parameters.
pub(super) fn content_type(parts: &Parts) -> &str {
    let value = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// Refuses formats in which no object of this kind can be sent.
pub(super) fn check_type(kind: &Kind, parts: &Parts) -> Result<(), ApiError> {
    match content_type(parts) {
        "" | "application/json" | "application/yaml" => Ok(()),
        "application/vnd.kubernetes.protobuf" if !kind.is_custom() => Ok(()),
        _ => Err(unknown_format()),
    }
}

/// The object in a body, not decoded yet.
pub(super) fn read(
    kind: &Kind,
    parts: &Parts,
    body: &[u8],
    call: &mut Call,
) -> Result<Value, ApiError> {
    match content_type(parts) {
        "" | "application/json" => {
            let (object, doubled) = document::parse(body).map_err(|error| {
                let place = place_of(&error);
                unrecognized(
                    kind,
                    &format!("couldn't get version/kind; json parse error: {place}"),
                )
            })?;
            call.doubled_fields = doubled;
            Ok(object)
        }
        "application/vnd.kubernetes.protobuf" => protobuf::decode(body).ok_or_else(|| {
            ApiError::unsupported_media_type(
                "the sandbox reads protobuf only of what kubectl create makes: send application/json",
            )
        }),
        "application/yaml" => {
            let text = String::from_utf8_lossy(body);
            serde_saphyr::from_str(&text)
                .map_err(|_| unrecognized(kind, "error converting YAML to JSON"))
        }
        _ => Err(unknown_format()),
    }
}

fn unrecognized(kind: &Kind, why: &str) -> ApiError {
    let kind = kind.kind;
    let message = format!("the object provided is unrecognized (must be of type {kind}): {why}");
    ApiError::bad_request(message)
}

fn unknown_format() -> ApiError {
    ApiError::unknown_format(&[
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ])
}

/// Only the position of a JSON error, because the text may be a key.
pub(super) fn place_of(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof => "unexpected end of JSON input".to_owned(),
        Category::Data => format!("json: cannot unmarshal line {line}, column {column}"),
        _ => format!("invalid character at line {line}, column {column}"),
    }
}
