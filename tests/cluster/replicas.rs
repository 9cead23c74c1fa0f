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

use crate::{
    scene::{PATIENCE, SILENCE, Scene},
    support::{
        Cluster, Controller, Launch, Namespace, RouteFixture, SecretFixture, eventually, pair,
        proxy::{Fault, Gate, Proxy},
    },
};

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

    let writes = scene.ns.quiet_objects(Duration::from_secs(1)).await;
    assert!(scene.ns.route_holds("shop", &renewed).await, "the late write changed nothing");
    let committed = writes.to("routes/shop").committed();
    assert_eq!(committed, ["patch routes/shop"]);
}

#[tokio::test]
async fn of_replicas_that_compete_one_leads_and_never_two() {
    let ns = Cluster::get().await.namespace("compete").await;
    ns.allow_leases().await;
    let mut replicas: Vec<_> =
        ["a", "b", "c"].map(|name| (name, replica(&ns, name).start())).into();
    for (_, controller) in &mut replicas {
        controller.ready().await;
    }
    let first = one_leads(&ns, &mut replicas, "").await;
    for _ in 0..20 {
        assert_eq!(leaders(&mut replicas).await, [first]);
        assert!(holder(&ns).await.starts_with(&format!("{first}_")));
    }

    // A crash: nobody gives the lease back, so the others wait for it to run out.
    replicas.retain(|(name, _)| *name != first);
    let second = one_leads(&ns, &mut replicas, first).await;
    assert_ne!(second, first);
}

async fn leaders(replicas: &mut [(&'static str, Controller)]) -> Vec<&'static str> {
    let mut leaders = Vec::new();
    for (name, controller) in replicas {
        if leads(controller).await {
            leaders.push(*name);
        }
    }
    leaders
}

async fn leads(controller: &mut Controller) -> bool {
    controller.metrics().await.lines().any(|line| line == "trustplane_leader 1")
}

/// Waits for a leader other than that one; two at any moment are a failure.
async fn one_leads(
    ns: &Namespace,
    replicas: &mut [(&'static str, Controller)],
    other_than: &str,
) -> &'static str {
    eventually(PATIENCE, "one of them leads", async || match leaders(replicas).await[..] {
        [] => Err(format!("nobody; the lease names {:?}", holder(ns).await)),
        [one] if one != other_than => Ok(one),
        ref several => panic!("more than one leader, or a dead one: {several:?}"),
    })
    .await
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
