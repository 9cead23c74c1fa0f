//! Two clusters of one issuer, each an API server on a port of its own that notes which tokens it is asked about.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use apiserver::api::ApiServer;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::Body, config::KubeConfigOptions};
use serde_json::{Value, json};
use tower::{ServiceExt as _, service_fn};

use crate::{
    demo::{
        api_server,
        loopback::Port,
        serve::{Options, RunningApi, ServeError},
        tour::steps::send,
    },
    k8s::api_error::{self, ApiError},
    runtime::{clock::Clock, lock::lock},
};

/// Changes that a watch may lag behind.
const HISTORY: usize = 1000;
/// Of all accounts of the tour.
pub const NAMESPACE: &str = "shop";

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot prepare the sandbox's cluster")]
    Prepare(#[from] ApiError),
    #[error("cannot read the kubeconfig of the sandbox's cluster")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
}

pub struct Cluster {
    pub name: &'static str,
    pub api: ApiServer,
    /// An administrator's.
    pub client: Client,
    /// How it is reached on its port.
    pub config: Config,
    received: Arc<Mutex<BTreeSet<String>>>,
    /// None once it is stopped.
    served: Mutex<Option<RunningApi>>,
}

impl Cluster {
    pub async fn start(name: &'static str, clock: &Clock) -> Result<Self, ClusterError> {
        let store = api_server::store(HISTORY, fastrand::u64(..));
        let api = api_server::server(store, clock.clone());
        let client = api.client();
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        send(&client, Method::POST, "/api/v1/namespaces".to_owned(), namespace).await?;
        let received = Arc::default();
        let options = Options { port: Port::Exactly(0), kubeconfig: None };
        let served =
            RunningApi::start_for_accounts(noting(&api, &received), options, clock).await?;
        let kubeconfig = kube::config::Kubeconfig::read_from(served.kubeconfig())?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let served = Mutex::new(Some(served));
        Ok(Self { name, api, client, config, received, served })
    }

    pub fn address(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    /// Whether it was asked about this token since [`Self::forget`].
    pub fn has_received(&self, token: &str) -> bool {
        lock(&self.received).contains(token)
    }

    pub fn forget(&self) {
        lock(&self.received).clear();
    }

    /// Ends every connection. Nobody listens any more.
    pub fn stop(&self) {
        lock(&self.served).take();
    }

    pub async fn create_account(&self, name: &str) -> Result<(), ApiError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        send(&self.client, Method::POST, path, json!({ "metadata": { "name": name } })).await
    }

    pub async fn delete_account(&self, name: &str) -> Result<(), ApiError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}");
        send(&self.client, Method::DELETE, path, Value::Null).await
    }

    /// A token of an account, as `kubectl create token` gets it.
    pub async fn token(&self, account: &str, seconds: u64) -> Result<String, ApiError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let spec = json!({ "spec": { "audiences": [], "expirationSeconds": seconds } });
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(spec.to_string().into_bytes())
            .map_err(|_| ApiError::Undecodable)?;
        let answer = api_error::with_timeout(self.client.request::<Value>(request)).await?;
        let token = answer["status"]["token"].as_str();
        token.map(str::to_owned).ok_or(ApiError::Undecodable)
    }
}

/// The API server, and before it a note of every token that it is asked about.
fn noting(
    api: &ApiServer,
    received: &Arc<Mutex<BTreeSet<String>>>,
) -> impl crate::demo::serve::Api<apiserver::api::Body> + use<> {
    let (api, received) = (api.clone(), received.clone());
    service_fn(move |request: Request<Body>| {
        let (api, received) = (api.clone(), received.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // What broke off is for the API server to refuse.
            let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
            if head.uri.path().ends_with("/tokenreviews") {
                let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                let token = review["spec"]["token"].as_str().unwrap_or_default();
                lock(&received).insert(token.to_owned());
            }
            let request = Request::from_parts(head, Body::from(body));
            Ok::<_, Infallible>(api.oneshot(request).await.unwrap_or_else(|never| match never {}))
        })
    })
}
