//! Ways to have a key put into a Route without the right to read its Secret, tried by somebody who may
//! do everything else. Not one leads anywhere.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::{RouteFixture, SecretFixture, pair};
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::{
    policy::{
        guarded::{self, Missing, forbidden, refusal},
        users::{Answer, Person, annotation, create_custom_hosts, edit_routes, write_status},
    },
    scene::{SILENCE, Scene},
};

const SECRET: &str = "shop-tls";

/// Everything but the Secret.
pub async fn mallory(scene: &Scene) -> Person {
    let rules = [edit_routes(), create_custom_hosts(), write_status()];
    Person::new(&scene.ns, "mallory", &rules).await
}

/// A namespace with a Secret, and somebody who may not read it.
async fn staged(prefix: &str) -> (Scene, Person) {
    let scene = guarded::scene(prefix).await;
    SecretFixture::tls(SECRET, &pair::issued("shop.example.com")).create(&scene.ns).await;
    let mallory = mallory(&scene).await;
    (scene, mallory)
}

/// The refusal about `shop-tls`.
fn refused(scene: &Scene, mallory: &Person, route: &str) -> Answer {
    Err(refusal(scene, mallory, route, SECRET, Missing::Secret))
}

/// No Route of the namespace holds a key, and the controller has nothing left to do.
async fn no_key_anywhere(scene: &Scene) {
    scene.ns.quiet(SILENCE).await;
    let routes = scene.ns.routes().list(&Default::default()).await.expect("Routes can be listed");
    for route in routes {
        let name = route.metadata.name.unwrap_or_default();
        assert!(route.data["spec"]["tls"]["key"].is_null(), "a key in Route {name}");
    }
}

fn annotated(route: &mut Value) {
    route["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = json!(SECRET);
}

#[tokio::test]
async fn every_verb_that_sets_the_annotation_is_refused_in_the_same_words() {
    let (scene, mallory) = staged("verbs").await;
    let asking = |name: &str| RouteFixture::edge(name).annotated(SECRET);
    RouteFixture::edge("shop").create(&scene.ns).await;
    RouteFixture::edge("earlier").annotated("").create(&scene.ns).await;

    let add = json!([{ "op": "add", "path": "/metadata/annotations", "value": { SECRET_NAME_ANNOTATION: SECRET } }]);
    let attempts = [
        ("created with it", "new", mallory.create(&asking("new")).await),
        ("created by an apply", "new", mallory.apply("new", &asking("new")).await),
        ("a dry run", "new", mallory.try_to_create(&asking("new")).await),
        ("a merge patch", "shop", mallory.annotate("shop", Some(SECRET)).await),
        ("a JSON patch", "shop", mallory.edit("shop", add).await),
        ("put back whole", "shop", mallory.replace("shop", annotated).await),
        ("applied", "shop", mallory.apply("shop", &asking("shop")).await),
        ("from empty", "earlier", mallory.annotate("earlier", Some(SECRET)).await),
    ];
    for (how, route, answer) in attempts {
        println!("{how:<22}{}", if answer.is_ok() { "allowed" } else { "refused" });
        assert_eq!(answer, refused(&scene, &mallory, route), "{how}");
    }
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn a_name_that_the_server_makes_up_changes_nothing() {
    let (scene, mallory) = staged("generated").await;
    let metadata =
        json!({ "generateName": "shop-", "annotations": { SECRET_NAME_ANNOTATION: SECRET } });
    let answer = mallory.create(&RouteFixture::edge("shop").with("/metadata", metadata)).await;
    let refused = answer.expect_err("it is refused");
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(refused.message.contains("may not get Secret \"shop-tls\""), "{}", refused.message);
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn a_route_deleted_and_made_again_is_a_new_one() {
    let (scene, mallory) = staged("again").await;
    RouteFixture::edge("shop").annotated(SECRET).create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    mallory.delete("shop").await;

    let again = mallory.create(&RouteFixture::edge("shop").annotated(SECRET)).await;
    assert_eq!(again, refused(&scene, &mallory, "shop"));
}

#[tokio::test]
async fn a_name_may_not_be_changed_to_that_of_a_secret_one_may_not_read() {
    let scene = guarded::scene("rename").await;
    let (own, other) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    SecretFixture::tls("own-tls", &own).create(&scene.ns).await;
    SecretFixture::tls(SECRET, &other).create(&scene.ns).await;
    let rules = [edit_routes(), create_custom_hosts(), crate::policy::users::get_secret("own-tls")];
    let jane = Person::new(&scene.ns, "jane", &rules).await;
    assert_eq!(jane.create(&RouteFixture::edge("shop").annotated("own-tls")).await, Ok(()));
    scene.holds("shop", &own).await;

    assert_eq!(jane.annotate("shop", Some(SECRET)).await, refused(&scene, &jane, "shop"));

    scene.ns.quiet(SILENCE).await;
    assert!(scene.ns.route_holds("shop", &own).await, "the Route holds what it held");
}

#[tokio::test]
async fn odd_values_are_refused_as_they_stand() {
    let (scene, mallory) = staged("odd").await;
    RouteFixture::edge("shop").create(&scene.ns).await;
    let odd = [
        " ",
        " shop-tls",
        "shop-tls ",
        "\tshop-tls",
        "SHOP-TLS",
        "*",
        "shop-tls,shop-tls",
        "../shop-tls",
        "other/shop-tls",
        "shop-tls?",
        "shop%2Dtls",
        "'shop-tls'",
        "\"shop-tls\"",
        "shöp-tls",
        "shop-tls\u{0}",
    ];
    for value in odd {
        let told = Err(refusal(&scene, &mallory, "shop", value, Missing::Secret));
        assert_eq!(mallory.annotate("shop", Some(value)).await, told, "{value:?}");
    }
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn a_value_that_cannot_be_repeated_in_one_line_is_refused_in_general_words() {
    let (scene, mallory) = staged("long").await;
    RouteFixture::edge("shop").create(&scene.ns).await;
    let told = forbidden(
        "shop",
        "You may not get the Secret that the annotation route.openshift.io/tls-secret-name names. This is \
         needed, because the key of the Secret goes into the Route.",
    );
    for value in ["shop-tls\n", "a\nb", &"x".repeat(6_000), &"x".repeat(200_000)] {
        assert_eq!(mallory.annotate("shop", Some(value)).await, Err(told.clone()));
    }
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn whether_a_secret_exists_is_not_told_and_one_that_comes_later_is_not_caught() {
    let (scene, mallory) = staged("later").await;
    RouteFixture::edge("shop").create(&scene.ns).await;

    let absent = mallory.annotate("shop", Some("later-tls")).await;

    let words = refusal(&scene, &mallory, "shop", "later-tls", Missing::Secret);
    assert_eq!(absent, Err(words), "word for word as for one that is there");
    SecretFixture::tls("later-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn a_secret_of_another_namespace_counts_for_nothing() {
    let (scene, _) = staged("elsewhere").await;
    let elsewhere = scene.ns.cluster().namespace("home").await;
    SecretFixture::tls(SECRET, &pair::issued("shop.example.com")).create(&elsewhere).await;
    let rules = [edit_routes(), create_custom_hosts(), crate::policy::users::get_secret(SECRET)];
    let jane = Person::new(&elsewhere, "jane", &rules).await;
    // May edit Routes here, and read a Secret of that name at home.
    let binding = ["create", "rolebinding", "jane", "--role=mallory", "-n", scene.ns.name()];
    let subject = format!("--serviceaccount={}:jane", elsewhere.name());
    let bound = scene.ns.cluster().kubectl(&[&binding[..], &[&subject]].concat()).await;
    bound.expect("the binding is accepted");
    let jane = jane.in_namespace(scene.ns.name()).await;

    let answer = jane.create(&RouteFixture::edge("shop").annotated(SECRET)).await;

    assert_eq!(answer, refused(&scene, &jane, "shop"));
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn the_status_leads_no_way_round() {
    let (scene, mallory) = staged("status").await;
    RouteFixture::edge("shop").create(&scene.ns).await;

    // A CRD takes nothing but the status from this. OpenShift takes annotations and owners too, so
    // the policy has to match the subresource: see the next test.
    let answer = mallory.patch_status("shop", annotation(Some(SECRET))).await;

    assert_eq!(answer, Ok(()));
    let route = scene.ns.route("shop").await;
    assert!(route["metadata"]["annotations"][SECRET_NAME_ANNOTATION].is_null());
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn the_policy_covers_every_subresource_and_version_and_refuses_what_it_cannot_judge() {
    let cluster = guarded::cluster().await;
    let get = async |kind: &str| -> Value {
        let object = ["get", kind, "trustplane-route-secrets", "-o", "json"];
        let object = cluster.kubectl(&object).await.expect("it is there");
        serde_json::from_str(&object).expect("an object is JSON")
    };
    let policy = get("validatingadmissionpolicy").await;
    let rules = json!([{
        "apiGroups": ["route.openshift.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["routes", "routes/*"],
        "scope": "Namespaced",
    }]);
    assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"], rules);
    for selector in ["namespaceSelector", "objectSelector"] {
        assert_eq!(policy["spec"]["matchConstraints"][selector], json!({}), "nothing is left out");
    }
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let binding = get("validatingadmissionpolicybinding").await;
    let expected =
        json!({ "policyName": "trustplane-route-secrets", "validationActions": ["Deny"] });
    assert_eq!(binding["spec"], expected);
}

#[tokio::test]
async fn a_route_on_its_way_out_is_guarded_too() {
    let (scene, mallory) = staged("deleting").await;
    let held = RouteFixture::edge("shop").with("/metadata/finalizers", json!(["example.com/hold"]));
    held.create(&scene.ns).await;
    scene.ns.routes().delete("shop", &DeleteParams::default()).await.expect("it is marked");

    let answer = mallory.annotate("shop", Some(SECRET)).await;

    assert_eq!(answer, refused(&scene, &mallory, "shop"));
    no_key_anywhere(&scene).await;
}

#[tokio::test]
async fn to_list_secrets_is_not_to_get_this_one() {
    let (scene, _) = staged("list").await;
    let list = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch", "create", "update"] });
    let rules = [edit_routes(), create_custom_hosts(), list];
    let lister = Person::new(&scene.ns, "lister", &rules).await;
    let answer = lister.create(&RouteFixture::edge("shop").annotated(SECRET)).await;
    assert_eq!(answer, refused(&scene, &lister, "shop"));
}
