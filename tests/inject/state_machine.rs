//! Every row of the table in docs/inject.md on a real API server: the Route, its condition, its
//! Events, and from the audit log exactly which writes our account made.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::{RouteFixture, SecretFixture, pair};
use trustplane::{inject::decide::marker::Marker, names::INJECTED_ANNOTATION};

use crate::scene::{SILENCE, Scene, annotate, note, untouchable};

const SHOP: &str = "patch routes/shop";
const STATUS: &str = "patch routes/shop/status";
const EVENT: &str = "create events";

fn annotations(value: Value) -> Value {
    json!({"metadata": {"annotations": value}})
}

#[tokio::test]
async fn row_1_a_route_under_deletion_is_left_alone() {
    let held = pair::issued("shop.example.com");
    let scene = Scene::new("row1").await;
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    RouteFixture::edge("shop")
        .with("/metadata/finalizers", json!(["example.com/hold"]))
        .create(&scene.ns)
        .await;
    scene.settles("shop", "Default", "NoCertificate").await;
    scene.ns.routes().delete("shop", &DeleteParams::default()).await.expect("it is marked");
    let before = scene.ns.quiet(SILENCE).await.len();

    scene.annotate("shop", Some("shop-tls")).await;

    assert_eq!(scene.ns.quiet(SILENCE).await.since(before), []);
    assert_eq!(scene.reasons("shop").await, Vec::<String>::new());
}

#[tokio::test]
async fn row_1_routes_of_an_ingress_are_left_alone_whatever_its_api_group() {
    let scene = Scene::new("ingress").await;
    let held = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    let groups = [
        "networking.k8s.io/v1",
        "networking.k8s.io/v1beta1",
        "extensions/v1beta1",
        "extensions.k8s.io/v1beta1",
    ];
    for (number, group) in groups.into_iter().enumerate() {
        let route = RouteFixture::edge(&format!("shop-{number}")).annotated("shop-tls");
        route.owned_by_ingress(group).create(&scene.ns).await;
    }
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;

    scene.settles("shop", "Managed", "SecretInjected").await;

    assert_eq!(scene.ns.writes(), [SHOP, EVENT, STATUS], "only the Route that is nobody's");
}

#[tokio::test]
async fn row_2_a_route_without_tls_is_not_secured() {
    let scene = Scene::after("row2", async |ns| {
        RouteFixture::insecure("shop")
            .annotated("shop-tls")
            .annotation(INJECTED_ANNOTATION, "old")
            .create(ns)
            .await;
        RouteFixture::insecure("plain").create(ns).await;
    })
    .await;

    let writes = scene.settles("shop", "none", "RouteNotSecured").await;

    assert_eq!(writes.to("routes/shop"), [SHOP], "the note goes");
    assert_eq!(note(&scene.ns.route("shop").await), None);
    assert_eq!(writes.to("routes/plain"), []);
    assert_eq!(writes.to_events(), [EVENT]);
    let event = scene.event("shop", "RouteNotSecured").await;
    assert_eq!(event.kind, "Warning");
    assert!(event.note.contains("Set spec.tls.termination to edge or reencrypt"), "{}", event.note);
    scene.settles("plain", "none", "RouteNotSecured").await;
}

#[tokio::test]
async fn row_3_a_passthrough_route_serves_no_certificate() {
    let scene = Scene::after("row3", async |ns| {
        RouteFixture::passthrough("shop")
            .annotated("shop-tls")
            .annotation(INJECTED_ANNOTATION, "old")
            .create(ns)
            .await;
    })
    .await;

    let writes = scene.settles("shop", "none", "PassthroughTermination").await;

    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    assert_eq!(note(&scene.ns.route("shop").await), None);
    let conditions = scene.ns.route("shop").await["status"]["certificate"].clone();
    let statuses: Vec<_> =
        conditions.as_array().expect("three").iter().map(|c| c["status"].clone()).collect();
    assert_eq!(statuses, ["False", "False", "False"]);
}

#[tokio::test]
async fn row_4_an_external_certificate_is_left_to_the_router() {
    let scene = Scene::after("row4", async |ns| {
        let route = RouteFixture::edge("shop").external_certificate("other").annotated("shop-tls");
        route.annotation(INJECTED_ANNOTATION, "old").create(ns).await;
        SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(ns).await;
    })
    .await;

    let writes = scene.settles("shop", "Custom", "ExternalCertificate").await;

    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
    assert_eq!(scene.event("shop", "ExternalCertificate").await.kind, "Warning");
}

#[tokio::test]
async fn row_5_a_route_that_is_up_to_date_is_not_written() {
    let held = pair::issued("shop.example.com");
    let mut scene = Scene::new("row5").await;
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    scene.restart(&[]).await;
    scene.ns.patch_route("shop", json!({"metadata": {"labels": {"team": "web"}}})).await;
    let mut secret = scene.ns.secrets().get("shop-tls").await.expect("it is there");
    secret.metadata.labels = Some([("team".to_owned(), "web".to_owned())].into());
    scene
        .ns
        .secrets()
        .replace("shop-tls", &Default::default(), &secret)
        .await
        .expect("a label is put on");

    assert_eq!(scene.ns.quiet(SILENCE).await.since(before), []);
}

#[tokio::test]
async fn row_6_the_same_pair_without_a_note_gets_the_note_alone() {
    let held = pair::issued("shop.example.com");
    let scene = Scene::after("row6", async |ns| {
        SecretFixture::tls("shop-tls", &held).create(ns).await;
        RouteFixture::edge("shop").annotated("shop-tls").holding(&held).create(ns).await;
        RouteFixture::edge("blog")
            .annotated("shop-tls")
            .holding(&held)
            .annotation(INJECTED_ANNOTATION, "forged")
            .create(ns)
            .await;
    })
    .await;

    for route in ["shop", "blog"] {
        scene.settles(route, "Managed", "SecretInjected").await;
        let writes = scene.ns.writes().to(&format!("routes/{route}"));
        assert_eq!(writes.len(), 1);
        let body = writes[0].request_object.clone().expect("bodies are logged");
        assert_eq!(body.get("spec"), None, "the pair is not sent again");
        assert!(note(&scene.ns.route(route).await).is_some_and(|note| note.starts_with("v1:")));
        assert!(scene.ns.route_holds(route, &held).await);
        assert_eq!(scene.reasons(route).await, ["HostMismatch"][..usize::from(route == "blog")]);
    }
}

#[tokio::test]
async fn row_7_an_annotated_route_gets_certificate_key_and_note_in_one_write() {
    let held = pair::with_chain("shop.example.com");
    let scene = Scene::new("row7").await;
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    let destination = pair::issued("backend").authority;
    RouteFixture::reencrypt("shop", &destination)
        .with("/spec/tls/insecureEdgeTerminationPolicy", json!("Redirect"))
        .with("/spec/path", json!("/cart"))
        .with("/metadata/labels", json!({"team": "web"}))
        .create(&scene.ns)
        .await;
    scene.settles("shop", "Default", "NoCertificate").await;
    let ingress =
        json!({"status": {"ingress": [{"host": "shop.example.com", "routerName": "default"}]}});
    scene.ns.patch_route_status("shop", ingress).await;
    scene.annotate("shop", Some("shop-tls")).await;
    let before = scene.ns.route("shop").await;

    let writes = scene.settles("shop", "Managed", "SecretInjected").await;

    assert_eq!(writes, [STATUS, SHOP, EVENT, STATUS]);
    let after = scene.ns.route("shop").await;
    assert!(scene.ns.route_holds("shop", &held).await, "byte for byte");
    assert!(note(&after).is_some());
    assert_eq!(untouchable(after), untouchable(before), "no other field was touched");
    let body = writes[1].request_object.clone().expect("bodies are logged");
    let keys =
        |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&body), ["metadata", "spec"]);
    assert_eq!(keys(&body["metadata"]), ["annotations", "resourceVersion", "uid"]);
    assert_eq!(keys(&body["spec"]["tls"]), ["certificate", "key"]);
    let event = scene.event("shop", "CertificateInjected").await;
    assert_eq!((event.kind.as_str(), event.reporter.as_str()), ("Normal", "trustplane.dev/inject"));
    assert!(event.note.contains("Secret shop-tls"), "{}", event.note);
}

#[tokio::test]
async fn row_7_a_renewed_secret_reaches_the_route_with_one_write_and_no_status_write() {
    let scene = Scene::new("renewal").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    let renewed = pair::rsa("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;

    scene.holds("shop", &renewed).await;
    assert_eq!(scene.ns.quiet(SILENCE).await.since(before), [SHOP, EVENT]);
    assert_eq!(scene.reasons("shop").await, ["CertificateInjected", "CertificateUpdated"]);
}

#[tokio::test]
async fn row_7a_a_pair_that_our_rules_refuse_by_now_stays_where_it_was_injected() {
    let refused = pair::mismatched("shop.example.com");
    let scene = Scene::after("row7a", async |ns| {
        SecretFixture::tls("shop-tls", &refused).create(ns).await;
        let route = RouteFixture::edge("shop").annotated("shop-tls").holding(&refused);
        let uid = route.create(ns).await.metadata.uid.expect("a uid");
        // As an earlier version with laxer rules has left it.
        let note = Marker::of(&uid, &refused.certificate, &refused.key).to_string();
        ns.patch_route("shop", json!({"metadata": {"annotations": {INJECTED_ANNOTATION: note}}}))
            .await;
    })
    .await;

    let writes = scene.settles("shop", "Managed", "SecretInvalidKeepingLast").await;

    assert_eq!(writes, [EVENT, STATUS]);
    assert!(scene.ns.route_holds("shop", &refused).await);
    let event = scene.event("shop", "SecretInvalid").await;
    assert_eq!(event.kind, "Warning");
    assert!(event.note.contains("keeps them until the Secret changes"), "{}", event.note);

    let before = scene.ns.quiet(SILENCE).await.len();
    SecretFixture::tls("shop-tls", &pair::mismatched("shop.example.com")).replace(&scene.ns).await;
    let writes = scene.settles("shop", "Default", "SecretInvalid").await.since(before);
    assert_eq!(writes, [SHOP, EVENT, STATUS], "another refused pair is not protected");
}

#[tokio::test]
async fn row_8_a_secret_that_vanishes_takes_the_route_back_to_the_default_certificate() {
    let scene = Scene::new("row8").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    scene.ns.delete_secret("shop-tls").await;

    let writes = scene.settles("shop", "Default", "SecretNotFound").await.since(before);
    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    let route = scene.ns.route("shop").await;
    assert_eq!(route["spec"]["tls"], json!({"termination": "edge"}));
    assert_eq!(note(&route), None);
    let event = scene.event("shop", "SecretNotFound").await;
    assert_eq!(event.kind, "Warning");
    let expected = format!(
        "Secret shop-tls was not found, so the router serves its default certificate. Create it in namespace {} \
         with type kubernetes.io/tls, \
         or correct the annotation route.openshift.io/tls-secret-name.",
        scene.ns.name()
    );
    assert_eq!(event.note, expected);
}

#[tokio::test]
async fn row_8_a_secret_that_turns_invalid_takes_the_route_back_to_the_default_certificate() {
    let scene = Scene::new("invalid").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    SecretFixture::tls("shop-tls", &pair::mismatched("shop.example.com")).replace(&scene.ns).await;

    let writes = scene.settles("shop", "Default", "SecretInvalid").await.since(before);
    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
    assert!(scene.event("shop", "SecretInvalid").await.note.contains("tls.key"));
}

#[tokio::test]
async fn row_8_with_keep_the_last_good_pair_stays_until_the_secret_is_gone() {
    let good = pair::issued("shop.example.com");
    let flags = ["--on-invalid-secret", "keep", "--secret-missing-grace", "1s"];
    let scene = Scene::with_flags("keep", &flags).await;
    SecretFixture::tls("shop-tls", &good).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    SecretFixture::tls("shop-tls", &pair::mismatched("shop.example.com")).replace(&scene.ns).await;

    let writes = scene.settles("shop", "Managed", "SecretInvalidKeepingLast").await.since(before);
    assert_eq!(writes, [EVENT, STATUS]);
    assert!(scene.ns.route_holds("shop", &good).await);

    scene.ns.delete_secret("shop-tls").await;
    scene.settles("shop", "Default", "SecretNotFound").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
}

#[tokio::test]
async fn row_9_a_certificate_that_is_not_ours_stays_when_the_secret_is_not_usable() {
    let theirs = pair::issued("shop.example.com");
    let scene = Scene::after("row9", async |ns| {
        let route = RouteFixture::edge("shop").annotated("absent").holding(&theirs);
        route.annotation(INJECTED_ANNOTATION, "forged").create(ns).await;
    })
    .await;

    let writes = scene.settles("shop", "Custom", "SecretNotFound").await;

    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    assert!(scene.ns.route_holds("shop", &theirs).await);
    assert_eq!(note(&scene.ns.route("shop").await), None);
}

#[tokio::test]
async fn row_10_a_route_without_a_certificate_says_why_its_secret_is_not_used() {
    let scene = Scene::new("row10").await;
    SecretFixture::tls("opaque", &pair::issued("shop.example.com"))
        .opaque()
        .create(&scene.ns)
        .await;

    RouteFixture::edge("shop").annotated("opaque").create(&scene.ns).await;

    let writes = scene.settles("shop", "Default", "SecretWrongType").await;
    assert_eq!(writes, [EVENT, STATUS]);
    assert!(
        scene.event("shop", "SecretWrongType").await.note.contains("kubectl create secret tls")
    );
}

#[tokio::test]
async fn row_10_a_key_of_ours_that_lost_its_certificate_goes() {
    let mut scene = Scene::new("leftover").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();
    scene.controller.kill9();
    scene.ns.patch_route("shop", json!({"spec": {"tls": {"certificate": null}}})).await;
    scene.ns.delete_secret("shop-tls").await;

    scene.controller = testkit::Controller::start(&scene.ns, &[]).await;

    let writes = scene.settles("shop", "Default", "SecretNotFound").await.since(before);
    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
}

#[tokio::test]
async fn row_11_without_the_annotation_our_pair_goes() {
    let scene = Scene::new("row11").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    scene.annotate("shop", None).await;

    let writes = scene.settles("shop", "Default", "NoCertificate").await.since(before);
    assert_eq!(writes, [SHOP, EVENT, STATUS]);
    let route = scene.ns.route("shop").await;
    assert_eq!((note(&route), &route["spec"]["tls"]), (None, &json!({"termination": "edge"})));
    assert_eq!(scene.event("shop", "CertificateCleared").await.kind, "Normal");
}

#[tokio::test]
async fn row_12_without_the_annotation_the_users_own_pair_stays() {
    let theirs = pair::issued("shop.example.com");
    let scene = Scene::new("row12").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    let mut change = annotations(json!({"route.openshift.io/tls-secret-name": null}));
    change["spec"] = json!({"tls": {"certificate": theirs.certificate, "key": theirs.key}});
    scene.ns.patch_route("shop", change).await;

    let writes = scene.settles("shop", "Custom", "CertificateInRoute").await.since(before);
    assert_eq!(writes, [SHOP, STATUS]);
    assert!(scene.ns.route_holds("shop", &theirs).await);
    assert_eq!(note(&scene.ns.route("shop").await), None);
}

#[tokio::test]
async fn row_13_without_annotation_and_certificate_a_key_of_ours_goes() {
    let scene = Scene::new("row13").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    let mut change = annotations(json!({"route.openshift.io/tls-secret-name": null}));
    change["spec"] = json!({"tls": {"certificate": null}});
    scene.ns.patch_route("shop", change).await;

    let writes = scene.settles("shop", "Default", "NoCertificate").await.since(before);
    assert_eq!(writes, [SHOP, STATUS]);
    let route = scene.ns.route("shop").await;
    assert_eq!((note(&route), &route["spec"]["tls"]), (None, &json!({"termination": "edge"})));
}

#[tokio::test]
async fn row_14_a_route_that_never_asked_gets_its_condition_and_nothing_else() {
    let theirs = pair::issued("blog.example.com");
    let scene = Scene::after("row14", async |ns| {
        RouteFixture::edge("shop").create(ns).await;
        RouteFixture::edge("blog").holding(&theirs).create(ns).await;
    })
    .await;

    scene.settles("shop", "Default", "NoCertificate").await;
    scene.settles("blog", "Custom", "CertificateInRoute").await;

    assert_eq!(scene.ns.writes().to("routes/shop/status"), [STATUS]);
    assert_eq!(scene.ns.writes().len(), 2);
    assert!(scene.ns.route_holds("blog", &theirs).await);
}

#[tokio::test]
async fn a_user_who_strips_annotation_and_note_takes_the_pair_over() {
    let held = pair::issued("shop.example.com");
    let scene = Scene::new("detach").await;
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    scene.ns.patch_route("shop", json!({"metadata": {"annotations": null}})).await;

    let writes = scene.settles("shop", "Custom", "CertificateInRoute").await.since(before);
    assert_eq!(writes, [STATUS]);
    assert!(scene.ns.route_holds("shop", &held).await);
}

#[tokio::test]
async fn a_copied_route_holds_its_owners_pair() {
    let held = pair::issued("shop.example.com");
    let scene = Scene::new("copy").await;
    SecretFixture::tls("shop-tls", &held).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    let original = scene.ns.route("shop").await;

    let copy = RouteFixture::edge("copy")
        .holding(&held)
        .annotation(INJECTED_ANNOTATION, note(&original).expect("noted"));
    copy.create(&scene.ns).await;

    scene.settles("copy", "Custom", "CertificateInRoute").await;
    assert!(
        scene.ns.route_holds("copy", &held).await,
        "the note of another Route does not make it ours"
    );
    annotate(&scene.ns, "copy", Some("absent")).await;
    scene.settles("copy", "Custom", "SecretNotFound").await;
    assert!(scene.ns.route_holds("copy", &held).await);
}
