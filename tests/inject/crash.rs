//! kill -9 while pairs are being injected, at the moments that matter and at random ones. After
//! the last restart every Route holds its Secret's pair, and no pair was written twice.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    Cluster, Controller, Launch, Namespace, Pair, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Callback, Fault, Proxy, SeenRequest},
};

use crate::scene::{PATIENCE, SILENCE};

/// Injections per moment; every `EVERY`th of them is a kill.
fn injections() -> usize {
    if std::env::var_os("TRUSTPLANE_LONG").is_some() { 2_000 } else { 500 }
}
const EVERY: usize = 25;

/// The process to kill, and how often it was.
#[derive(Clone, Default)]
struct Victim {
    pid: Arc<AtomicI32>,
    kills: Arc<AtomicUsize>,
}

impl Victim {
    fn killing(&self) -> Callback {
        let victim = self.clone();
        Box::new(move || victim.kill())
    }

    fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid.swap(0, Ordering::SeqCst)) {
            kill_process(pid, Signal::KILL).expect("it runs");
            self.kills.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn is_pair(asked: &SeenRequest) -> bool {
    asked.method == http::Method::PATCH && asked.path.contains("/routes/") && !is_status(asked)
}

fn is_status(asked: &SeenRequest) -> bool {
    asked.method == http::Method::PATCH && asked.path.ends_with("/status")
}

/// Fills a namespace with annotated Routes and their Secrets, then lets controllers run and die
/// until all is done.
async fn survive(
    moment: &str,
    script: impl Fn(&SeenRequest, &Victim) -> Fault + Send + Sync + 'static,
    meanwhile: impl AsyncFn(&Victim),
) {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("crash").await;
    let routes = fill(&ns).await;
    let victim = Victim::default();
    let seen_by_proxy = victim.clone();
    let proxy = Proxy::start(&cluster, move |asked| script(asked, &seen_by_proxy)).await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());

    let mut starts = 0;
    loop {
        let launch = Launch::within(&ns).kubeconfig(kubeconfig.clone());
        let mut controller = launch.env("RUST_LOG", "info").start();
        starts += 1;
        victim.pid.store(controller.pid(), Ordering::SeqCst);
        meanwhile(&victim).await;
        if died_or_done(&ns, &mut controller, routes.len()).await {
            victim.pid.store(0, Ordering::SeqCst);
            break;
        }
    }
    let kills = victim.kills.load(Ordering::SeqCst);
    println!("{moment}: {} injections, {kills} kills, {starts} starts", routes.len());
    assert!(kills >= 10, "only {kills} kills");
    ns.quiet(SILENCE).await;
    every_pair_is_right_and_was_written_once(&ns, &routes).await;
}

/// The pair of a Route, and the resourceVersion that it was created with.
struct Created {
    pair: Pair,
    version: String,
}

async fn fill(ns: &Namespace) -> HashMap<String, Created> {
    let create = async |number| {
        let name = format!("shop-{number}");
        let pair = pair::issued(&format!("{name}.example.com"));
        SecretFixture::tls(&name, &pair).create(ns).await;
        let route = RouteFixture::edge(&name).annotated(&name).create(ns).await;
        let version = route.metadata.resource_version.expect("a version");
        (name, Created { pair, version })
    };
    stream::iter(0..injections()).map(create).buffer_unordered(8).collect().await
}

/// True when all is done, false when the controller was killed before.
async fn died_or_done(ns: &Namespace, controller: &mut Controller, routes: usize) -> bool {
    eventually(10 * PATIENCE, "all done, or killed", async || {
        if controller.ended(Duration::from_millis(50)).await.is_some() {
            return Ok(false);
        }
        let managed = managed(ns).await;
        if managed == routes { Ok(true) } else { Err(managed) }
    })
    .await
}

async fn managed(ns: &Namespace) -> usize {
    let routes = ns.routes().list(&Default::default()).await.expect("a list").items;
    let is_managed = |route: &&kube::api::DynamicObject| {
        let conditions = route.data["status"]["certificate"].as_array();
        conditions
            .is_some_and(|all| all.iter().any(|c| c["type"] == "Managed" && c["status"] == "True"))
    };
    routes.iter().filter(is_managed).count()
}

/// The log can't tell whether a write was committed whose sender died: the server notes its own
/// failure to answer. But every attempt carried the version that the Route was created with, so
/// the server can have accepted only one.
async fn every_pair_is_right_and_was_written_once(
    ns: &Namespace,
    routes: &HashMap<String, Created>,
) {
    let mut attempts = 0;
    for write in ns.writes().iter().filter(|write| write.kind_of_object() == "routes") {
        let body = write.request_object.as_ref().expect("bodies are logged");
        let version = body["metadata"]["resourceVersion"].as_str().expect("a precondition");
        assert_eq!(version, routes[&write.name].version, "{} was written again", write.name);
        attempts += 1;
    }
    for (name, route) in routes {
        assert!(ns.route_holds(name, &route.pair).await, "{name} holds another pair");
    }
    println!("  {attempts} attempts at {} Routes, one of each committed", routes.len());
}

fn every<'a>(counter: &'a Arc<AtomicUsize>) -> impl Fn() -> bool + 'a {
    || counter.fetch_add(1, Ordering::SeqCst) % EVERY == EVERY - 1
}

#[tokio::test]
async fn killed_before_the_send() {
    let count = Arc::new(AtomicUsize::new(0));
    let script = move |asked: &SeenRequest, victim: &Victim| {
        if is_pair(asked) && every(&count)() {
            victim.kill();
            return Fault::DropRequest;
        }
        Fault::Forward
    };
    survive("killed before the send", script, async |_| {}).await;
}

#[tokio::test]
async fn killed_after_the_commit() {
    let count = Arc::new(AtomicUsize::new(0));
    let script = move |asked: &SeenRequest, victim: &Victim| {
        if is_pair(asked) && every(&count)() {
            return Fault::ForwardThenDropResponse(victim.killing());
        }
        Fault::Forward
    };
    survive("killed after the commit", script, async |_| {}).await;
}

#[tokio::test]
async fn killed_between_pair_and_status() {
    let count = Arc::new(AtomicUsize::new(0));
    let script = move |asked: &SeenRequest, victim: &Victim| {
        if is_status(asked) && every(&count)() {
            victim.kill();
            return Fault::DropRequest;
        }
        Fault::Forward
    };
    survive("killed between pair and status", script, async |_| {}).await;
}

#[tokio::test]
async fn killed_at_random_moments() {
    let seed = std::env::var("TRUSTPLANE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("TRUSTPLANE_SEED={seed}");
    let random = std::sync::Mutex::new(fastrand::Rng::with_seed(seed));
    let meanwhile = async |victim: &Victim| {
        if victim.kills.load(Ordering::SeqCst) < 20 {
            let wait = random.lock().expect("one at a time").u64(50..700);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            victim.kill();
        }
    };
    survive("killed at random moments", |_: &SeenRequest, _: &Victim| Fault::Forward, meanwhile)
        .await;
}
