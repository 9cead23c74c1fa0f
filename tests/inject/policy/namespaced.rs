//! The controller with Roles of one namespace, and no right on the cluster as a whole.

use serde_json::{Value, json};
use testkit::{Launch, RouteFixture, SecretFixture, eventually, pair};

use crate::{
    policy::{guarded, users::Person},
    scene::{PATIENCE, SILENCE, Scene},
};

/// The rules of a Role or ClusterRole in deploy/base.
fn rules_in(file: &str) -> Vec<Value> {
    let path = format!("{}/deploy/base/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let documents = text.split("\n---\n").map(|document| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{path}: {error}"))
    });
    let rules =
        documents.flat_map(|document| document["rules"].as_array().cloned().unwrap_or_default());
    let rules: Vec<_> = rules.collect();
    assert!(!rules.is_empty(), "{path} has no rules");
    rules
}

#[tokio::test]
async fn roles_of_one_namespace_are_all_it_needs() {
    let cluster = guarded::cluster().await;
    let (ns, elsewhere) = (cluster.namespace("served").await, cluster.namespace("elsewhere").await);
    let rules = [rules_in("role.yaml"), rules_in("lease-role.yaml")].concat();
    let account = Person::new(&ns, "trustplane", &rules).await;
    for resource in [("", "secrets"), ("route.openshift.io", "routes")] {
        let everywhere = json!({ "group": resource.0, "resource": resource.1, "verb": "list" });
        assert!(!account.may(everywhere).await, "{resource:?} of all namespaces");
    }
    let flags =
        ["--leader-elect", "--leader-elect-namespace", ns.name(), "--secret-missing-grace", "1s"];
    let kubeconfig = cluster.kubeconfig(&account.access);
    let mut controller = Launch::within(&ns).kubeconfig(kubeconfig).flags(&flags).start();
    controller.ready().await;
    let scene = Scene { ns, controller };

    let (issued, renewed) = (pair::issued("shop.example.com"), pair::issued("shop.example.com"));
    for ns in [&scene.ns, &elsewhere] {
        SecretFixture::tls("shop-tls", &issued).create(ns).await;
        RouteFixture::edge("shop").annotated("shop-tls").create(ns).await;
    }
    scene.holds("shop", &issued).await;
    SecretFixture::tls("shop-tls", &renewed).replace(&scene.ns).await;
    scene.holds("shop", &renewed).await;
    managed(&scene).await;
    scene.event("shop", "CertificateUpdated").await;
    scene.ns.delete_secret("shop-tls").await;
    scene.event("shop", "SecretNotFound").await;
    eventually(PATIENCE, "the pair is gone", async || {
        let (certificate, _) = scene.ns.pair_in_route("shop").await;
        if certificate.is_empty() { Ok(()) } else { Err("it is there") }
    })
    .await;

    let not_served = elsewhere.pair_in_route("shop").await;
    assert!(not_served == (String::new(), String::new()), "a namespace that is not served");
    tokio::time::sleep(SILENCE).await;
    let (code, _) = { scene }.controller.terminate().await;
    assert_eq!(code, 0);
    let requests = cluster.audit().entries();
    let requests: Vec<_> = requests.iter().filter(|entry| entry.user == account.user).collect();
    assert!(requests.len() > 20, "{} requests", requests.len());
    let refused: Vec<_> = requests.iter().filter(|entry| entry.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let outside = requests.iter().filter(|entry| {
        !entry.resource.is_empty() && Some(&*entry.namespace) != account.user.split(':').nth(2)
    });
    let outside: Vec<_> = outside.collect();
    assert!(outside.is_empty(), "{outside:#?}");
    println!("{} requests, none forbidden, none outside its namespace", requests.len());
}

async fn managed(scene: &Scene) {
    eventually(PATIENCE, "the condition", async || {
        let condition = scene.ns.certificate_condition("shop").await;
        let expected = Some((Some("Managed".to_owned()), "SecretInjected".to_owned()));
        if condition == expected { Ok(()) } else { Err(condition) }
    })
    .await;
}
