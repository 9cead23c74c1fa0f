//! Faults of the API server and the network that have stopped other controllers. Each test fails
//! without its remedy in src/k8s/watch.rs, src/k8s/client.rs or src/inject/cache/index.rs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::DeleteParams;
use serde_json::json;
use testkit::{
    Cluster, Controller, Launch, Namespace, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Fault, Proxy, SeenRequest, WatchFault},
};

use crate::scene::{PATIENCE, SILENCE, Scene};

/// A controller that reaches its API server through a proxy.
struct Faulty {
    scene: Scene,
    proxy: Proxy,
}

impl Faulty {
    async fn new(
        prefix: &str,
        flags: &[&str],
        script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let ns = Cluster::get().await.namespace(prefix).await;
        let (controller, proxy) = start(&ns, flags, script).await;
        Self { scene: Scene { ns, controller }, proxy }
    }
}

async fn start(
    ns: &Namespace,
    flags: &[&str],
    script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
) -> (Controller, Proxy) {
    let cluster = ns.cluster();
    let proxy = Proxy::start(cluster, script).await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());
    let launch = Launch::within(ns).flags(&["--secret-missing-grace", "1s"]).flags(flags);
    (launch.kubeconfig(kubeconfig).start(), proxy)
}

fn forward(_: &SeenRequest) -> Fault {
    Fault::Forward
}

#[tokio::test]
async fn a_410_as_the_answer_to_a_watch_makes_it_list_again() {
    let mut faulty = Faulty::new("gone", &["--watch-timeout", "2s"], forward).await;
    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;
    // To the end: a reconcile under way would read the Secret again.
    faulty.scene.settles("shop", "Managed", "SecretInjected").await;

    // As an aggregated server does: the version is lost until somebody lists.
    let lost = Arc::new(AtomicBool::new(true));
    let still_lost = lost.clone();
    faulty.proxy.follow(move |asked| {
        if asked.is_list_of("secrets") {
            still_lost.store(false, Ordering::SeqCst);
        }
        if asked.is_watch_of("secrets") && still_lost.load(Ordering::SeqCst) {
            return Fault::answer(410, "too old resource version");
        }
        Fault::Forward
    });
    faulty.proxy.break_connections();
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&faulty.scene.ns).await;

    faulty.scene.holds("shop", &renewed).await;
    assert!(!lost.load(Ordering::SeqCst), "it listed");
}

#[tokio::test]
async fn a_forbidden_watch_does_not_slow_the_other_and_is_said_plainly() {
    let mut faulty = Faulty::new("forbidden", &[], |asked| {
        if asked.path.ends_with("/secrets") {
            return Fault::answer(403, "secrets is forbidden");
        }
        Fault::Forward
    })
    .await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    eventually(PATIENCE, "the watch of Secrets was refused a few times", async || {
        let refused = faulty.proxy.count(|asked| asked.path.ends_with("/secrets"));
        if refused >= 5 { Ok(()) } else { Err(refused) }
    })
    .await;

    // By now the next try is 4 to 8 seconds away: a joint back-off would hold a Route's event.
    let start = std::time::Instant::now();
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;
    faulty.scene.holds("shop", &issued).await;
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(3),
        "the Route waited {took:?} for another watch's back-off"
    );

    let (code, body) = faulty.scene.controller.page("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("Secrets in namespace") && body.contains("forbidden"), "{body}");
    let log = faulty.scene.controller.log();
    assert!(log.contains("deploy/overlays/single-namespace grant"), "the log says what to do");
}

#[tokio::test]
async fn deletes_lost_in_a_relist_are_noticed() {
    let mut faulty = Faulty::new("relist", &["--watch-timeout", "2s"], forward).await;
    faulty.scene.controller.ready().await;
    let ns = &faulty.scene.ns;
    for name in ["shop", "blog"] {
        SecretFixture::tls(name, &pair::issued("shop.example.com")).create(ns).await;
        RouteFixture::edge(name).annotated(name).create(ns).await;
        faulty.scene.settles(name, "Managed", "SecretInjected").await;
    }

    // Nothing is heard while it happens; then every version is lost.
    let listed = Arc::new(AtomicUsize::new(0));
    let deaf = Arc::new(AtomicBool::new(true));
    let (lists, silence) = (listed.clone(), deaf.clone());
    faulty.proxy.follow(move |asked| {
        let collection = asked.path.ends_with("/secrets") || asked.path.ends_with("/routes");
        if collection && silence.load(Ordering::SeqCst) {
            return Fault::answer(503, "not now");
        }
        if collection && !asked.is_watch() {
            lists.fetch_add(1, Ordering::SeqCst);
        }
        if asked.is_watch() && lists.load(Ordering::SeqCst) < 2 {
            return Fault::answer(410, "too old resource version");
        }
        Fault::Forward
    });
    faulty.proxy.break_connections();
    tokio::time::sleep(Duration::from_millis(200)).await;
    ns.delete_secret("shop").await;
    ns.routes().delete("blog", &DeleteParams::default()).await.expect("it goes");
    deaf.store(false, Ordering::SeqCst);

    faulty.scene.settles("shop", "Default", "SecretNotFound").await;
    let metrics = eventually(PATIENCE, "the lost Route left the metrics", async || {
        let metrics = faulty.scene.controller.metrics().await;
        if metrics.contains("route=\"blog\"") { Err(metrics) } else { Ok(metrics) }
    })
    .await;
    assert!(metrics.contains("trustplane_watch_restarts_total{kind=\"Route\"}"), "{metrics}");
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_skipped_and_the_watch_goes_on() {
    let undecodable = json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": {"name": "broken", "namespace": "any", "uid": "1", "resourceVersion": "1"},
        "spec": {"tls": "-----BEGIN PRIVATE KEY----- not an object"},
    });
    let line = format!("{{\"type\":\"ADDED\",\"object\":{undecodable}}}\n");
    let mut faulty = Faulty::new("undecodable", &[], move |asked| {
        if asked.is_watch_of("routes") {
            return Fault::Watch(WatchFault::Inject { after: 0, line: line.clone() });
        }
        Fault::Forward
    })
    .await;
    faulty.scene.controller.ready().await;

    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;

    faulty.scene.holds("shop", &issued).await;
    let metrics = faulty.scene.controller.metrics().await;
    assert!(
        metrics.contains("trustplane_undecodable_objects_total{kind=\"Route\"} 1"),
        "{metrics}"
    );
    assert!(
        !faulty.scene.controller.log().contains("not an object"),
        "what it could not decode is not quoted"
    );
}

#[tokio::test]
async fn a_half_open_watch_is_given_up_and_what_it_missed_is_caught_up() {
    let stall = Arc::new(AtomicBool::new(false));
    let stalled = stall.clone();
    let mut faulty = Faulty::new("halfopen", &["--watch-timeout", "3s"], move |asked| {
        if asked.is_watch_of("secrets") && stalled.swap(false, Ordering::SeqCst) {
            return Fault::Watch(WatchFault::StallAfter(0));
        }
        Fault::Forward
    })
    .await;
    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;
    faulty.scene.settles("shop", "Managed", "SecretInjected").await;

    stall.store(true, Ordering::SeqCst);
    eventually(PATIENCE, "a watch that stalls", async || {
        if stall.load(Ordering::SeqCst) { Err("not yet") } else { Ok(()) }
    })
    .await;
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&faulty.scene.ns).await;

    faulty.scene.holds("shop", &renewed).await;
}

#[tokio::test]
async fn a_server_that_never_answers_the_opening_of_a_watch_or_a_list_is_given_up() {
    let gate = testkit::proxy::Gate::closed();
    let hold = Arc::new(AtomicUsize::new(0));
    let (held, closed) = (hold.clone(), gate.clone());
    let mut faulty = Faulty::new("mute", &["--watch-timeout", "2s"], move |asked| {
        // The first list of Secrets and the first watch of Routes hang.
        let first = asked.is_list_of("secrets") && held.fetch_or(1, Ordering::SeqCst) & 1 == 0
            || asked.is_watch_of("routes") && held.fetch_or(2, Ordering::SeqCst) & 2 == 0;
        if first { Fault::HoldBeforeForward(closed.clone()) } else { Fault::Forward }
    })
    .await;

    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;
    faulty.scene.holds("shop", &issued).await;
    assert_eq!(hold.load(Ordering::SeqCst), 3, "both hung once");
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_repeated() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = dropped.clone();
    let mut faulty = Faulty::new("lostanswer", &[], move |asked| {
        if asked.is_write_to("routes/shop") && count.fetch_add(1, Ordering::SeqCst) == 0 {
            return Fault::ForwardThenDropResponse(Box::new(|| {}));
        }
        Fault::Forward
    })
    .await;
    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;

    let writes = faulty.scene.settles("shop", "Managed", "SecretInjected").await;
    assert_eq!(writes.committed().to("routes/shop"), ["patch routes/shop"]);
}

#[tokio::test]
async fn conflicts_throttling_and_errors_are_lived_through_without_a_wrong_write() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let mut faulty = Faulty::new("errors", &[], move |asked| {
        if !asked.is_write_to("routes/shop") {
            return Fault::Forward;
        }
        match count.fetch_add(1, Ordering::SeqCst) {
            0..5 => Fault::answer(409, "the object has been modified"),
            5 => Fault::answer(429, "slow down"),
            6 => Fault::answer(500, "oops"),
            7 => Fault::DropRequest,
            _ => Fault::Forward,
        }
    })
    .await;
    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;

    let writes = faulty.scene.settles("shop", "Managed", "SecretInjected").await;
    assert_eq!(writes.to("routes/shop"), ["patch routes/shop"]);
    assert!(faulty.scene.ns.route_holds("shop", &issued).await);
    // Each was told to us: the client repeats nothing by itself.
    let metrics = faulty.scene.controller.metrics().await;
    for (outcome, count) in
        [("conflict", 5), ("too-many-requests", 1), ("server-error", 1), ("unreachable", 1)]
    {
        let line =
            format!("trustplane_writes_total{{kind=\"pair\",outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|told| told == line), "{line}\n{metrics}");
    }
    let gave_up = "trustplane_reconcile_failures_total{category=\"conflict\"} 1";
    assert!(metrics.lines().any(|told| told == gave_up), "the fourth in a row waits\n{metrics}");
}

#[tokio::test]
async fn a_user_who_writes_between_our_decision_and_our_write_is_not_overwritten() {
    let ns = Cluster::get().await.namespace("race").await;
    let gate = testkit::proxy::Gate::closed();
    let (held, closed) = (Arc::new(AtomicBool::new(false)), gate.clone());
    let (mut controller, _proxy) = start(&ns, &[], move |asked| {
        if asked.is_write_to("routes/shop") && !held.swap(true, Ordering::SeqCst) {
            return Fault::HoldBeforeForward(closed.clone());
        }
        Fault::Forward
    })
    .await;
    controller.ready().await;
    let scene = Scene { ns, controller };
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    gate.reached_by(1).await;

    // The injection is on its way; the user changes their mind.
    scene.annotate("shop", None).await;
    gate.open();

    let writes = scene.settles("shop", "Default", "NoCertificate").await;
    assert_eq!(writes.to("routes/shop"), ["patch routes/shop (409)"]);
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
    scene.ns.quiet(SILENCE).await;
}

#[tokio::test]
async fn a_resync_catches_up_with_a_secret_whose_watch_can_no_longer_be_opened() {
    let flags = ["--resync", "2s", "--watch-timeout", "3s"];
    let mut faulty = Faulty::new("deaf", &flags, forward).await;
    faulty.scene.controller.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&faulty.scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&faulty.scene.ns).await;
    faulty.scene.holds("shop", &issued).await;

    // From now on lists and watches of Secrets are refused; a Secret can still be read by name.
    faulty.proxy.follow(|asked| {
        if asked.path.ends_with("/secrets") {
            return Fault::answer(403, "secrets is forbidden");
        }
        Fault::Forward
    });
    faulty.proxy.break_connections();
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&faulty.scene.ns).await;

    faulty.scene.holds("shop", &renewed).await;
    eventually(PATIENCE, "readiness tells", async || {
        match faulty.scene.controller.page("/readyz").await {
            (503, body) if body.contains("Secrets in namespace") => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

#[tokio::test]
async fn what_happened_is_told_once_events_are_taken_again() {
    let refuse_events = |asked: &SeenRequest| {
        if asked.is_write_to("events") { Fault::answer(403, "not now") } else { Fault::Forward }
    };
    let mut faulty = Faulty::new("untold", &[], refuse_events).await;
    faulty.scene.controller.ready().await;
    let ns = &faulty.scene.ns;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(ns).await;
    faulty.scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(ns.events_of("shop").await.is_empty());

    faulty.proxy.follow(forward);
    // It tries again once a minute, and with whatever else is to be done: here a condition that a
    // router dropped.
    ns.patch_route_status("shop", json!({ "status": { "certificate": null } })).await;

    eventually(PATIENCE, "the Event", async || match &ns.events_of("shop").await[..] {
        [event] if event.reason == "CertificateInjected" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
