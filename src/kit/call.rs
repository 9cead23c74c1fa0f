//! One call to the API server: bounded in time, and its failure in words that can't carry a key.
//!
//! `kube::Error` prints what the server sent. That can be the object itself: a validation error
//! quotes the refused value, a decoding error the offending text. So nothing outside this file
//! prints one.

use std::{future::Future, time::Duration};

use kube::core::Status;

use crate::kit::{client::NotLeader, pages::TooLarge};

/// Longer than any healthy API server takes for a single object.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// 409 on a write: the object is not the one that was decided on.
    #[error("the object changed in the meantime")]
    Conflict,
    /// 409 on a create.
    #[error("the object exists already")]
    AlreadyExists,
    /// 404.
    #[error("the object was not found")]
    NotFound,
    /// 401.
    #[error("the API server does not know these credentials (HTTP 401)")]
    Unauthorized,
    /// 403.
    #[error("forbidden (HTTP 403)")]
    Forbidden,
    /// 410.
    #[error("the requested version is gone (HTTP 410)")]
    Gone,
    /// 422, or 400.
    #[error("the API server refused the content of {fields} (HTTP {code})")]
    Invalid {
        /// 400 or 422.
        code: u16,
        /// The fields that it named, never their values.
        fields: String,
    },
    /// 429.
    #[error("the API server asks to slow down (HTTP 429)")]
    TooManyRequests {
        /// How long it asks to wait.
        retry_after: Duration,
    },
    /// Any other code.
    #[error("the API server answered HTTP {code}")]
    Server {
        /// The code.
        code: u16,
    },
    /// No answer in time; a write may have been done all the same.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// Not sent, or not answered in time, because another replica may hold the lease by now.
    #[error("given up: this replica no longer holds the lease")]
    NotLeader,
    /// The answer was not what the API promises.
    #[error("the API server's answer could not be decoded")]
    Undecodable,
    /// A list holds an object that is larger than any that an API server accepts.
    #[error("{TooLarge}")]
    TooLarge,
    /// No connection, or one that broke.
    #[error("the API server could not be reached ({why})")]
    Unreachable {
        /// What the connection died of. Such errors speak of addresses and certificates, never of
        /// what was sent.
        why: String,
    },
}

impl CallError {
    /// Whether a write that failed like this may have been done all the same.
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
            | Self::Gone
            | Self::Invalid { .. }
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
            Self::Gone => "gone",
            Self::Invalid { .. } => "invalid",
            Self::TooManyRequests { .. } => "too-many-requests",
            Self::Server { .. } => "server-error",
            Self::Timeout(_) => "timeout",
            Self::NotLeader => "not-leader",
            Self::Undecodable => "undecodable",
            Self::TooLarge => "too-large",
            Self::Unreachable { .. } => "unreachable",
        }
    }
}

/// Waits for a call, but not for ever.
pub async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    within(TIMEOUT, call).await
}

/// Waits for a call, but not longer than that.
pub async fn within<T>(
    patience: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout(patience)),
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => Self::from(status.as_ref()),
            kube::Error::Service(cause) if cause.is::<NotLeader>() => Self::NotLeader,
            kube::Error::Service(cause) if cause.is::<TooLarge>() => Self::TooLarge,
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Undecodable,
            kube::Error::Service(cause) => Self::unreachable(cause.as_ref()),
            kube::Error::HyperError(cause) => Self::unreachable(cause),
            kube::Error::ReadEvents(cause) => Self::unreachable(cause),
            _ => Self::Unreachable { why: "no usable connection".to_owned() },
        }
    }
}

impl CallError {
    fn unreachable(error: &dyn std::error::Error) -> Self {
        // The innermost cause is the telling one: "Connection refused", "UnknownIssuer".
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self::Unreachable { why: cause.to_string() }
    }
}

impl From<&Status> for CallError {
    fn from(status: &Status) -> Self {
        match status.code {
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists,
            409 => Self::Conflict,
            404 => Self::NotFound,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Gone,
            400 | 422 => Self::Invalid { code: status.code, fields: refused_fields(status) },
            429 => Self::TooManyRequests { retry_after: retry_after(status) },
            code => Self::Server { code },
        }
    }
}

fn refused_fields(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: Vec<&str> =
        causes.map(|cause| cause.field.as_str()).filter(|field| !field.is_empty()).collect();
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
        let error = CallError::from(kube::Error::Api(status.boxed()));
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("spec.tls.key"), "{shown}");
        assert!(!shown.contains("BEGIN"), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_ends_after_its_time() {
        let call = bounded(std::future::pending::<kube::Result<()>>());
        let ended = tokio::time::timeout(TIMEOUT + Duration::from_secs(1), call).await;
        assert_eq!(ended, Ok(Err(CallError::Timeout(TIMEOUT))));
    }

    #[test]
    fn an_undecodable_answer_is_not_quoted() {
        let error = serde_json::from_str::<u8>("\"-----BEGIN PRIVATE KEY-----\"").unwrap_err();
        let error = CallError::from(kube::Error::SerdeError(error));
        assert!(!format!("{error} {error:?}").contains("BEGIN"));
    }
}
