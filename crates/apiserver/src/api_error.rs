//! Errors of Kubernetes. Pure.
//!
//! Codes, reasons, causes and messages are those of Kubernetes, but values of Secrets and custom
//! resources are never quoted, because errors end up in logs.

use serde_json::{Value, json};

use super::kinds::Kind;

/// Becomes a Status object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    /// Such as `NotFound`; empty where Kubernetes has none.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Box<Details>>,
    pub warnings: Vec<String>,
}

/// `details` of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    pub group: String,
    /// Its plural; its kind for invalid objects.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    /// Seconds until a retry.
    pub retry_after: u32,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    pub reason: &'static str,
    pub message: String,
    /// Path of the field.
    pub field: String,
}

impl Cause {
    /// The value is invalid; `shown` is its JSON, or None if it may be secret.
    pub fn invalid(field: impl Into<String>, shown: &str, why: impl std::fmt::Display) -> Self {
        let message = if shown.is_empty() {
            format!("Invalid value: {why}")
        } else {
            format!("Invalid value: {shown}: {why}")
        };
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// A required value is missing.
    pub fn required(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// The value is not one of a fixed set.
    pub fn unsupported(field: impl Into<String>, shown: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", known.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }

    /// The field may not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let message = format!("Forbidden: {why}");
        Self { reason: "FieldValueForbidden", message, field: field.into() }
    }

    /// The value is a duplicate.
    pub fn duplicate(field: impl Into<String>, shown: &str) -> Self {
        let message = format!("Duplicate value: {shown}");
        Self { reason: "FieldValueDuplicate", message, field: field.into() }
    }

    /// The value has the wrong type.
    pub fn wrong_type(field: impl Into<String>, shown: &str, why: impl std::fmt::Display) -> Self {
        let Self { message, field, .. } = Self::invalid(field, shown, why);
        Self { reason: "FieldValueTypeInvalid", message, field }
    }

    /// The value is too long.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self { reason: "FieldValueTooLong", message, field: field.into() }
    }

    /// There are too many values.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let message = format!("Too many: {actual}: must have at most {limit} items");
        Self { reason: "FieldValueTooMany", message, field: field.into() }
    }
}

impl ApiError {
    fn about(code: u16, reason: &'static str, message: String, kind: &Kind, name: &str) -> Self {
        let details = Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.plural.to_owned(),
            ..Details::default()
        };
        Self::detailed(code, reason, message, details)
    }

    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, warnings: Vec::new() }
    }

    fn detailed(
        code: u16,
        reason: &'static str,
        message: impl Into<String>,
        details: Details,
    ) -> Self {
        Self { details: Some(Box::new(details)), ..Self::plain(code, reason, message) }
    }

    /// The object does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::about(404, "NotFound", message, kind, name)
    }

    /// The object does not exist, and is of a kind that this server lacks.
    pub fn not_found_in(plural: &str, name: &str) -> Self {
        let message = format!("{plural} {name:?} not found");
        let details =
            Details { name: name.to_owned(), kind: plural.to_owned(), ..Details::default() };
        Self::detailed(404, "NotFound", message, details)
    }

    /// The path does not exist.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::detailed(404, "NotFound", message, Details::default())
    }

    /// Nothing exists below that path.
    pub fn nothing_there() -> Self {
        Self {
            code: 404,
            reason: "",
            message: "404 page not found\n".into(),
            details: None,
            warnings: Vec::new(),
        }
    }

    /// Whether it is sent as plain text.
    pub fn is_plain_text(&self) -> bool {
        self.code == 404 && self.reason.is_empty()
    }

    /// The name is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::about(409, "AlreadyExists", message, kind, name)
    }

    /// A generated name was taken.
    pub fn no_unique_name(kind: &Kind, name: &str) -> Self {
        let Self { message, .. } = Self::already_exists(kind, name);
        let why = "the server was not able to generate a unique name for the object";
        let mut error = Self::about(409, "AlreadyExists", format!("{message}, {why}"), kind, name);
        if let Some(details) = &mut error.details {
            details.retry_after = 1;
        }
        error
    }

    /// The object is in conflict with the request.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::about(409, "Conflict", message, kind, name)
    }

    /// The same with the kind instead of the plural.
    pub fn unmet_precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let mut error = Self::conflict(kind, name, why);
        error.message = error.message.replacen(kind.plural, kind.kind, 1);
        if let Some(details) = &mut error.details {
            details.kind = kind.kind.to_owned();
        }
        error
    }

    /// The object changed since the request's version.
    pub fn outdated(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// The request is not allowed.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::about(403, "Forbidden", message, kind, name)
    }

    /// The user may not do it.
    pub fn not_permitted(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let of_group = match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{of_group} is forbidden: {why}"),
            _ => format!("{of_group} {name:?} is forbidden: {why}"),
        };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: resource.to_owned(),
            ..Details::default()
        };
        Self::detailed(403, "Forbidden", message, details)
    }

    /// The token is wrong.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// The object is invalid.
    pub fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        let causes_text = join_causes(&causes);
        let of_group = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("{of_group} \"{name}\" is invalid: {causes_text}");
        let mut error = Self::about(422, "Invalid", message, kind, name);
        if let Some(details) = &mut error.details {
            details.kind = kind.kind.to_owned();
            details.causes = causes;
        }
        error
    }

    /// The same with the plural instead of the kind.
    pub fn invalid_resource(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        let mut error = Self::invalid(kind, name, causes);
        error.message = error.message.replacen(kind.kind, kind.plural, 1);
        if let Some(details) = &mut error.details {
            details.kind = kind.plural.to_owned();
        }
        error
    }

    /// The options of a request are invalid.
    pub fn invalid_options(options: &str, causes: Vec<Cause>) -> Self {
        let details = Details {
            group: "meta.k8s.io".to_owned(),
            kind: options.to_owned(),
            causes,
            ..Details::default()
        };
        let causes_text = join_causes(&details.causes);
        let message = format!("{options}.meta.k8s.io \"\" is invalid: {causes_text}");
        Self::detailed(422, "Invalid", message, details)
    }

    /// The patched object can't be decoded.
    pub fn invalid_patch(why: &str) -> Self {
        let cause = Cause::invalid("patch", "", why);
        let message = format!(" \"\" is invalid: patch: {}", cause.message);
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::detailed(422, "Invalid", message, details)
    }

    /// The patch can't be applied to the object.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self::detailed(422, "Invalid", message, Details::default())
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// The path has a name but the object has none.
    pub fn nameless(name: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))
    }

    /// The version was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// The version is in the future.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], retry_after: 1, ..Details::default() };
        let message = format!("Timeout: {message}");
        Self::detailed(504, "Timeout", message, details)
    }

    /// The path does not support the method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::detailed(405, "MethodNotAllowed", message, Details::default())
    }

    /// The same for a custom resource, with the verb in the message.
    pub fn verb_not_supported(kind: &Kind, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", kind.resource());
        Self::about(405, "MethodNotAllowed", message, kind, "")
    }

    /// None of the accepted formats is supported.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::plain(406, "NotAcceptable", message)
    }

    /// The document has one format, and it is not accepted.
    pub fn only_available_as(content_type: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {content_type}");
        Self::detailed(406, "NotAcceptable", message, Details::default())
    }

    /// The format of the body is not supported.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// The format of the body is not one of these.
    pub fn unknown_format(known: &[&str]) -> Self {
        Self::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            known.join(", ")
        ))
    }

    /// The wording for built-in kinds.
    pub fn unsupported_patch_type() -> Self {
        let error = Self::unsupported_media_type("415: Unsupported Media Type");
        Self { details: Some(Box::default()), ..error }
    }

    /// A new object must have no version.
    pub fn version_on_create() -> Self {
        Self::plain(500, "", "resourceVersion should not be set on objects to be created")
    }

    /// An invalid version.
    pub fn unreadable_version(text: &str) -> Self {
        Self::plain(500, "", format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
    }

    /// An invalid version in a watch.
    pub fn bad_watch_version(text: &str) -> Self {
        let message = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        Self::plain(500, "", message)
    }

    /// An invalid version in a list.
    pub fn bad_list_version(text: &str) -> Self {
        let Self { message, .. } = Self::bad_watch_version(text);
        Self::bad_request(format!("invalid resource version: {message}"))
    }

    /// Too large for etcd.
    pub fn too_large_for_store() -> Self {
        Self::plain(500, "", "etcdserver: request is too large")
    }

    /// Too large for a request.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// A request that Kubernetes answers with 500 too.
    pub fn internal(message: &str) -> Self {
        let details = Details {
            causes: vec![Cause { reason: "", message: message.into(), field: String::new() }],
            ..Details::default()
        };
        let message = format!("Internal error occurred: {message}");
        Self::detailed(500, "InternalError", message, details)
    }

    /// The same with only a message.
    pub fn unexplained(message: &str) -> Self {
        Self::plain(500, "", message)
    }

    /// Names another kind in the message and details.
    pub fn with_kind_name(mut self, kind: &Kind, name: &str) -> Self {
        self.message = self.message.replacen(kind.kind, name, 1);
        if let Some(details) = &mut self.details {
            details.kind = name.to_owned();
        }
        self
    }

    /// Adds a cause without a field.
    pub fn with_cause(mut self, reason: &'static str, message: &str, field: &str) -> Self {
        let cause = Cause { reason, message: message.to_owned(), field: field.to_owned() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

fn join_causes(causes: &[Cause]) -> String {
    let mut messages: Vec<String> = Vec::new();
    for cause in causes {
        let one = format!("{}: {}", cause.field, cause.message);
        if !messages.contains(&one) {
            messages.push(one);
        }
    }
    match messages.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = json!({});
        let texts = [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ];
        for (field, text) in texts {
            if !text.is_empty() {
                value[field] = text.as_str().into();
            }
        }
        if self.retry_after > 0 {
            value["retryAfterSeconds"] = self.retry_after.into();
        }
        if !self.causes.is_empty() {
            value["causes"] = self.causes.iter().map(Cause::to_value).collect();
        }
        value
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = json!({});
        let texts = [("reason", self.reason), ("message", &self.message), ("field", &self.field)];
        for (field, text) in texts {
            if !text.is_empty() {
                value[field] = text.into();
            }
        }
        value
    }
}
