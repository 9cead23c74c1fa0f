//! What the policy asks of nobody: other changes to an annotated Route, what the injector writes, and what
//! a tool applies that is there already.

use serde_json::{Value, json};
use testkit::{RouteFixture, SecretFixture, pair};
use trustplane::names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION};

use crate::{
    policy::{
        bypasses::mallory,
        guarded::{self, Missing, refusal},
        users::{Person, create_custom_hosts, edit_routes, get_secret},
    },
    scene::{SILENCE, note},
};

const SECRET: &str = "shop-tls";

/// All that it takes.
fn every_right() -> [Value; 3] {
    [edit_routes(), create_custom_hosts(), get_secret(SECRET)]
}

#[tokio::test]
async fn every_other_change_to_an_annotated_route_is_free() {
    let scene = guarded::scene("other").await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated(SECRET).create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    let mallory = mallory(&scene).await;

    let changes = [
        ("a label", json!({ "metadata": { "labels": { "team": "web" } } })),
        (
            "another annotation",
            json!({ "metadata": { "annotations": { "example.com/note": "1" } } }),
        ),
        ("the host", json!({ "spec": { "host": "other.example.com" } })),
        ("the Service", json!({ "spec": { "to": { "kind": "Service", "name": "other" } } })),
        (
            "insecure traffic",
            json!({ "spec": { "tls": { "insecureEdgeTerminationPolicy": "Redirect" } } }),
        ),
        (
            "the same name again",
            json!({ "metadata": { "annotations": { SECRET_NAME_ANNOTATION: SECRET } } }),
        ),
    ];
    for (what, change) in changes {
        assert_eq!(mallory.patch("shop", change).await, Ok(()), "{what}");
    }
    let status = json!({ "status": { "ingress": [{ "host": "shop.example.com" }] } });
    assert_eq!(mallory.patch_status("shop", status).await, Ok(()));

    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
    assert_eq!(mallory.annotate("shop", Some("")).await, Ok(()), "empty is as good as removed");
    scene.settles("shop", "Default", "NoCertificate").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
}

/// Annotating a Route is consent to the key in it, also where others decide when.
#[tokio::test]
async fn a_route_annotated_by_who_may_can_be_turned_on_by_who_may_not() {
    let scene = guarded::scene("turned-on").await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    let alice = Person::new(&scene.ns, "alice", &every_right()).await;
    let mallory = mallory(&scene).await;
    let waiting = RouteFixture::passthrough("shop").annotated(SECRET);
    assert_eq!(alice.create(&waiting).await, Ok(()));
    scene.settles("shop", "none", "PassthroughTermination").await;

    let edge = json!({ "spec": { "tls": { "termination": "edge" } } });
    assert_eq!(mallory.patch("shop", edge).await, Ok(()));

    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
}

#[tokio::test]
async fn the_injector_goes_on_when_the_rights_of_who_annotated_are_gone() {
    let scene = guarded::scene("revoked").await;
    let (issued, renewed) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    let alice = Person::new(&scene.ns, "alice", &every_right()).await;
    assert_eq!(alice.create(&RouteFixture::edge("shop").annotated(SECRET)).await, Ok(()));
    scene.settles("shop", "Managed", "SecretInjected").await;

    alice.revoke().await;
    SecretFixture::tls(SECRET, &renewed).replace(&scene.ns).await;

    scene.holds("shop", &renewed).await;
    scene.ns.delete_secret(SECRET).await;
    scene.settles("shop", "Default", "SecretNotFound").await;
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    scene.holds("shop", &issued).await;
    scene.annotate("shop", None).await;
    scene.settles("shop", "Default", "NoCertificate").await;
    assert!(note(&scene.ns.route("shop").await).is_none());
    assert_eq!(scene.ns.cluster().audit().forbidden_by_account(), vec![]);
}

#[tokio::test]
async fn a_tool_may_apply_again_what_is_there_and_nothing_new() {
    let scene = guarded::scene("gitops").await;
    SecretFixture::tls(SECRET, &pair::issued("shop.example.com")).create(&scene.ns).await;
    let argo = Person::new(&scene.ns, "argo", &every_right()).await;
    let wanted = RouteFixture::edge("shop").annotated(SECRET);
    assert_eq!(argo.apply("shop", &wanted).await, Ok(()), "with the rights it takes");
    scene.settles("shop", "Managed", "SecretInjected").await;
    let flux = Person::new(&scene.ns, "flux", &[edit_routes()]).await;

    assert_eq!(flux.apply("shop", &wanted).await, Ok(()), "nothing changes, nothing is asked");

    let told = Err(refusal(&scene, &flux, "shop", "other-tls", Missing::Both));
    assert_eq!(flux.apply("shop", &RouteFixture::edge("shop").annotated("other-tls")).await, told);
    scene.ns.quiet(SILENCE).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
}

#[tokio::test]
async fn routes_without_the_annotation_are_nobodys_business() {
    let scene = guarded::scene("plain").await;
    let mallory = mallory(&scene).await;
    let route = RouteFixture::edge("shop").annotation(INJECTED_ANNOTATION, "forged");
    assert_eq!(mallory.create(&route).await, Ok(()));
    let empty = RouteFixture::edge("empty").annotated("");
    assert_eq!(mallory.create(&empty).await, Ok(()));
    assert_eq!(mallory.annotate("shop", Some("")).await, Ok(()));
    let owner = json!([{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "1" }]);
    let owned = json!({ "metadata": { "ownerReferences": owner } });
    assert_eq!(mallory.patch("shop", owned).await, Ok(()));
}
