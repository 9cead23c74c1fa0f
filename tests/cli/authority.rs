//! `trustplane uninstall` where `trustplane authority` is installed: its keys outlive everything that is
//! printed, but for what says that it deletes them.

use std::path::Path;

use testkit::{Cluster, at, toolbox};

use crate::check::admin;
use crate::program::trustplane;

const SECRET: [&str; 5] = ["-n", "trustplane", "get", "secret", "trustplane-authority"];

/// Runs a command that was printed, in the checkout's folder.
pub async fn run(kubeconfig: &Path, command: &str) {
    let tools = toolbox().unwrap_or_else(|why| panic!("{why}"));
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-euc", command]).current_dir(at("."));
    shell.env("KUBECONFIG", kubeconfig).env("PATH", path).kill_on_drop(true);
    let output = shell.output().await.expect("a shell");
    assert!(output.status.success(), "$ {command}\n{output:?}");
}

#[tokio::test]
async fn the_keys_of_the_authority_outlive_an_uninstall_and_go_only_with_what_names_them() {
    let cluster = Cluster::start_another("uninstall-authority").await;
    let kubeconfig = admin(&cluster);
    for folder in ["deploy/overlays/openshift", "deploy/authority/api", "deploy/authority"] {
        let folder = at(folder).display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &folder];
        cluster.kubectl(&apply).await.expect("everything is accepted");
    }
    let create = ["-n", "trustplane", "create", "secret", "generic", "trustplane-authority"];
    cluster.kubectl(&create).await.expect("as the authority makes it");
    let scale = ["-n", "trustplane", "scale", "deployment/trustplane-inject", "--replicas=0"];
    cluster.kubectl(&scale).await.expect("scaled");

    let json = ["uninstall", "--routes=keep", "--dry-run", "-o", "json"];
    let report = trustplane(&kubeconfig, &json).await.json();
    let authority = &report["authority"];
    assert_eq!((&authority["installed"], &authority["keys"]), (&true.into(), &true.into()));
    let done = trustplane(&kubeconfig, &["uninstall", "--routes=keep", "--yes"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    let keys = "Secret trustplane/trustplane-authority (the keys of its trust domain)";
    let words: Vec<_> = done.out.split_whitespace().collect();
    assert!(words.join(" ").contains(keys), "{done:?}");

    let command = |list: &serde_json::Value, index: usize| list[index].as_str().unwrap().to_owned();
    run(&kubeconfig, &command(&authority["next"], 0)).await;
    run(&kubeconfig, &command(&report["next"], 0)).await;
    cluster.kubectl(&SECRET).await.expect("the keys are there");
    let namespaced = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies";
    let left = ["-n", "trustplane", "get", namespaced, "-o", "name"];
    let left = cluster.kubectl(&left).await.expect("a list");
    assert!(!left.contains("trustplane"), "{left}");
    run(&kubeconfig, &command(&authority["destroysKeys"], 1)).await;
    cluster.kubectl(&SECRET).await.expect_err("they were named, and are gone");
}
