//! Encodes answers.

use std::{fmt::Write as _, sync::Arc};

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
    request::Parts,
};
use serde_json::{Map, Value};

use super::{
    accept::Format,
    body::Body,
    table::{self, Table},
};
use crate::{
    api_error::ApiError,
    kinds::Kind,
    store::{List, from_stored},
};

pub(super) struct Answer {
    code: StatusCode,
    content_type: &'static str,
    content: Content,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
    cache_control: Option<&'static str>,
}

enum Content {
    Value(Value),
    Object(&'static Kind, Arc<Value>),
    List(&'static Kind, List),
    Bytes(Vec<u8>),
    Body(Body),
}

const JSON: &str = "application/json";

impl Answer {
    fn new(content: Content) -> Self {
        let (code, content_type) = (StatusCode::OK, JSON);
        Self { code, content_type, content, warnings: Vec::new(), cache_control: None }
    }

    pub fn text(text: &str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { content_type, ..Self::new(Content::Bytes(text.as_bytes().to_vec())) }
    }

    pub fn json(value: Value) -> Self {
        Self::new(Content::Value(value))
    }

    pub fn typed(value: Value, content_type: &'static str) -> Self {
        Self { content_type, ..Self::json(value) }
    }

    pub fn object(kind: &'static Kind, object: Arc<Value>) -> Self {
        Self::new(Content::Object(kind, object))
    }

    pub fn list(kind: &'static Kind, list: List) -> Self {
        Self::new(Content::List(kind, list))
    }

    pub fn stream(body: Body) -> Self {
        Self::new(Content::Body(body))
    }

    /// Converts objects to the format that the client accepts.
    pub fn shown_as(mut self, format: Format, table: Table) -> Result<Self, ApiError> {
        self.content = match (format, self.content) {
            (Format::Table, Content::Object(_, object)) => Content::Value(table.of_object(&object)),
            (Format::Table, Content::List(_, list)) => Content::Value(table.of_list(&list)),
            (Format::Metadata, Content::Object(_, object)) => {
                Content::Value(table::partial(&object))
            }
            (Format::MetadataList, Content::List(_, list)) => {
                Content::Value(table::partial_list(&list))
            }
            (Format::Metadata, Content::List(..)) | (Format::MetadataList, Content::Object(..)) => {
                return Err(ApiError::not_acceptable());
            }
            (_, content) => content,
        };
        Ok(self)
    }

    pub fn created(self) -> Self {
        Self { code: StatusCode::CREATED, ..self }
    }

    pub fn accepted(self) -> Self {
        Self { code: StatusCode::ACCEPTED, ..self }
    }

    /// For everybody, for an hour.
    pub fn cached(self) -> Self {
        Self { cache_control: Some("public, max-age=3600"), ..self }
    }

    pub fn into_response(self, parts: &Parts) -> Response<Body> {
        let Self { code, content_type, content, warnings, cache_control } = self;
        let body: Body = match content {
            Content::Body(body) => body,
            Content::Bytes(bytes) => bytes.into(),
            Content::Value(value) => shown(&value, parts),
            Content::Object(kind, object) => shown(&from_stored(kind, &object), parts),
            Content::List(kind, list) => {
                let text = list_text(kind, &list);
                // Pretty-printed answers need not be fast.
                match wants_pretty(parts).then(|| text.parse::<Value>()) {
                    Some(Ok(value)) => shown(&value, parts),
                    _ => text.into_bytes().into(),
                }
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(cache_control) = cache_control {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        }
        warn(headers, &warnings);
        response
    }
}

fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            headers.append(HeaderName::from_static("warning"), value);
        }
    }
}

/// The answer for an error.
pub(super) fn error(error: &ApiError) -> Response<Body> {
    let (text, content_type) = if error.is_plain_text() {
        (error.message.clone(), "text/plain; charset=utf-8")
    } else {
        (error.to_status().to_string(), JSON)
    };
    let mut response = Response::new(Body::from(text.into_bytes()));
    *response.status_mut() =
        StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    warn(headers, &error.warnings);
    if let Some(seconds) = error.details.as_ref().map(|details| details.retry_after)
        && seconds > 0
    {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// `Display` of a value is compiled with serde_json, which is optimised even in tests.
fn shown(value: &Value, parts: &Parts) -> Body {
    let text = if wants_pretty(parts) { format!("{value:#}") } else { value.to_string() };
    text.into_bytes().into()
}

fn wants_pretty(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "pretty" && matches!(&*value, "1" | "true" | ""))
}

/// A list straight from the stored objects.
fn list_text(kind: &Kind, list: &List) -> String {
    let mut metadata = list_meta(list);
    if kind.is_custom() && list.continued.is_empty() {
        metadata["continue"] = "".into();
    }
    let (name, version) = (kind.kind, kind.api_version());
    let mut text = format!(
        r#"{{"kind":"{name}List","apiVersion":"{version}","metadata":{metadata},"items":["#
    );
    for (at, object) in list.items.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        let object = from_stored(kind, object);
        match object.as_object() {
            Some(fields) if !kind.is_custom() => push_untyped(&mut text, fields),
            _ => push(&mut text, &object),
        }
    }
    text.push_str("]}");
    text
}

/// An item of a built-in kind in a list has no kind of its own.
fn push_untyped(text: &mut String, fields: &Map<String, Value>) {
    let fields = fields.iter().filter(|(name, _)| *name != "apiVersion" && *name != "kind");
    text.push('{');
    for (at, (name, value)) in fields.enumerate() {
        // Names from the schema need no escaping.
        text.push_str(if at > 0 { ",\"" } else { "\"" });
        text.push_str(name);
        text.push_str("\":");
        push(text, value);
    }
    text.push('}');
}

/// Writing to a String can't fail.
pub(super) fn push(text: &mut String, value: &Value) {
    let _ = write!(text, "{value}");
}

pub(super) fn list_meta(list: &List) -> Value {
    let mut metadata = serde_json::json!({ "resourceVersion": list.version.to_string() });
    if !list.continued.is_empty() {
        metadata["continue"] = list.continued.as_str().into();
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}
