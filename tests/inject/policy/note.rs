//! What forging `trustplane.dev/injected` can do. Nobody needs a right for it but to edit the Route. It never
//! brings a key into a Route, never touches a Secret, and never costs anybody a pair that the forger could
//! not have removed by hand.

use serde_json::{Value, json};
use testkit::{Pair, RouteFixture, SecretFixture, pair};
use trustplane::inject::decide::marker::Marker;
use trustplane::names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION};

use crate::{
    policy::{
        bypasses::mallory,
        guarded::{self, Missing, refusal},
        users::Person,
    },
    scene::{SILENCE, Scene, note},
};

const SECRET: &str = "shop-tls";

fn forging(note: &str) -> Value {
    json!({ "metadata": { "annotations": { INJECTED_ANNOTATION: note } } })
}

/// The Secret, a Route that holds its pair, and a Route with a pair of its owner's.
async fn staged(prefix: &str) -> (Scene, Person, Pair, Pair) {
    let scene = guarded::scene(prefix).await;
    let (secret, own) = (pair::issued("shop.example.com"), pair::issued("own.example.com"));
    SecretFixture::tls(SECRET, &secret).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated(SECRET).create(&scene.ns).await;
    RouteFixture::edge("own").holding(&own).create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    scene.settles("own", "Custom", "CertificateInRoute").await;
    let mallory = mallory(&scene).await;
    (scene, mallory, secret, own)
}

async fn note_in(scene: &Scene, route: &str) -> Option<String> {
    note(&scene.ns.route(route).await).map(str::to_owned)
}

async fn uid_of(scene: &Scene, route: &str) -> String {
    scene.ns.route(route).await["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

async fn version_of_secret(scene: &Scene) -> Option<String> {
    scene.ns.secrets().get(SECRET).await.expect("the Secret is there").metadata.resource_version
}

#[tokio::test]
async fn a_note_that_does_not_fit_is_dropped_and_the_owners_pair_stays() {
    let (scene, mallory, secret, own) = staged("forged").await;
    let uid = uid_of(&scene, "own").await;
    let copied = note_in(&scene, "shop").await.expect("the other Route has a note");
    let other_route =
        Marker::of(&uid_of(&scene, "shop").await, &own.certificate, &own.key).to_string();
    let other_pair = Marker::of(&uid, &secret.certificate, &secret.key).to_string();
    for forged in ["forged", "", &copied, &other_route, &other_pair] {
        assert_eq!(mallory.patch("own", forging(forged)).await, Ok(()));
        scene.ns.quiet(SILENCE).await;
        assert!(scene.ns.route_holds("own", &own).await, "the pair stays");
        assert_eq!(note_in(&scene, "own").await, None, "the note is dropped");
    }
    assert!(scene.ns.route_holds("shop", &secret).await, "the other Route is not concerned");
}

#[tokio::test]
async fn a_note_brings_no_key_into_a_route_that_does_not_ask() {
    let (scene, mallory, secret, _) = staged("no-key").await;
    let copied = note_in(&scene, "shop").await.expect("the other Route has a note");
    let copy = RouteFixture::edge("copy").annotation(INJECTED_ANNOTATION, &copied);
    assert_eq!(mallory.create(&copy).await, Ok(()));
    // Even the note that would be written, had the Route asked.
    let fitting = Marker::of(&uid_of(&scene, "copy").await, &secret.certificate, &secret.key);
    assert_eq!(mallory.patch("copy", forging(&fitting.to_string())).await, Ok(()));

    scene.settles("copy", "Default", "NoCertificate").await;

    assert_eq!(scene.ns.pair_in_route("copy").await, (String::new(), String::new()));
    assert_eq!(note_in(&scene, "copy").await, None);
}

/// Forging a fitting note takes the pair in the Route and the right to edit it: such users could have
/// removed the pair themselves. That is all it does, and the Secret is not touched.
#[tokio::test]
async fn a_note_that_fits_does_what_its_forger_could_do_by_hand_and_no_more() {
    let (scene, mallory, _, own) = staged("fitting").await;
    let before = version_of_secret(&scene).await;
    let fitting = Marker::of(&uid_of(&scene, "own").await, &own.certificate, &own.key);

    assert_eq!(mallory.patch("own", forging(&fitting.to_string())).await, Ok(()));

    scene.settles("own", "Default", "NoCertificate").await;
    assert_eq!(scene.ns.pair_in_route("own").await, (String::new(), String::new()));
    assert_eq!(version_of_secret(&scene).await, before);
    RouteFixture::edge("by-hand").holding(&own).create(&scene.ns).await;
    let by_hand = json!({ "spec": { "tls": { "certificate": null, "key": null } } });
    assert_eq!(mallory.patch("by-hand", by_hand).await, Ok(()));
}

#[tokio::test]
async fn a_note_forged_or_stripped_on_a_managed_route_is_put_right() {
    let (scene, mallory, secret, _) = staged("managed").await;
    let right = note_in(&scene, "shop").await;
    for forged in [json!("forged"), Value::Null] {
        let change = json!({ "metadata": { "annotations": { INJECTED_ANNOTATION: forged } } });
        assert_eq!(mallory.patch("shop", change).await, Ok(()));
        scene.ns.quiet(SILENCE).await;
        assert!(scene.ns.route_holds("shop", &secret).await);
        assert_eq!(note_in(&scene, "shop").await, right);
    }
}

/// They could have copied the pair, which they can read in the Route. What they do not get is the next one.
#[tokio::test]
async fn who_strips_note_and_annotation_keeps_the_pair_and_gets_no_new_one() {
    let (scene, mallory, secret, _) = staged("stripped").await;
    let neither = json!({ SECRET_NAME_ANNOTATION: null, INJECTED_ANNOTATION: null });
    let stripped = json!({ "metadata": { "annotations": neither } });
    assert_eq!(mallory.patch("shop", stripped).await, Ok(()));
    scene.settles("shop", "Custom", "CertificateInRoute").await;

    SecretFixture::tls(SECRET, &pair::issued("shop.example.com")).replace(&scene.ns).await;
    scene.ns.quiet(SILENCE).await;
    assert!(scene.ns.route_holds("shop", &secret).await, "the pair that was there");
    let told = refusal(&scene, &mallory, "shop", SECRET, Missing::Secret);
    assert_eq!(mallory.annotate("shop", Some(SECRET)).await, Err(told));
}

#[tokio::test]
async fn the_controller_never_writes_to_a_secret_whatever_notes_say() {
    let (scene, mallory, ..) = staged("read-only").await;
    for route in ["shop", "own"] {
        assert_eq!(mallory.patch(route, forging("forged")).await, Ok(()));
    }
    scene.ns.quiet(SILENCE).await;
    let role =
        scene.ns.cluster().kubectl(&["get", "clusterrole", "trustplane-inject", "-o", "json"]);
    let role: Value = serde_json::from_str(&role.await.expect("it is there")).expect("JSON");
    let about_secrets = |rule: &&Value| rule["resources"] == json!(["secrets"]);
    let rules: Vec<_> =
        role["rules"].as_array().into_iter().flatten().filter(about_secrets).collect();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0]["verbs"], json!(["get", "list", "watch"]));
    assert!(scene.ns.writes().iter().all(|write| write.resource != "secrets"));
}
