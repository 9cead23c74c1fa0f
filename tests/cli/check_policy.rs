//! `trustplane check --probe-policy`, on API servers that enforce the policy and on one that does not.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{Cluster, eventually};
use tokio::process::Child;

use crate::check::{admin, found, results};
use crate::program::{Ran, command, trustplane};

const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policy");
const LABELLED: &str = "trustplane.dev/probe=admission-policy";

async fn with_policy(cluster: &Cluster) {
    cluster.kubectl(&["apply", "-k", POLICY]).await.expect("the policy is accepted");
}

async fn check(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    trustplane(kubeconfig, &[&["check", "-o", "json"], arguments].concat()).await
}

/// No namespace of a probe is in use. There is nobody here who would empty one that was deleted.
async fn nothing_is_left(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.admin().await);
    let labelled = ListParams::default().labels(LABELLED);
    for namespace in namespaces.list(&labelled).await.expect("namespaces can be listed") {
        assert!(namespace.metadata.deletion_timestamp.is_some(), "{:?}", namespace.metadata.name);
    }
    for kind in ["roles", "rolebindings", "routes", "secrets"] {
        let left = cluster.kubectl(&["get", kind, "-A", "-l", LABELLED, "-o", "name"]).await;
        assert_eq!(left.as_deref(), Ok(""), "{kind} are left behind");
    }
}

#[tokio::test]
async fn where_the_plugin_is_on_a_user_without_the_secret_is_refused_and_nothing_is_left() {
    let cluster = Cluster::start_another("probe-on").await;
    let kubeconfig = admin(&cluster);
    with_policy(&cluster).await;

    let untested = check(&kubeconfig, &[]).await;
    assert_eq!(results(&untested)["policy"], "note", "{untested:?}");
    assert!(found(&untested, "policy").contains("cannot be seen"), "{untested:?}");

    // Applied a moment ago, and still tested right.
    let tested = check(&kubeconfig, &["--probe-policy", "--yes"]).await;
    assert_eq!(results(&tested)["policy"], "ok", "{tested:?}");
    assert!(found(&tested, "policy").contains("and enforced"), "{tested:?}");
    nothing_is_left(&cluster).await;
    let entries = cluster.audit().entries();
    let routes = entries.iter().filter(|entry| entry.is_write() && entry.resource == "routes");
    let uris: Vec<_> = routes.map(|entry| entry.uri.as_str()).collect();
    assert!(uris.len() >= 3 && uris.iter().all(|uri| uri.contains("dryRun=All")), "{uris:?}");
}

#[tokio::test]
async fn where_the_plugin_is_off_it_says_that_the_policy_is_not_enforced() {
    let off = "--disable-admission-plugins=ValidatingAdmissionPolicy";
    let cluster = Cluster::start_with_flags("probe-off", &[off]).await;
    let kubeconfig = admin(&cluster);
    with_policy(&cluster).await;

    let untested = check(&kubeconfig, &[]).await;
    assert!(found(&untested, "policy").contains("cannot be seen"), "{untested:?}");
    let tested = check(&kubeconfig, &["--probe-policy", "--yes"]).await;
    assert_eq!(results(&tested)["policy"], "failed", "{tested:?}");
    assert!(found(&tested, "policy").contains("NOT ENFORCED"), "{tested:?}");
    nothing_is_left(&cluster).await;

    // Nothing is refused for a while here, so that there is time to interrupt it.
    let (mut running, _) = probe_under_way(&kubeconfig, &cluster.admin().await).await;
    let pid = running.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("a pid");
    kill_process(pid, Signal::INT).expect("it runs");
    let ended = tokio::time::timeout(PATIENCE, running.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it ends").code(), Some(130), "stopped before its end");
    nothing_is_left(&cluster).await;
}

/// A probe, and its namespace. One that ended before anybody saw it is started again.
async fn probe_under_way(kubeconfig: &Path, client: &kube::Client) -> (Child, String) {
    let start = || {
        command(kubeconfig, &["check", "--probe-policy", "--yes"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut running = start();
    let namespace = eventually(PATIENCE, "a namespace is in use", async || {
        let labelled = ListParams::default().labels(LABELLED);
        let found = namespaces.list(&labelled).await.expect("namespaces can be listed").items;
        let used = found.into_iter().find(|it| it.metadata.deletion_timestamp.is_none());
        if used.is_none() && running.try_wait().expect("it can be asked").is_some() {
            running = start();
        }
        used.and_then(|it| it.metadata.name).ok_or("none yet")
    })
    .await;
    (running, namespace)
}

#[tokio::test]
async fn what_a_run_that_was_killed_left_behind_is_removed_by_the_next() {
    let cluster = Cluster::start_another("probe-killed").await;
    let kubeconfig = admin(&cluster);
    with_policy(&cluster).await;
    let client = cluster.admin().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (mut running, killed) = probe_under_way(&kubeconfig, &client).await;
    running.kill().await.expect("it is killed");
    // One that only carries the label is nobody's leftover.
    let bystander = json!({ "metadata": {
        "name": "bystander", "labels": { "trustplane.dev/probe": "admission-policy" },
    } });
    let bystander: Namespace = serde_json::from_value(bystander).expect("a namespace");
    namespaces.create(&Default::default(), &bystander).await.expect("made");

    let tested = check(&kubeconfig, &["--probe-policy", "--yes"]).await;

    assert_eq!(results(&tested)["policy"], "ok", "{tested:?}");
    let left = namespaces.get_opt(&killed).await.expect("it can be asked for");
    let gone = left.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
    assert!(gone, "{killed} is still in use");
    let bystander = namespaces.get("bystander").await.expect("it is still there");
    assert!(bystander.metadata.deletion_timestamp.is_none(), "a namespace of somebody else's");
}

#[tokio::test]
async fn it_asks_before_it_changes_anything_and_says_which_right_is_missing() {
    let cluster = Cluster::start_another("forbidding-probe").await;
    with_policy(&cluster).await;
    let ran = check(&admin(&cluster), &["--probe-policy"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("nobody can be asked. Add --yes"), "{ran:?}");

    let ns = cluster.namespace("reader").await;
    cluster.kubectl(&["-n", ns.name(), "create", "serviceaccount", "user"]).await.expect("made");
    let policies = "--resource=validatingadmissionpolicies,validatingadmissionpolicybindings";
    cluster
        .kubectl(&["create", "clusterrole", "policy-reader", "--verb=get", policies])
        .await
        .expect("made");
    let user = format!("--serviceaccount={}:user", ns.name());
    let bind = ["create", "clusterrolebinding", "policy-reader", "--clusterrole=policy-reader"];
    cluster.kubectl(&[&bind[..], &[&user]].concat()).await.expect("made");
    let token = cluster.token_of(ns.name(), "user").await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token(token));
    eventually(PATIENCE, "the role is in force", async || {
        let ran = check(&kubeconfig, &["--probe-policy", "--yes"]).await;
        let policy = found(&ran, "policy");
        let told =
            policy.ends_with("could not be tested: listing namespaces: forbidden (HTTP 403)");
        if told { Ok(()) } else { Err(policy) }
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(cluster.admin().await);
    let made = namespaces.list(&ListParams::default().labels(LABELLED)).await.expect("listed");
    assert!(made.items.is_empty(), "something was made");
}
