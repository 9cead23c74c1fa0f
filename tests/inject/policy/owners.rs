//! OpenShift makes Routes from Ingresses and copies their annotations, by rights of its own. trustplane
//! leaves such a Route alone while the Ingress controls it, so whoever takes the Ingress off is asked.

use serde_json::{Value, json};
use testkit::{Pair, RouteFixture, SecretFixture, pair};
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::{
    policy::{
        bypasses::mallory,
        guarded::{self, Missing, refusal},
        users::{Person, create_custom_hosts, edit_routes, get_secret},
    },
    scene::{SILENCE, Scene},
};

const SECRET: &str = "shop-tls";
const UID: &str = "0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e";

fn ingress() -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": UID, "controller": true })
}

fn ingress_with(field: &str, value: Value) -> Value {
    let mut owner = ingress();
    owner[field] = value;
    owner
}

fn owners(owners: Value) -> Value {
    json!({ "metadata": { "ownerReferences": owners } })
}

/// A Route as OpenShift's ingress-to-route leaves it, made by an account with that controller's rights.
async fn copied(prefix: &str) -> (Scene, Pair) {
    let scene = guarded::scene(prefix).await;
    let issued = pair::issued("shop.example.com");
    SecretFixture::tls(SECRET, &issued).create(&scene.ns).await;
    let secrets =
        json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] });
    let rules = [edit_routes(), create_custom_hosts(), secrets];
    let ingress_to_route = Person::new(&scene.ns, "ingress-to-route", &rules).await;
    let route = RouteFixture::edge("shop").annotated(SECRET);
    let made =
        ingress_to_route.create(&route.with("/metadata/ownerReferences", json!([ingress()]))).await;
    assert_eq!(made, Ok(()));
    (scene, issued)
}

#[tokio::test]
async fn the_ingress_cannot_be_taken_off_a_copied_annotation_by_who_may_not_read_the_secret() {
    let (scene, issued) = copied("taken-off").await;
    let mallory = mallory(&scene).await;
    let told = Err(refusal(&scene, &mallory, "shop", SECRET, Missing::Secret));
    let before = scene.ns.route("shop").await;
    let service = json!({ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "1" });
    let changes = [
        ("removed", Value::Null),
        ("emptied", json!([])),
        ("no longer in control", json!([ingress_with("controller", json!(false))])),
        ("control not said", json!([ingress_with("controller", Value::Null)])),
        ("of another kind", json!([ingress_with("kind", json!("Service"))])),
        ("of another group", json!([ingress_with("apiVersion", json!("example.com/v1"))])),
        (
            "of another version",
            json!([ingress_with("apiVersion", json!("networking.k8s.io/v1beta1"))]),
        ),
        ("of another name", json!([ingress_with("name", json!("other"))])),
        ("another one", json!([ingress_with("uid", json!("2"))])),
        ("blocking its deletion", json!([ingress_with("blockOwnerDeletion", json!(true))])),
        ("joined by another", json!([ingress(), service])),
        ("replaced", json!([service])),
    ];
    for (how, value) in changes {
        assert_eq!(mallory.patch("shop", owners(value)).await, told, "{how}");
        println!("{how:<24}refused");
    }
    let gone = json!([{ "op": "remove", "path": "/metadata/ownerReferences" }]);
    assert_eq!(mallory.edit("shop", gone).await, told, "a JSON patch");
    let dropped = |route: &mut Value| route["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(mallory.replace("shop", dropped).await, told, "put back whole");
    let powerless = RouteFixture::edge("shop")
        .with("/metadata/ownerReferences", json!([ingress_with("controller", json!(false))]));
    assert_eq!(mallory.apply("shop", &powerless).await, told, "applied");

    scene.ns.quiet(SILENCE).await;
    assert!(scene.ns.route("shop").await == before, "the Route is what it was");
    assert!(!scene.ns.route_holds("shop", &issued).await);
}

#[tokio::test]
async fn taking_the_ingress_and_the_annotation_off_together_is_free_and_leads_nowhere() {
    let (scene, _) = copied("both-off").await;
    let mallory = mallory(&scene).await;

    let both = json!({ "metadata": { "ownerReferences": null, "annotations": { SECRET_NAME_ANNOTATION: null } } });
    assert_eq!(mallory.patch("shop", both).await, Ok(()));

    scene.settles("shop", "Default", "NoCertificate").await;
    let told = Err(refusal(&scene, &mallory, "shop", SECRET, Missing::Secret));
    assert_eq!(mallory.annotate("shop", Some(SECRET)).await, told);
}

#[tokio::test]
async fn an_owner_put_on_first_and_taken_off_later_leads_nowhere() {
    let scene = guarded::scene("put-on").await;
    SecretFixture::tls(SECRET, &pair::issued("shop.example.com")).create(&scene.ns).await;
    let mallory = mallory(&scene).await;
    assert_eq!(mallory.create(&RouteFixture::edge("shop")).await, Ok(()));

    // Without the annotation owners are nobody's business; with it they are, forged or not.
    assert_eq!(mallory.patch("shop", owners(json!([ingress()]))).await, Ok(()));
    let told = Err(refusal(&scene, &mallory, "shop", SECRET, Missing::Secret));
    assert_eq!(mallory.annotate("shop", Some(SECRET)).await, told);
    let forged =
        RouteFixture::edge("forged").annotated(SECRET).owned_by_ingress("networking.k8s.io/v1");
    let told = Err(refusal(&scene, &mallory, "forged", SECRET, Missing::Secret));
    assert_eq!(mallory.create(&forged).await, told);
}

#[tokio::test]
async fn who_may_read_the_secret_takes_the_ingress_off_and_gets_the_pair() {
    let (scene, issued) = copied("allowed").await;
    let rules = [edit_routes(), create_custom_hosts(), get_secret(SECRET)];
    let alice = Person::new(&scene.ns, "alice", &rules).await;

    assert_eq!(alice.patch("shop", owners(Value::Null)).await, Ok(()));

    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
}

#[tokio::test]
async fn without_the_right_to_custom_hosts_the_ingress_stays_on_too() {
    let (scene, _) = copied("custom-host").await;
    let rules = [edit_routes(), get_secret(SECRET)];
    let reader = Person::new(&scene.ns, "reader", &rules).await;
    let told = Err(refusal(&scene, &reader, "shop", SECRET, Missing::CustomHost));
    assert_eq!(reader.patch("shop", owners(Value::Null)).await, told);
    let nobody = Person::new(&scene.ns, "nobody", &[edit_routes()]).await;
    let told = Err(refusal(&scene, &nobody, "shop", SECRET, Missing::Both));
    assert_eq!(nobody.patch("shop", owners(Value::Null)).await, told);
}
