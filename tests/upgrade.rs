//! A rolling upgrade, and back: replicas of an earlier version and of this one lead in turn.
//!
//! `make test-upgrade` builds the earlier version and says where it is in TRUSTPLANE_OLD.

use std::{path::PathBuf, time::Duration};

use serde_json::json;
use testkit::{
    Cluster, Controller, Launch, Namespace, Pair, RouteFixture, SecretFixture, eventually, pair,
};
use trustplane::names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION};

const ROUTES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum Version {
    Old,
    New,
}

async fn started(ns: &Namespace, version: Version) -> Controller {
    let flags = ["--leader-elect", "--leader-elect-namespace", ns.name(), "--resync", "2s"];
    let launch = Launch::within(ns).flags(&flags);
    let launch = match version {
        Version::New => launch,
        Version::Old => {
            let old = std::env::var_os("TRUSTPLANE_OLD");
            launch.program(PathBuf::from(
                old.expect("run make test-upgrade, which sets TRUSTPLANE_OLD"),
            ))
        }
    };
    let mut controller = launch.start();
    controller.ready().await;
    controller
}

fn name(number: usize) -> String {
    format!("shop-{number}")
}

/// Renews every Secret; answers how many writes of pairs followed.
async fn renewed(ns: &Namespace, make: impl Fn() -> Pair) -> usize {
    let before = pair_writes(ns).await;
    for number in 0..ROUTES {
        let renewed = make();
        SecretFixture::tls(&name(number), &renewed).replace(ns).await;
        eventually(PATIENCE, "the renewed pair", async || {
            if ns.route_holds(&name(number), &renewed).await { Ok(()) } else { Err("the old one") }
        })
        .await;
    }
    pair_writes(ns).await - before
}

async fn pair_writes(ns: &Namespace) -> usize {
    let writes = ns.quiet_objects(SILENCE).await;
    writes.to_objects().iter().filter(|write| !write.object().ends_with("/status")).count()
}

#[tokio::test]
async fn old_and_new_replicas_lead_in_turn_and_no_route_is_cleared_or_written_twice() {
    let ns = Cluster::get().await.namespace("upgrade").await;
    ns.allow_leases().await;
    for number in 0..ROUTES {
        SecretFixture::tls(&name(number), &pair::issued("shop.example.com")).create(&ns).await;
        RouteFixture::edge(&name(number)).annotated(&name(number)).create(&ns).await;
    }
    let mut leader = started(&ns, Version::Old).await;
    assert_eq!(renewed(&ns, || pair::issued("shop.example.com")).await, ROUTES);
    for next in [Version::New, Version::Old, Version::New, Version::Old] {
        let standby = started(&ns, next).await;
        let before = pair_writes(&ns).await;
        assert_eq!(leader.terminate().await.0, 0);
        leader = standby;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(pair_writes(&ns).await, before, "a new leader writes nothing");
        assert_eq!(renewed(&ns, || pair::issued("shop.example.com")).await, ROUTES, "once each");
    }
    // An old replica leads, over Routes that a new one wrote.
    let contested = |route: &serde_json::Value| route.to_string().contains("Contested");
    for number in 0..ROUTES {
        assert!(!contested(&ns.route(&name(number)).await));
    }
    let removed = json!({ "metadata": { "annotations": { SECRET_NAME_ANNOTATION: null } } });
    ns.patch_route(&name(0), removed).await;
    eventually(PATIENCE, "the pair to go", async || {
        let route = ns.route(&name(0)).await;
        let noted = route["metadata"]["annotations"].get(INJECTED_ANNOTATION).is_some();
        let holds = route["spec"]["tls"].get("certificate").is_some();
        if noted || holds { Err("it is still there") } else { Ok(()) }
    })
    .await;
}
