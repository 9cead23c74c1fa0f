//! Reads the answers of servers that are not ours. They may send without end.

use http::Response;
use http_body_util::{BodyExt as _, Limited};
use kube::{client::Body, core::Status};
use serde::de::DeserializeOwned;

use crate::k8s::api_error::ApiError;

/// The object that it holds, if the answer is not longer than so many bytes.
pub async fn read<T: DeserializeOwned>(
    response: Response<Body>,
    longest: usize,
) -> Result<T, ApiError> {
    let (code, body) = (response.status(), response.into_body());
    let body = Limited::new(body, longest).collect().await;
    let body = body.map_err(|_| ApiError::Undecodable)?.to_bytes();
    if code.is_success() {
        return serde_json::from_slice(&body).map_err(|_| ApiError::Undecodable);
    }
    let status = serde_json::from_slice(&body).unwrap_or_else(|_| Status::failure("", ""));
    Err(ApiError::from(&status.with_code(code.as_u16())))
}
