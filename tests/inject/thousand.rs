//! A thousand Routes: a restart writes nothing, and one Secret costs one patch a Route.

use std::{sync::LazyLock, time::Duration};

use futures::{StreamExt, stream};
use testkit::{Namespace, RouteFixture, SecretFixture, eventually, pair};

use crate::scene::{PATIENCE, Scene};

static ROUTES: LazyLock<usize> =
    LazyLock::new(|| if std::env::var_os("TRUSTPLANE_LONG").is_some() { 3_000 } else { 1_000 });
const TROUBLED: usize = 50;

/// Longer than a burst of a thousand takes to get going on a busy machine.
const REST: Duration = Duration::from_secs(3);

async fn create_routes(ns: &Namespace, secret_of: impl Fn(usize) -> &'static str) {
    stream::iter(0..*ROUTES)
        .for_each_concurrent(8, |number| {
            let route = RouteFixture::edge(&format!("shop-{number}")).annotated(secret_of(number));
            async move {
                route.create(ns).await;
            }
        })
        .await;
}

/// Waits until so many Routes have that reason.
async fn with_reason(ns: &Namespace, reason: &str, count: usize) {
    eventually(6 * PATIENCE, reason, async || {
        let routes = ns.routes().list(&Default::default()).await.expect("a list").items;
        let has_reason = |route: &&kube::api::DynamicObject| {
            route.data["status"]["certificate"][0]["reason"] == reason
        };
        match routes.iter().filter(has_reason).count() {
            seen if seen == count => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

#[tokio::test]
async fn a_restart_with_everything_in_place_and_fifty_lasting_problems_writes_nothing() {
    let mut scene = Scene::new("thousand").await;
    SecretFixture::tls("shop-tls", &pair::issued("*.example.com")).create(&scene.ns).await;
    SecretFixture::tls("broken", &pair::mismatched("*.example.com")).create(&scene.ns).await;
    SecretFixture::tls("expired", &pair::expired("*.example.com")).create(&scene.ns).await;
    create_routes(&scene.ns, |number| match number {
        0..20 => "broken",
        20..40 => "absent",
        40..TROUBLED => "expired",
        _ => "shop-tls",
    })
    .await;
    with_reason(&scene.ns, "SecretInjected", *ROUTES - 40).await;
    with_reason(&scene.ns, "SecretInvalid", 20).await;
    with_reason(&scene.ns, "SecretNotFound", 20).await;
    let before = scene.ns.quiet(REST).await.len();

    scene.restart(&["--resync", "2s", "--secret-missing-grace", "1s"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;

    assert_eq!(scene.ns.quiet(REST).await.since(before), [], "two resyncs included");
}

#[tokio::test]
async fn one_secret_of_a_thousand_routes_changes_with_a_thousand_patches_and_no_status_write() {
    let scene = Scene::new("burst").await;
    SecretFixture::tls("shop-tls", &pair::issued("*.example.com")).create(&scene.ns).await;
    create_routes(&scene.ns, |_| "shop-tls").await;
    with_reason(&scene.ns, "SecretInjected", *ROUTES).await;
    let before = scene.ns.quiet(REST).await.len();

    let renewed = pair::issued("*.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop-0", &renewed).await;
    let writes = scene.ns.quiet(REST).await.since(before);

    assert_eq!(writes.to_objects().len(), *ROUTES);
    assert!(
        writes
            .to_objects()
            .iter()
            .all(|write| write.kind_of_object() == "routes" && write.code == 200)
    );
    assert_eq!(writes.to_events().len(), *ROUTES);
    let routes = scene.ns.routes().list(&Default::default()).await.expect("a list").items;
    assert!(routes.iter().all(|route| route.data["spec"]["tls"]["key"] == renewed.key.as_str()));
}
