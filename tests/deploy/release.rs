//! The life of a release: installed, upgraded to the same, removed.

use serde_json::{Value, json};
use testkit::at;
use testkit::tools::EmptyCluster;

use crate::authority::federation;

const KINDS: &str = "serviceaccounts,roles,clusterroles,rolebindings,clusterrolebindings,services,\
                     deployments,daemonsets,poddisruptionbudgets,networkpolicies,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings,\
                     customresourcedefinitions,flowschemas,namespaces";

/// Objects that helm installed, with their resourceVersion.
fn installed(cluster: &EmptyCluster) -> Vec<String> {
    let ours = "app.kubernetes.io/managed-by=Helm";
    let found = cluster.kubectl(&["get", KINDS, "-A", "-l", ours, "-o", "json"]);
    let found: Value = serde_json::from_str(&found.expect("they can be listed")).expect("JSON");
    let mut named: Vec<String> = found["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|object| {
            let metadata = &object["metadata"];
            format!("{} {} {}", object["kind"], metadata["name"], metadata["resourceVersion"])
        })
        .collect();
    named.sort();
    named
}

#[tokio::test]
async fn it_is_installed_upgraded_and_removed_and_routes_and_keys_stay() {
    let cluster = EmptyCluster::start("release").await;
    let chart = at("deploy/chart");
    let chart = chart.to_str().expect("a path is text");
    let values = "--set=routeCrd.install=true,federate.enabled=true,authority.enabled=true,\
                  authority.trustDomain=td-a.test,authority.join.enabled=true,agent.enabled=true,\
                  agent.namespace=default,agent.createNamespace=false,agent.server=join.test:443,agent.trustDomain=td-a.test,agent.token=nodes,\
                  review.enabled=true,review.config.clusters=clusters: {local: {issuer: https://kubernetes.default.svc}}";
    let to = ["trustplane", chart, "--namespace=trustplane", values];

    let notes = cluster.helm(&[&["install"], &to[..], &["--create-namespace"]].concat());
    let notes = notes.expect("it is installed");
    assert!(notes.contains("rollout status deployment/trustplane-inject"), "{notes}");
    let after_install = installed(&cluster);
    assert_eq!(after_install.len(), 13 + 15 + 21 + 3 + 13, "{after_install:#?}");
    assert!(
        notes.contains("kubectl delete namespace spire"),
        "what destroys keys is said: {notes}"
    );
    assert!(notes.contains("delete secret/trustplane-authority"), "here, too: {notes}");
    assert!(notes.contains("https://trustplane-review.trustplane.svc"), "{notes}");

    cluster.passes_check().await;

    cluster.helm(&[&["upgrade"], &to[..]].concat()).expect("it is upgraded");
    assert_eq!(installed(&cluster), after_install, "an upgrade to the same writes nothing");

    // Neither a forgotten value nor the end of the release takes the Routes of the cluster along, or the
    // keys of the trust domain, or the federations.
    cluster.apply(&spire_server());
    cluster.apply(&federation());
    cluster.apply(&claim());
    let stays = || {
        cluster.kubectl(&["get", "routes", "-A"]).expect("Routes are still served");
        cluster.kubectl(&["get", "spireserver", "cluster"]).expect("the SpireServer");
        cluster.kubectl(&["get", "spfed", "td-b.test"]).expect("the SPIFFEFederation");
        let claim = ["-n", "spire", "get", "pvc", "spire-data-spire-server-0"];
        cluster.kubectl(&claim).expect("the volume with the keys");
        let phase = ["get", "namespace", "spire", "-o=jsonpath={.status.phase}"];
        assert_eq!(cluster.kubectl(&phase).as_deref(), Ok("Active"));
    };
    let forgotten = ["upgrade", "trustplane", chart, "--namespace=trustplane"];
    cluster.helm(&forgotten).expect("it is upgraded");
    stays();
    let removed = ["uninstall", "trustplane", "--namespace=trustplane"];
    cluster.helm(&removed).expect("it is removed");
    stays();
    let left = installed(&cluster);
    let kept = [
        "routes.route.openshift.io",
        "spireservers.operator.openshift.io",
        "jointokens.trustplane.dev",
        "spiffefederations.trustplane.dev",
        "\"spire\"",
    ];
    assert_eq!(left.len(), kept.len(), "{left:?}");
    for name in kept {
        assert!(left.iter().any(|it| it.contains(name)), "{name}: {left:?}");
    }

    // Kept objects are taken over.
    cluster.helm(&[&["install"], &to[..]].concat()).expect("it is installed again");
    stays();
    assert_eq!(installed(&cluster).len(), after_install.len());
}

fn spire_server() -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "SpireServer",
        "metadata": { "name": "cluster" },
        "spec": {
            "trustDomain": "a.test", "clusterName": "a", "jwtIssuer": "https://oidc.a.test",
        },
    })
}

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "spire-data-spire-server-0", "namespace": "spire" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}
