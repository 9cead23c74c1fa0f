//! One request that can be sent to either side.
//!
//! Paths, query values and bodies may hold placeholders, which each side fills in from its own
//! earlier answers, because uids and resourceVersions differ:
//!
//! | placeholder | becomes |
//! |---|---|
//! | `${a}`, `${b}`, `${c}` | a namespace of this sequence |
//! | `${rv PATH}`, `${stale PATH}` | the last and the first resourceVersion seen of the object at PATH |
//! | `${uid PATH}` | its uid |
//! | `${list PATH}`, `${continue PATH}` | resourceVersion and continue token of the last list of PATH |
//! | `${name PREFIX}` | the name that the server generated from PREFIX |
//! | `${token PATH}` | the last token that was issued there |
//! | `${forged PATH}` and others | the same, altered as [`crate::tokens::altered`] says |
//!
//! So the other steps still make sense when one is removed from a sequence.

use std::fmt;

use http::Method;
use serde_json::Value;

/// A request of a sequence.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Body,
    /// Sent instead of the administrator's token. May be a placeholder.
    pub bearer: Option<String>,
    /// Repeat until both sides agree on this, because controllers of a real cluster take time.
    pub until: Option<Until>,
}

/// The state that a [`Call`] waits for.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Code(u16),
    /// A list of this length.
    Items(usize),
}

/// The body of a [`Call`].
#[derive(Clone, Debug)]
pub enum Body {
    Nothing,
    Json(Value),
    Text(String),
    /// The last seen state of the named object with this merge patch, as clients update. The second
    /// value is sent if the object was never seen.
    Seen(Value, Value),
}

impl Call {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Body::Nothing,
            bearer: None,
            until: None,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, path).json(body)
    }

    pub fn put(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PUT, path).json(body)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// A patch with content type `application/TYPE+json`.
    pub fn patch(kind: &'static str, path: impl Into<String>, body: Value) -> Self {
        let call = Self::new(Method::PATCH, path).header("content-type", kind);
        Self { body: Body::Json(body), ..call }
    }

    pub fn merge(path: impl Into<String>, body: Value) -> Self {
        Self::patch("application/merge-patch+json", path, body)
    }

    pub fn watch(path: impl Into<String>) -> Self {
        Self::get(path).with("watch", "true")
    }

    pub fn json(self, body: Value) -> Self {
        let call = self.header("content-type", "application/json");
        Self { body: Body::Json(body), ..call }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Sets or replaces a header.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value));
        self
    }

    pub fn bearing(self, token: impl Into<String>) -> Self {
        Self { bearer: Some(token.into()), ..self }
    }

    pub fn until(self, until: Until) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.method == Method::GET && self.query("watch").is_some_and(|value| value != "false")
    }

    /// Whether the real server may answer from a stale cache.
    pub fn may_be_stale(&self) -> bool {
        let version = self.query("resourceVersion").unwrap_or_default();
        self.method == Method::GET && (!version.is_empty() || self.is_watch())
    }

    /// The value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }

    /// The path of the collection, without an object's name.
    pub fn collection(&self) -> &str {
        match self.path.split('/').position(|part| part == "namespaces") {
            Some(at) => part_of(&self.path, at + 3),
            None => &self.path,
        }
    }
}

/// The first parts of the path.
fn part_of(path: &str, parts: usize) -> &str {
    let end = path.match_indices('/').nth(parts).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        for (name, value) in &self.headers {
            if *value != "application/json" {
                write!(f, " [{name}: {value}]")?;
            }
        }
        if let Some(bearer) = &self.bearer {
            write!(f, " [as {bearer}]")?;
        }
        match &self.body {
            Body::Nothing => Ok(()),
            Body::Json(body) => write!(f, " {body}"),
            Body::Text(body) => write!(f, " {}", body.chars().take(500).collect::<String>()),
            Body::Seen(change, _) => write!(f, " as last seen, but {change}"),
        }
    }
}
