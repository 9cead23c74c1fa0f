//! Two replicas, one lease: who writes, when the other takes over, and that a late write is harmless.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;
use testkit::{
    Cluster, Controller, Launch, Namespace, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Fault, Gate, Proxy},
};

use crate::scene::{PATIENCE, SILENCE, Scene};

const LEASE: &str = "trustplane-inject";

fn replica(ns: &Namespace, name: &str) -> Launch {
    let flags = ["--leader-elect", "--leader-elect-namespace", ns.name(), "--instance", name];
    Launch::within(ns).flags(&flags)
}

async fn started(ns: &Namespace, name: &str) -> Controller {
    let mut controller = replica(ns, name).start();
    controller.ready().await;
    controller
}

async fn holder(ns: &Namespace) -> String {
    let leases: Api<Lease> = Api::namespaced(ns.client().clone(), ns.name());
    let lease = leases.get_opt(LEASE).await.expect("an answer");
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn held_by(ns: &Namespace, name: &str) {
    eventually(PATIENCE, &format!("{name} holds the lease"), async || {
        let holder = holder(ns).await;
        if holder.starts_with(&format!("{name}_")) { Ok(()) } else { Err(holder) }
    })
    .await;
}

/// Whether it says that it may write.
async fn leads(controller: &mut Controller) -> bool {
    let metrics = controller.metrics().await;
    // A whole line: the help of this figure begins with a 1, too.
    let says = |line: &str| metrics.lines().any(|seen| seen == line);
    assert_ne!(says("trustplane_leader 1"), says("trustplane_leader 0"), "{metrics}");
    says("trustplane_leader 1")
}

#[tokio::test]
async fn a_standby_is_ready_and_takes_over_at_once_when_the_leader_stops() {
    let ns = Cluster::get().await.namespace("handover").await;
    ns.allow_leases().await;
    let mut first = started(&ns, "first").await;
    held_by(&ns, "first").await;
    let mut second = started(&ns, "second").await;
    assert!(!leads(&mut second).await);
    assert!(leads(&mut first).await);
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    let mut scene = Scene { ns, controller: first };
    scene.settles_objects("shop", "Managed", "SecretInjected").await;

    let (code, took) = scene.controller.terminate().await;
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let released = Instant::now();
    held_by(&scene.ns, "second").await;
    assert!(
        released.elapsed() < Duration::from_secs(10),
        "it did not wait for the lease to run out"
    );

    let before = scene.ns.writes().to_objects().len();
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
    let writes = scene.ns.quiet_objects(SILENCE).await.since(before);
    assert_eq!(writes, ["patch routes/shop"], "one replica wrote");
}

#[tokio::test]
async fn a_leader_that_hangs_loses_the_lease_and_writes_nothing_when_it_wakes() {
    let ns = Cluster::get().await.namespace("hang").await;
    ns.allow_leases().await;
    let mut first = started(&ns, "first").await;
    held_by(&ns, "first").await;
    let second = started(&ns, "second").await;
    let mut scene = Scene { ns, controller: second };
    first.signal(Signal::STOP);

    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.holds("shop", &issued).await;
    held_by(&scene.ns, "second").await;
    scene.settles_objects("shop", "Managed", "SecretInjected").await;
    let before = scene.ns.writes().to_objects().len();

    first.signal(Signal::CONT);
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
    tokio::time::sleep(Duration::from_secs(3)).await;

    let writes = scene.ns.quiet_objects(SILENCE).await.since(before);
    assert_eq!(writes, ["patch routes/shop"]);
    assert!(!leads(&mut first).await);
    assert!(leads(&mut scene.controller).await);
}

#[tokio::test]
async fn a_write_that_the_network_delays_past_the_lease_is_refused_by_its_precondition() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("late").await;
    ns.allow_leases().await;
    let gate = Gate::closed();
    let (delayed, closed) = (Arc::new(AtomicBool::new(false)), gate.clone());
    let proxy = Proxy::start(&cluster, move |asked| {
        if asked.is_write_to("routes/shop") && !delayed.swap(true, Ordering::SeqCst) {
            return Fault::HoldBeforeForward(closed.clone());
        }
        Fault::Forward
    })
    .await;
    let through_proxy = cluster.account_kubeconfig_through(proxy.url());
    let mut first = replica(&ns, "first").kubeconfig(through_proxy).start();
    first.ready().await;
    held_by(&ns, "first").await;
    let old = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &old).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    gate.reached_by(1).await;

    // The old leader's write is in the network. It dies; the new leader injects a newer pair.
    first.kill9();
    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&ns).await;
    let mut second = started(&ns, "second").await;
    second.ready().await;
    let scene = Scene { ns, controller: second };
    scene.holds("shop", &renewed).await;
    gate.open();

    eventually(PATIENCE, "the late write arrives", async || {
        let writes = scene.ns.writes().to("routes/shop");
        if writes.len() >= 2 { Ok(()) } else { Err(writes) }
    })
    .await;
    let writes = scene.ns.quiet_objects(Duration::from_secs(1)).await;
    assert_eq!(writes.to("routes/shop"), ["patch routes/shop", "patch routes/shop (409)"]);
    assert!(scene.ns.route_holds("shop", &renewed).await, "the late write changed nothing");
}

#[tokio::test]
async fn of_replicas_that_compete_only_one_leads_at_a_time() {
    let ns = Cluster::get().await.namespace("compete").await;
    ns.allow_leases().await;
    let mut replicas: Vec<Controller> =
        ["a", "b", "c"].map(|name| replica(&ns, name).start()).into();
    for controller in &mut replicas {
        controller.ready().await;
    }
    let mut terms = 0;
    while !replicas.is_empty() {
        let leader = eventually(PATIENCE, "somebody leads", async || {
            leaders(&mut replicas).await.first().copied().ok_or("nobody")
        })
        .await;
        for _ in 0..10 {
            assert_eq!(leaders(&mut replicas).await, [leader], "and nobody else");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let (code, _) = replicas.remove(leader).terminate().await;
        assert_eq!(code, 0);
        terms += 1;
    }
    assert_eq!(terms, 3, "each led once");
    let leases: Api<Lease> = Api::namespaced(ns.client().clone(), ns.name());
    let spec = leases.get(LEASE).await.expect("it is there").spec.expect("filled in");
    assert_eq!(
        spec.lease_transitions,
        Some(2),
        "the lease's record tells of every change of hands"
    );
    assert_eq!(holder(&ns).await, "", "and the last one released it");
}

/// Which of them say that they may write.
async fn leaders(replicas: &mut [Controller]) -> Vec<usize> {
    let mut leaders = Vec::new();
    for (number, controller) in replicas.iter_mut().enumerate() {
        if leads(controller).await {
            leaders.push(number);
        }
    }
    assert!(leaders.len() <= 1, "{} lead at once", leaders.len());
    leaders
}

#[tokio::test]
async fn of_two_replicas_that_take_a_free_lease_at_once_the_later_one_is_refused() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("free").await;
    ns.allow_leases().await;
    let leases: Api<Lease> = Api::namespaced(ns.client().clone(), ns.name());
    let free = serde_json::json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": ""}});
    let free: Lease = serde_json::from_value(free).expect("a Lease");
    leases.create(&Default::default(), &free).await.expect("it is accepted");
    let gate = Gate::closed();
    let closed = gate.clone();
    let proxy = Proxy::start(&cluster, move |asked| {
        if asked.is_write_to(&format!("leases/{LEASE}")) {
            return Fault::HoldBeforeForward(closed.clone());
        }
        Fault::Forward
    })
    .await;
    let through_proxy = cluster.account_kubeconfig_through(proxy.url());
    let mut later = replica(&ns, "later").kubeconfig(through_proxy).start();
    gate.reached_by(1).await;

    // Both saw it free. The other one's write arrives first.
    let sooner = started(&ns, "sooner").await;
    held_by(&ns, "sooner").await;
    gate.open();

    eventually(PATIENCE, "the later write is refused", async || {
        let writes = ns.writes().to_leases();
        if writes.iter().any(|write| write.code == 409) { Ok(()) } else { Err(writes) }
    })
    .await;
    later.ready().await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    let scene = Scene { ns, controller: sooner };
    let writes = scene.settles_objects("shop", "Managed", "SecretInjected").await;
    assert_eq!(writes, ["patch routes/shop", "patch routes/shop/status"], "one replica wrote");
    held_by(&scene.ns, "sooner").await;
    assert!(!leads(&mut later).await);
}

#[tokio::test]
async fn a_leader_that_stops_holds_the_lease_until_its_write_under_way_is_through() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("lastwrite").await;
    ns.allow_leases().await;
    let gate = Gate::closed();
    let closed = gate.clone();
    let proxy = Proxy::start(&cluster, move |asked| {
        if asked.is_write_to("routes/shop") {
            return Fault::HoldBeforeForward(closed.clone());
        }
        Fault::Forward
    })
    .await;
    let through_proxy = cluster.account_kubeconfig_through(proxy.url());
    let mut leader = replica(&ns, "leader").kubeconfig(through_proxy).start();
    leader.ready().await;
    held_by(&ns, "leader").await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &issued).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    gate.reached_by(1).await;

    leader.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(holder(&ns).await.starts_with("leader_"), "nobody else may write yet");
    gate.open();

    assert_eq!(leader.ended(PATIENCE).await, Some(0));
    assert!(ns.route_holds("shop", &issued).await);
    let said = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
    assert_eq!(ns.certificate_condition("shop").await, said, "its status as well");
    assert_eq!(holder(&ns).await, "", "then the lease is given up");
}

#[tokio::test]
async fn every_stop_ends_well_and_gives_the_lease_back() {
    let ns = Cluster::get().await.namespace("stops").await;
    ns.allow_leases().await;
    for _ in 0..12 {
        let mut controller = started(&ns, "only").await;
        held_by(&ns, "only").await;
        let (code, _) = controller.terminate().await;
        assert_eq!(code, 0, "{}", controller.log());
        assert_eq!(holder(&ns).await, "", "the next replica need not wait");
    }
}

#[tokio::test]
async fn a_stop_is_obeyed_in_time_even_when_the_lease_can_no_longer_be_written() {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("stuck").await;
    ns.allow_leases().await;
    let proxy = Proxy::start(&cluster, |_| Fault::Forward).await;
    let through_proxy = cluster.account_kubeconfig_through(proxy.url());
    let mut controller = replica(&ns, "only").kubeconfig(through_proxy).start();
    controller.ready().await;
    held_by(&ns, "only").await;
    let gate = Gate::closed();
    let closed = gate.clone();
    proxy.follow(move |asked| {
        let writes = asked.path.contains("/leases") || asked.path.ends_with("/routes/shop");
        if writes { Fault::HoldBeforeForward(closed.clone()) } else { Fault::Forward }
    });
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    gate.reached_by(2).await;

    let (code, took) = controller.terminate().await;
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(10), "{took:?}");
}
