//! The life of a release: installed, upgraded to the same, removed.

use serde_json::Value;

use crate::tools::{EmptyCluster, at};

const KINDS: &str = "serviceaccounts,roles,clusterroles,rolebindings,clusterrolebindings,services,\
                     deployments,poddisruptionbudgets,networkpolicies,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings,\
                     customresourcedefinitions,flowschemas";

/// What helm installed, with the version that each object is in.
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
async fn it_is_installed_upgraded_and_removed_and_the_route_api_stays() {
    let cluster = EmptyCluster::start("release").await;
    let chart = at("deploy/chart");
    let chart = chart.to_str().expect("a path is text");
    let to = ["trustplane", chart, "--namespace=trustplane", "--set=routeCrd.install=true"];

    let notes = cluster.helm(&[&["install"], &to[..], &["--create-namespace"]].concat());
    let notes = notes.expect("it is installed");
    assert!(notes.contains("rollout status deployment/trustplane-inject"), "{notes}");
    let after_install = installed(&cluster);
    assert_eq!(after_install.len(), 13, "{after_install:#?}");

    cluster.passes_check().await;

    cluster.helm(&[&["upgrade"], &to[..]].concat()).expect("it is upgraded");
    assert_eq!(installed(&cluster), after_install, "an upgrade to the same writes nothing");

    // Neither a forgotten value nor the end of the release takes the Routes of the cluster along.
    let forgotten = ["upgrade", "trustplane", chart, "--namespace=trustplane"];
    cluster.helm(&forgotten).expect("it is upgraded");
    cluster.kubectl(&["get", "routes", "-A"]).expect("Routes are still served");
    let removed = ["uninstall", "trustplane", "--namespace=trustplane"];
    cluster.helm(&removed).expect("it is removed");
    let left = installed(&cluster);
    assert!(left.len() == 1 && left[0].contains("routes.route.openshift.io"), "{left:?}");
    cluster.kubectl(&["get", "routes", "-A"]).expect("Routes are still served");
}
