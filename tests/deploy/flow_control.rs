//! deploy/flow-control: other accounts' floods do not slow us down, and ours do not starve the API
//! server.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Cluster, at, eventually_equals,
    flow_control::{Classed, classed},
    tools::kustomize,
};

use crate::objects::objects;

const FLOW_CONTROL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/flow-control");
const FEDERATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/federate/flow-schema.yaml");
const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/authority/flow-schema.yaml");
const REVIEW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/review/flow-schema.yaml");

fn flow_schema(overlay: &str) -> Option<Value> {
    objects(&kustomize(&at(overlay))).remove("FlowSchema trustplane-inject")
}

#[test]
fn the_overlays_for_a_whole_cluster_put_the_account_on_workload_high() {
    for overlay in ["deploy/overlays/kubernetes", "deploy/overlays/openshift"] {
        let spec = flow_schema(overlay).expect("it has a FlowSchema")["spec"].take();
        assert_eq!(spec["priorityLevelConfiguration"]["name"], "workload-high", "{overlay}");
        let account = json!({ "name": "trustplane", "namespace": "trustplane" });
        let subject = json!({ "kind": "ServiceAccount", "serviceAccount": account });
        assert_eq!(spec["rules"][0]["subjects"], json!([subject]), "{overlay}");
        assert_eq!(spec["rules"].as_array().map(Vec::len), Some(1), "{overlay}");
    }
    for overlay in ["deploy/overlays/single-namespace", "deploy/base"] {
        assert_eq!(flow_schema(overlay), None, "{overlay}");
    }
}

#[tokio::test]
async fn the_api_server_puts_all_that_the_account_asks_on_workload_high() {
    let cluster = Cluster::get().await;
    let admin = cluster.admin().await;
    let ours = cluster.account().client_without_retries().await;
    let ns = cluster.namespace("flow").await;
    let account = ["-n", ns.name(), "create", "serviceaccount", "neighbour"];
    cluster.kubectl(&account).await.expect("an account");
    let token = cluster.token_of(ns.name(), "neighbour").await;
    let neighbour = cluster.admin_access().with_token(token).client_without_retries().await;
    let mut others = Vec::new();
    for (name, schema, path) in [
        ("trustplane-federate", FEDERATE, "/apis/operator.openshift.io/v1alpha1/spireservers"),
        ("trustplane-authority", AUTHORITY, "/apis/trustplane.dev/v1/spiffefederations"),
        ("trustplane-review", REVIEW, "/openid/v1/jwks"),
    ] {
        let account = ["-n", "trustplane", "create", "serviceaccount", name];
        cluster.kubectl(&account).await.expect("an account");
        let token = cluster.token_of("trustplane", name).await;
        let client = cluster.admin_access().with_token(token).client_without_retries().await;
        let applied = cluster.kubectl(&["apply", "--server-side", "-f", schema]).await;
        applied.expect("it is accepted");
        others.push((name, client, path));
    }
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", FLOW_CONTROL]).await;
    applied.expect("it is accepted");

    for path in [
        "/apis/route.openshift.io/v1/routes?limit=1",
        "/api/v1/secrets?limit=1",
        "/apis/coordination.k8s.io/v1/namespaces/trustplane/leases/trustplane-inject",
        "/openapi/v3",
    ] {
        let expected = Ok(Classed::new("trustplane-inject", "workload-high"));
        // It counts a moment after it was accepted.
        eventually_equals(Duration::from_secs(30), path, expected, async || {
            classed(&admin, &ours, path).await
        })
        .await;
    }
    // Refused, and classed all the same.
    for (name, client, path) in &others {
        let expected = Ok(Classed::new(name, "workload-high"));
        eventually_equals(Duration::from_secs(30), path, expected, async || {
            classed(&admin, client, path).await
        })
        .await;
    }
    let neighbours = classed(&admin, &neighbour, "/api/v1/secrets?limit=1").await;
    assert_eq!(neighbours, Ok(Classed::new("service-accounts", "workload-low")));
}
