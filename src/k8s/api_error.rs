//! Bounds calls to the API server in time, and turns failures into texts that can't contain a key.
//!
//! `kube::Error` prints what the server sent. That can be the object itself: a validation error
//! quotes the refused value, a decoding error the offending text. So nothing outside this file
//! prints one.

use std::{collections::BTreeSet, fmt, future::Future, time::Duration};

use kube::core::Status;

use crate::{
    k8s::{client::NoToken, gate::NotLeader, pages::TooLarge},
    runtime::printable::printable,
};

/// An error names at most this many refused fields.
const FIELDS: usize = 10;
/// Longer than any healthy API server takes for a single object.
pub const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// 409 on a write: the object is not the one that was decided on.
    #[error("the object changed in the meantime")]
    Conflict,
    /// 409 on a create.
    #[error("the object exists already")]
    AlreadyExists,
    #[error("the object was not found")]
    NotFound,
    #[error("the API server does not know these credentials (HTTP 401)")]
    Unauthorized,
    /// 403 for lack of a right.
    #[error("forbidden (HTTP 403)")]
    Forbidden,
    /// An admission policy or webhook refused the request, whatever the code.
    #[error("{by} denied the request (HTTP {code})")]
    Denied { by: Admission, code: u16 },
    /// An admission webhook could not be called, or answered with an error of its own.
    #[error("{webhook} failed (HTTP {code})")]
    WebhookFailed { webhook: Admission, code: u16 },
    /// 413, or what etcd answers to the same: the object is larger than the server stores.
    #[error("the object would be larger than the API server stores")]
    RequestTooLarge,
    #[error("the requested version is gone (HTTP 410)")]
    Gone,
    #[error("the API server refused the content of {} (HTTP {code})", printable(fields))]
    Invalid {
        code: u16,
        /// The fields that it named, never their values.
        fields: String,
    },
    #[error("the API server asks to slow down (HTTP 429)")]
    TooManyRequests { retry_after: Duration },
    /// Any other code.
    #[error("the API server answered HTTP {code}")]
    Server { code: u16 },
    /// No answer in time; the server may have carried out a write.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// Not sent, or not answered in time, because another replica may hold the lease by now.
    #[error("given up: this replica no longer holds the lease")]
    NotLeader,
    /// Not sent.
    #[error("there is no token for the API server")]
    NoToken,
    #[error("the API server's answer could not be decoded")]
    Undecodable,
    /// A list holds an object that is larger than any that an API server accepts.
    #[error("{TooLarge}")]
    TooLarge,
    /// No connection, or one that broke.
    #[error("the API server could not be reached ({why})")]
    Unreachable {
        /// The innermost cause. Such errors name addresses and certificates, never what was sent.
        why: String,
    },
}

/// What denied a request at admission. Nothing of its message is kept: it may quote what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Name of a ValidatingAdmissionPolicy.
    Policy(String),
    Webhook(String),
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => write!(f, "admission policy {name}"),
            Self::Webhook(name) => write!(f, "admission webhook {name}"),
        }
    }
}

impl ApiError {
    /// Whether the server may have carried out a write that failed like this.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Server { .. }
            | Self::Timeout(_)
            | Self::NotLeader
            | Self::Undecodable
            | Self::TooLarge
            | Self::Unreachable { .. } => true,
            Self::Conflict
            | Self::AlreadyExists
            | Self::NotFound
            | Self::Unauthorized
            | Self::Forbidden
            | Self::Denied { .. }
            | Self::WebhookFailed { .. }
            | Self::RequestTooLarge
            | Self::Gone
            | Self::Invalid { .. }
            | Self::NoToken
            | Self::TooManyRequests { .. } => false,
        }
    }

    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::AlreadyExists => "already-exists",
            Self::NotFound => "not-found",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Denied { .. } => "denied",
            Self::WebhookFailed { .. } => "webhook-failed",
            Self::RequestTooLarge => "request-too-large",
            Self::Gone => "gone",
            Self::Invalid { .. } => "invalid",
            Self::TooManyRequests { .. } => "too-many-requests",
            Self::Server { .. } => "server-error",
            Self::Timeout(_) => "timeout",
            Self::NotLeader => "not-leader",
            Self::NoToken => "no-token",
            Self::Undecodable => "undecodable",
            Self::TooLarge => "too-large",
            Self::Unreachable { .. } => "unreachable",
        }
    }
}

/// Waits for a call for at most `TIMEOUT`.
pub async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    with_timeout_of(TIMEOUT, call).await
}

pub async fn with_timeout_of<T>(
    timeout: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::Timeout(timeout)),
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => Self::from(status.as_ref()),
            kube::Error::Service(cause) if cause.is::<NotLeader>() => Self::NotLeader,
            kube::Error::Service(cause) if cause.is::<NoToken>() => Self::NoToken,
            kube::Error::Service(cause) if cause.is::<TooLarge>() => Self::TooLarge,
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Undecodable,
            kube::Error::Service(cause) => Self::unreachable(cause.as_ref()),
            kube::Error::HyperError(cause) => Self::unreachable(cause),
            kube::Error::ReadEvents(cause) => Self::unreachable(cause),
            _ => Self::Unreachable { why: "no usable connection".to_owned() },
        }
    }
}

impl ApiError {
    fn unreachable(error: &dyn std::error::Error) -> Self {
        // The innermost cause is the telling one: "Connection refused", "UnknownIssuer".
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self::Unreachable { why: printable(&cause.to_string()).into_owned() }
    }
}

impl From<&Status> for ApiError {
    fn from(status: &Status) -> Self {
        let code = status.code;
        match denied_by(&status.message) {
            // A webhook that answers with an error of its own has not decided anything.
            Some(webhook @ Admission::Webhook(_)) if matches!(code, 409 | 429 | 500..) => {
                return Self::WebhookFailed { webhook, code };
            }
            Some(by) => return Self::Denied { by, code },
            None => {}
        }
        if let Some(webhook) = failed_webhook(&status.message) {
            return Self::WebhookFailed { webhook, code };
        }
        match code {
            413 => Self::RequestTooLarge,
            500 if is_too_large_for_etcd(&status.message) => Self::RequestTooLarge,
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists,
            409 => Self::Conflict,
            404 => Self::NotFound,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Gone,
            400 | 422 => Self::Invalid { code, fields: refused_fields(status) },
            429 => Self::TooManyRequests { retry_after: retry_after(status) },
            code => Self::Server { code },
        }
    }
}

/// The API server begins its message with the name of a webhook that denied the request, and puts
/// that of a policy behind the object's name.
fn denied_by(message: &str) -> Option<Admission> {
    if let Some(rest) = message.strip_prefix("admission webhook \"") {
        return quoted_name(rest, "\" denied the request").map(Admission::Webhook);
    }
    if let Some(rest) = message.strip_prefix("policy '") {
        return policy(rest);
    }
    let (object, rest) = message.split_once(" is forbidden: ")?;
    // Anything else before it may be a value that the message quotes.
    let (resource, name) = object.split_once(' ')?;
    let name = name.strip_prefix('"')?.strip_suffix('"')?;
    if !is_name(resource) || !is_name(name) {
        return None;
    }
    policy(rest.strip_prefix("ValidatingAdmissionPolicy '")?)
}

/// Without a binding where the policy's parameters could not be found.
fn policy(rest: &str) -> Option<Admission> {
    let name = ["' with binding ", "' denied request"].map(|mark| quoted_name(rest, mark));
    name.into_iter().flatten().next().map(Admission::Policy)
}

fn failed_webhook(message: &str) -> Option<Admission> {
    let rest = message.strip_prefix("Internal error occurred: failed calling webhook \"")?;
    quoted_name(rest, "\": ").map(Admission::Webhook)
}

/// The text up to this mark, if it can be the name of an object.
fn quoted_name(text: &str, mark: &str) -> Option<String> {
    let (name, _) = text.split_once(mark)?;
    is_name(name).then(|| name.to_owned())
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    text.len() <= 253 && text.chars().all(is_part)
}

/// etcd's own limit, and that of the connection to it.
fn is_too_large_for_etcd(message: &str) -> bool {
    ["request is too large", "trying to send message larger than max"]
        .iter()
        .any(|limit| message.contains(limit))
}

fn refused_fields(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields = causes.map(|cause| cause.field.as_str());
    // Go writes a cause without a field as its nil.
    let fields: BTreeSet<&str> =
        fields.filter(|field| !field.is_empty() && *field != "<nil>").take(FIELDS).collect();
    let fields: Vec<&str> = fields.into_iter().collect();
    if fields.is_empty() { "the request".to_owned() } else { fields.join(", ") }
}

fn retry_after(status: &Status) -> Duration {
    let seconds = status.details.as_ref().map_or(1, |details| details.retry_after_seconds.max(1));
    Duration::from_secs(seconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_is_named_by_its_field_and_never_quoted() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": 422, "reason": "Invalid",
            "message": "spec.tls.key: Invalid value: \"-----BEGIN PRIVATE KEY-----\": no",
            "details": {"causes": [{"field": "spec.tls.key", "message": "\"-----BEGIN PRIVATE KEY-----\""}]},
        }))
        .unwrap();
        let error = ApiError::from(kube::Error::Api(status.boxed()));
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("spec.tls.key"), "{shown}");
        assert!(!shown.contains("BEGIN"), "{shown}");
    }

    fn answer(code: u16, message: &str) -> ApiError {
        let status = serde_json::json!({ "code": code, "message": message });
        let status: Status = serde_json::from_value(status).unwrap();
        ApiError::from(&status)
    }

    #[test]
    fn a_denial_at_admission_is_known_by_the_name_of_who_denied_and_nothing_else() {
        let policy = "routes.route.openshift.io \"shop\" is forbidden: ValidatingAdmissionPolicy \
                      'no-tls' with binding 'all' denied request: a very secret value";
        let by = Admission::Policy("no-tls".into());
        for code in [403, 422] {
            let error = answer(code, policy);
            assert_eq!(error, ApiError::Denied { by: by.clone(), code });
            assert_eq!(
                error.to_string(),
                format!("admission policy no-tls denied the request (HTTP {code})")
            );
        }
        let webhook = "admission webhook \"routes.example.com\" denied the request: very secret";
        let by = Admission::Webhook("routes.example.com".into());
        assert_eq!(answer(403, webhook), ApiError::Denied { by, code: 403 });
        let down = "Internal error occurred: failed calling webhook \"routes.example.com\": failed \
                    to call webhook: Post \"https://x.svc:443/?timeout=10s\": very secret";
        let webhook = Admission::Webhook("routes.example.com".into());
        assert_eq!(
            answer(500, down),
            ApiError::WebhookFailed { webhook: webhook.clone(), code: 500 }
        );
        let itself =
            "admission webhook \"routes.example.com\" denied the request: no route to host";
        assert_eq!(answer(503, itself), ApiError::WebhookFailed { webhook, code: 503 });
    }

    #[test]
    fn a_policy_that_mutates_or_lacks_its_parameters_is_known_by_its_name_too() {
        let by = Admission::Policy("no-tls".into());
        for message in [
            "policy 'no-tls' with binding 'all' denied request: expression failed",
            "routes.route.openshift.io \"shop\" is forbidden: ValidatingAdmissionPolicy 'no-tls' \
             denied request: failed to configure policy: no params found",
        ] {
            assert_eq!(answer(403, message), ApiError::Denied { by: by.clone(), code: 403 });
        }
    }

    #[test]
    fn fields_that_were_refused_are_named_once() {
        let cause = |field: &str| serde_json::json!({ "field": field });
        let causes = [cause("spec.tls"), cause("spec.tls"), cause("<nil>"), cause("")];
        let status = serde_json::json!({ "code": 422, "details": { "causes": causes } });
        let status: Status = serde_json::from_value(status).unwrap();
        assert_eq!(refused_fields(&status), "spec.tls");
    }

    #[test]
    fn a_missing_right_and_an_invented_name_are_no_denial_at_admission() {
        let user = "routes.route.openshift.io \"shop\" is forbidden: User \"system:serviceaccount\" \
                    cannot patch resource \"routes\" in namespace \"is forbidden: Validating\"";
        assert_eq!(answer(403, user), ApiError::Forbidden);
        let invented = "admission webhook \"a\u{1b}[31m b\" denied the request: no";
        assert_eq!(answer(403, invented), ApiError::Forbidden);
    }

    #[test]
    fn an_object_that_is_too_large_is_known_whoever_refuses_it() {
        let etcd = "etcdserver: request is too large";
        let wire =
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max";
        for (code, message) in [(413, "Request entity too large"), (500, etcd), (500, wire)] {
            assert_eq!(answer(code, message), ApiError::RequestTooLarge, "{message}");
        }
        assert_eq!(answer(500, "boom"), ApiError::Server { code: 500 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_ends_after_its_time() {
        let call = with_timeout(std::future::pending::<kube::Result<()>>());
        let ended = tokio::time::timeout(TIMEOUT + Duration::from_secs(1), call).await;
        assert_eq!(ended, Ok(Err(ApiError::Timeout(TIMEOUT))));
    }

    #[test]
    fn an_undecodable_answer_is_not_quoted() {
        let error = serde_json::from_str::<u8>("\"-----BEGIN PRIVATE KEY-----\"").unwrap_err();
        let error = ApiError::from(kube::Error::SerdeError(error));
        assert!(!format!("{error} {error:?}").contains("BEGIN"));
    }

    #[test]
    fn a_quoted_value_is_not_taken_for_a_policy() {
        let message = "Route.route.openshift.io \"shop\" is invalid: spec.tls.key: Invalid value: \"x is \
                       forbidden: ValidatingAdmissionPolicy 'MIIEvgIBADANBgkqhkiG' with binding '\"";
        let shown = answer(422, message).to_string();
        assert!(!shown.contains("MIIEvg"), "{shown}");
    }
}
