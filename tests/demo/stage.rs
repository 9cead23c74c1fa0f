//! An API server and an edge in this process, and helpers to change Routes.

use std::time::{Duration, Instant};

use apiserver::api::ApiServer;
use chrono::Utc;
use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};
use trustplane::demo::api_server;
use trustplane::demo::authority::{Authority, Issued};
use trustplane::demo::certificate_summary::CertificateSummary;
use trustplane::demo::edge::RunningEdge;
use trustplane::demo::loopback::Port;
use trustplane::demo::tour::probe::{Served, probe};
use trustplane::runtime::clock::Clock;

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

/// API server, edge, and a CA.
pub struct Stage {
    pub api: ApiServer,
    pub client: Client,
    pub edge: RunningEdge,
    pub authority: Authority,
}

impl Stage {
    pub async fn new() -> Self {
        let api = api_server::server(api_server::store(10_000, 1), Clock::system());
        let client = api.client();
        let edge = RunningEdge::start(client.clone(), Port::Exactly(0), Clock::system());
        let edge = edge.await.expect("the edge starts");
        let authority = Authority::new("test CA", Utc::now()).expect("an authority");
        Self { api, client, edge, authority }
    }

    pub fn pair(&self, host: &str) -> Issued {
        self.authority.issue(&[host], Utc::now()).expect("a certificate")
    }

    /// Number of writes so far.
    pub fn version(&self) -> u64 {
        self.api.with(|store| store.version())
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.client.request(request.body(body).expect("a request")).await;
        // The refused object may hold a key, so the error is not shown.
        answer.unwrap_or_else(|_| panic!("the API refused a request to {path}"))
    }

    pub async fn create(&self, route: &RouteFixture) {
        self.send(Method::POST, &route.collection(), &route.0).await;
    }

    pub async fn patch(&self, route: &RouteFixture, patch: Value) {
        self.send(Method::PATCH, &route.path(), &patch).await;
    }

    pub async fn delete(&self, route: &RouteFixture) {
        self.send(Method::DELETE, &route.path(), &Value::Null).await;
    }

    pub async fn get(&self, route: &RouteFixture) -> Value {
        self.send(Method::GET, &route.path(), &Value::Null).await
    }

    pub async fn served(&self, host: &str) -> Served {
        probe(self.edge.address(), host).await.expect("a handshake and an answer")
    }

    /// Connects until this is served.
    pub async fn eventually(&self, host: &str, what: impl Fn(&Served) -> bool) -> Served {
        let start = Instant::now();
        loop {
            let served = self.served(host).await;
            if what(&served) {
                return served;
            }
            assert!(start.elapsed() < TIMEOUT, "{host} still gets: {served:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Connects until this certificate is served, with status 200.
    pub async fn eventually_serves(&self, host: &str, pair: &Issued) -> Served {
        let sha256 = CertificateSummary::of(&pair.der).sha256;
        self.eventually(host, |it| it.certificate.sha256 == sha256 && it.status == 200).await
    }

    /// Connects until the default certificate is served, with this status.
    pub async fn eventually_default(&self, host: &str, status: u16) -> Served {
        let sha256 = &self.edge.default_certificate().sha256;
        self.eventually(host, |it| it.certificate.sha256 == *sha256 && it.status == status).await
    }

    /// The Route's Admitted condition by this edge, once it has this status.
    pub async fn eventually_admitted(&self, route: &RouteFixture, status: &str) -> Value {
        let start = Instant::now();
        loop {
            let seen = self.get(route).await["status"]["ingress"][0].clone();
            if seen["conditions"][0]["status"] == status {
                return seen;
            }
            assert!(start.elapsed() < TIMEOUT, "still says: {seen:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nothing was written for a while, and returns the version.
    pub async fn quiet(&self) -> u64 {
        let mut version = self.version();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            match self.version() {
                same if same == version => return version,
                newer => version = newer,
            }
        }
    }
}

#[derive(Clone)]
pub struct RouteFixture(Value);

impl RouteFixture {
    /// In namespace default, at NAME.example.com.
    pub fn edge(name: &str) -> Self {
        Self(json!({
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "host": format!("{name}.example.com"),
                "to": { "kind": "Service", "name": "backend" },
                "tls": { "termination": "edge" },
            },
        }))
    }

    pub fn reencrypt(name: &str) -> Self {
        Self::edge(name).with("/spec/tls/termination", json!("reencrypt"))
    }

    pub fn passthrough(name: &str) -> Self {
        Self::edge(name).with("/spec/tls/termination", json!("passthrough"))
    }

    pub fn host(self, host: &str) -> Self {
        self.with("/spec/host", json!(host))
    }

    pub fn namespace(self, namespace: &str) -> Self {
        self.with("/metadata/namespace", json!(namespace))
    }

    pub fn holding(self, pair: &Issued) -> Self {
        self.with("/spec/tls/certificate", json!(pair.certificate))
            .with("/spec/tls/key", json!(pair.key.expose()))
    }

    /// Any field, by its JSON pointer. Objects on the way there are made.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let place = pointer.split('/').skip(1).fold(&mut self.0, |place, field| &mut place[field]);
        *place = value;
        self
    }

    /// Removes a field of the spec.
    pub fn without(mut self, field: &str) -> Self {
        self.0["spec"].as_object_mut().expect("a spec").remove(field);
        self
    }

    fn collection(&self) -> String {
        let namespace = self.0["metadata"]["namespace"].as_str().expect("a namespace");
        format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes")
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.0["metadata"]["name"].as_str().expect("a name"))
    }
}

/// A patch that sets a Route's pair.
pub fn holding(pair: &Issued) -> Value {
    json!({ "spec": { "tls": { "certificate": pair.certificate, "key": pair.key.expose() } } })
}
