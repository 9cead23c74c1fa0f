//! An API server, replicas of the authority, and a partner.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use apiserver::{api::ApiServer, kinds, store::Call};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use http::{Method, Request, Response};
use http_body_util::{Either, Full};
use kube::client::Body;
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use testkit::suite::{self, KeyOf};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tower::{Service as _, service_fn};
use trustplane::{
    authority::{
        act::{
            fetch::{ErrorDetail, NetworkFetcher},
            signer::LocalSigner,
        },
        decide::{ca, sync},
        metrics::{Metrics, Source},
        run::{Authority, Options, PATH},
    },
    bundle::{
        fetch::{self, Fetched, Trust},
        serve::{Endpoint, RequestCounter, ServerSvid},
    },
    demo::api_server,
    k8s::gate::Gate,
    runtime::{audit_log::AuditLog, clock::Clock, tls_listener::CertReloader},
    spiffe::{
        bundle::Bundle,
        id::{SpiffeId, TrustDomain},
        svid,
    },
};

use crate::peer;

pub const OWN: &str = "own.test";
pub const FEDERATIONS: &str = "/apis/trustplane.dev/v1/spiffefederations";
pub const SECRET: &str = "/api/v1/namespaces/trustplane/secrets/trustplane-authority";
pub const CONFIG_MAP: &str = "/api/v1/namespaces/trustplane/configmaps/trustplane-bundle";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub const REQUESTS: &str = "/api/v1/namespaces/trustplane/configmaps/trustplane-authority-requests";
pub const AUDITED: &str = "/api/v1/namespaces/trustplane/configmaps/trustplane-spiffe-federations";
/// Longer than anything takes, however busy this machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn policy() -> ca::Policy {
    ca::Policy {
        refresh_hint: TimeDelta::seconds(1),
        ca_ttl: TimeDelta::days(30),
        svid_ttl: TimeDelta::hours(1),
    }
}

pub struct Stage {
    pub server: ApiServer,
    audit: Lines,
    /// For a fetch of the replicas.
    pub patience: Duration,
    /// Writes below these paths are refused to replicas.
    refused: Arc<Mutex<Vec<&'static str>>>,
    /// Calls of replicas below this path are answered so much later.
    delayed: Arc<Mutex<Option<(&'static str, Duration)>>>,
    /// Replicas that start now are told these federations, list by list.
    lists: Mutex<Vec<Value>>,
}

/// What was written to the audit log.
#[derive(Clone, Default)]
struct Lines {
    text: Arc<Mutex<Vec<u8>>>,
    is_broken: Arc<AtomicBool>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken.load(Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.text.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Replica {
    pub authority: Arc<Authority>,
    registry: Registry,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Replica {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Ends it as a crash would.
    pub fn kill(self) {
        self.task.abort();
    }
}

impl Stage {
    pub fn new() -> Self {
        let server = api_server::server(api_server::store(5000, 7), Clock::system());
        server.with(|store| {
            let namespace = json!({ "metadata": { "name": "trustplane" } });
            store.create(kinds::namespace(), "", namespace, &mut Call::at(Utc::now())).unwrap();
        });
        let patience = fetch::PATIENCE;
        let (audit, refused, delayed, lists) = Default::default();
        Self { server, audit, patience, refused, delayed, lists }
    }

    /// Replicas that start from now on hear of these federations alone: each list is the next of these, and
    /// after the last one their watch brings nothing.
    pub fn pretend(&self, lists: &[Value]) {
        let list = |items: &Value| {
            let metadata = json!({ "resourceVersion": self.resource_version(SECRET) });
            json!({ "kind": "SPIFFEFederationList", "metadata": metadata, "items": items })
        };
        *self.lists.lock().unwrap() = lists.iter().rev().map(list).collect();
    }

    /// Refuses all writes of replicas below this path with a 403.
    pub fn refuse(&self, path: &'static str) {
        self.refused.lock().unwrap().push(path);
    }

    pub fn allow(&self) {
        self.refused.lock().unwrap().clear();
    }

    /// Answers all calls of replicas below this path late.
    pub fn delay(&self, path: &'static str, by: Duration) {
        *self.delayed.lock().unwrap() = Some((path, by));
    }

    pub fn break_audit_log(&self, is_broken: bool) {
        self.audit.is_broken.store(is_broken, Relaxed);
    }

    fn client(&self) -> kube::Client {
        let (server, refused) = (self.server.clone(), self.refused.clone());
        let delayed = self.delayed.clone();
        let pretended = self.lists.lock().unwrap().clone();
        let (pretends, lists) = (!pretended.is_empty(), Arc::new(Mutex::new(pretended)));
        let service = service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let pretended = (pretends && path == FEDERATIONS).then(|| {
                let is_watch = request.uri().query().is_some_and(|it| it.contains("watch="));
                let mut lists = lists.lock().unwrap();
                match is_watch {
                    true => (!lists.is_empty()).then(|| refusal(410)),
                    false => lists.pop().map(|list| answer(200, &list)),
                }
            });
            let is_below = refused.lock().unwrap().iter().any(|it| path.starts_with(it));
            let is_refused = is_below && request.method() != Method::GET;
            let delay = delayed.lock().unwrap().filter(|(below, _)| path.starts_with(*below));
            let real = server.clone().call(request);
            async move {
                if let Some((_, delay)) = delay {
                    tokio::time::sleep(delay).await;
                }
                match pretended {
                    Some(Some(answer)) => return Ok(answer.map(Either::Right)),
                    Some(None) => std::future::pending().await,
                    None => {}
                }
                if is_refused {
                    return Ok(refusal(403).map(Either::Right));
                }
                Ok::<_, tower::BoxError>(real.await?.map(Either::Left))
            }
        });
        kube::Client::new(service, "default")
    }

    pub fn start(&self) -> Replica {
        self.start_with(|_| {})
    }

    pub fn start_with(&self, change: impl FnOnce(&mut Options)) -> Replica {
        let (authority, registry) = self.authority(change);
        let stop = CancellationToken::new();
        let task = tokio::spawn(authority.clone().run(stop.clone()));
        Replica { authority, registry, stop, task }
    }

    /// Of a replica that does not run yet.
    pub fn authority(&self, change: impl FnOnce(&mut Options)) -> (Arc<Authority>, Registry) {
        let mut options = Options {
            trust_domain: TrustDomain::parse(OWN).unwrap(),
            namespace: "trustplane".to_owned(),
            ca: policy(),
            sync: sync::Policy { shortest_interval: TimeDelta::milliseconds(200) },
            new_authority: false,
            spiffe_listen: None,
            web: None,
            join: None,
            poll: Duration::from_millis(100),
            watch_timeout: Duration::from_secs(60),
            instance: "test".to_owned(),
        };
        change(&mut options);
        let clock = Clock::system();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, Source::new(clock.clone()));
        let audit = AuditLog::to(Box::new(self.audit.clone()));
        let roots = Arc::new(RootCertStore::empty());
        let patience = self.patience;
        let fetcher = Box::new(NetworkFetcher { roots, detail: ErrorDetail::All, patience });
        let client = self.client();
        let authority =
            Authority::new(client, Gate::open(), clock, options, audit, fetcher, metrics);
        (authority, registry)
    }

    pub fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        self.server.request(method, path, &body).1
    }

    pub fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, Value::Null)
    }

    pub fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, Value::Null);
    }

    pub fn create_federation(&self, name: &str, source: Value) {
        let object = json!({
            "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation",
            "metadata": { "name": name }, "spec": { "bundleSource": source },
        });
        let created = self.ask(Method::POST, FEDERATIONS, object);
        assert_eq!(created["kind"], "SPIFFEFederation", "{created}");
    }

    pub fn federation(&self, name: &str) -> Value {
        self.get(&format!("{FEDERATIONS}/{name}"))
    }

    pub fn annotate(&self, path: &str, name: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { name: value } } });
        self.ask(Method::PATCH, path, patch);
    }

    /// Status and reason of a condition.
    pub fn condition(&self, name: &str, about: &str) -> (String, String) {
        let [status, reason, _] = self.condition_with_message(name, about);
        (status, reason)
    }

    /// Status, reason and message of a condition.
    pub fn condition_with_message(&self, name: &str, about: &str) -> [String; 3] {
        let federation = self.federation(name);
        let conditions = federation["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == about);
        ["status", "reason", "message"]
            .map(|field| found.and_then(|it| it[field].as_str()).unwrap_or_default().to_owned())
    }

    /// The bundle of a federation byte for byte.
    pub fn current_bundle(&self, name: &str) -> String {
        let federation = self.federation(name);
        federation["status"]["currentBundle"].as_str().unwrap_or_default().to_owned()
    }

    /// Events about a federation with this reason.
    pub fn events(&self, name: &str, reason: &str) -> Vec<Value> {
        let listed = self.get(EVENTS);
        let mut events = listed["items"].as_array().cloned().unwrap_or_default();
        events.retain(|it| it["regarding"]["name"] == name && it["reason"] == reason);
        events
    }

    /// The bundle of a federation, if it is trusted.
    pub fn trusted(&self, name: &str) -> Option<Bundle> {
        let is_trusted = self.condition(name, "Trusted").0 == "True";
        let federation = self.federation(name);
        let document = federation["status"]["currentBundle"].as_str().filter(|_| is_trusted)?;
        Bundle::parse(document.as_bytes()).ok()
    }

    /// Our own state, as the Secret has it.
    pub fn state(&self) -> Option<ca::AuthorityState> {
        let secret = self.get(SECRET);
        let text = STANDARD.decode(secret["data"]["state.json"].as_str()?).unwrap();
        Some(serde_json::from_slice(&text).unwrap())
    }

    pub fn delete_secret(&self) {
        self.delete(SECRET);
    }

    /// The whole Secret, to put it back.
    pub fn secret(&self) -> Value {
        self.get(SECRET)
    }

    pub fn restore_secret(&self, mut secret: Value) {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            secret["metadata"].as_object_mut().unwrap().remove(field);
        }
        self.ask(Method::POST, "/api/v1/namespaces/trustplane/secrets", secret);
    }

    /// Writes another state into the Secret, and keeps its keys.
    pub fn replace_state(&self, state: &ca::AuthorityState) {
        let text = STANDARD.encode(serde_json::to_string(state).unwrap());
        let patch = json!({ "data": { "state.json": text } });
        let patched = self.ask(Method::PATCH, SECRET, patch);
        assert_eq!(patched["kind"], "Secret", "{patched}");
    }

    /// The bundle that we publish.
    pub fn published(&self) -> Option<Bundle> {
        let map = self.get(CONFIG_MAP);
        Bundle::parse(map["data"]["bundle.json"].as_str()?.as_bytes()).ok()
    }

    /// The same as text.
    pub fn document(&self) -> String {
        self.get(CONFIG_MAP)["data"]["bundle.json"].as_str().unwrap().to_owned()
    }

    /// The records of the audit log.
    pub fn records(&self) -> Vec<Value> {
        let text = String::from_utf8(self.audit.text.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Events and names of the records of the audit log.
    pub fn audited(&self) -> Vec<(String, String)> {
        let text =
            |record: &Value, field: &str| record[field].as_str().unwrap_or_default().to_owned();
        self.records().iter().map(|it| (text(it, "event"), text(it, "federation"))).collect()
    }

    pub fn resource_version(&self, path: &str) -> String {
        self.get(path)["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }
}

fn answer(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder().status(code).body(body).unwrap()
}

fn refusal(code: u16) -> Response<Full<Bytes>> {
    answer(code, &json!({ "kind": "Status", "status": "Failure", "code": code }))
}

/// So that tests/suite_audit.rs looks for our keys in everything that the run left.
impl Drop for Stage {
    fn drop(&mut self) {
        let secret = self.secret();
        let data = secret["data"].as_object().into_iter().flatten();
        for (_, key) in data.filter(|(name, _)| name.ends_with(".key")) {
            let key = key.as_str().and_then(|it| STANDARD.decode(it).ok());
            key.into_iter().for_each(|key| suite::register_der_key(KeyOf::Ca, &key));
        }
    }
}

/// Waits until it holds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Another trust domain, with an https_spiffe endpoint.
pub struct Partner {
    pub trust_domain: String,
    state: ca::AuthorityState,
    signer: LocalSigner,
    endpoint: Endpoint,
}

impl Partner {
    pub async fn start(trust_domain: &str) -> Self {
        let (state, signer) = peer::authority(trust_domain, 1, Utc::now());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let svid = peer::svid(&signer, trust_domain, "/server");
        let endpoint = Endpoint::start(listener, state.document().unwrap(), svid).unwrap();
        Self { trust_domain: trust_domain.to_owned(), state, signer, endpoint }
    }

    /// One with an https_web endpoint, at the path that ours has.
    pub async fn start_web(trust_domain: &str, pair: Arc<CertReloader>) -> Self {
        let (state, signer) = peer::authority(trust_domain, 1, Utc::now());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (document, requests) = (state.document().unwrap(), RequestCounter::default());
        let endpoint = Endpoint::start_web(listener, PATH, document, pair, requests).unwrap();
        Self { trust_domain: trust_domain.to_owned(), state, signer, endpoint }
    }

    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    pub fn document(&self) -> String {
        self.state.document().unwrap()
    }

    pub fn source(&self) -> Value {
        json!({ "httpsSPIFFE": {
            "bundleEndpointURL": format!("https://{}/", self.endpoint.address()),
            "endpointSPIFFEID": format!("spiffe://{}/server", self.trust_domain),
            "bundleBootstrap": self.document(),
        } })
    }

    /// A new CA beside the old one, which goes on signing for the endpoint.
    pub fn prepare(&mut self) {
        let (next, _) = peer::authority(&self.trust_domain, 1, Utc::now());
        self.state.cas.extend(next.cas);
        self.state.sequence += 1;
        self.endpoint.replace_document(&self.document());
    }

    /// Answers this document from now on.
    pub fn answer(&self, document: &str) {
        self.endpoint.replace_document(document);
    }

    /// An SVID of its first CA.
    pub fn svid(&self, path: &str) -> ServerSvid {
        peer::svid(&self.signer, &self.trust_domain, path)
    }

    /// Whether an SVID of its first CA is accepted with this bundle.
    pub fn is_accepted_by(&self, bundle: Option<Bundle>) -> bool {
        let svid = self.svid("/shop");
        let id = SpiffeId::parse(&format!("spiffe://{}/shop", self.trust_domain)).unwrap();
        bundle.is_some_and(|bundle| svid::verify(&svid.chain, &id, &bundle, Utc::now()).is_ok())
    }
}

/// Fetches from an https_spiffe endpoint.
pub async fn fetched(url: &str, id: &str, bundle: Bundle) -> Result<Fetched, fetch::FetchError> {
    let trust = Trust::Spiffe { id: SpiffeId::parse(id).unwrap(), bundle: Arc::new(bundle) };
    let endpoint = fetch::Endpoint { url: url.parse().unwrap(), trust };
    fetch::fetch(&endpoint, Utc::now()).await
}
