//! A stand-in for the API server of a cluster, for tests.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::{
    decide::{
        config::ClusterConfig,
        testing::{Issuer, noon},
        token::Token,
    },
    forward::Forwarder,
    keys::KeyStore,
    reviewer::Reviewer,
};
use crate::{
    k8s::{client, gate::Gate},
    runtime::{clock::Clock, lock::lock},
};

const ISSUER: &str = "https://kubernetes.default.svc";

/// A request that arrived. Reviews have a body.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub audit_id: Option<String>,
    pub body: Value,
}

/// What is answered to a review, given its spec.
type Answer = Box<dyn Fn(&Value) -> Value + Send>;

#[derive(Default)]
pub struct ApiServer {
    pub keys: Mutex<Vec<Value>>,
    /// Instead of any answer.
    pub code: Mutex<Option<u16>>,
    /// Until it answers.
    pub delay: Mutex<Duration>,
    pub received: Mutex<Vec<Received>>,
    /// Instead of an honest answer to a review.
    pub lie: Mutex<Option<Answer>>,
}

impl ApiServer {
    pub fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let transport = service_fn(move |request| server.clone().answer(request));
        client::over(transport, Gate::open())
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<Full<Bytes>>, tower::BoxError> {
        let audit_id = request.headers().get("audit-id");
        let audit_id = audit_id.map(|it| it.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        lock(&self.received).push(Received { path: path.clone(), audit_id, body: body.clone() });
        // It answers with what it knew when it was asked.
        let (mut code, mut document) = match &*path {
            "/openid/v1/jwks" => (200, json!({ "keys": *lock(&self.keys) })),
            _ => (201, self.reviewed(body)),
        };
        let delay = *lock(&self.delay);
        sleep(delay).await;
        if let Some(other) = *lock(&self.code) {
            code = other;
            document = json!({ "kind": "Status", "code": code, "message": "a reason" });
        }
        let body = Full::new(Bytes::from(document.to_string()));
        Ok(Response::builder().status(code).body(body)?)
    }

    fn reviewed(&self, mut review: Value) -> Value {
        let status = match &*lock(&self.lie) {
            Some(lie) => lie(&review["spec"]),
            None => honest(&review["spec"]),
        };
        review["status"] = status;
        review
    }

    pub fn publish(&self, issuers: &[&Issuer]) {
        *lock(&self.keys) = issuers.iter().map(|it| it.jwk()).collect();
    }

    /// How many requests for this path arrived.
    pub fn count(&self, path: &str) -> usize {
        lock(&self.received).iter().filter(|it| it.path == path).count()
    }

    pub fn fetches(&self) -> usize {
        self.count("/openid/v1/jwks")
    }

    pub fn reviews(&self) -> Vec<Received> {
        let received = lock(&self.received);
        received.iter().filter(|it| it.path.ends_with("/tokenreviews")).cloned().collect()
    }
}

/// What an API server says of a token that is good.
pub fn honest(spec: &Value) -> Value {
    let Ok(token) = Token::read(spec["token"].as_str().unwrap_or_default()) else {
        return json!({ "user": {}, "error": "invalid bearer token" });
    };
    let asked = spec["audiences"].as_array().cloned().unwrap_or_default();
    let own = token.audiences.unwrap_or_default();
    let both: Vec<_> = match asked.is_empty() {
        true => own.into_iter().map(Value::from).collect(),
        false => asked.into_iter().filter(|it| own.iter().any(|own| it == own)).collect(),
    };
    let identity = &token.identity;
    json!({
        "authenticated": true,
        "audiences": both,
        "user": {
            "username": identity.username(), "uid": identity.uid, "groups": identity.groups(),
            "extra": identity.extra(),
        },
    })
}

/// Of a cluster whose tokens name the usual issuer.
pub fn config() -> ClusterConfig {
    ClusterConfig {
        issuers: BTreeSet::from([ISSUER.to_owned()]),
        kids: BTreeSet::new(),
        prefixes: None,
        remote: None,
    }
}

/// Clusters `a` and `b` of one issuer.
pub struct Stage {
    pub a: Arc<ApiServer>,
    pub b: Arc<ApiServer>,
    pub of_a: Issuer,
    pub of_b: Issuer,
    pub keys: Arc<KeyStore>,
    pub reviewer: Arc<Reviewer>,
}

impl Stage {
    pub async fn start() -> Self {
        let (a, b): (Arc<ApiServer>, Arc<ApiServer>) = Default::default();
        let (of_a, of_b) = (Issuer::p256("a"), Issuer::p256("b"));
        a.publish(&[&of_a]);
        b.publish(&[&of_b]);
        let both = || [("a", &a), ("b", &b)];
        let named = both().map(|(name, server)| (name.into(), config(), server.client()));
        let keys = KeyStore::new(named, Duration::from_secs(300));
        for (name, _) in both() {
            tokio::spawn(keys.clone().keep(name.into()));
        }
        while !keys.missing().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        let reviewer = Arc::new(reviewer(&a, &b, keys.clone()));
        Self { a, b, of_a, of_b, keys, reviewer }
    }

    /// So that long runs do not keep them all.
    pub fn forget_reviews(&self) {
        for server in [&self.a, &self.b] {
            lock(&server.received).retain(|it| it.path.ends_with("/jwks"));
        }
    }

    /// Of the same clusters and keys.
    pub fn another_reviewer(&self) -> Reviewer {
        reviewer(&self.a, &self.b, self.keys.clone())
    }
}

fn reviewer(a: &Arc<ApiServer>, b: &Arc<ApiServer>, keys: Arc<KeyStore>) -> Reviewer {
    let both = [("a".into(), a.client()), ("b".into(), b.client())];
    Reviewer::new(keys, Arc::new(Forwarder::new(both)), Clock::from_fn(noon))
}
