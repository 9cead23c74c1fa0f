//! Errors in the form of Kubernetes: a Status with the code and reason that kube-apiserver gives.

use serde_json::{Value, json};

/// Quotes nothing of a request's body, which holds a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// In seconds. client-go asks again, at most ten times, if it is there.
    pub retry_after: Option<u32>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The caller may not ask; of the reviewed token, nothing is said.
    pub fn forbidden(caller: &str) -> Self {
        let message = format!(
            "tokenreviews.authentication.k8s.io is forbidden: User \"{caller}\" cannot create resource \
             \"tokenreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
        );
        Self::new(403, "Forbidden", message)
    }

    pub fn not_found() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn not_acceptable(offered: &[&str]) -> Self {
        let message =
            format!("only the following media types are accepted: {}", offered.join(", "));
        Self::new(406, "NotAcceptable", message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(429, "TooManyRequests", message) }
    }

    /// Asking again soon may help.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::unavailable_for_long(message) }
    }

    /// Asking again soon does not help: somebody has to act first.
    pub fn unavailable_for_long(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_kubernetes_writes_it() {
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "token is required for TokenReview in authentication",
            "reason": "BadRequest", "code": 400,
        });
        let failure = Failure::bad_request("token is required for TokenReview in authentication");
        assert_eq!(failure.to_json(), expected);
        assert_eq!(Failure::unavailable("x").to_json()["details"]["retryAfterSeconds"], 1);
        assert!(Failure::unavailable_for_long("x").to_json()["details"].is_null());
    }
}
