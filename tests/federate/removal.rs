//! The controller is removed with `kubectl delete -k deploy/federate`: the SPIRE server goes on, and nothing
//! that keys are in goes with it.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use testkit::{
    eventually,
    spire::Launch,
    stage::{self, NAMESPACE, Stage},
};
use trustplane::federate::decide::render::Component;

use crate::side::server_conf;

const PATIENCE: Duration = Duration::from_secs(60);
const FEDERATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/federate");

/// Everything that the trust domain is made of. The claim has the volume with the keys.
const STAYS: &str = "crd/spireservers.operator.openshift.io spireserver/cluster namespace/spire \
                     persistentvolumeclaim/spire-data-spire-server-0 statefulset/spire-server \
                     configmap/spire-server configmap/spire-controller-manager configmap/spire-bundle \
                     service/spire-server serviceaccount/spire-server role/spire-server \
                     rolebinding/spire-server clusterrole/spire-server clusterrolebinding/spire-server \
                     route/spire-server-federation";

/// The objects above that exist and are not being deleted, with their uids.
async fn existing(stage: &Stage) -> BTreeMap<String, String> {
    let mut arguments = vec!["get", "-n", NAMESPACE, "-o", "json", "--ignore-not-found"];
    arguments.extend(STAYS.split_whitespace());
    let found = stage.cluster.kubectl(&arguments).await.expect("the kinds are served");
    let found: Value = serde_json::from_str(&found).expect("a list");
    let items = found["items"].as_array().cloned().unwrap_or_default();
    let of = |it: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, metadata) = (text(&it["kind"]), &it["metadata"]);
        (format!("{kind} {}", text(&metadata["name"])), text(&metadata["uid"]))
    };
    items.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null()).map(of).collect()
}

/// The claim that the StatefulSet's controller would make.
fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "spire-data-spire-server-0", "namespace": NAMESPACE },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

/// An object that the garbage collector removes when the controller's account is gone.
async fn marker(stage: &Stage) -> Value {
    let uid = ["-n", "trustplane", "get", "serviceaccount", "trustplane-federate"];
    let uid = stage.cluster.kubectl(&[&uid[..], &["-o=jsonpath={.metadata.uid}"]].concat()).await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "name": "trustplane-federate",
        "uid": uid.expect("the account"),
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "goes-with-the-account", "namespace": "trustplane", "ownerReferences": [owner] },
    })
}

/// Writes of the controller, without those to a status.
async fn writes_of(stage: &Stage) -> Vec<String> {
    let writes = stage.writes().await.into_iter();
    writes.filter(|write| !write.ends_with("/status")).collect()
}

async fn authorities_published(stage: &Stage) -> usize {
    let bundle = stage.object(Component::BundleConfigMap).await;
    let text = bundle["data"].as_object().into_iter().flatten().next();
    text.and_then(|(_, text)| text.as_str()).map_or(0, |it| it.matches("BEGIN CERT").count())
}

#[tokio::test]
async fn without_its_controller_the_spire_server_goes_on_and_keeps_its_keys() {
    let stage = Stage::start("federation-removed").await;
    stage.create(stage::spiffe()).await;
    let controller = stage.controller(&[]).await;
    stage.until_field(Component::Route, "/spec/host", json!(stage.host())).await;
    stage.until_condition("RBACAvailable", "True", "Available").await;
    stage.apply(&claim()).await;
    stage.apply(&marker(&stage).await).await;
    let token = stage.cluster.token_of(NAMESPACE, "spire-server").await;
    let account = stage.cluster.kubeconfig(&stage.cluster.admin_access().with_token(token));
    let conf = server_conf(&stage).await;
    let spire = Launch::new(&stage.trust_domain, conf).in_cluster(&account).start().await;
    let before = existing(&stage).await;
    assert_eq!(before.len(), STAYS.split_whitespace().count(), "{before:#?}");
    let writes = writes_of(&stage).await;

    // The Deployment goes, and its Pods with it.
    drop(controller);
    let _collector = stage.collector();
    let delete = ["delete", "-k", FEDERATE, "--timeout=60s"];
    stage.cluster.kubectl(&delete).await.expect("everything can be deleted, and is gone then");
    eventually(PATIENCE, "the garbage collector was there", async || {
        let marker = ["-n", "trustplane", "get", "configmap", "goes-with-the-account"];
        if stage.cluster.kubectl(&marker).await.is_err() { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert_eq!(existing(&stage).await, before);

    // It still signs, and has the rights to publish.
    let published = authorities_published(&stage).await;
    spire.rotate().await;
    eventually(PATIENCE, "the new authority is published", async || {
        let now = authorities_published(&stage).await;
        if now > published { Ok(()) } else { Err((published, now)) }
    })
    .await;
    spire.mint("spiffe://td-a.test/workload").await;

    // Installed again, it finds everything in its place.
    stage::install(&stage.cluster, "deploy/federate").await;
    let _controller = stage.controller(&[]).await;
    assert_eq!(writes_of(&stage).await, writes, "nothing has to be made again");
    assert_eq!(existing(&stage).await, before);
}
