//! Asks a remote cluster for a new token of our account, and tries it.

use chrono::{DateTime, TimeDelta, Utc};
use http::{Request, header};
use kube::{Client, client::Body};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::{
    k8s::api_error::{ApiError, TIMEOUT},
    review::{
        answer,
        decide::credential::{Account, Credential},
    },
    runtime::redact::BearerToken,
};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Of an answer, in bytes: a token, and what is said about it.
const LONGEST: usize = 128 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error("what the cluster granted is no token of our account")]
    Foreign,
}

/// How a new token did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    Served,
    /// The cluster knows who asked, but does not let the account create TokenReviews.
    WithoutRight,
    Refused,
}

#[derive(Deserialize)]
struct Granted {
    status: GrantedStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrantedStatus {
    token: BearerToken,
    expiration_timestamp: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Reviewed {
    #[serde(default)]
    status: ReviewedStatus,
}

#[derive(Default, Deserialize)]
struct ReviewedStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: Value,
}

/// A new token, asked for with the one that the client sends.
pub async fn ask(
    client: &Client,
    account: &Account,
    life: TimeDelta,
) -> Result<Credential, AskError> {
    let Account { namespace, name } = account;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        // No audience: the API server's own.
        "spec": { "expirationSeconds": life.num_seconds(), "audiences": [] },
    });
    let granted: Granted = post(client, &path, &request).await?;
    let credential = Credential::read(granted.status.token.expose());
    let credential = credential.map_err(|_| AskError::Foreign)?;
    match credential.account == *account {
        true => Ok(credential.ending(granted.status.expiration_timestamp)),
        false => Err(AskError::Foreign),
    }
}

/// Has a new token reviewed by itself, which is what it will be used for.
pub async fn try_out(client: &Client, credential: &Credential) -> Result<Tried, ApiError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": { "token": credential.token.expose() },
    });
    match post::<Reviewed>(client, REVIEWS, &review).await {
        Ok(Reviewed { status }) => {
            let is_ours = status.user["username"] == *credential.account.username();
            Ok(if status.authenticated && is_ours { Tried::Served } else { Tried::Refused })
        }
        // Who may ask is looked at after who asks.
        Err(ApiError::Forbidden) => Ok(Tried::WithoutRight),
        Err(ApiError::Unauthorized) => Ok(Tried::Refused),
        Err(error) => Err(error),
    }
}

async fn post<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    body: &Value,
) -> Result<T, ApiError> {
    let body = Zeroizing::new(body.to_string());
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Body::from(body.as_bytes().to_vec()))
        .map_err(|_| ApiError::Undecodable)?;
    let answered = async { answer::read(client.send(request).await?, LONGEST).await };
    timeout(TIMEOUT, answered).await.unwrap_or(Err(ApiError::Timeout(TIMEOUT)))
}
