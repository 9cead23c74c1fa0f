//! `trustplane check`: what it says of Routes, each claim compared with what is there.

use serde_json::json;

use crate::check::{admin, found, results};
use crate::program::{Ran, trustplane};
use testkit::{Cluster, Namespace, RouteFixture, SecretFixture, pair};
use trustplane::inject::decide::marker::Marker;
use trustplane::names::INJECTED_ANNOTATION;

async fn check(cluster: &Cluster) -> Ran {
    trustplane(&admin(cluster), &["check", "-o", "json"]).await
}

/// As a controller left it that has stopped: a note for a pair that the Secret no longer has.
async fn injected_before(ns: &Namespace, name: &str, pair: &pair::Pair) {
    RouteFixture::edge(name).annotated("shop-tls").holding(pair).create(ns).await;
    let uid = ns.route(name).await["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let note = Marker::of(&uid, &pair.certificate, &pair.key).to_string();
    let annotations = json!({ "metadata": { "annotations": { INJECTED_ANNOTATION: note } } });
    ns.patch_route(name, annotations).await;
}

#[tokio::test]
async fn pairs_are_compared_before_they_are_counted() {
    let cluster = Cluster::start_another("check-pairs").await;
    let ns = cluster.namespace("pairs").await;
    let (old, new) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    SecretFixture::tls("shop-tls", &new).create(&ns).await;
    for name in ["first", "second"] {
        injected_before(&ns, name, &old).await;
    }
    let ran = check(&cluster).await;
    let routes = found(&ran, "routes");
    assert!(routes.contains("2 ask for a Secret; its certificate and key are in 0"), "{routes}");
    assert_eq!(results(&ran)["routes"], "warning", "{ran:?}");

    // Somebody who may list Routes and no Secrets.
    cluster.kubectl(&["-n", ns.name(), "create", "serviceaccount", "user"]).await.expect("made");
    let rights = ["--verb=list", "--resource=routes.route.openshift.io"];
    let role = [&["create", "clusterrole", "route-reader"], &rights[..]].concat();
    cluster.kubectl(&role).await.expect("made");
    let user = format!("--serviceaccount={}:user", ns.name());
    let bind =
        ["create", "clusterrolebinding", "route-reader", "--clusterrole=route-reader", &user];
    cluster.kubectl(&bind).await.expect("made");
    let token = cluster.token_of(ns.name(), "user").await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token(token));
    let told = "2 have what was injected, but without reading Secrets it cannot be seen";
    testkit::eventually(std::time::Duration::from_secs(30), told, async || {
        let ran = trustplane(&kubeconfig, &["check", "-o", "json"]).await;
        let routes = found(&ran, "routes");
        if routes.contains(told) { Ok(()) } else { Err(routes) }
    })
    .await;
}

#[tokio::test]
async fn expired_certificates_wrong_hosts_and_refused_routes_have_a_line_each() {
    let cluster = Cluster::start_another("check-certificates").await;
    let ns = cluster.namespace("certificates").await;
    let good = pair::issued("good.example.com");
    let expired = pair::expired("expired.example.com");
    let other = pair::issued("elsewhere.example.org");
    for (name, pair) in [("good", &good), ("expired", &expired), ("other", &other)] {
        let route = RouteFixture::edge(name).annotated("shop-tls").holding(pair);
        route.with("/spec/host", json!(format!("{name}.example.com"))).create(&ns).await;
    }
    let refused = json!({ "routerName": "default", "conditions": [
        { "type": "Admitted", "status": "False", "reason": "HostAlreadyClaimed" },
    ] });
    ns.patch_route_status("good", json!({ "status": { "ingress": [refused] } })).await;

    let slip = json!({ "route.openshift.io/tls-secretname": "shop-tls" });
    RouteFixture::edge("slip").with("/metadata/annotations", slip).create(&ns).await;

    let ran = check(&cluster).await;

    let at = |name: &str| format!("{}/{name}", ns.name());
    assert_eq!(found(&ran, "certificate-dates"), format!("expired: {}", at("expired")));
    let hosts = format!("not for the Route's host: {}", at("other"));
    assert_eq!(found(&ran, "certificate-hosts"), hosts);
    let refused = format!("refused: {} (HostAlreadyClaimed, router default)", at("good"));
    assert_eq!(found(&ran, "router-admission"), refused);
    let slip = format!("misspelt annotation: {} (route.openshift.io/tls-secretname)", at("slip"));
    assert!(found(&ran, "routes").contains(&slip), "{ran:?}");
    for check in ["certificate-dates", "certificate-hosts", "router-admission"] {
        assert_eq!(results(&ran)[check], "warning", "{ran:?}");
    }
}
