//! Stand-ins for remote clusters that grant tokens, and for our own cluster.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::renew::{Options, RenewalCounters, Renewer};
use crate::{
    demo::api_server,
    k8s::{
        client::{self, Bearer},
        gate::Gate,
    },
    names::{NAMESPACE, REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    review::{
        credentials::Credentials,
        decide::{
            config::Renewal,
            testing::{Issuer, noon},
        },
        keys::KeyStore,
        testing::config,
    },
    runtime::{clock::Clock, lock::lock},
};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
/// Of a token that is asked for. It is renewed 70 minutes later.
pub const LIFE: Duration = Duration::from_secs(100 * 60);
const ACCOUNT: &str = "trustplane-review";

/// Time goes on from noon as tokio's does.
fn clock() -> Clock {
    let start = Instant::now();
    Clock::from_fn(move || noon() + TimeDelta::from_std(start.elapsed()).unwrap())
}

/// A request that reached a remote cluster.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    pub bearer: String,
    pub body: Value,
}

impl Call {
    pub fn asks(&self) -> bool {
        self.path.ends_with("/token")
    }
}

/// How a remote cluster answers.
#[derive(Default)]
pub struct Manners {
    /// The longest life that it grants.
    pub cap: Option<TimeDelta>,
    /// Instead of a token, and of a review.
    pub token_code: Option<u16>,
    pub review_code: Option<u16>,
    /// The account of the tokens that it grants, if it is not the one that was asked for.
    pub grants: Option<&'static str>,
    /// It says of every token that it is not good.
    pub refuses_all: bool,
    pub delay: Duration,
}

/// A cluster that knows the tokens it granted.
pub struct Remote {
    pub issuer: Issuer,
    clock: Clock,
    pub manners: Mutex<Manners>,
    pub calls: Mutex<Vec<Call>>,
    /// The ends of its tokens.
    granted: Mutex<BTreeMap<String, DateTime<Utc>>>,
    pub keys: Mutex<Vec<Value>>,
}

impl Remote {
    fn new(name: &str, clock: Clock) -> Arc<Self> {
        let issuer = Issuer::p256(name);
        let keys = Mutex::new(vec![issuer.jwk()]);
        let (manners, calls, granted) = Default::default();
        Arc::new(Self { issuer, clock, manners, calls, granted, keys })
    }

    pub fn grant(&self, account: &str, life: TimeDelta) -> String {
        let now = self.clock.now();
        let mut granted = lock(&self.granted);
        let claims = json!({
            "iss": "https://kubernetes.default.svc",
            "sub": format!("system:serviceaccount:{account}:{account}"),
            "aud": ["https://kubernetes.default.svc"],
            "iat": now.timestamp(), "exp": (now + life).timestamp(),
            "jti": format!("t-{}", granted.len()),
            "kubernetes.io": {
                "namespace": account, "serviceaccount": { "name": account, "uid": "u-1" },
            },
        });
        let token = self.issuer.token(&claims);
        granted.insert(token.clone(), now + life);
        token
    }

    pub fn calls(&self) -> Vec<Call> {
        lock(&self.calls).iter().filter(|call| !call.path.ends_with("/jwks")).cloned().collect()
    }

    pub fn asked(&self) -> usize {
        self.calls().iter().filter(|call| call.asks()).count()
    }

    fn client(self: &Arc<Self>, bearer: Arc<dyn Bearer>) -> Client {
        let server = self.clone();
        let transport = service_fn(move |request| {
            let header = bearer.header();
            let bearer = header.map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
            server.clone().serve(bearer.trim_start_matches("Bearer ").to_owned(), request)
        });
        client::over(transport, Gate::open())
    }

    async fn serve(
        self: Arc<Self>,
        bearer: String,
        request: Request<Body>,
    ) -> Result<Response<Full<Bytes>>, BoxError> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let call = Call { path, bearer, body };
        lock(&self.calls).push(call.clone());
        let delay = lock(&self.manners).delay;
        sleep(delay).await;
        let (code, answer) = self.answer(&call);
        Ok(Response::builder().status(code).body(Full::new(answer.to_string().into()))?)
    }

    fn answer(&self, call: &Call) -> (u16, Value) {
        let failure =
            |code: u16| (code, json!({ "kind": "Status", "code": code, "message": "no" }));
        let is_good =
            |token: &str| lock(&self.granted).get(token).is_some_and(|end| *end > self.clock.now());
        if call.path.ends_with("/jwks") {
            return (200, json!({ "keys": *lock(&self.keys) }));
        }
        let manners = lock(&self.manners);
        if manners.refuses_all || !is_good(&call.bearer) {
            return failure(401);
        }
        if call.asks() {
            if let Some(code) = manners.token_code {
                return failure(code);
            }
            let seconds = call.body["spec"]["expirationSeconds"].as_i64().unwrap();
            let life = TimeDelta::seconds(seconds).min(manners.cap.unwrap_or(TimeDelta::MAX));
            let end = (self.clock.now() + life).to_rfc3339_opts(SecondsFormat::Secs, true);
            let token = self.grant(manners.grants.unwrap_or(ACCOUNT), life);
            return (201, json!({ "status": { "token": token, "expirationTimestamp": end } }));
        }
        if let Some(code) = manners.review_code {
            return failure(code);
        }
        let token = call.body["spec"]["token"].as_str().unwrap();
        let user = json!({ "username": format!("system:serviceaccount:{ACCOUNT}:{ACCOUNT}") });
        (201, json!({ "status": { "authenticated": is_good(token), "user": user } }))
    }
}

/// Our own cluster, and the remote ones.
pub struct World {
    pub home: apiserver::api::ApiServer,
    pub clock: Clock,
    pub remotes: BTreeMap<&'static str, Arc<Remote>>,
    /// Requests that change something, as they arrive: method and path.
    pub writes: Mutex<Vec<String>>,
    /// Paths whose writes are refused with 403.
    pub refused: Mutex<Option<&'static str>>,
}

/// A process of the product.
pub struct Replica {
    pub credentials: Arc<Credentials>,
    pub keys: Arc<KeyStore>,
    pub renewer: Arc<Renewer>,
    pub counters: RenewalCounters,
    lease: watch::Sender<Option<Instant>>,
    stop: CancellationToken,
}

impl Replica {
    pub fn leads(&self, leads: bool) {
        self.lease.send_replace(leads.then(|| Instant::now() + 100_000 * HOUR));
    }

    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// The token that requests to the cluster have now.
    pub fn sends(&self, cluster: &str) -> String {
        let header = self.credentials.bearer(&cluster.into()).header();
        header.map(|it| it.to_str().unwrap()[7..].to_owned()).unwrap_or_default()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    pub fn new(clusters: &[&'static str]) -> Arc<Self> {
        let clock = clock();
        let remote = |name: &&'static str| (*name, Remote::new(name, clock.clone()));
        let home = api_server::server(api_server::store(10_000, 1), clock.clone());
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        assert_eq!(home.request(Method::POST, "/api/v1/namespaces", &namespace).0, 201);
        Arc::new(Self {
            home,
            remotes: clusters.iter().map(remote).collect(),
            clock,
            writes: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    pub fn remote(&self, cluster: &str) -> &Arc<Remote> {
        &self.remotes[cluster]
    }

    fn client(self: &Arc<Self>, gate: Gate) -> Client {
        let world = self.clone();
        let transport = service_fn(move |request: Request<Body>| {
            let world = world.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                if method != Method::GET && !path.contains("/events") {
                    lock(&world.writes).push(format!("{method} {path}"));
                }
                let refused = *lock(&world.refused);
                if method != Method::GET && refused.is_some_and(|it| path.contains(it)) {
                    let answer = json!({ "kind": "Status", "code": 403, "message": "no" });
                    let body = Full::new(Bytes::from(answer.to_string()));
                    let answer = Response::builder().status(403).body(body)?;
                    return Ok::<_, BoxError>(answer.map(http_body_util::Either::Left));
                }
                let answer = world.home.clone().oneshot(request).await?;
                Ok(answer.map(http_body_util::Either::Right))
            }
        });
        client::over(transport, gate)
    }

    /// A replica that runs and does not lead yet. Its files hold these tokens.
    pub fn replica(self: &Arc<Self>, files: &[(&str, &str)]) -> Replica {
        let names = self.remotes.keys().map(|name| (Arc::from(*name), PathBuf::from("/token")));
        let credentials = Credentials::new(names, self.clock.clone());
        for (cluster, token) in files {
            credentials.take_file(cluster, Ok((*token).to_owned()));
        }
        let named = |name: &&'static str| Arc::<str>::from(*name);
        let members = self.remotes.iter().map(|(name, remote)| {
            let bearer = credentials.bearer(&named(name));
            (named(name), config(), remote.client(bearer))
        });
        let keys = KeyStore::new(members, Duration::from_secs(300));
        for name in self.remotes.keys() {
            tokio::spawn(keys.clone().keep(named(name)));
        }
        let clients = self.remotes.iter().map(|(name, remote)| {
            (named(name), remote.client(credentials.renewal_bearer(&named(name))))
        });
        let (lease, deadline) = watch::channel(None);
        let gate = Gate::until(deadline);
        let counters = RenewalCounters::default();
        let renewer = Renewer::new(
            self.client(gate.clone()),
            gate,
            credentials.clone(),
            keys.clone(),
            clients.collect(),
            options(),
            counters.clone(),
            self.clock.clone(),
        );
        let stop = CancellationToken::new();
        tokio::spawn(renewer.clone().run(stop.clone()));
        Replica { credentials, keys, renewer, counters, lease, stop }
    }

    pub fn path(plural: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/{plural}/{name}")
    }

    pub fn secret(&self) -> Option<Value> {
        let path = Self::path("secrets", REVIEW_SECRET);
        let (code, object) = self.home.request(Method::GET, &path, &Value::Null);
        (code == 200).then_some(object)
    }

    /// The token that the Secret holds.
    pub fn saved(&self, cluster: &str) -> Option<String> {
        let text = self.secret()?["data"][format!("cluster.{cluster}")].as_str()?.to_owned();
        let entry: Value = serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap();
        Some(entry["token"].as_str()?.to_owned())
    }

    /// A cluster's entry in the ConfigMap.
    pub fn status(&self, cluster: &str) -> Value {
        let path = Self::path("configmaps", REVIEW_STATUS_CONFIG_MAP);
        let (_, object) = self.home.request(Method::GET, &path, &Value::Null);
        let text = object["data"][cluster].as_str().unwrap_or("null");
        serde_json::from_str(text).unwrap()
    }

    /// The first problem that the ConfigMap tells of a cluster: its reason, and its text.
    pub fn problem(&self, cluster: &str) -> Option<(String, String)> {
        let problem = self.status(cluster).pointer("/problems/0")?.clone();
        Some((problem["reason"].as_str()?.to_owned(), problem["text"].as_str()?.to_owned()))
    }

    pub fn events(&self) -> Vec<String> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
        let (_, list) = self.home.request(Method::GET, &path, &Value::Null);
        let notes = list["items"].as_array().unwrap().iter();
        notes.map(|it| it["note"].as_str().unwrap().to_owned()).collect()
    }

    pub fn writes(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.writes))
    }
}

fn options() -> Options {
    Options {
        namespace: NAMESPACE.to_owned(),
        renewal: Renewal { interval: 10 * MINUTE, token_duration: LIFE, renew_before: 30 * MINUTE },
        instance: "a".to_owned(),
        regarding: ObjectReference {
            kind: Some("ConfigMap".to_owned()),
            name: Some("trustplane-review-config".to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectReference::default()
        },
    }
}
