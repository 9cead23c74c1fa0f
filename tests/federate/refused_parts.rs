//! What of a SpireServer only the API server refuses, and a SpireServer that somebody's finalizer holds.

use serde_json::{Value, json};
use trustplane::federate::decide::render::Component;

use crate::side::server_conf;
use testkit::stage::{self, Stage};

const CONFIGURATION: &str = "/spec/template/metadata/annotations/trustplane.dev~1server-config";

fn federation(peers: &[&str]) -> Value {
    let peer = |trust_domain: &&str| json!({ "trustDomain": trust_domain, "bundleEndpointUrl": "https://localhost:1", "bundleEndpointProfile": "https_web" });
    let mut federation = stage::spiffe();
    federation["federatesWith"] = peers.iter().map(peer).collect();
    federation
}

#[tokio::test]
async fn a_peer_goes_although_the_api_server_refuses_where_the_pod_is_to_run() {
    let stage = Stage::start("federation-refused-placement").await;
    stage.create(federation(&["td-b.test", "td-c.test"])).await;
    stage.change(json!({ "spec": { "resources": { "limits": { "memory": "1Gi" } } } })).await;
    let _controller = stage.controller(&[]).await;
    let memory = "/spec/template/spec/containers/0/resources/limits/memory";
    stage.until_field(Component::StatefulSet, memory, json!("1Gi")).await;
    stage.writes().await;
    let before = stage.object(Component::StatefulSet).await;

    // No toleration has both, and no Pod of ours has a claim.
    let tolerations = json!([{ "key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5 }]);
    let resources = json!({ "claims": [{ "name": "nope" }], "limits": { "memory": "2Gi" } });
    stage.change(json!({ "spec": { "tolerations": tolerations, "resources": resources } })).await;
    let told = stage.until_condition("StatefulSetAvailable", "False", "Failed").await;
    assert!(told.contains("HTTP 422"), "{told}");
    stage.change(json!({ "spec": { "federation": federation(&["td-c.test"]) } })).await;
    let rolled_out = async || {
        let found = stage.object(Component::StatefulSet).await;
        let (old, new) = (before.pointer(CONFIGURATION), found.pointer(CONFIGURATION));
        assert!(old.is_some() && new.is_some(), "{found}");
        if old == new { Err("the Pod goes on with the peer") } else { Ok(found) }
    };
    let within = std::time::Duration::from_secs(60);
    let after = testkit::eventually(within, "the Pod is replaced", rolled_out).await;
    let peers = server_conf(&stage).await["server"]["federation"]["federates_with"].clone();
    assert!(peers["td-b.test"].is_null() && peers["td-c.test"].is_object(), "{peers}");
    assert_eq!(after.pointer(memory), Some(&json!("1Gi")), "as it was: {after}");
    assert!(after.pointer("/spec/template/spec/tolerations").is_none(), "{after}");
    assert_eq!(stage.condition("StatefulSetAvailable").await.1, "Failed", "it is still told");

    stage.change(json!({ "spec": { "tolerations": null, "resources": { "claims": null } } })).await;
    stage.until_field(Component::StatefulSet, memory, json!("2Gi")).await;
}

#[tokio::test]
async fn a_spire_server_that_a_finalizer_holds_is_told_of_once_and_otherwise_left_alone() {
    let stage = Stage::start("federation-held").await;
    stage.create(stage::spiffe()).await;
    let _controller = stage.controller(&["--resync=2s"]).await;
    stage.until_field(Component::Route, "/spec/host", json!(stage.host())).await;
    stage.run_pod().await;
    stage.admit_route().await;
    stage.until_condition("Ready", "True", "Ready").await;
    stage.change(json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await;
    let (conditions, writes) = (stage.server().await["status"].clone(), stage.writes().await);

    stage.delete().await;
    let told = stage.until_condition("Ready", "False", "Deleting").await;
    assert!(told.contains("finalizers keep it: example.com/hold."), "{told}");
    stage.meddle(Component::Route, json!({ "spec": { "to": { "name": "other" } } })).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let after = stage.writes().await;
    assert_eq!(after[writes.len()..], ["patch spireservers/cluster/status"], "the status, once");
    assert_eq!(stage.object(Component::Route).await["spec"]["to"]["name"], "other");
    let events = stage.until_event("Warning Deleting").await;
    let told: Vec<_> = events.iter().filter(|it| it.starts_with("Warning Deleting")).collect();
    assert_eq!(told.len(), 1, "{events:?}");
    let others = |status: &Value| -> Vec<Value> {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|it| it["type"] != "Ready").collect()
    };
    assert_eq!(others(&stage.server().await["status"]), others(&conditions));

    stage.change(json!({ "metadata": { "finalizers": null } })).await;
    let gone = ["wait", "--for=delete", "spireserver/cluster", "--timeout=30s"];
    stage.cluster.kubectl(&gone).await.expect("it goes");
}
