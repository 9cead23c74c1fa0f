//! What `trustplane.dev/injected-from` saves: reads of Secrets after a restart, and what it costs to
//! come from a version that does not know it, or to go back to one.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Namespace, Pair, RouteFixture, SecretFixture, pair};
use trustplane::{
    inject::decide::marker::Marker,
    names::{INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION},
};

use crate::scene::{SILENCE, Scene};

const ROUTES: usize = 20;
/// Longer than a restart takes to look at everything.
const REST: Duration = Duration::from_secs(2);

fn route(number: usize) -> String {
    format!("shop-{number}")
}

fn secret(number: usize) -> String {
    format!("tls-{number}")
}

fn reads(ns: &Namespace) -> usize {
    ns.cluster().audit().secrets_read_by_account(ns.name()).len()
}

/// Routes that hold the pairs of their Secrets, and whose controller has been stopped.
async fn in_place(prefix: &str) -> (Scene, Vec<Pair>) {
    let mut scene = Scene::new(prefix).await;
    let mut pairs = Vec::new();
    for number in 0..ROUTES {
        let issued = pair::issued("shop.example.com");
        SecretFixture::tls(&secret(number), &issued).create(&scene.ns).await;
        RouteFixture::edge(&route(number)).annotated(&secret(number)).create(&scene.ns).await;
        pairs.push(issued);
    }
    for number in 0..ROUTES {
        scene.settles(&route(number), "Managed", "SecretInjected").await;
    }
    assert_eq!(scene.controller.terminate().await.0, 0);
    (scene, pairs)
}

/// Starts a controller over what there is. Answers how many Secrets it read, and what it wrote.
async fn restarted(scene: &mut Scene) -> (usize, usize) {
    let (read, written) = (reads(&scene.ns), scene.ns.quiet(SILENCE).await.len());
    scene.controller = testkit::Controller::start(&scene.ns, &["--resync", "1s"]).await;
    tokio::time::sleep(REST).await;
    let writes = scene.ns.quiet(REST).await.since(written).len();
    (reads(&scene.ns) - read, writes)
}

async fn annotate(ns: &Namespace, route: &str, annotations: Value) {
    ns.patch_route(route, json!({ "metadata": { "annotations": annotations } })).await;
}

#[tokio::test]
async fn a_restart_reads_no_secret_but_those_that_changed_and_writes_nothing() {
    let (mut scene, _) = in_place("restart").await;
    assert_eq!(restarted(&mut scene).await, (0, 0));

    assert_eq!(scene.controller.terminate().await.0, 0);
    for number in 0..5 {
        let labels = json!({ "metadata": { "labels": { "team": "web" } } });
        scene.ns.patch_secret(&secret(number), labels).await;
    }
    assert_eq!(restarted(&mut scene).await, (5, 0), "only labels changed");
}

#[tokio::test]
async fn routes_of_an_earlier_version_cost_a_read_each_and_no_write() {
    let (mut scene, _) = in_place("upgrade").await;
    for number in 0..ROUTES {
        annotate(&scene.ns, &route(number), json!({ INJECTED_FROM_ANNOTATION: null })).await;
    }
    assert_eq!(restarted(&mut scene).await, (ROUTES, 0));
}

#[tokio::test]
async fn a_pair_that_other_rules_accepted_is_read_once_and_stays() {
    let (mut scene, _) = in_place("rules").await;
    for number in 0..ROUTES {
        let stands = scene.ns.route(&route(number)).await;
        let source = stands["metadata"]["annotations"][INJECTED_FROM_ANNOTATION].as_str();
        let parts: Vec<_> = source.expect("it is noted").split(':').collect();
        let other = [parts[0], parts[1], parts[2], "999", parts[4]].join(":");
        annotate(&scene.ns, &route(number), json!({ INJECTED_FROM_ANNOTATION: other })).await;
    }
    assert_eq!(restarted(&mut scene).await, (ROUTES, 0));
}

/// An earlier version knows the note alone: it renews a pair and leaves the other annotation as it
/// was. What it left is ours all the same, and is neither cleared nor written again.
#[tokio::test]
async fn what_an_earlier_version_renewed_is_up_to_date_and_ours() {
    let (mut scene, _) = in_place("rollback").await;
    let renewed = pair::issued("shop.example.com");
    for number in 0..ROUTES {
        SecretFixture::tls(&secret(number), &renewed).replace(&scene.ns).await;
        let stands = scene.ns.route(&route(number)).await;
        let uid = stands["metadata"]["uid"].as_str().expect("a uid");
        let note = Marker::of(uid, &renewed.certificate, &renewed.key).to_string();
        let tls = json!({ "certificate": renewed.certificate, "key": renewed.key });
        let written = json!({
            "metadata": { "annotations": { INJECTED_ANNOTATION: note } }, "spec": { "tls": tls },
        });
        scene.ns.patch_route(&route(number), written).await;
    }
    assert_eq!(restarted(&mut scene).await, (ROUTES, 0));

    scene.annotate(&route(0), None).await;
    scene.settles(&route(0), "Default", "NoCertificate").await;
    let cleared = scene.ns.route(&route(0)).await;
    let annotations = cleared["metadata"].get("annotations");
    assert!(annotations.is_none_or(|all| *all == json!({})), "both notes went with the pair");
}

#[tokio::test]
async fn conditions_in_the_words_of_an_earlier_version_cost_one_status_write_each_and_no_more() {
    let (mut scene, _) = in_place("words").await;
    for number in 0..ROUTES {
        let mut status = scene.ns.route(&route(number)).await["status"].clone();
        let conditions = status["certificate"].as_array_mut().expect("three conditions");
        let managed = conditions.iter_mut().find(|one| one["status"] == "True");
        managed.expect("one is True")["message"] =
            json!(format!("The certificate of Secret {} stands in the Route.", secret(number)));
        scene.ns.replace_route_status(&route(number), status).await;
    }
    assert_eq!(restarted(&mut scene).await, (0, ROUTES));
    assert_eq!(scene.controller.terminate().await.0, 0);
    assert_eq!(restarted(&mut scene).await, (0, 0), "once is enough");
}
