//! The parts that run in the background of a tour.

use http::Method;
use kube::Client;
use serde_json::json;
use tokio::task::JoinSet;

use super::steps::send;
use crate::{demo::api_server, k8s::api_error::ApiError, runtime::clock::Clock};

/// Changes that a watch may lag behind.
const HISTORY: usize = 10_000;

/// Dropping it aborts them.
#[derive(Default)]
pub struct Parts(JoinSet<&'static str>);

/// A part that ended although the tour runs.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended by itself")]
pub struct PartEnded(&'static str);

impl Parts {
    pub fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            part.await;
            name
        });
    }

    /// Resolves only if a part ends by itself, which is a bug.
    pub async fn failed(&mut self) -> PartEnded {
        match self.0.join_next().await {
            Some(Ok(part)) => PartEnded(part),
            _ => PartEnded("a part of the sandbox"),
        }
    }
}

/// An API server in this process, with one namespace.
pub async fn cluster(namespace: &str, clock: &Clock) -> Result<Client, ApiError> {
    let api = api_server::server(api_server::store(HISTORY, fastrand::u64(..)), clock.clone());
    let client = api.client();
    let namespace = json!({ "metadata": { "name": namespace } });
    send(&client, Method::POST, "/api/v1/namespaces".to_owned(), namespace).await?;
    Ok(client)
}
