//! `trustplane review` as a process.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use kube::Client;
use serde_json::{Value, json};

use super::member::{Member, RawAnswer, ask, ask_by};
use crate::{Access, Controller, Launch, Pair, authority::Authority, eventually, free_port, suite};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Where it serves, chosen before it is started, so that others can be told.
pub struct Address {
    serve: SocketAddr,
    pages: SocketAddr,
    serving: Pair,
    clients: Authority,
}

impl Address {
    pub fn choose() -> Self {
        let free = || SocketAddr::from(([127, 0, 0, 1], free_port().expect("a free port")));
        let serving = Authority::new("trustplane review").issue("127.0.0.1");
        Self { serve: free(), pages: free(), serving, clients: Authority::new("callers") }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.serve)
    }

    /// The CA of its certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.serving.authority
    }

    /// A certificate that it knows this user by.
    pub fn client_certificate(&self, user: &str) -> Pair {
        self.clients.issue_client(user)
    }

    /// For a caller with this token.
    pub fn access(&self, token: &str) -> Access {
        Access {
            url: self.url(),
            authority: self.serving.authority.clone(),
            token: token.to_owned(),
        }
    }
}

/// How to start it.
pub struct Options {
    pub name: &'static str,
    /// YAML.
    pub config: String,
    /// Of its Secret and its ConfigMaps.
    pub namespace: String,
    pub flags: Vec<String>,
}

/// Dropping it kills it.
pub struct Product {
    pub controller: Controller,
    pub address: Address,
    config: PathBuf,
    namespace: String,
}

impl Product {
    /// Starts it beside the local cluster, which it reaches as `account`.
    pub fn start(local: &Member, account: &Access, address: Address, options: &Options) -> Self {
        let config = local.file("clusters.yaml", &options.config);
        let file = |name: &str, content: &str| local.file(name, content).display().to_string();
        let arguments = [
            "review".to_owned(),
            format!("--config={}", config.display()),
            format!("--serve-listen={}", address.serve),
            format!("--listen={}", address.pages),
            format!("--serve-cert-file={}", file("serve.crt", &address.serving.certificate)),
            format!("--serve-key-file={}", file("serve.key", &address.serving.key)),
            format!("--client-ca-file={}", file("clients.crt", &address.clients.root())),
            format!("--namespace={}", options.namespace),
            "--log-format=json".to_owned(),
        ];
        let arguments: Vec<_> = arguments.iter().chain(&options.flags).map(|it| &**it).collect();
        // To check that even the most verbose log holds no token.
        let launch = Launch::exactly(options.name, &arguments, local.kubeconfig(account));
        let launch = launch.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
        let controller = launch.pages_at(address.pages).start();
        Self { controller, address, config, namespace: options.namespace.clone() }
    }

    pub async fn ready(&mut self) {
        self.controller.ready().await;
    }

    /// Of its Secret and its ConfigMaps.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Changes the configuration, which is read again without a restart.
    pub fn configure(&self, config: &str) {
        suite::write_private(&self.config, config);
    }

    /// Asks about a token, as a caller with one.
    pub async fn review(&self, caller: &str, token: &str, audiences: &[&str]) -> RawAnswer {
        let answer = self.try_review(caller, token, audiences).await;
        answer.unwrap_or_else(|error| panic!("a review: {error}"))
    }

    /// The same, while it may not be there yet.
    pub async fn try_review(
        &self,
        caller: &str,
        token: &str,
        audiences: &[&str],
    ) -> kube::Result<RawAnswer> {
        let review = json!({ "spec": { "token": token, "audiences": audiences } });
        self.try_post(caller, REVIEWS, &review).await
    }

    pub async fn post(&self, caller: &str, path: &str, body: &Value) -> RawAnswer {
        let answer = self.try_post(caller, path, body).await;
        answer.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    async fn try_post(&self, caller: &str, path: &str, body: &Value) -> kube::Result<RawAnswer> {
        ask(&self.address.access(caller), post(path, body)).await
    }

    /// A caller that keeps its connections.
    pub async fn caller(&self, caller: &str) -> KeptCaller {
        KeptCaller(self.address.access(caller).client_without_retries().await)
    }

    /// As /metrics shows them.
    pub async fn metrics(&self) -> String {
        let address = self.address.pages;
        let read = move || crate::http::get(address, "/metrics", ANSWER_WITHIN);
        let read = tokio::task::spawn_blocking(read).await.expect("reading does not panic");
        read.expect("/metrics is served").1
    }

    /// The value of a metric with these labels, such as `keys_contested{cluster="a"}`.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let series = format!("trustplane_review_{series} ");
        self.metrics().await.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
    }

    /// Waits until a metric has a value.
    pub async fn until_metric(&self, series: &str, value: f64) {
        eventually(READY_WITHIN, series, async || match self.metric(series).await {
            Some(seen) if (seen - value).abs() < f64::EPSILON => Ok(()),
            other => Err(other),
        })
        .await;
    }
}

/// A caller that keeps its connections, and tries nothing again.
pub struct KeptCaller(Client);

impl KeptCaller {
    pub async fn review(&self, token: &str) -> kube::Result<RawAnswer> {
        ask_by(&self.0, post(REVIEWS, &json!({ "spec": { "token": token } }))).await
    }
}

fn post(path: &str, body: &Value) -> http::Request<Vec<u8>> {
    let request = http::Request::post(path).header("content-type", "application/json");
    request.body(body.to_string().into_bytes()).expect("a request")
}
