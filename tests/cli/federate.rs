//! `trustplane check` and `trustplane uninstall` where `trustplane federate` is installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Cluster, eventually, suite, toolbox};

use crate::check::admin;
use crate::program::{Ran, trustplane};

const PATIENCE: Duration = Duration::from_secs(30);
const FEDERATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/federate");
const TRUST_DOMAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/trust-domain");

/// Its lines: result, and finding.
type Lines = BTreeMap<String, (String, String)>;

fn lines(ran: &Ran) -> Lines {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = ran.json()["lines"].as_array().cloned().unwrap_or_default();
    let ours = all.iter().filter(|line| {
        let check = text(&line["check"]);
        check.starts_with("federate") || check == "spire-server"
    });
    ours.map(|line| (text(&line["check"]), (text(&line["result"]), text(&line["found"])))).collect()
}

/// Checks until the lines about it have these results: what was changed counts a moment later.
async fn until(kubeconfig: &Path, expected: &[(&str, &str)]) -> Lines {
    eventually(PATIENCE, &format!("{expected:?}"), async || {
        let found = lines(&trustplane(kubeconfig, &["check", "-o", "json"]).await);
        let results: Vec<_> = found.iter().map(|(check, (it, _))| (&**check, &**it)).collect();
        if results == expected { Ok(found.clone()) } else { Err(found.clone()) }
    })
    .await
}

/// All lines, with other results for some.
fn but(changed: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut all = BTreeMap::from([
        ("federate-apis", "ok"),
        // No Pod runs here.
        ("federate-deployment", "failed"),
        ("federate-lease", "failed"),
        ("federate-policy", "note"),
        ("federate-rights", "ok"),
        ("spire-server", "ok"),
    ]);
    all.extend(changed.iter().copied());
    all.into_iter().collect()
}

async fn apply(cluster: &Cluster, folder: &str) {
    let apply = ["apply", "--server-side", "--force-conflicts", "-k", folder];
    cluster.kubectl(&apply).await.expect("everything is accepted");
}

async fn patch(cluster: &Cluster, object: &str, patch: Value) {
    let patch = patch.to_string();
    let patch = ["patch", object, "--type=json", "-p", &patch];
    cluster.kubectl(&patch).await.expect("it is patched");
}

const SPIRE_SERVER_CRD: &str = "crd/spireservers.operator.openshift.io";

#[tokio::test]
async fn federate_is_checked_line_by_line_and_its_trust_domain_outlives_an_uninstall() {
    // Its account is refused things on purpose.
    let cluster = Cluster::start_another("forbidding-federate").await;
    let kubeconfig = admin(&cluster);
    let none = until(&kubeconfig, &[("federate", "note")]).await;
    assert!(none["federate"].1.starts_with("not installed"), "{none:?}");

    apply(&cluster, TRUST_DOMAIN).await;
    apply(&cluster, FEDERATE).await;
    let installed =
        until(&kubeconfig, &but(&[("federate-apis", "warning"), ("spire-server", "note")])).await;
    assert!(installed["federate-apis"].1.contains("ClusterFederatedTrustDomain"), "{installed:?}");
    assert!(installed["federate-policy"].1.contains("unaltered, for namespace spire"));
    let spire = toolbox().unwrap_or_else(|why| panic!("{why}"));
    let spire = spire.join("spire-controller-manager.crds.yaml").display().to_string();
    cluster.kubectl(&["apply", "--server-side", "-f", &spire]).await.expect("SPIRE's CRDs");
    until(&kubeconfig, &but(&[("spire-server", "note")])).await;

    reported(&cluster, &kubeconfig).await;
    altered(&cluster, &kubeconfig).await;
    uninstalled(&cluster, &kubeconfig).await;

    cluster.kubectl(&["delete", "-k", FEDERATE]).await.expect("deleted");
    let left = until(&kubeconfig, &[("federate", "note"), ("spire-server", "note")]).await;
    assert!(left["spire-server"].1.starts_with("trust domain a.test"), "{left:?}");
}

/// The conditions of the SpireServer are summed up.
async fn reported(cluster: &Cluster, kubeconfig: &Path) {
    let file = cluster.scratch().join(format!("{}.json", suite::next_number()));
    let server = json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "SpireServer",
        "metadata": { "name": "cluster" },
        "spec": {
            "trustDomain": "a.test", "clusterName": "a", "jwtIssuer": "https://oidc.a.test",
        },
    });
    suite::write_private(&file, &server.to_string());
    let create = ["create", "-f", file.to_str().expect("a path is text")];
    cluster.kubectl(&create).await.expect("the SpireServer is accepted");
    until(kubeconfig, &but(&[("spire-server", "warning")])).await;

    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    };
    let report = async |ready: &str, peers: Value| {
        let status = json!({ "status": {
            "conditions": [
                condition("Ready", ready, "Told"), condition("CreateOnlyMode", "False", "Off"),
            ],
            "federation": { "peers": peers },
        } });
        let status = status.to_string();
        let patch = ["patch", "spireserver/cluster", "--subresource=status", "--type=merge", "-p"];
        cluster.kubectl(&[&patch[..], &[&status]].concat()).await.expect("a status");
    };
    let peer = |well: bool| json!([{ "trustDomain": "b.test", "reachable": well, "profileVerified": well }]);
    report("False", peer(true)).await;
    until(kubeconfig, &but(&[("spire-server", "failed")])).await;
    report("True", peer(false)).await;
    let dark = until(kubeconfig, &but(&[("spire-server", "warning")])).await;
    assert!(dark["spire-server"].1.ends_with("peers with a problem: b.test"), "{dark:?}");
    report("True", peer(true)).await;
    until(kubeconfig, &but(&[])).await;
}

/// Every difference from deploy/ is found, and fixed by the command in the line.
async fn altered(cluster: &Cluster, kubeconfig: &Path) {
    let without_status = json!([{ "op": "remove", "path": "/rules/1" }]);
    patch(cluster, "clusterrole/trustplane-federate", without_status).await;
    let lacking = until(kubeconfig, &but(&[("federate-rights", "failed")])).await;
    let lacks = &lacking["federate-rights"].1;
    assert!(lacks.ends_with("patch spireservers.operator.openshift.io/status"), "{lacks}");

    let policy = "validatingadmissionpolicy/trustplane-federation-endpoint";
    let elsewhere = "/spec/variables/0/expression";
    let elsewhere = json!([{ "op": "replace", "path": elsewhere, "value": "'elsewhere'" }]);
    patch(cluster, policy, elsewhere).await;
    let both = but(&[("federate-rights", "failed"), ("federate-policy", "failed")]);
    let moved = until(kubeconfig, &both).await;
    assert!(moved["federate-policy"].1.contains("guards namespace elsewhere"), "{moved:?}");

    let never = json!([{ "op": "remove", "path": "/spec/validations/0" }]);
    patch(cluster, policy, never).await;
    let weaker = until(kubeconfig, &both).await;
    assert!(weaker["federate-policy"].1.ends_with("spec.validations"), "{weaker:?}");
    apply(cluster, FEDERATE).await;
    until(kubeconfig, &but(&[])).await;

    let rules = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations";
    patch(cluster, SPIRE_SERVER_CRD, json!([{ "op": "remove", "path": rules }])).await;
    let weaker = until(kubeconfig, &but(&[("federate-apis", "failed")])).await;
    assert!(weaker["federate-apis"].1.ends_with("schema of v1alpha1"), "{weaker:?}");
    apply(cluster, TRUST_DOMAIN).await;
    until(kubeconfig, &but(&[])).await;
}

/// Nothing of it is touched, and what would destroy keys is said apart.
async fn uninstalled(cluster: &Cluster, kubeconfig: &Path) {
    let scale = ["-n", "trustplane", "scale", "deployment/trustplane-inject", "--replicas=0"];
    cluster.kubectl(&scale).await.expect("scaled");
    let shown = trustplane(kubeconfig, &["uninstall", "--routes=keep", "--dry-run"]).await;
    let alone =
        "This command leaves trustplane federate alone: Deployment trustplane/trustplane-federate";
    assert!(shown.out.contains(alone) && shown.out.contains("trust domain a.test"), "{shown:?}");

    let json = ["uninstall", "--routes=keep", "--dry-run", "-o", "json"];
    let report = trustplane(kubeconfig, &json).await.json();
    assert_eq!(report["federate"]["trustDomain"], "a.test", "{report}");
    assert_eq!(
        report["federate"]["next"],
        json!(["kubectl delete --ignore-not-found -k deploy/federate"])
    );

    let done = trustplane(kubeconfig, &["uninstall", "--routes=keep", "--yes"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    let (before, after) = done.out.split_once("They delete ITS KEYS").expect("a warning");
    assert!(before.contains("kubectl delete --ignore-not-found -k deploy/federate"), "{done:?}");
    assert!(!before.contains("delete --ignore-not-found spireserver"), "{done:?}");
    assert!(after.contains("kubectl delete --ignore-not-found spireserver cluster"), "{done:?}");
    let entries = cluster.audit().entries();
    let deleted = entries.iter().filter(|it| it.verb.starts_with("delete"));
    let deleted: Vec<_> = deleted
        .filter(|it| it.user_agent.starts_with("trustplane/"))
        .map(|it| it.object())
        .collect();
    assert_eq!(deleted, [""; 0]);
}
