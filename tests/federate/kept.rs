//! What counts while a SpireServer is invalid, how many peers it may have, and what SPIRE trusts beside
//! what it lists.

use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

use testkit::{
    eventually, eventually_equals,
    spire::ControllerManager,
    stage::{self, Stage},
};
use trustplane::federate::decide::render::Component;

use crate::{real_spire::brought, side::server_conf};

const SOON: Duration = Duration::from_secs(30);

fn peer(trust_domain: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": "https://localhost:1",
        "bundleEndpointProfile": "https_web",
    })
}

/// The peers in the server's configuration.
async fn configured(stage: &Stage) -> BTreeSet<String> {
    let conf = server_conf(stage).await;
    let peers = conf["server"]["federation"]["federates_with"].as_object().cloned();
    peers.unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

async fn until_configured(stage: &Stage, peers: &[&str]) {
    let wanted: BTreeSet<String> = peers.iter().map(|it| (*it).to_owned()).collect();
    eventually_equals(SOON, "the peers are configured", wanted, async || configured(stage).await)
        .await;
}

#[tokio::test]
async fn while_a_field_is_invalid_the_last_valid_spec_counts_less_the_peers_that_were_removed() {
    const PORT: &str = "/spec/ports/0/port";
    let stage = Stage::start("federation-kept").await;
    let acme = json!({
        "directoryUrl": "https://acme.test/directory",
        "domainName": "federation.td-a.test",
        "email": "admins@td-a.test",
        "tosAccepted": "true",
    });
    let endpoint = json!({ "profile": "https_web", "httpsWeb": { "acme": acme } });
    let peers = json!([peer("td-b.test"), peer("td-c.test")]);
    stage.create(json!({ "bundleEndpoint": endpoint, "federatesWith": peers })).await;
    let controller = stage.controller(&[]).await;
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
    until_configured(&stage, &["td-b.test", "td-c.test"]).await;

    let invalid = json!({ "acme": { "tosAccepted": "false" } });
    let federation = json!({
        "bundleEndpoint": { "httpsWeb": invalid },
        "federatesWith": [peer("td-c.test"), peer("td-d.test")],
    });
    let change =
        json!({ "spec": { "jwtIssuer": "https://new.td-a.test", "federation": federation } });
    stage.change(change).await;
    let told = stage
        .until_condition("ConfigurationValid", "False", "InvalidFederationConfiguration")
        .await;
    assert!(told.ends_with("without the peers that are no longer listed"), "{told}");
    until_configured(&stage, &["td-c.test"]).await;
    let issuer = async || server_conf(&stage).await["server"]["jwt_issuer"].clone();
    assert_eq!(issuer().await, "https://oidc.td-a.test", "what is new waits");
    let port = stage.object(Component::Service).await.pointer(PORT).cloned().unwrap_or_default();
    let drift = json!({ "spec": { "selector": { "app.kubernetes.io/name": "mine" } } });
    const SELECTOR: &str = "/spec/selector/app.kubernetes.io~1name";
    stage.meddle(Component::Service, drift.clone()).await;
    stage.until_field(Component::Service, SELECTOR, json!("spire-server")).await;

    // The next process knows it, too: it is in the cluster.
    drop(controller);
    stage.meddle(Component::Service, drift).await;
    stage.remove(Component::Route).await;
    let _again = stage.controller(&[]).await;
    stage.until_field(Component::Service, SELECTOR, json!("spire-server")).await;
    stage.until_field(Component::Service, PORT, port).await;
    stage.until_field(Component::Route, "/spec/host", json!("federation.td-a.test")).await;
    stage.writes().await;
    assert_eq!(configured(&stage).await, BTreeSet::from(["td-c.test".to_owned()]));

    // Nobody gets a Secret mounted by writing to that annotation.
    const ANNOTATION: &str = "trustplane.dev/last-valid-spec";
    let map = stage.object(Component::ServerConfigMap).await;
    let kept = map["metadata"]["annotations"][ANNOTATION].as_str().expect("the annotation");
    let mut forged: Value = serde_json::from_str(kept).expect("JSON");
    forged["datastore"]["tlsSecretName"] = json!("victim");
    let forged = json!({ ANNOTATION: forged.to_string() });
    let before = stage.object(Component::StatefulSet).await["spec"].clone();
    stage
        .meddle(Component::ServerConfigMap, json!({ "metadata": { "annotations": forged } }))
        .await;
    eventually(SOON, "the forged spec does not count", async || {
        let told = stage.condition("ConfigurationValid").await.2;
        if told.ends_with("nothing is made or changed") { Ok(()) } else { Err(told) }
    })
    .await;
    stage.writes().await;
    assert_eq!(stage.object(Component::StatefulSet).await["spec"], before);

    let fixed = json!({ "bundleEndpoint": { "httpsWeb": { "acme": { "tosAccepted": "true" } } } });
    stage.change(json!({ "spec": { "federation": fixed } })).await;
    until_configured(&stage, &["td-c.test", "td-d.test"]).await;
    assert_eq!(issuer().await, "https://new.td-a.test");
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
}

#[tokio::test]
async fn what_spire_is_told_of_beside_the_list_is_named_and_counts_for_the_limit() {
    let stage = Stage::start("federation-beside").await;
    let crds = ControllerManager::crds().display().to_string();
    let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
    applied.expect("SPIRE's CRDs");
    let domain = |name: &str, class: &str| {
        let mut domain = brought(name, "localhost:1", "{\"keys\":[]}");
        domain["spec"]["className"] = json!(class);
        domain
    };
    stage.apply(&domain("td-b.test", "spire-controller-manager")).await;
    stage.apply(&domain("td-x.test", "")).await;
    stage.apply(&domain("td-y.test", "another")).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([peer("td-b.test")]);
    stage.create(federation).await;
    let _controller = stage.controller(&["--max-peers=2"]).await;
    let told = stage.until_condition("TrustMatchesSpec", "False", "UnlistedTrustDomains").await;
    println!("{told}");
    assert!(told.contains("td-x.test (ClusterFederatedTrustDomain td-x)."), "{told}");
    assert!(!told.contains("td-b") && !told.contains("td-y"), "{told}");
    stage.until_event("Warning UnlistedTrustDomains").await;
    assert_eq!(stage.condition("Ready").await.2, "see StatefulSetAvailable", "it does not count");

    let listed = json!([peer("td-b.test"), peer("td-c.test")]);
    stage.change(json!({ "spec": { "federation": { "federatesWith": listed } } })).await;
    let told = stage
        .until_condition("ConfigurationValid", "False", "InvalidFederationConfiguration")
        .await;
    assert!(told.contains("2 trust domains, and 1 in ClusterFederatedTrustDomains alone, where --max-peers allows 2"), "{told}");
    stage.writes().await;
    assert_eq!(configured(&stage).await, BTreeSet::from(["td-b.test".to_owned()]));

    let gone = ["delete", "clusterfederatedtrustdomain", "td-x"];
    stage.cluster.kubectl(&gone).await.expect("the administrator may");
    stage.until_condition("TrustMatchesSpec", "True", "OnlyListedTrustDomains").await;
    until_configured(&stage, &["td-b.test", "td-c.test"]).await;
    stage.until_condition("ConfigurationValid", "True", "ValidConfiguration").await;
}
