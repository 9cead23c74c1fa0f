//! Admission by the edge, and the status that it writes.

use std::time::Duration;

use http::Method;
use serde_json::json;
use trustplane::demo::edge::RunningEdge;
use trustplane::demo::loopback::Port;
use trustplane::runtime::clock::Clock;

use crate::stage::{RouteFixture, Stage, holding};

#[tokio::test]
async fn an_admitted_route_says_so_as_with_a_router() {
    let stage = Stage::new().await;
    let route = RouteFixture::edge("shop");
    stage.create(&route).await;
    let mut ingress = stage.eventually_admitted(&route, "True").await;
    assert!(ingress["conditions"][0]["lastTransitionTime"].take().is_string());
    let expected = json!({
        "host": "shop.example.com",
        "routerName": "sandbox",
        "routerCanonicalHostname": "edge.sandbox.localhost",
        "wildcardPolicy": "None",
        "conditions": [{ "type": "Admitted", "status": "True", "lastTransitionTime": null }],
    });
    assert_eq!(ingress, expected);
}

#[tokio::test]
async fn a_route_whose_key_is_another_certificates_is_refused_and_gets_the_default_certificate() {
    let stage = Stage::new().await;
    let (pair, other) = (stage.pair("shop.example.com"), stage.pair("shop.example.com"));
    let route = RouteFixture::edge("shop").holding(&pair);
    let wrong = route.clone().with("/spec/tls/key", json!(other.key.expose()));
    stage.create(&wrong).await;
    let ingress = stage.eventually_admitted(&route, "False").await;
    assert_eq!(ingress["conditions"][0]["reason"], "ExtendedValidationFailed");
    let message = ingress["conditions"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "spec.tls.key does not belong to the certificate in spec.tls.certificate; store a certificate and key that belong together."
    );
    let served = stage.eventually_default("shop.example.com", 503).await;
    assert!(served.line.starts_with("Route default/shop is not admitted: spec.tls.key"));

    stage.patch(&route, holding(&pair)).await;
    stage.eventually_serves("shop.example.com", &pair).await;
    let ingress = stage.eventually_admitted(&route, "True").await;
    assert_eq!(ingress["conditions"][0].get("reason"), None);
}

#[tokio::test]
async fn other_routes_are_refused_or_admitted_as_by_the_router() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    let another = stage.pair("another");
    let held = |name: &str| RouteFixture::edge(name).holding(&pair);
    let no_key = held("no-key").with("/spec/tls/key", json!(""));
    let no_pem = held("no-pem").with("/spec/tls/certificate", json!("no PEM"));
    let left_over = held("left-over").with("/spec/tls/caCertificate", json!(another.certificate));
    let destination = RouteFixture::reencrypt("destination")
        .with("/spec/tls/destinationCACertificate", json!("no PEM"));
    for route in [no_key, no_pem, left_over, destination] {
        stage.create(&route).await;
        let ingress = stage.eventually_admitted(&route, "False").await;
        assert_eq!(ingress["conditions"][0]["reason"], "ExtendedValidationFailed");
    }
    let key_alone = held("key-alone").with("/spec/tls/certificate", json!(""));
    stage.create(&key_alone).await;
    stage.eventually_admitted(&key_alone, "True").await;
    stage.eventually_default("key-alone.example.com", 200).await;
}

#[tokio::test]
async fn status_and_answer_say_what_the_edge_does_not_support() {
    let stage = Stage::new().await;
    let external = RouteFixture::edge("external")
        .with("/spec/tls/externalCertificate", json!({ "name": "any" }));
    stage.create(&external).await;
    let ingress = stage.eventually_admitted(&external, "True").await;
    let message = ingress["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("does not read spec.tls.externalCertificate"), "{message}");
    let served = stage.eventually_default("external.example.com", 200).await;
    assert!(served.line.ends_with(message), "{}", served.line);

    let plain = RouteFixture::edge("plain").without("tls");
    stage.create(&plain).await;
    let ingress = stage.eventually_admitted(&plain, "True").await;
    assert!(ingress["conditions"][0]["message"].as_str().unwrap().contains("speaks TLS only"));
    stage.eventually_default("plain.example.com", 503).await;
}

#[tokio::test]
async fn a_route_without_a_host_is_refused() {
    let stage = Stage::new().await;
    let route = RouteFixture::edge("nowhere").without("host");
    stage.create(&route).await;
    let ingress = stage.eventually_admitted(&route, "False").await;
    assert_eq!(ingress["conditions"][0]["reason"], "NoHostValue");
    assert_eq!(ingress.get("host"), None);
}

#[tokio::test]
async fn of_two_routes_with_one_host_the_older_is_served_until_it_goes() {
    let stage = Stage::new().await;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    stage.send(Method::POST, "/api/v1/namespaces", &namespace).await;
    let (first, second) = (stage.pair("shop.example.com"), stage.pair("shop.example.com"));
    let older = RouteFixture::edge("z-older").host("shop.example.com");
    let younger = RouteFixture::edge("a-younger").host("shop.example.com").namespace("other");
    stage.create(&older.clone().holding(&first)).await;
    stage.eventually_admitted(&older, "True").await;
    // Timestamps have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    stage.create(&younger.clone().holding(&second)).await;
    let ingress = stage.eventually_admitted(&younger, "False").await;
    assert_eq!(ingress["conditions"][0]["reason"], "HostAlreadyClaimed");
    stage.eventually_serves("shop.example.com", &first).await;

    stage.delete(&older).await;
    stage.eventually_serves("shop.example.com", &second).await;
    stage.eventually_admitted(&younger, "True").await;
}

#[tokio::test]
async fn the_condition_of_the_injector_survives_what_the_edge_writes() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    let route = RouteFixture::edge("shop").holding(&pair);
    stage.create(&route).await;
    stage.eventually_admitted(&route, "True").await;
    let condition = json!([{ "type": "Custom", "status": "True", "reason": "CertificateInRoute", "message": "mine" }]);
    let status = json!({ "status": { "certificate": condition } });
    stage.send(Method::PATCH, &format!("{}/status", route.path()), &status).await;

    stage.patch(&route, json!({ "spec": { "tls": { "key": null } } })).await;
    stage.eventually_admitted(&route, "False").await;
    assert_eq!(stage.get(&route).await["status"]["certificate"], condition);
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    let route = RouteFixture::edge("shop");
    stage.create(&route.clone().holding(&pair)).await;
    stage.eventually_admitted(&route, "True").await;
    let settled = stage.quiet().await;
    assert_eq!(settled, stage.version());

    stage.patch(&route, json!({ "metadata": { "labels": { "some": "label" } } })).await;
    assert_eq!(stage.quiet().await, settled + 1, "the label alone");
    stage.patch(&route, holding(&stage.pair("shop.example.com"))).await;
    assert_eq!(stage.quiet().await, settled + 2, "the new pair alone");

    let client = stage.client.clone();
    let second = RunningEdge::start(client, Port::Exactly(0), Clock::system()).await.unwrap();
    assert_eq!(stage.quiet().await, settled + 2, "an edge that starts anew finds all said");
    drop(second);
}
