//! A Route's way through the states, as its owner walks it.

use serde_json::json;
use testkit::{RouteFixture, SecretFixture, pair};

use crate::scene::Scene;

#[tokio::test]
async fn custom_managed_custom() {
    let (theirs, issued, again) = (
        pair::issued("shop.example.com"),
        pair::issued("shop.example.com"),
        pair::issued("shop.example.com"),
    );
    let scene = Scene::new("cmc").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").holding(&theirs).create(&scene.ns).await;
    scene.settles("shop", "Custom", "CertificateInRoute").await;

    scene.annotate("shop", Some("shop-tls")).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
    let event = scene.event("shop", "CertificateInjected").await;
    assert!(event.note.contains("replaced the certificate that the Route had"), "{}", event.note);

    let own_pair = json!({"certificate": again.certificate, "key": again.key});
    let back_to_custom = json!({
        "metadata": {"annotations": {"route.openshift.io/tls-secret-name": null}},
        "spec": {"tls": own_pair},
    });
    scene.ns.patch_route("shop", back_to_custom).await;
    scene.settles("shop", "Custom", "CertificateInRoute").await;
    assert!(scene.ns.route_holds("shop", &again).await);
}

#[tokio::test]
async fn default_managed_default() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("dmd").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").create(&scene.ns).await;
    scene.settles("shop", "Default", "NoCertificate").await;

    scene.annotate("shop", Some("shop-tls")).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);

    scene.annotate("shop", None).await;
    scene.settles("shop", "Default", "NoCertificate").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
    assert_eq!(scene.reasons("shop").await, ["CertificateInjected", "CertificateCleared"]);
}

#[tokio::test]
async fn managed_secret_gone_default_secret_back_managed() {
    let (first, second) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let scene = Scene::new("msm").await;
    SecretFixture::tls("shop-tls", &first).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    scene.ns.delete_secret("shop-tls").await;
    scene.settles("shop", "Default", "SecretNotFound").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));

    SecretFixture::tls("shop-tls", &second).create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &second).await);
}

#[tokio::test]
async fn the_time_of_a_condition_moves_only_when_its_status_does() {
    let scene = Scene::new("times").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("absent").create(&scene.ns).await;
    scene.settles("shop", "Default", "SecretNotFound").await;
    let time = async |kind: &str| {
        let route = scene.ns.route("shop").await;
        let conditions = route["status"]["certificate"].as_array().expect("conditions").clone();
        conditions.into_iter().find(|condition| condition["type"] == kind).expect("all three")["lastTransitionTime"]
            .clone()
    };
    let (default, custom, managed) =
        (time("Default").await, time("Custom").await, time("Managed").await);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;

    scene.annotate("shop", None).await;
    scene.settles("shop", "Default", "NoCertificate").await;
    assert_eq!(time("Default").await, default, "another reason, the same status");

    scene.annotate("shop", Some("shop-tls")).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    assert_ne!(time("Default").await, default);
    assert_eq!(time("Custom").await, custom);
    assert_ne!(time("Managed").await, managed);
}
