//! The cases that openshift/origin tries `externalCertificate` with, as far as they need no other
//! component, and some that users of the annotation would miss there. Each is written once and
//! runs on the real API server and on the sandbox.
//!
//! What needs more than an API server is left out here: what a router serves, a user who may not
//! read the Secret, Secrets that cert-manager renews.

mod stage;

use serde_json::json;
use testkit::{Pair, RouteFixture, SecretFixture, TestServer, pair};
use trustplane::names::SECRET_NAME_ANNOTATION;

use self::stage::{Stage, shows, version};
use crate::scene::note;

/// Makes two tests of each case.
macro_rules! on_both {
    ($($case:ident,)+) => {
        mod real {
            $(#[tokio::test] async fn $case() { super::$case(super::TestServer::real().await).await; })+
        }
        mod sandbox {
            $(#[tokio::test] async fn $case() { super::$case(super::TestServer::sandbox().await).await; })+
        }
    };
}

on_both! {
    six_routes_share_one_secret,
    a_secret_in_another_namespace_is_not_found,
    an_opaque_secret_is_not_injected,
    a_passthrough_route_gets_no_certificate,
    a_secret_that_is_absent_is_not_found,
    a_deleted_secret_takes_all_six_routes_back_to_the_default,
    a_secret_that_is_created_again_is_injected_again,
    a_secret_from_a_new_authority_replaces_the_pair_in_all_six_routes,
    a_route_that_switches_to_a_second_secret_holds_its_pair,
    a_route_that_switches_to_an_opaque_secret_goes_back_to_the_default,
    a_route_that_switches_to_an_absent_secret_goes_back_to_the_default,
    labels_alone_cause_no_write,
    without_the_annotation_a_route_goes_back_to_the_default,
    an_annotation_that_is_put_back_is_obeyed_again,
    the_users_own_pair_is_replaced,
    a_reencrypt_route_keeps_its_destination_authority,
    a_route_of_an_ingress_is_left_alone,
    a_wildcard_route_wants_a_wildcard_certificate,
    the_same_names_in_several_namespaces_are_not_confused,
    a_route_goes_from_custom_to_managed_and_back,
}

/// More than five, on purpose.
const SIX: [&str; 6] = ["shop", "cart", "blog", "help", "jobs", "news"];

const MANAGED: &str = "Managed SecretInjected";
const NOT_FOUND: &str = "Default SecretNotFound";

const INJECTED: &str = "Normal CertificateInjected";
const INJECTED_TWICE: &str = "Normal CertificateInjected x2";
const UPDATED: &str = "Normal CertificateUpdated";
const CLEARED: &str = "Normal CertificateCleared";
const MISSING: &str = "Warning SecretNotFound";
const WRONG_TYPE: &str = "Warning SecretWrongType";

/// The Secret shop-tls, and six Routes that hold its pair.
async fn six_managed(server: &TestServer, held: &Pair) -> Stage {
    let stage = Stage::on(server).await;
    SecretFixture::tls("shop-tls", held).create(&stage.ns).await;
    for route in SIX {
        RouteFixture::edge(route).annotated("shop-tls").create(&stage.ns).await;
    }
    for route in SIX {
        stage.shows(route, held, MANAGED, &[INJECTED]).await;
    }
    stage
}

/// The Secret shop-tls, and the Route shop that holds its pair.
async fn one_managed(server: &TestServer, held: &Pair) -> Stage {
    let stage = Stage::on(server).await;
    SecretFixture::tls("shop-tls", held).create(&stage.ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&stage.ns).await;
    stage.shows("shop", held, MANAGED, &[INJECTED]).await;
    stage
}

async fn six_routes_share_one_secret(server: TestServer) {
    six_managed(&server, &pair::issued("*.example.com")).await;
}

async fn a_secret_in_another_namespace_is_not_found(server: TestServer) {
    let elsewhere = server.namespace("origin").await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&elsewhere).await;
    let stage = Stage::with(server.namespace("origin").await, &[&elsewhere]).await;

    RouteFixture::edge("shop").annotated("shop-tls").create(&stage.ns).await;

    stage.shows("shop", None, NOT_FOUND, &[MISSING]).await;
}

async fn an_opaque_secret_is_not_injected(server: TestServer) {
    let stage = Stage::on(&server).await;
    let opaque = SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).opaque();
    opaque.create(&stage.ns).await;

    RouteFixture::edge("shop").annotated("shop-tls").create(&stage.ns).await;

    stage.shows("shop", None, "Default SecretWrongType", &[WRONG_TYPE]).await;
}

async fn a_passthrough_route_gets_no_certificate(server: TestServer) {
    let stage = Stage::on(&server).await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&stage.ns).await;

    RouteFixture::passthrough("shop").annotated("shop-tls").create(&stage.ns).await;

    let events = ["Warning PassthroughTermination"];
    stage.shows("shop", None, "none PassthroughTermination", &events).await;
}

async fn a_secret_that_is_absent_is_not_found(server: TestServer) {
    let stage = Stage::on(&server).await;

    RouteFixture::edge("shop").annotated("shop-tls").create(&stage.ns).await;

    stage.shows("shop", None, NOT_FOUND, &[MISSING]).await;
}

async fn a_deleted_secret_takes_all_six_routes_back_to_the_default(server: TestServer) {
    let stage = six_managed(&server, &pair::issued("*.example.com")).await;

    stage.ns.delete_secret("shop-tls").await;

    for route in SIX {
        stage.shows(route, None, NOT_FOUND, &[INJECTED, MISSING]).await;
    }
}

async fn a_secret_that_is_created_again_is_injected_again(server: TestServer) {
    let held = pair::issued("*.example.com");
    let stage = six_managed(&server, &held).await;
    stage.ns.delete_secret("shop-tls").await;
    for route in SIX {
        stage.shows(route, None, NOT_FOUND, &[INJECTED, MISSING]).await;
    }

    SecretFixture::tls("shop-tls", &held).create(&stage.ns).await;

    for route in SIX {
        stage.shows(route, &held, MANAGED, &[INJECTED_TWICE, MISSING]).await;
    }
}

async fn a_secret_from_a_new_authority_replaces_the_pair_in_all_six_routes(server: TestServer) {
    let (old, new) = (pair::issued("*.example.com"), pair::with_chain("*.example.com"));
    assert_ne!(old.authority, new.authority);
    let stage = six_managed(&server, &old).await;

    SecretFixture::tls("shop-tls", &new).replace(&stage.ns).await;

    for route in SIX {
        stage.shows(route, &new, MANAGED, &[INJECTED, UPDATED]).await;
    }
}

async fn a_route_that_switches_to_a_second_secret_holds_its_pair(server: TestServer) {
    let second = pair::rsa("shop.example.com");
    let stage = one_managed(&server, &pair::issued("shop.example.com")).await;
    SecretFixture::tls("second-tls", &second).create(&stage.ns).await;

    stage.annotate("shop", Some("second-tls")).await;

    stage.shows("shop", &second, MANAGED, &[INJECTED, UPDATED]).await;
}

async fn a_route_that_switches_to_an_opaque_secret_goes_back_to_the_default(server: TestServer) {
    let stage = one_managed(&server, &pair::issued("shop.example.com")).await;
    let opaque = SecretFixture::tls("opaque", &pair::issued("shop.example.com")).opaque();
    opaque.create(&stage.ns).await;

    stage.annotate("shop", Some("opaque")).await;

    stage.shows("shop", None, "Default SecretWrongType", &[INJECTED, WRONG_TYPE]).await;
}

async fn a_route_that_switches_to_an_absent_secret_goes_back_to_the_default(server: TestServer) {
    let stage = one_managed(&server, &pair::issued("shop.example.com")).await;

    stage.annotate("shop", Some("absent")).await;

    stage.shows("shop", None, NOT_FOUND, &[INJECTED, MISSING]).await;
}

async fn labels_alone_cause_no_write(server: TestServer) {
    let held = pair::issued("*.example.com");
    let stage = six_managed(&server, &held).await;
    let label = json!({"metadata": {"labels": {"team": "web"}}});
    let mut labelled = Vec::new();
    for route in SIX {
        labelled.push(version(&stage.ns.patch_route(route, label.clone()).await));
    }
    stage.ns.patch_secret("shop-tls", label).await;

    stage.is_caught_up().await;

    for (route, labelled) in SIX.into_iter().zip(labelled) {
        assert_eq!(version(&stage.ns.route(route).await), labelled, "Route {route} was written");
        stage.shows(route, &held, MANAGED, &[INJECTED]).await;
    }
}

async fn without_the_annotation_a_route_goes_back_to_the_default(server: TestServer) {
    let stage = one_managed(&server, &pair::issued("shop.example.com")).await;

    stage.annotate("shop", None).await;

    stage.shows("shop", None, "Default NoCertificate", &[INJECTED, CLEARED]).await;
    assert_eq!(stage.tls_but_the_pair("shop").await, json!({"termination": "edge"}));
    assert_eq!(note(&stage.ns.route("shop").await), None);
}

async fn an_annotation_that_is_put_back_is_obeyed_again(server: TestServer) {
    let held = pair::issued("shop.example.com");
    let stage = one_managed(&server, &held).await;
    stage.annotate("shop", None).await;
    stage.shows("shop", None, "Default NoCertificate", &[INJECTED, CLEARED]).await;

    stage.annotate("shop", Some("shop-tls")).await;

    stage.shows("shop", &held, MANAGED, &[INJECTED_TWICE, CLEARED]).await;
}

async fn the_users_own_pair_is_replaced(server: TestServer) {
    let (theirs, held) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let stage = Stage::on(&server).await;
    SecretFixture::tls("shop-tls", &held).create(&stage.ns).await;

    let route = RouteFixture::edge("shop").annotated("shop-tls").holding(&theirs);
    route.create(&stage.ns).await;

    stage.shows("shop", &held, MANAGED, &[INJECTED]).await;
}

async fn a_reencrypt_route_keeps_its_destination_authority(server: TestServer) {
    let (held, renewed) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let backend = pair::issued("backend").authority;
    let kept = json!({"termination": "reencrypt", "destinationCACertificate": backend});
    let stage = Stage::on(&server).await;
    SecretFixture::tls("shop-tls", &held).create(&stage.ns).await;

    RouteFixture::reencrypt("shop", &backend).annotated("shop-tls").create(&stage.ns).await;

    stage.shows("shop", &held, MANAGED, &[INJECTED]).await;
    assert_eq!(stage.tls_but_the_pair("shop").await, kept);

    SecretFixture::tls("shop-tls", &renewed).replace(&stage.ns).await;
    stage.shows("shop", &renewed, MANAGED, &[INJECTED, UPDATED]).await;
    assert_eq!(stage.tls_but_the_pair("shop").await, kept);

    stage.annotate("shop", None).await;
    stage.shows("shop", None, "Default NoCertificate", &[INJECTED, UPDATED, CLEARED]).await;
    assert_eq!(stage.tls_but_the_pair("shop").await, kept);
}

async fn a_route_of_an_ingress_is_left_alone(server: TestServer) {
    let stage = Stage::on(&server).await;
    SecretFixture::tls("shop-tls", &pair::issued("shop.example.com")).create(&stage.ns).await;
    let route = RouteFixture::edge("shop").annotated("shop-tls");
    let created = route.owned_by_ingress("networking.k8s.io/v1").create(&stage.ns).await;

    stage.is_caught_up().await;

    assert_eq!(Some(version(&stage.ns.route("shop").await)), created.metadata.resource_version);
    stage.shows("shop", None, "no condition", &[]).await;
}

async fn a_wildcard_route_wants_a_wildcard_certificate(server: TestServer) {
    let (all, one) = (pair::issued("*.apps.example.com"), pair::issued("www.apps.example.com"));
    let stage = Stage::on(&server).await;
    SecretFixture::tls("all-tls", &all).create(&stage.ns).await;
    SecretFixture::tls("one-tls", &one).create(&stage.ns).await;

    for (name, secret) in [("all", "all-tls"), ("one", "one-tls")] {
        let route = RouteFixture::edge(name).host("www.apps.example.com").annotated(secret);
        route.with("/spec/wildcardPolicy", json!("Subdomain")).create(&stage.ns).await;
    }

    stage.shows("all", &all, MANAGED, &[INJECTED]).await;
    stage.shows("one", &one, MANAGED, &[INJECTED, "Warning HostMismatch"]).await;
}

async fn the_same_names_in_several_namespaces_are_not_confused(server: TestServer) {
    let others = [server.namespace("origin").await, server.namespace("origin").await];
    let stage = Stage::with(server.namespace("origin").await, &[&others[0], &others[1]]).await;
    let everywhere = [&stage.ns, &others[0], &others[1]];
    let pairs = everywhere.map(|_| pair::issued("shop.example.com"));
    for (ns, held) in everywhere.into_iter().zip(&pairs) {
        SecretFixture::tls("shop-tls", held).create(ns).await;
        RouteFixture::edge("shop").annotated("shop-tls").create(ns).await;
    }
    for (ns, held) in everywhere.into_iter().zip(&pairs) {
        shows(ns, "shop", held, MANAGED, &[INJECTED]).await;
    }
    let untouched = version(&others[1].route("shop").await);

    let renewed = pair::issued("shop.example.com");
    SecretFixture::tls("shop-tls", &renewed).replace(&stage.ns).await;
    others[0].delete_secret("shop-tls").await;

    stage.shows("shop", &renewed, MANAGED, &[INJECTED, UPDATED]).await;
    shows(&others[0], "shop", None, NOT_FOUND, &[INJECTED, MISSING]).await;
    shows(&others[1], "shop", &pairs[2], MANAGED, &[INJECTED]).await;
    assert_eq!(version(&others[1].route("shop").await), untouched);
}

async fn a_route_goes_from_custom_to_managed_and_back(server: TestServer) {
    let custom = "Custom CertificateInRoute";
    let (theirs, held) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    let stage = Stage::on(&server).await;
    SecretFixture::tls("shop-tls", &held).create(&stage.ns).await;
    RouteFixture::edge("shop").holding(&theirs).create(&stage.ns).await;
    stage.shows("shop", &theirs, custom, &[]).await;

    stage.annotate("shop", Some("shop-tls")).await;
    stage.shows("shop", &held, MANAGED, &[INJECTED]).await;

    let own = json!({
        "metadata": {"annotations": {SECRET_NAME_ANNOTATION: null}},
        "spec": {"tls": {"certificate": theirs.certificate, "key": theirs.key}},
    });
    stage.ns.patch_route("shop", own).await;
    stage.shows("shop", &theirs, custom, &[INJECTED]).await;

    stage.annotate("shop", Some("shop-tls")).await;
    stage.shows("shop", &held, MANAGED, &[INJECTED_TWICE]).await;

    // Both annotations at once: the user takes the pair over.
    stage.ns.patch_route("shop", json!({"metadata": {"annotations": null}})).await;
    stage.shows("shop", &held, custom, &[INJECTED_TWICE]).await;
}
