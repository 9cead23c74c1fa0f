//! The production controller on the sandbox's API server, killed at every one of its calls: before
//! the call leaves, and after it was done but not answered. One thread, no socket, and a clock that
//! only moves when everybody waits.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use apiserver::api::ApiServer;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::BoxStream,
};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use serde_json::{Value, json};
use testkit::stage;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};
use trustplane::{
    api::spire_server::SpireServer,
    demo::api_server,
    federate::{
        act::{
            apply::{self, Mode},
            peers::Peers,
        },
        decide::{
            merge,
            render::{self, Component, Proxy, RenderContext},
        },
        metrics::Metrics,
        run::{Federator, Options},
    },
    k8s::{client, gate::Gate},
    runtime::clock::Clock,
};

/// Long enough for every back-off on the way, shorter than a resync.
const SETTLE: Duration = Duration::from_secs(12);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeSend,
    AfterCommit,
}

/// The world around one run.
struct World {
    api: ApiServer,
    start: Instant,
    calls: AtomicUsize,
    crash_at: Mutex<Option<(usize, Moment)>>,
    crashed: Notify,
    life: AtomicUsize,
    /// What was changed, as `POST .../configmaps`.
    commits: Mutex<Vec<String>>,
}

fn clock(start: Instant) -> Clock {
    let noon: DateTime<Utc> = DateTime::from_timestamp(1_772_366_400, 0).expect("a time of day");
    Clock::from_fn(move || noon + TimeDelta::from_std(start.elapsed()).expect("a short run"))
}

type Chunk = Result<http_body::Frame<Bytes>, BoxError>;
type Answer = Response<StreamBody<BoxStream<'static, Chunk>>>;

#[derive(Clone)]
struct Wire {
    world: Arc<World>,
    life: usize,
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl Wire {
    async fn send(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let world = &self.world;
        if world.life.load(Ordering::SeqCst) != self.life {
            return pending().await;
        }
        let number = world.calls.fetch_add(1, Ordering::SeqCst);
        let crash = *world.crash_at.lock().expect("a lock");
        let crash = crash.filter(|(at, _)| *at == number).map(|(_, moment)| moment);
        if crash == Some(Moment::BeforeSend) {
            world.crashed.notify_one();
            return pending().await;
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.clear();
        let body = body.collect_bytes().await?;
        let answer = world.commit(Request::from_parts(parts, Body::from(body)))?;
        if crash == Some(Moment::AfterCommit) {
            world.crashed.notify_one();
            return pending().await;
        }
        sleep(Duration::from_millis(2)).await;
        Ok(answer)
    }
}

impl World {
    fn new() -> Arc<Self> {
        let start = Instant::now();
        let world = Self {
            api: api_server::server(api_server::store(100_000, 7), clock(start)),
            start,
            calls: AtomicUsize::new(0),
            crash_at: Mutex::new(None),
            crashed: Notify::new(),
            life: AtomicUsize::new(0),
            commits: Mutex::default(),
        };
        for name in ["default", stage::NAMESPACE] {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            world.act(Method::POST, "/api/v1/namespaces", namespace);
        }
        Arc::new(world)
    }

    /// Lets the API server do it, and notes what changed.
    fn commit(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let before = self.version();
        let mut api = self.api.clone();
        let answer = api.call(request).now_or_never().expect("the sandbox answers at once")?;
        if method != Method::GET && self.version() != before {
            self.commits.lock().expect("a lock").push(format!("{method} {path}"));
        }
        let (head, body) = answer.into_parts();
        let frames = body.into_data_stream().map(|chunk| {
            chunk.map(http_body::Frame::data).map_err(|_| BoxError::from("the answer broke off"))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames.boxed())))
    }

    /// The store's version: it moves with every change.
    fn version(&self) -> Value {
        self.act(Method::GET, "/api/v1/namespaces", Value::Null)["metadata"]["resourceVersion"]
            .clone()
    }

    /// Somebody else's request.
    fn act(&self, method: Method, path: &str, body: Value) -> Value {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body =
            if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body).expect("a request");
        let mut api = self.api.clone();
        let answer = api.call(request).now_or_never().expect("the sandbox answers at once");
        let body = answer.expect("an answer").into_body().collect().now_or_never();
        let bytes = body.expect("all of it").expect("no error").to_bytes();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Keeps a controller running; a crash ends all of it at once.
    async fn keep_alive(self: Arc<Self>) {
        loop {
            let life = self.life.fetch_add(1, Ordering::SeqCst) + 1;
            let wire = Wire { world: self.clone(), life };
            let clock = clock(self.start);
            let client = client::over(wire, Gate::open());
            let peers = Peers::new(clock.clone(), Gate::open(), Arc::new(RootCertStore::empty()));
            let mut registry = Registry::default();
            let metrics = Metrics::register(&mut registry, peers.clone(), clock.clone());
            let federator = Federator::new(client, Gate::open(), clock, options(), peers, metrics);
            tokio::select! {
                () = federator.run(CancellationToken::new()) => unreachable!("nobody stops it"),
                () = self.crashed.notified() => {}
            }
            self.life.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
        }
    }
}

fn setting() -> RenderContext {
    RenderContext {
        namespace: stage::NAMESPACE.to_owned(),
        apps_domain: Some("apps.test".to_owned()),
        server_image: "spire-server:1".to_owned(),
        controller_manager_image: "spire-controller-manager:1".to_owned(),
        pod_user: None,
        proxy: Proxy::default(),
    }
}

fn options() -> Options {
    Options {
        setting: setting(),
        mode: Mode::Full,
        resync: Duration::from_secs(300),
        watch_timeout: Duration::from_secs(60),
        instance: "one".to_owned(),
        max_peers: 50,
        server_metrics: None,
    }
}

const SERVERS: &str = "/apis/operator.openshift.io/v1alpha1/spireservers";

fn path(part: Component, name: &str) -> String {
    let resource = apply::resource(part);
    let base = match &*resource.group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    match part {
        Component::ClusterRole | Component::ClusterRoleBinding => {
            format!("{base}/{}/{name}", resource.plural)
        }
        _ => format!("{base}/namespaces/{}/{}/{name}", stage::NAMESPACE, resource.plural),
    }
}

/// Everything is as the SpireServer wants it, and its status says so of this generation.
fn check(world: &World, what: &str) {
    let server = world.act(Method::GET, &format!("{SERVERS}/cluster"), Value::Null);
    let read: SpireServer = serde_json::from_value(server.clone()).expect("a SpireServer");
    for rendered in render::render(&read, &setting()) {
        let name = rendered.object["metadata"]["name"].as_str().unwrap_or_default();
        let live = world.act(Method::GET, &path(rendered.part, name), Value::Null);
        assert_eq!(live["metadata"]["name"], name, "{what}: {:?} is there", rendered.part);
        assert_eq!(merge::patch(&live, &rendered.object), None, "{what}: {:?}", rendered.part);
    }
    let generation = &server["metadata"]["generation"];
    let conditions = server["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert!(!conditions.is_empty(), "{what}: no conditions");
    for condition in conditions {
        assert_eq!(condition["observedGeneration"], *generation, "{what}: {condition}");
    }
}

/// One run: creation, a peer, drift, each followed by a rest. Answers how many calls were made.
async fn run(crash_at: Option<(usize, Moment)>) -> usize {
    let what = format!("{crash_at:?}");
    let world = World::new();
    *world.crash_at.lock().expect("a lock") = crash_at;
    let keeper = tokio::spawn(world.clone().keep_alive());
    world.act(Method::POST, SERVERS, stage::server(stage::spiffe()));
    sleep(SETTLE).await;
    check(&world, &what);
    once_each(&world, &what);

    let peer = json!({
        "trustDomain": "td-b.test", "bundleEndpointUrl": "https://b.test",
        "bundleEndpointProfile": "https_spiffe", "endpointSpiffeId": "spiffe://td-b.test/spire/server",
    });
    let change = json!({ "spec": { "federation": { "federatesWith": [peer] } } });
    world.act(Method::PATCH, &format!("{SERVERS}/cluster"), change);
    sleep(SETTLE).await;
    check(&world, &what);

    let drift =
        json!({ "metadata": { "labels": { "team": "theirs" } }, "spec": { "host": "other.test" } });
    world.act(Method::PATCH, &path(Component::Route, render::ROUTE), drift);
    world.act(Method::DELETE, &path(Component::Service, render::SERVER), Value::Null);
    sleep(SETTLE).await;
    check(&world, &what);
    let route = world.act(Method::GET, &path(Component::Route, render::ROUTE), Value::Null);
    assert_eq!(route["metadata"]["labels"]["team"], "theirs", "{what}");

    // Everything is in place: nothing is written any more, not even by a new process.
    let before = world.commits.lock().expect("a lock").len();
    world.crashed.notify_one();
    sleep(SETTLE).await;
    let commits = world.commits.lock().expect("a lock").clone();
    assert_eq!(commits[before..], [] as [String; 0], "{what}: written at rest");
    keeper.abort();
    world.calls.load(Ordering::SeqCst)
}

/// A crash, wherever it comes, makes no object be written twice.
fn once_each(world: &World, what: &str) {
    let commits = world.commits.lock().expect("a lock").clone();
    let objects: Vec<_> =
        commits.iter().filter(|it| !it.contains("/events") && !it.ends_with("/status")).collect();
    assert_eq!(objects.len(), 11, "{what}: one write an object: {objects:#?}");
    let statuses = commits.iter().filter(|it| it.ends_with("/status")).count();
    assert!((2..=3).contains(&statuses), "{what}: {statuses} writes of the status");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_call_leaves_nothing_undone_and_nothing_done_twice() {
    let calls = run(None).await;
    assert!(calls > 60, "{calls} calls are too few to be the whole story");
    for number in 0..calls {
        for moment in [Moment::BeforeSend, Moment::AfterCommit] {
            run(Some((number, moment))).await;
        }
    }
    println!("{} crashes, each recovered from", 2 * calls);
}
