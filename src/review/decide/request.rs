//! Reads a TokenReview, and refuses what kube-apiserver refuses, with its code and reason.

mod protobuf;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::authentication::v1::UserInfo;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{cluster_answer::Accepted, status::Failure};
use crate::runtime::printable;

/// As kube-apiserver limits it.
pub const LONGEST_BODY: usize = 3 * 1024 * 1024;
/// In bytes, of all of a review's audiences. More would make every answer long.
const LONGEST_AUDIENCES: usize = 64 * 1024;
const MOST_AUDIENCES: usize = 4096;
/// Of a body's lists and objects. In memory each takes up to a hundred times its length.
const MOST_MEMBERS: usize = 64 * 1024;
/// Kubernetes tells as much of the fields that it does not know.
const MOST_WARNINGS: usize = 16;
const LONGEST_FIELD: usize = 256;
/// For a review that names no shorter time.
pub const DEADLINE: Duration = Duration::from_secs(10);
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenReview";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

impl Format {
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    fn names() -> [&'static str; 3] {
        Self::ALL.map(Self::media_type)
    }

    fn of(media_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.media_type().eq_ignore_ascii_case(media_type))
    }

    /// The format of a body. Without a Content-Type it is JSON.
    pub fn of_body(content_type: Option<&str>) -> Result<Self, Failure> {
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        match media_type.trim() {
            "" => Ok(Self::Json),
            name => Self::of(name).ok_or_else(|| Failure::unsupported_media_type(&Self::names())),
        }
    }

    /// The first format that a client accepts.
    pub fn of_answer(accept: &str) -> Result<Self, Failure> {
        let ranges = accept.split(',').map(|it| it.split(';').next().unwrap_or_default().trim());
        let mut accepted = ranges.filter_map(|range| match range {
            "" | "*/*" | "application/*" => Some(Self::Json),
            name => Self::of(name),
        });
        accepted.next().ok_or_else(|| Failure::not_acceptable(&Self::names()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    /// What a kube-apiserver sends to its webhook if nobody chose another.
    V1Beta1,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// What is done about fields that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub field_validation: FieldValidation,
    pub deadline: Duration,
}

impl Parameters {
    /// Of pairs of names and values.
    pub fn read<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, Failure> {
        let mut read = Self { field_validation: FieldValidation::default(), deadline: DEADLINE };
        for (name, value) in pairs {
            match (name, value) {
                ("fieldValidation", "" | "Warn") => read.field_validation = FieldValidation::Warn,
                ("fieldValidation", "Ignore") => read.field_validation = FieldValidation::Ignore,
                ("fieldValidation", "Strict") => read.field_validation = FieldValidation::Strict,
                ("fieldValidation", _) => {
                    return Err(invalid_option("fieldValidation", &["Ignore", "Strict", "Warn"]));
                }
                ("dryRun", "All") => {}
                ("dryRun", _) => return Err(invalid_option("dryRun", &["All"])),
                ("timeout", text) => read.deadline = read.deadline.min(timeout(text)?),
                _ => {}
            }
        }
        Ok(read)
    }
}

fn invalid_option(name: &str, known: &[&str]) -> Failure {
    let known: Vec<_> = known.iter().map(|it| format!("\"{it}\"")).collect();
    let known = known.join(", ");
    let message = format!(
        "CreateOptions.meta.k8s.io \"\" is invalid: {name}: Unsupported value: supported values: {known}"
    );
    Failure::invalid(message)
}

fn timeout(text: &str) -> Result<Duration, Failure> {
    match humantime::parse_duration(text) {
        // 0 means that there is none.
        Ok(time) if time.is_zero() => Ok(DEADLINE),
        Ok(time) => Ok(time),
        Err(_) => Err(Failure::bad_request("invalid timeout specified in the request URL")),
    }
}

/// Has no Debug: it holds a token.
pub struct Request {
    pub version: Version,
    pub token: Zeroizing<String>,
    pub audiences: Vec<String>,
    /// About fields that are not known, for Warning headers.
    pub warnings: Vec<String>,
    /// Comes back in the answer, as Kubernetes does it.
    metadata: Value,
}

/// Reads a body. The status that a caller may have written into it is not looked at.
pub fn read(
    body: &[u8],
    format: Format,
    allowed: &[Version],
    validation: FieldValidation,
) -> Result<Request, Failure> {
    let document = match format {
        Format::Json if members(body) > MOST_MEMBERS => return Err(unreadable()),
        Format::Json => serde_json::from_slice(body).map_err(|_| unreadable())?,
        Format::Yaml => yaml(body).ok_or_else(unreadable)?,
        Format::Protobuf => protobuf::read(body).ok_or_else(unreadable)?,
    };
    let Value::Object(document) = document else { return Err(unreadable()) };
    let warnings = unknown_fields(&document);
    if let (FieldValidation::Strict, Some(_)) = (validation, warnings.first()) {
        let what = warnings.join(", ");
        return Err(Failure::bad_request(format!("strict decoding error: {what}")));
    }
    let version = version(&document, allowed)?;
    let spec = match document.get("spec") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(spec)) => spec.clone(),
        Some(_) => return Err(unreadable()),
    };
    let token = match spec.get("token") {
        None | Some(Value::Null) => "",
        Some(token) => token.as_str().ok_or_else(unreadable)?,
    };
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(Request {
        version,
        token: Zeroizing::new(token.to_owned()),
        audiences: audiences(&spec)?,
        warnings: if validation == FieldValidation::Ignore { Vec::new() } else { warnings },
        metadata: metadata(&document)?,
    })
}

/// Or a little more: text may hold these signs, too.
fn members(json: &[u8]) -> usize {
    json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// Aliases count with what they stand for.
fn yaml(body: &[u8]) -> Option<Value> {
    let budget = serde_saphyr::budget! {
        max_nodes: MOST_MEMBERS,
        max_total_scalar_bytes: LONGEST_BODY,
        max_recorded_anchor_bytes: LONGEST_BODY,
    };
    let options = serde_saphyr::options! { budget: budget };
    serde_saphyr::from_str_with_options(std::str::from_utf8(body).ok()?, options).ok()
}

/// Kubernetes' own error quotes the body.
fn unreadable() -> Failure {
    Failure::bad_request(format!("the body of the request could not be read as a {KIND}"))
}

fn version(document: &Map<String, Value>, allowed: &[Version]) -> Result<Version, Failure> {
    let text = |name: &str| match document.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or_else(unreadable),
    };
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    let found = allowed.iter().copied().find(|it| version.is_empty() || it.name() == version);
    match found.filter(|_| kind.is_empty() || kind == KIND) {
        Some(version) => Ok(version),
        None => Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {KIND} of {GROUP})"
        ))),
    }
}

fn audiences(spec: &Map<String, Value>) -> Result<Vec<String>, Failure> {
    let all = match spec.get("audiences") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) => all,
        Some(_) => return Err(unreadable()),
    };
    let all: Option<Vec<String>> = all.iter().map(|it| it.as_str().map(str::to_owned)).collect();
    let all = all.ok_or_else(unreadable)?;
    let length: usize = all.iter().map(String::len).sum();
    match length > LONGEST_AUDIENCES || all.len() > MOST_AUDIENCES {
        true => Err(Failure::bad_request("spec.audiences is too long")),
        false => Ok(all),
    }
}

/// The name alone: whatever else a caller writes there is kept nowhere.
fn metadata(document: &Map<String, Value>) -> Result<Value, Failure> {
    let mut kept = json!({ "creationTimestamp": null });
    match document.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(all)) => match all.get("name") {
            None | Some(Value::Null) => {}
            Some(Value::String(name)) => kept["name"] = name.as_str().into(),
            Some(_) => return Err(unreadable()),
        },
        Some(_) => return Err(unreadable()),
    }
    Ok(kept)
}

/// Kubernetes' words for fields that are not known, as many as an answer's headers can hold. Their names are the
/// caller's own.
fn unknown_fields(document: &Map<String, Value>) -> Vec<String> {
    const LEVELS: [(&str, &[&str]); 4] = [
        ("", &["kind", "apiVersion", "metadata", "spec", "status"]),
        ("spec", &["token", "audiences"]),
        ("status", &["authenticated", "user", "audiences", "error"]),
        ("status.user", &["username", "uid", "groups", "extra"]),
    ];
    let mut unknown = Vec::new();
    for (path, known) in LEVELS {
        let mut level = Some(document);
        for part in path.split('.').filter(|part| !part.is_empty()) {
            level = level.and_then(|it| it.get(part)).and_then(Value::as_object);
        }
        for name in level.into_iter().flat_map(Map::keys) {
            if !known.contains(&&**name) {
                let dot = if path.is_empty() { "" } else { "." };
                let name = printable::shortened(name, LONGEST_FIELD);
                unknown.push(format!("unknown field {:?}", format!("{path}{dot}{name}")));
            }
        }
    }
    unknown.truncate(MOST_WARNINGS);
    unknown
}

/// What is told of a token.
#[derive(Clone)]
pub enum Answer {
    Authenticated(Box<Accepted>),
    /// In these words.
    NotAuthenticated(String),
}

impl Request {
    /// The review with its answer, as kube-apiserver returns it.
    pub fn answered(&self, answer: &Answer, format: Format) -> Vec<u8> {
        let mut spec = json!({ "token": *self.token });
        if !self.audiences.is_empty() {
            spec["audiences"] = json!(self.audiences);
        }
        let document = json!({
            "kind": KIND, "apiVersion": self.version.name(), "metadata": self.metadata,
            "spec": spec, "status": status(answer),
        });
        match format {
            Format::Json => document.to_string().into_bytes(),
            // JSON is YAML, but people read this.
            Format::Yaml => serde_saphyr::to_string(&document).unwrap_or_default().into_bytes(),
            Format::Protobuf => protobuf::write(&document),
        }
    }
}

fn status(answer: &Answer) -> Value {
    match answer {
        Answer::NotAuthenticated(error) => json!({ "user": {}, "error": error }),
        Answer::Authenticated(accepted) => {
            let Accepted { user, audiences, .. } = &**accepted;
            let UserInfo { username, uid, groups, extra } = user;
            let extra: BTreeMap<_, _> = extra.clone().unwrap_or_default();
            json!({
                "authenticated": true, "audiences": audiences,
                "user": { "username": username, "uid": uid, "groups": groups, "extra": extra },
            })
        }
    }
}

#[cfg(test)]
mod tests;
