//! `trustplane check` and `trustplane uninstall` where `trustplane review` is installed.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Cluster, at, eventually};

use crate::authority::run;
use crate::check::{admin, found, results};
use crate::program::trustplane;

const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = "\
clusters:
  local: {issuer: https://kubernetes.default.svc}
  b:
    issuer: https://kubernetes.default.svc
    api_server: https://b.example.com:6443
    ca_cert: /etc/trustplane/clusters/b/ca.crt
    token_path: /etc/trustplane/clusters/b/token
";

/// Checks until the line about the configuration begins like this.
async fn until(kubeconfig: &Path, result: &str, begins: &str) {
    eventually(PATIENCE, begins, async || {
        let ran = trustplane(kubeconfig, &["check", "-o", "json"]).await;
        let (results, words) = (results(&ran), found(&ran, "review-config"));
        let is_so = results["review-config"] == result && words.starts_with(begins);
        // Rights count a moment after they were granted.
        let may = results["review-rights"] == "ok";
        if is_so && may { Ok(()) } else { Err((results, words)) }
    })
    .await;
}

async fn install(cluster: &Cluster) {
    for folder in ["deploy/overlays/openshift", "deploy/review"] {
        let folder = at(folder).display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &folder];
        cluster.kubectl(&apply).await.expect("everything is accepted");
    }
}

/// Writes the configuration as an administrator would.
async fn configure(cluster: &Cluster, text: &str) {
    let gone =
        ["-n", "trustplane", "delete", "--ignore-not-found", "configmap/trustplane-review-config"];
    cluster.kubectl(&gone).await.expect("it is gone");
    let text = format!("--from-literal=clusters.yaml={text}");
    let create = ["-n", "trustplane", "create", "configmap", "trustplane-review-config", &text];
    cluster.kubectl(&create).await.expect("it is accepted");
}

#[tokio::test]
async fn the_configuration_of_review_is_judged_and_whether_its_pods_see_the_files_of_each_cluster()
{
    let cluster = Cluster::start_another("check-review").await;
    let kubeconfig = admin(&cluster);
    install(&cluster).await;
    let missing = "no clusters.yaml in a ConfigMap trustplane-review-config";
    until(&kubeconfig, "failed", missing).await;

    configure(&cluster, &CONFIG.replace("https://b.", "http://b.")).await;
    until(&kubeconfig, "failed", "refused: line 5, column 17: api_server must be https://").await;

    configure(&cluster, CONFIG).await;
    until(&kubeconfig, "failed", "b, local; this one is local; whose token or CA is in no volume")
        .await;

    let item = |key: &str| json!({ "key": key, "path": format!("b/{key}") });
    let source = json!({ "secret": {
        "name": "trustplane-review-cluster-b", "optional": true, "items": [item("ca.crt"), item("token")],
    } });
    let path = "/spec/template/spec/volumes/2/projected/sources";
    let patch = json!([{ "op": "add", "path": path, "value": [source] }]).to_string();
    let deployment = "deployment/trustplane-review";
    let patch = ["-n", "trustplane", "patch", deployment, "--type=json", "-p", &patch];
    cluster.kubectl(&patch).await.expect("it is accepted");
    until(&kubeconfig, "ok", "b, local; this one is local").await;
}

#[tokio::test]
async fn the_credentials_of_review_outlive_an_uninstall_and_go_only_with_what_names_them() {
    let cluster = Cluster::start_another("uninstall-review").await;
    let kubeconfig = admin(&cluster);
    install(&cluster).await;
    configure(&cluster, CONFIG).await;
    let secrets = ["trustplane-review", "trustplane-review-cluster-b"];
    for name in secrets {
        let create = ["-n", "trustplane", "create", "secret", "generic", name];
        cluster.kubectl(&create).await.expect("as review makes it");
    }
    let scale = ["-n", "trustplane", "scale", "deployment/trustplane-inject", "--replicas=0"];
    cluster.kubectl(&scale).await.expect("scaled");

    let json = ["uninstall", "--routes=keep", "--dry-run", "-o", "json"];
    let report = trustplane(&kubeconfig, &json).await.json();
    let review = &report["review"];
    assert_eq!((&review["installed"], &review["secrets"]), (&json!(true), &json!(secrets)));
    let done = trustplane(&kubeconfig, &["uninstall", "--routes=keep", "--yes"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    let words: Vec<_> = done.out.split_whitespace().collect();
    assert!(words.join(" ").contains("Secret trustplane/trustplane-review-cluster-b"), "{done:?}");

    let command = |list: &Value| list[0].as_str().expect("a command").to_owned();
    run(&kubeconfig, &command(&review["next"])).await;
    let get = |what: &'static str| ["-n", "trustplane", "get", what];
    cluster.kubectl(&get("deployment/trustplane-review")).await.expect_err("it is gone");
    for name in ["secret/trustplane-review", "configmap/trustplane-review-config"] {
        cluster.kubectl(&get(name)).await.expect("it stays");
    }
    run(&kubeconfig, &command(&review["deletesCredentials"])).await;
    cluster.kubectl(&get("secret/trustplane-review-cluster-b")).await.expect_err("it was named");
}
