//! Orders of events that have caught other controllers out.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testkit::{RouteFixture, SecretFixture, eventually, pair};

use crate::scene::{PATIENCE, SILENCE, Scene, annotate, note};

#[tokio::test]
async fn a_route_annotated_before_its_secret_exists_is_served_when_it_appears() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("before").await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Default", "SecretNotFound").await;

    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;

    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
}

#[tokio::test]
async fn a_secret_recreated_within_the_grace_never_takes_the_certificate_away() {
    let (first, second) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let scene = Scene::with_flags("grace", &["--secret-missing-grace", "20s"]).await;
    SecretFixture::tls("shop-tls", &first).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    scene.ns.delete_secret("shop-tls").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(scene.ns.route_holds("shop", &first).await, "the site does not flap");
    SecretFixture::tls("shop-tls", &second).create(&scene.ns).await;

    scene.holds("shop", &second).await;
    let writes = scene.ns.quiet(SILENCE).await.since(before);
    assert_eq!(writes, ["patch routes/shop", "create events"], "one pair replaced the other");
}

#[tokio::test]
async fn a_secret_recreated_with_another_type_is_told_apart_from_an_absent_one() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("retyped").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    scene.ns.delete_secret("shop-tls").await;
    SecretFixture::tls("shop-tls", &issued).opaque().create(&scene.ns).await;

    scene.settles("shop", "Default", "SecretWrongType").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
}

#[tokio::test]
async fn a_route_that_moves_to_another_secret_follows_only_that_one() {
    let (first, second) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let scene = Scene::new("moves").await;
    SecretFixture::tls("first", &first).create(&scene.ns).await;
    SecretFixture::tls("second", &second).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("first").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    scene.annotate("shop", Some("second")).await;
    scene.holds("shop", &second).await;
    let before = scene.ns.quiet(SILENCE).await.len();
    SecretFixture::tls("first", &pair::issued("shop.example.com")).replace(&scene.ns).await;
    scene.ns.delete_secret("first").await;
    assert_eq!(scene.ns.quiet(SILENCE).await.since(before), [], "the old Secret no longer matters");

    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("second", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
}

#[tokio::test]
async fn a_route_recreated_under_its_name_is_another_route() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("recreated").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    let old_note = note(&scene.ns.route("shop").await).expect("noted").to_owned();

    scene.ns.routes().delete("shop", &DeleteParams::default()).await.expect("it goes");
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;

    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
    assert_ne!(note(&scene.ns.route("shop").await).expect("noted"), old_note);

    scene.ns.routes().delete("shop", &DeleteParams::default()).await.expect("it goes");
    scene.ns.quiet(SILENCE).await;
    assert!(
        scene.ns.routes().get_opt("shop").await.expect("an answer").is_none(),
        "never resurrected"
    );
}

#[tokio::test]
async fn a_secret_shared_by_a_hundred_routes_reaches_them_all_and_no_namesakes_routes() {
    let (ours, namesake) = (pair::issued("*.example.com"), pair::issued("*.example.com"));
    let scene = Scene::new("shared").await;
    let other = scene.ns.cluster().namespace("namesake").await;
    let _their_controller =
        testkit::Controller::start(&other, &["--secret-missing-grace", "1s"]).await;
    SecretFixture::tls("shop-tls", &ours).create(&scene.ns).await;
    SecretFixture::tls("shop-tls", &namesake).create(&other).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&other).await;
    for number in 0..100 {
        RouteFixture::edge(&format!("shop-{number}")).annotated("shop-tls").create(&scene.ns).await;
    }
    all_hold(&scene, &ours).await;

    let renewed = pair::issued("*.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;

    all_hold(&scene, &renewed).await;
    eventually(PATIENCE, "the namesake's own pair", async || {
        if other.route_holds("shop", &namesake).await { Ok(()) } else { Err("another") }
    })
    .await;
}

async fn all_hold(scene: &Scene, pair: &pair::Pair) {
    eventually(PATIENCE, "all hundred hold it", async || {
        let routes = scene.ns.routes().list(&Default::default()).await.expect("a list").items;
        let holding = routes.iter().filter(|route| {
            let tls = &route.data["spec"]["tls"];
            tls["certificate"] == pair.certificate.as_str() && tls["key"] == pair.key.as_str()
        });
        match holding.count() {
            100 => Ok(()),
            fewer => Err(fewer),
        }
    })
    .await;
}

#[tokio::test]
async fn a_router_that_drops_the_condition_gets_it_put_back_with_one_write_a_loss() {
    let scene = Scene::new("router").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let mut seen = scene.settles("shop", "Managed", "SecretInjected").await.len();

    for loss in 0..3 {
        // As the router does: the whole status, from a type that knows nothing but ingress.
        let mut route = scene.ns.routes().get("shop").await.expect("it is there");
        let host = format!("shop-{loss}.example.com");
        route.data["status"] = json!({"ingress": [{"host": host, "routerName": "default"}]});
        scene
            .ns
            .routes()
            .replace_status("shop", &Default::default(), &route)
            .await
            .expect("the router may");

        let writes = scene.settles("shop", "Managed", "SecretInjected").await;
        assert_eq!(writes.since(seen), ["patch routes/shop/status"]);
        assert_eq!(scene.ns.route("shop").await["status"]["ingress"][0]["host"], host.as_str());
        seen = writes.len();
    }
}

#[tokio::test]
async fn a_hand_edit_of_the_pair_is_reverted() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("drift").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    let before = scene.settles("shop", "Managed", "SecretInjected").await.len();

    let theirs = pair::issued("shop.example.com");
    let edit = json!({"spec": {"tls": {"certificate": theirs.certificate, "key": theirs.key}}});
    scene.ns.patch_route("shop", edit).await;

    scene.holds("shop", &issued).await;
    assert_eq!(scene.ns.quiet(SILENCE).await.since(before).to_objects(), ["patch routes/shop"]);
}

#[tokio::test]
async fn something_that_keeps_reverting_us_is_named_once_and_not_hammered() {
    let issued = pair::issued("shop.example.com");
    let scene = Scene::new("contest").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    scene.settles("shop", "Managed", "SecretInjected").await;

    let params = PatchParams { field_manager: Some("gitops-tool".into()), ..Default::default() };
    let theirs = pair::issued("shop.example.com");
    let revert = json!({"spec": {"tls": {"certificate": theirs.certificate, "key": theirs.key}}});
    for _ in 0..6 {
        scene.holds("shop", &issued).await;
        scene.ns.routes().patch("shop", &params, &Patch::Merge(&revert)).await.expect("a user may");
    }

    let event = scene.event("shop", "CertificateContested").await;
    assert_eq!(event.kind, "Warning");
    assert!(event.note.contains("gitops-tool"), "{}", event.note);
    let writes = scene.ns.quiet(Duration::from_secs(4)).await;
    let pairs = writes.to("routes/shop").len();
    assert_eq!(pairs, 6, "the first injection and five repetitions, then it waits");
    let contested = scene.reasons("shop").await;
    assert_eq!(contested.iter().filter(|reason| *reason == "CertificateContested").count(), 1);

    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
}

#[tokio::test]
async fn the_same_thing_happening_twice_is_one_event_that_counts() {
    let scene = Scene::new("twice").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&scene.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;
    for count in 1..=2 {
        scene.annotate("shop", Some("shop-tls")).await;
        scene.settles("shop", "Managed", "SecretInjected").await;
        scene.annotate("shop", None).await;
        scene.settles("shop", "Default", "NoCertificate").await;
        assert_eq!(scene.event("shop", "CertificateCleared").await.count, count);
    }
    assert_eq!(scene.reasons("shop").await, ["CertificateInjected", "CertificateCleared"]);
}

#[tokio::test]
async fn a_left_over_ca_certificate_that_did_not_sign_the_pair_is_said_and_nothing_injected() {
    let (issued, other) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let scene = Scene::new("ca").await;
    SecretFixture::tls("shop-tls", &issued).create(&scene.ns).await;
    RouteFixture::edge("shop")
        .authority(&other.authority)
        .annotated("shop-tls")
        .create(&scene.ns)
        .await;

    scene.settles("shop", "Default", "CACertificateMismatch").await;
    assert_eq!(scene.ns.pair_in_route("shop").await, (String::new(), String::new()));
    assert!(
        scene.event("shop", "CACertificateMismatch").await.note.contains("spec.tls.caCertificate")
    );

    scene
        .ns
        .patch_route("shop", json!({"spec": {"tls": {"caCertificate": issued.authority}}}))
        .await;
    scene.settles("shop", "Managed", "SecretInjected").await;
    assert!(scene.ns.route_holds("shop", &issued).await);
}

#[tokio::test]
async fn warnings_are_told_and_the_pair_is_injected_all_the_same() {
    let scene = Scene::new("warnings").await;
    let cases = [
        ("expired", pair::expired("expired.example.com"), "CertificateExpired"),
        ("expiring", pair::expiring("expiring.example.com"), "CertificateExpiring"),
        ("early", pair::not_yet_valid("early.example.com"), "CertificateNotYetValid"),
        ("foreign", pair::issued("elsewhere.example.com"), "HostMismatch"),
        ("between", pair::with_expired_chain("between.example.com"), "CertificateExpired"),
        ("hostile", pair::issued("\u{1b}[31mred\r.example.com"), "HostMismatch"),
    ];
    for (name, pair, _) in &cases {
        SecretFixture::tls(name, pair).create(&scene.ns).await;
        RouteFixture::edge(name).annotated(name).create(&scene.ns).await;
    }
    for (name, pair, reason) in &cases {
        scene.settles(name, "Managed", "SecretInjected").await;
        assert!(scene.ns.route_holds(name, pair).await);
        let event = scene.event(name, reason).await;
        assert_eq!(event.kind, "Warning");
        assert!(!event.note.contains(char::is_control), "{:?}", event.note);
        assert_eq!(scene.reasons(name).await, ["CertificateInjected", reason]);
    }
}

#[tokio::test]
async fn annotations_that_name_no_secret_are_said_to() {
    let scene = Scene::new("names").await;
    let long = "x".repeat(300);
    let values = ["shop tls", "../x", long.as_str(), "other/shop-tls", "Shop", "shop_tls", " "];
    for (number, value) in values.iter().enumerate() {
        RouteFixture::edge(&format!("shop-{number}")).annotated(value).create(&scene.ns).await;
    }
    RouteFixture::edge("empty").annotated("").create(&scene.ns).await;

    for number in 0..values.len() {
        scene.settles(&format!("shop-{number}"), "Default", "InvalidSecretName").await;
        let event = scene.event(&format!("shop-{number}"), "InvalidSecretName").await;
        assert!(event.note.len() < 400, "{}", event.note);
    }
    scene.settles("empty", "Default", "NoCertificate").await;
    assert_eq!(scene.reasons("empty").await, Vec::<String>::new());
    let asked = scene.ns.cluster().audit().by_account();
    let gets = asked
        .iter()
        .filter(|e| e.namespace == scene.ns.name() && e.resource == "secrets" && e.verb == "get");
    assert_eq!(gets.count(), 0, "no Secret is asked for");
}

#[tokio::test]
async fn secrets_that_hold_rubbish_are_refused_with_every_problem_and_never_half_written() {
    let good = pair::issued("shop.example.com");
    let scene = Scene::new("rubbish").await;
    let megabyte = vec![b'x'; 700_000];
    let cases = [
        ("no-key", SecretFixture::tls("no-key", &good).key("")),
        ("no-certificate", SecretFixture::tls("no-certificate", &good).certificate("")),
        (
            "binary",
            SecretFixture::tls("binary", &good).certificate([0u8, 159, 146, 150]).key([255u8, 254]),
        ),
        ("garbage", SecretFixture::tls("garbage", &good).certificate(&megabyte)),
        ("ed25519", SecretFixture::tls("ed25519", &pair::ed25519("shop.example.com"))),
    ];
    for (name, secret) in &cases {
        secret.create(&scene.ns).await;
        RouteFixture::edge(name).annotated(name).create(&scene.ns).await;
    }
    for (name, _) in &cases {
        scene.settles(name, "Default", "SecretInvalid").await;
        assert_eq!(scene.ns.pair_in_route(name).await, (String::new(), String::new()));
    }
    let message = scene.ns.route("binary").await["status"]["certificate"][0]["message"].clone();
    let message = message.as_str().expect("a message");
    assert!(
        message.contains("tls.crt") && message.contains("tls.key"),
        "both are named: {message}"
    );
    assert_eq!(scene.ns.writes().to_objects().len(), cases.len(), "a status each, nothing else");
}

#[tokio::test]
async fn a_namespace_that_is_not_served_is_not_touched() {
    let scene = Scene::new("served").await;
    let other = scene.ns.cluster().namespace("unserved").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&other).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&other).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&scene.ns).await;

    scene.settles("shop", "Default", "SecretNotFound").await;
    assert_eq!(other.quiet(SILENCE).await, []);
    annotate(&scene.ns, "shop", None).await;
    scene.settles("shop", "Default", "NoCertificate").await;
}
