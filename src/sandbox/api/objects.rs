//! The verbs on objects.

use std::collections::HashMap;

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE, request::Parts};
use serde_json::{Value, json};

use super::{
    ApiServer, answer,
    answer::Answer,
    path::Target,
    protobuf,
    table::{Include, Table},
    watch::{self, View},
};
use crate::sandbox::{
    kinds::{Kind, text},
    patch,
    refusal::{Cause, Refusal},
    select::Selector,
    store::{
        Call, DeleteOptions, Deleted, FieldValidation, Part, Patch, Propagation, Query,
        VersionMatch,
    },
};

const MOST_OPERATIONS: usize = 10_000;

/// The query of a request.
pub(super) struct Params(HashMap<String, String>);

impl Params {
    fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !matches!(value.as_str(), "0" | "false" | "False"))
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Refusal::bad_request(format!("invalid value for {name}: {text:?} is no number"))
            }),
        }
    }
}

/// Serves a request about objects.
pub(super) fn serve(
    server: &ApiServer,
    target: &Target,
    parts: &Parts,
    body: Bytes,
) -> Result<Answer, Refusal> {
    let params = Params::of(parts);
    let request = Request { server, target, parts, params };
    if target.subresource.as_deref() == Some("finalize") && parts.method != Method::PUT {
        return Err(Refusal::method_not_allowed());
    }
    match (&parts.method, &target.name) {
        (&Method::GET | &Method::HEAD, Some(name)) => request.get(name),
        (&Method::GET | &Method::HEAD, None) => request.list_or_watch(),
        (&Method::POST, None) if target.kind.namespaced != target.namespace.is_empty() => {
            request.create(&body)
        }
        (&Method::PUT, Some(name)) => request.update(name, &body),
        (&Method::PATCH, Some(name)) => request.patch(name, &body),
        (&Method::DELETE, Some(name)) if target.subresource.is_none() => {
            request.delete(name, &body)
        }
        (&Method::DELETE, None) if target.kind.namespaced && !target.namespace.is_empty() => {
            request.delete_all(&body)
        }
        _ => Err(Refusal::method_not_allowed()),
    }
}

struct Request<'a> {
    server: &'a ApiServer,
    target: &'a Target,
    parts: &'a Parts,
    params: Params,
}

impl Request<'_> {
    fn kind(&self) -> &'static Kind {
        self.target.kind
    }

    fn place<'a>(&'a self, name: &'a str) -> (&'a str, &'a str) {
        (&self.target.namespace, name)
    }

    fn part(&self) -> Part {
        match self.target.subresource.as_deref() {
            None => Part::Main,
            Some("finalize") => Part::Finalize,
            Some(_) => Part::Status,
        }
    }

    /// `options` is what Kubernetes calls the query of this verb.
    fn call(&self, options: &str) -> Result<Call, Refusal> {
        let mut call = Call::at(self.server.inner.clock.now());
        let mut causes = Vec::new();
        match self.params.text("dryRun") {
            "" => {}
            "All" => call.dry_run = true,
            other => causes.push(Cause::unsupported("dryRun", &format!("{other:?}"), &["All"])),
        }
        match self.params.text("fieldValidation") {
            "Ignore" => call.unknown_fields = FieldValidation::Ignore,
            "" | "Warn" => call.unknown_fields = FieldValidation::Warn,
            "Strict" => call.unknown_fields = FieldValidation::Strict,
            other => {
                let known = ["Ignore", "Strict", "Warn"];
                causes.push(Cause::unsupported("fieldValidation", &format!("{other:?}"), &known));
            }
        }
        if causes.is_empty() { Ok(call) } else { Err(Refusal::invalid_options(options, causes)) }
    }

    fn get(&self, name: &str) -> Result<Answer, Refusal> {
        let object =
            self.server.with(|store| store.get(self.kind(), &self.target.namespace, name).cloned());
        let object = object.ok_or_else(|| Refusal::not_found(self.kind(), name))?;
        self.shown(Answer::object(self.kind(), object))
    }

    fn selector(&self) -> Result<Selector, Refusal> {
        let (labels, fields) =
            (self.params.text("labelSelector"), self.params.text("fieldSelector"));
        Selector::parse(self.kind(), labels, fields)
    }

    fn list_or_watch(&self) -> Result<Answer, Refusal> {
        let selector = self.selector()?;
        if self.params.flag("watch") {
            let format = answer::format(self.parts)?;
            let view = View { selector, format, table: self.table() };
            return watch::open(self.server, self.target, view, &self.params);
        }
        self.check_numbers()?;
        let query = Query {
            selector,
            limit: self.params.text("limit").parse().unwrap_or(0),
            continued: self.params.text("continue").to_owned(),
            version: self.version_match()?,
        };
        let list =
            self.server.with(|store| store.list(self.kind(), &self.target.namespace, &query))?;
        self.shown(Answer::list(self.kind(), list))
    }

    fn check_numbers(&self) -> Result<(), Refusal> {
        for name in ["limit", "timeoutSeconds"] {
            let text = self.params.text(name);
            if !text.is_empty() && text.parse::<i64>().is_err() {
                let why = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
                return Err(Refusal::bad_request(why));
            }
        }
        Ok(())
    }

    fn version_match(&self) -> Result<VersionMatch, Refusal> {
        let version = match self.params.text("resourceVersion") {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                Refusal::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}"
                ))
            })?),
        };
        let refuse = |cause: Cause| Err(Refusal::invalid_options("ListOptions", vec![cause]));
        let forbid = |why: &str| refuse(Cause::forbidden("resourceVersionMatch", why));
        let continued = !self.params.text("continue").is_empty();
        match (self.params.text("resourceVersionMatch"), version) {
            ("", _) if continued && version.is_some_and(|version| version > 0) => {
                Err(Refusal::bad_request(
                    "specifying resource version is not allowed when using continue",
                ))
            }
            ("", None | Some(0)) => Ok(VersionMatch::Latest),
            ("", Some(version)) if self.params.text("limit").is_empty() => {
                Ok(VersionMatch::NotOlderThan(version))
            }
            // A page of a version is of exactly that version.
            ("", Some(version)) => Ok(VersionMatch::Exact(version)),
            (_, None) => {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided")
            }
            _ if continued => forbid("resourceVersionMatch is forbidden when continue is provided"),
            ("Exact", Some(0)) => {
                forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            ("Exact", Some(version)) => Ok(VersionMatch::Exact(version)),
            ("NotOlderThan", Some(version)) => Ok(VersionMatch::NotOlderThan(version)),
            (other, _) => {
                let known = ["Exact", "NotOlderThan", ""];
                let shown = format!("{other:?}");
                refuse(Cause::unsupported("resourceVersionMatch", &shown, &known))
            }
        }
    }

    fn create(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let object = self.object(body)?;
        let mut call = self.call("CreateOptions")?;
        let created = self
            .server
            .with(|store| store.create(self.kind(), &self.target.namespace, object, &mut call))?;
        self.written(Answer::object(self.kind(), created).created(), call)
    }

    fn update(&self, name: &str, body: &[u8]) -> Result<Answer, Refusal> {
        let object = self.object(body)?;
        let mut call = self.call("UpdateOptions")?;
        let (existed, object) = self.server.with(|store| {
            let existed = store.get(self.kind(), &self.target.namespace, name).is_some();
            let updated =
                store.update(self.kind(), self.place(name), self.part(), object, &mut call);
            (existed, updated)
        });
        let answer = Answer::object(self.kind(), object?);
        self.written(if existed { answer } else { answer.created() }, call)
    }

    fn patch(&self, name: &str, body: &[u8]) -> Result<Answer, Refusal> {
        let patch = self.read_patch(body)?;
        let mut call = self.call("PatchOptions")?;
        let object = self.server.with(|store| {
            store.patch(self.kind(), self.place(name), self.part(), &patch, &mut call)
        })?;
        self.written(Answer::object(self.kind(), object), call)
    }

    fn read_patch(&self, body: &[u8]) -> Result<Patch, Refusal> {
        let broken = |error: serde_json::Error| {
            Refusal::bad_request(format!("error decoding patch: {}", place_of(&error)))
        };
        let change = || -> Result<Value, Refusal> {
            let change: Value = serde_json::from_slice(body).map_err(broken)?;
            if change.is_object() {
                Ok(change)
            } else {
                Err(Refusal::bad_request("error decoding patch: it is no object"))
            }
        };
        match self.content_type() {
            "application/merge-patch+json" => Ok(Patch::Merge(change()?)),
            "application/json-patch+json" => {
                let operations: Vec<patch::Operation> =
                    serde_json::from_slice(body).map_err(broken)?;
                let many = operations.len();
                if many > MOST_OPERATIONS {
                    return Err(Refusal::too_large(format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {many}"
                    )));
                }
                Ok(Patch::Json(operations))
            }
            "application/strategic-merge-patch+json" if !self.kind().is_custom() => {
                Ok(Patch::Strategic(change()?))
            }
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(Refusal::unsupported_media_type(
                    "the sandbox has no server-side apply: use kubectl apply without --server-side, or a merge patch",
                ))
            }
            other => Err(Refusal::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json{}: {other}",
                if self.kind().is_custom() {
                    ""
                } else {
                    ", application/strategic-merge-patch+json"
                }
            ))),
        }
    }

    fn delete(&self, name: &str, body: &[u8]) -> Result<Answer, Refusal> {
        let (options, mut call) = self.delete_options(body)?;
        let deleted = self
            .server
            .with(|store| store.delete(self.kind(), self.place(name), &options, &mut call))?;
        match deleted {
            Deleted::Gone(object) if !self.kind().returns_deleted => {
                self.written(Answer::json(success(self.kind(), &object)), call)
            }
            Deleted::Gone(object) | Deleted::Waiting(object) => {
                self.written(Answer::object(self.kind(), object), call)
            }
        }
    }

    fn delete_all(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let (options, mut call) = self.delete_options(body)?;
        let query = Query { selector: self.selector()?, ..Query::default() };
        let list = self.server.with(|store| {
            store.delete_all(self.kind(), &self.target.namespace, &query, &options, &mut call)
        })?;
        self.written(Answer::list(self.kind(), list), call)
    }

    /// From the body, or from the query where there is no body.
    fn delete_options(&self, body: &[u8]) -> Result<(DeleteOptions, Call), Refusal> {
        let mut call = Call::at(self.server.inner.clock.now());
        let options: Value = if body.is_empty() {
            let mut options = json!({});
            for name in ["propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun"] {
                match self.params.text(name) {
                    "" => {}
                    text if name == "dryRun" => options[name] = json!([text]),
                    text => options[name] = serde_json::from_str(text).unwrap_or(json!(text)),
                }
            }
            options
        } else {
            let options = self.object(body)?;
            let name = text(&options, &["kind"]);
            if !matches!(name, "" | "DeleteOptions") {
                let why = format!("no kind {name:?} is registered for that version");
                return Err(Refusal::bad_request(why));
            }
            options
        };
        let mut causes = Vec::new();
        for value in options["dryRun"].as_array().into_iter().flatten() {
            match value.as_str() {
                Some("All") => call.dry_run = true,
                _ => causes.push(Cause::unsupported("dryRun", &value.to_string(), &["All"])),
            }
        }
        let propagation =
            match (text(&options, &["propagationPolicy"]), &options["orphanDependents"]) {
                ("", Value::Bool(true)) => Some(Propagation::Orphan),
                ("", _) => None,
                (_, Value::Bool(_)) => {
                    let why = "orphanDependents and deletionPropagation cannot be both set";
                    causes.push(Cause::invalid("propagationPolicy", "", why));
                    None
                }
                ("Orphan", _) => Some(Propagation::Orphan),
                ("Background", _) => Some(Propagation::Background),
                ("Foreground", _) => Some(Propagation::Foreground),
                (other, _) => {
                    let known = ["Foreground", "Background", "Orphan"];
                    causes.push(Cause::unsupported(
                        "propagationPolicy",
                        &format!("{other:?}"),
                        &known,
                    ));
                    None
                }
            };
        if !causes.is_empty() {
            return Err(Refusal::invalid_options("DeleteOptions", causes));
        }
        let precondition = |name| {
            let value = options["preconditions"].get(name).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        let options = DeleteOptions {
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
            grace: options["gracePeriodSeconds"].as_i64(),
            propagation,
        };
        Ok((options, call))
    }

    fn content_type(&self) -> &str {
        let value = self.parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    fn object(&self, body: &[u8]) -> Result<Value, Refusal> {
        match self.content_type() {
            "" | "application/json" | "*/*" => serde_json::from_slice(body).map_err(|error| {
                Refusal::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {}",
                    self.kind().kind, place_of(&error)
                ))
            }),
            "application/vnd.kubernetes.protobuf" => protobuf::decode(body).ok_or_else(|| {
                Refusal::unsupported_media_type(
                    "the sandbox reads protobuf only of what kubectl create makes: send application/json",
                )
            }),
            "application/yaml" => {
                let text = String::from_utf8_lossy(body);
                serde_saphyr::from_str(&text)
                    .map_err(|_| Refusal::bad_request("error converting YAML to JSON"))
            }
            other => Err(Refusal::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml: {other}"
            ))),
        }
    }

    /// In the format that the client wants.
    fn shown(&self, answer: Answer) -> Result<Answer, Refusal> {
        let format = answer::format(self.parts)?;
        Ok(answer.shown_as(format, self.table()))
    }

    fn table(&self) -> Table {
        let include = Include::of(self.params.text("includeObject"));
        Table { kind: self.kind(), now: self.server.inner.clock.now(), include }
    }

    fn written(&self, mut answer: Answer, call: Call) -> Result<Answer, Refusal> {
        answer.warnings = call.warnings;
        self.shown(answer)
    }
}

/// Where a text stops being JSON; what stands there may be a key.
fn place_of(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

fn success(kind: &Kind, object: &Value) -> Value {
    let mut details = json!({
        "name": text(object, &["metadata", "name"]),
        "kind": kind.plural,
        "uid": text(object, &["metadata", "uid"]),
    });
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
