//! Requests of the bench itself.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde::de::DeserializeOwned;
use serde_json::Value;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<T> {
    let answer = send(client, Method::GET, path, JSON, Vec::new()).await?;
    serde_json::from_slice(&answer).with_context(|| format!("the answer to GET {path}"))
}

pub async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    send(client, Method::POST, path, JSON, serde_json::to_vec(object)?).await.map(drop)
}

pub async fn replace(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    send(client, Method::PUT, path, JSON, serde_json::to_vec(object)?).await.map(drop)
}

/// Sends a merge patch. Returns the new object.
pub async fn patch(client: &Client, path: &str, change: &Value) -> anyhow::Result<Bytes> {
    send(client, Method::PATCH, path, MERGE_PATCH, serde_json::to_vec(change)?).await
}

pub async fn delete(client: &Client, path: &str) -> anyhow::Result<()> {
    send(client, Method::DELETE, path, JSON, Vec::new()).await.map(drop)
}

/// The first event of a watch; None if it ends before.
pub async fn first_event(client: &Client, path: &str) -> anyhow::Result<Value> {
    let answer = send(client, Method::GET, path, JSON, Vec::new()).await?;
    let first = answer.split(|byte| *byte == b'\n').find(|line| !line.is_empty());
    Ok(first.map(serde_json::from_slice).transpose()?.unwrap_or_default())
}

/// The whole answer, which must be a success. Errors omit the answer's text, which may quote a key.
async fn send(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: Vec<u8>,
) -> anyhow::Result<Bytes> {
    let what = format!("{method} {path}");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(body))?;
    let answer = client.send(request).await.with_context(|| what.clone())?;
    let status = answer.status();
    let body = answer.into_body().collect().await.with_context(|| what.clone())?.to_bytes();
    ensure!(status.is_success(), "{what} was answered with {status}");
    Ok(body)
}
