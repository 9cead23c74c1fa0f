//! From objects to bytes.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts,
};
use serde::{
    Serialize,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Value;

use super::{
    accept::Format,
    body::Body,
    table::{self, Table},
};
use crate::sandbox::{
    kinds::Kind,
    refusal::Refusal,
    store::{List, from_stored},
};

/// What a request comes to.
pub(super) struct Answer {
    code: StatusCode,
    content_type: &'static str,
    content: Content,
    /// Told in `Warning` headers.
    pub warnings: Vec<String>,
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
        Self { code: StatusCode::OK, content_type: JSON, content, warnings: Vec::new() }
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

    /// In the format that the client wants. What is no object stays as it is.
    pub fn shown_as(mut self, format: Format, table: Table) -> Self {
        self.content = match (format, self.content) {
            (Format::Table, Content::Object(_, object)) => Content::Value(table.of_object(&object)),
            (Format::Table, Content::List(_, list)) => Content::Value(table.of_list(&list)),
            (Format::Metadata, Content::Object(_, object)) => {
                Content::Value(table::partial(&object))
            }
            (Format::Metadata, Content::List(_, list)) => {
                Content::Value(table::partial_list(&list))
            }
            (_, content) => content,
        };
        self
    }

    pub fn created(self) -> Self {
        Self { code: StatusCode::CREATED, ..self }
    }

    pub fn accepted(self) -> Self {
        Self { code: StatusCode::ACCEPTED, ..self }
    }

    pub fn into_response(self, parts: &Parts) -> Response<Body> {
        let Self { code, content_type, content, warnings } = self;
        let body = match content {
            Content::Body(body) => Ok(body),
            Content::Bytes(bytes) => Ok(bytes.into()),
            Content::Value(value) => bytes(&value, parts).map(Into::into),
            Content::Object(kind, object) => {
                bytes(&*from_stored(kind, &object), parts).map(Into::into)
            }
            Content::List(kind, list) => {
                bytes(&Listed { kind, list: &list }, parts).map(Into::into)
            }
        };
        let body: Body = match body {
            Ok(body) => body,
            Err(refused) => return refusal(&refused),
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
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

/// The answer to what is not done.
pub(super) fn refusal(refusal: &Refusal) -> Response<Body> {
    let (text, content_type) = if refusal.is_plain_text() {
        (refusal.message.clone(), "text/plain; charset=utf-8")
    } else {
        (refusal.to_status().to_string(), JSON)
    };
    let mut response = Response::new(Body::from(text.into_bytes()));
    *response.status_mut() =
        StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    warn(headers, &refusal.warnings);
    if let Some(seconds) = refusal.details.as_ref().map(|details| details.retry_after)
        && seconds > 0
    {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn bytes(value: &impl Serialize, parts: &Parts) -> Result<Vec<u8>, Refusal> {
    let written = if wants_pretty(parts) {
        serde_json::to_vec_pretty(value)
    } else {
        serde_json::to_vec(value)
    };
    written.map_err(|error| Refusal::internal(&error.to_string()))
}

fn wants_pretty(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "pretty" && matches!(&*value, "1" | "true" | ""))
}

/// A list straight from the stored objects.
struct Listed<'a> {
    kind: &'static Kind,
    list: &'a List,
}

impl Serialize for Listed<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("kind", &format!("{}List", self.kind.kind))?;
        map.serialize_entry("apiVersion", &self.kind.api_version())?;
        let mut metadata = list_meta(self.list);
        if self.kind.is_custom() && self.list.continued.is_empty() {
            metadata["continue"] = "".into();
        }
        map.serialize_entry("metadata", &metadata)?;
        map.serialize_entry("items", &Items(self.kind, &self.list.items))?;
        map.end()
    }
}

/// The metadata of a list.
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

struct Items<'a>(&'static Kind, &'a [Arc<Value>]);

impl Serialize for Items<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(kind, objects) = self;
        let mut items = serializer.serialize_seq(Some(objects.len()))?;
        for object in *objects {
            let object = from_stored(kind, object);
            if kind.is_custom() {
                items.serialize_element(&*object)?;
            } else {
                items.serialize_element(&Untyped(&object))?;
            }
        }
        items.end()
    }
}

/// An object of a built-in kind in a list: the list says of what kind it is.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| *name != "apiVersion" && *name != "kind"))
    }
}
