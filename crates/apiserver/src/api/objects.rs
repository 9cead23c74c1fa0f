//! The verbs on objects.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, request::Parts};
use serde_json::Value;

use super::{
    ApiServer,
    accept::Format,
    answer::Answer,
    list_options::{ListOptions, WatchOptions},
    params::{Params, is_delete_options, read_delete_options},
    patches,
    path::Target,
    payload,
    table::{Include, Table},
    watch::{self, View},
};
use crate::{
    api_error::ApiError,
    kinds::{Kind, text},
    select::Selector,
    store::{Call, Deleted, Part, Query},
};

pub(super) fn serve(
    server: &ApiServer,
    target: &Target,
    parts: &Parts,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let params = Params::of(parts);
    let request = Request { server, target, parts, params };
    if target.subresource.as_deref() == Some("finalize") && parts.method != Method::PUT {
        return Err(ApiError::method_not_allowed());
    }
    match (&parts.method, &target.name) {
        (&Method::GET | &Method::HEAD, Some(name)) => request.get(name),
        (&Method::GET | &Method::HEAD, None) => request.list_or_watch(),
        (&Method::POST, None) if target.kind.namespaced != target.namespace.is_empty() => {
            request.create(&body)
        }
        // The name in the path is ignored.
        (&Method::POST, Some(_)) if target.kind.is_custom() && target.subresource.is_none() => {
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
        (&Method::PUT | &Method::PATCH, None) if target.kind.is_custom() => {
            Err(ApiError::bad_request("name must be provided"))
        }
        (&Method::POST | &Method::DELETE, None) if target.kind.is_custom() => {
            Err(ApiError::nothing_there())
        }
        (method, Some(_)) if target.kind.is_custom() => {
            let verb = match *method {
                Method::POST => "create",
                Method::DELETE => "delete",
                _ => "",
            };
            Err(ApiError::verb_not_supported(target.kind, verb))
        }
        _ => Err(ApiError::method_not_allowed()),
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

    /// `options` is the Kubernetes kind of the verb's query.
    fn call(&self, options: &str) -> Result<Call, ApiError> {
        let mut call = Call::at(self.server.now());
        self.params.write_options(options, &mut call)?;
        Ok(call)
    }

    fn get(&self, name: &str) -> Result<Answer, ApiError> {
        let format = self.format()?;
        self.check_version()?;
        let object =
            self.server.with(|store| store.get(self.kind(), &self.target.namespace, name).cloned());
        let object = object.ok_or_else(|| ApiError::not_found(self.kind(), name))?;
        self.shown(Answer::object(self.kind(), object), format)
    }

    /// A get may name a minimum version.
    fn check_version(&self) -> Result<(), ApiError> {
        let text = self.params.text("resourceVersion");
        let current = self.server.with(|store| store.version());
        match text.parse::<u64>() {
            Ok(asked) if asked > current => Err(ApiError::too_large_version(asked, current)),
            Ok(_) => Ok(()),
            Err(_) if text.is_empty() => Ok(()),
            // The API server caches all kinds but Events.
            Err(_) if self.kind().kind == "Event" => Err(ApiError::bad_list_version(text)),
            Err(_) => Err(ApiError::bad_watch_version(text)),
        }
    }

    fn list_or_watch(&self) -> Result<Answer, ApiError> {
        let format = self.format()?;
        let (labels, fields) =
            (self.params.text("labelSelector"), self.params.text("fieldSelector"));
        let selector = Selector::parse(labels, fields)?;
        if self.params.flag("watch") {
            WatchOptions::check(&self.params)?;
            let selector = selector.of(self.kind())?;
            let view = View { selector, format, table: self.table(format)? };
            return watch::open(self.server, self.target, view, &self.params);
        }
        let options = ListOptions::read(&self.params, self.kind())?;
        let query = options.query(selector.of(self.kind())?);
        let list =
            self.server.with(|store| store.list(self.kind(), &self.target.namespace, &query))?;
        self.shown(Answer::list(self.kind(), list), format)
    }

    fn create(&self, body: &[u8]) -> Result<Answer, ApiError> {
        let format = self.format()?;
        payload::check_type(self.kind(), self.parts)?;
        let mut call = self.call("CreateOptions")?;
        let object = payload::read(self.kind(), self.parts, body, &mut call)?;
        let created = self
            .server
            .with(|store| store.create(self.kind(), &self.target.namespace, object, &mut call));
        self.written(created.map(|object| self.answer(object).created()), call, format)
    }

    fn update(&self, name: &str, body: &[u8]) -> Result<Answer, ApiError> {
        let format = self.format()?;
        let mut call = self.call("UpdateOptions")?;
        payload::check_type(self.kind(), self.parts)?;
        let object = payload::read(self.kind(), self.parts, body, &mut call)?;
        let (existed, updated) = self.server.with(|store| {
            let existed = store.get(self.kind(), &self.target.namespace, name).is_some();
            let updated =
                store.update(self.kind(), self.place(name), self.part(), object, &mut call);
            (existed, updated)
        });
        let answer = |object| match existed {
            true => self.answer(object),
            false => self.answer(object).created(),
        };
        self.written(updated.map(answer), call, format)
    }

    fn patch(&self, name: &str, body: &[u8]) -> Result<Answer, ApiError> {
        patches::check_type(self.kind(), payload::content_type(self.parts))?;
        let format = self.format()?;
        let mut call = self.call("PatchOptions")?;
        let patched = self.server.with(|store| {
            // The patch is parsed only if its object exists.
            if store.get(self.kind(), &self.target.namespace, name).is_none() {
                return Err(ApiError::not_found(self.kind(), name));
            }
            let patch = patches::read(payload::content_type(self.parts), body, &mut call)?;
            store.patch(self.kind(), self.place(name), self.part(), &patch, &mut call)
        });
        self.written(patched.map(|object| self.answer(object)), call, format)
    }

    fn answer(&self, object: Arc<Value>) -> Answer {
        Answer::object(self.kind(), object)
    }

    fn delete(&self, name: &str, body: &[u8]) -> Result<Answer, ApiError> {
        let format = self.format()?;
        let mut call = Call::at(self.server.now());
        let options = self.delete_options(body, &mut call)?;
        let kept = options["orphanDependents"] == false;
        let options = read_delete_options(&options, &mut call)?;
        let deleted = self
            .server
            .with(|store| store.delete(self.kind(), self.place(name), &options, &mut call));
        let answer = |deleted| match deleted {
            Deleted::Gone(object) if !self.kind().returns_deleted => {
                Answer::json(success(self.kind(), &object))
            }
            Deleted::Gone(object) => self.answer(object),
            // Clients that use this old form get a 202 while the deletion is not finished.
            Deleted::Waiting(object) if kept => self.answer(object).accepted(),
            Deleted::Waiting(object) => self.answer(object),
        };
        self.written(deleted.map(answer), call, format)
    }

    fn delete_all(&self, body: &[u8]) -> Result<Answer, ApiError> {
        let format = self.format()?;
        let (labels, fields) =
            (self.params.text("labelSelector"), self.params.text("fieldSelector"));
        let selector = Selector::parse(labels, fields)?;
        ListOptions::read(&self.params, self.kind())?;
        let query = Query { selector: selector.of(self.kind())?, ..Query::default() };
        let mut call = Call::at(self.server.now());
        let options = self.delete_options(body, &mut call)?;
        let options = read_delete_options(&options, &mut call)?;
        let list = self.server.with(|store| {
            store.delete_all(self.kind(), &self.target.namespace, &query, &options, &mut call)
        });
        self.written(list.map(|list| Answer::list(self.kind(), list)), call, format)
    }

    /// From the body, or from the query if there is no body.
    fn delete_options(&self, body: &[u8], call: &mut Call) -> Result<Value, ApiError> {
        if body.is_empty() {
            return self.params.delete_options();
        }
        payload::check_type(self.kind(), self.parts)?;
        let options = payload::read(self.kind(), self.parts, body, call);
        let options = options.map_err(|error| match error.code {
            400 => ApiError::bad_request("couldn't get version/kind; json parse error"),
            _ => error,
        })?;
        if !is_delete_options(&options) {
            let (name, version) = (text(&options, &["kind"]), text(&options, &["apiVersion"]));
            let why = format!("no kind {name:?} is registered for version {version:?}");
            return Err(ApiError::bad_request(why));
        }
        Ok(options)
    }

    fn format(&self) -> Result<Format, ApiError> {
        Format::of(&self.parts.headers)
    }

    /// In the format that the client accepts.
    fn shown(&self, answer: Answer, format: Format) -> Result<Answer, ApiError> {
        answer.shown_as(format, self.table(format)?)
    }

    fn table(&self, format: Format) -> Result<Table, ApiError> {
        let include = match format {
            Format::Table => Include::of(self.params.text("includeObject"))?,
            _ => Include::Metadata,
        };
        Ok(Table { kind: self.kind(), now: self.server.now(), include })
    }

    /// Warnings are sent even if the write failed.
    fn written(
        &self,
        outcome: Result<Answer, ApiError>,
        call: Call,
        format: Format,
    ) -> Result<Answer, ApiError> {
        match outcome {
            Ok(mut answer) => {
                answer.warnings = call.warnings;
                self.shown(answer, format)
            }
            Err(error) => Err(ApiError { warnings: call.warnings, ..error }),
        }
    }
}

fn success(kind: &Kind, object: &Value) -> Value {
    let mut details = serde_json::json!({
        "name": text(object, &["metadata", "name"]),
        "kind": kind.plural,
        "uid": text(object, &["metadata", "uid"]),
    });
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
