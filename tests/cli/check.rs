//! `trustplane check`: what it says of a cluster before, during and after an installation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{
    Access, Cluster, Launch, RouteFixture, SecretFixture, TestServer, eventually, pair, suite,
};

use crate::program::{Ran, command, trustplane};

const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policy");
const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base");

/// The result of each line, by its name.
pub type Results = BTreeMap<String, String>;

pub fn results(ran: &Ran) -> Results {
    let report = ran.json();
    let lines = report["lines"].as_array().expect("lines").clone();
    let text = |line: &Value, field: &str| line[field].as_str().expect("text").to_owned();
    for line in &lines {
        let wants = matches!(line["result"].as_str(), Some("failed" | "warning"));
        assert_eq!(line["do"].is_string(), wants, "what to do is said where it is needed: {line}");
    }
    let failed = lines.iter().any(|line| line["result"] == "failed");
    assert_eq!((ran.code, &report["holds"]), (i32::from(failed), &json!(!failed)), "{ran:?}");
    lines.iter().map(|line| (text(line, "check"), text(line, "result"))).collect()
}

pub fn found(ran: &Ran, check: &str) -> String {
    let report = ran.json();
    let lines = report["lines"].as_array().expect("lines").clone();
    let line = lines.iter().find(|line| line["check"] == check).expect("there is such a line");
    line["found"].as_str().expect("text").to_owned()
}

pub fn that_are<'a>(results: &'a Results, wanted: &str) -> Vec<&'a str> {
    results.iter().filter(|(_, it)| *it == wanted).map(|(check, _)| check.as_str()).collect()
}

pub fn admin(cluster: &Cluster) -> PathBuf {
    cluster.kubeconfig(cluster.admin_access())
}

/// Checks until these lines are those that failed: what was changed counts a moment later.
async fn fails(kubeconfig: &Path, arguments: &[&str], expected: &[&str]) -> Ran {
    let arguments = [&["check", "-o", "json"], arguments].concat();
    eventually(PATIENCE, &format!("{expected:?} fail"), async || {
        let ran = trustplane(kubeconfig, &arguments).await;
        let results = results(&ran);
        if that_are(&results, "failed") == expected { Ok(ran) } else { Err(results) }
    })
    .await
}

/// There is nobody here who would start Pods.
async fn pretend_ready(cluster: &Cluster, replicas: i32) {
    let status = json!({ "status": {
        "replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas,
    } });
    let patch = status.to_string();
    let deployment = "deployment/trustplane-inject";
    cluster
        .kubectl(&[
            "-n",
            "trustplane",
            "patch",
            deployment,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await
        .expect("the status is accepted");
}

/// A ServiceAccount without any right of its own.
async fn ordinary_user(cluster: &Cluster) -> PathBuf {
    let ns = cluster.namespace("ordinary").await;
    cluster.kubectl(&["-n", ns.name(), "create", "serviceaccount", "user"]).await.expect("made");
    let token = cluster.token_of(ns.name(), "user").await;
    cluster.kubeconfig(&cluster.admin_access().with_token(token))
}

#[tokio::test]
async fn an_installation_is_followed_from_its_end_to_its_beginning() {
    // Its controller is refused things on purpose.
    let cluster = Cluster::start_another("forbidding-check").await;
    let kubeconfig = admin(&cluster);
    let shop = pair::issued("shop.example.com");
    let ns = cluster.namespace("shop").await;
    SecretFixture::tls("shop-tls", &shop).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    RouteFixture::edge("blog").annotated("absent").create(&ns).await;

    // Applied, but nobody has started it.
    let ran = fails(&kubeconfig, &[], &["deployment", "lease", "policy"]).await;
    assert_eq!(ran.json()["installed"], true);

    cluster.kubectl(&["apply", "-k", POLICY]).await.expect("the policy is accepted");
    pretend_ready(&cluster, 2).await;
    let mut controller = Launch::everywhere(&cluster).flags(&["--leader-elect"]).start();
    controller.ready().await;
    let ran = eventually(PATIENCE, "the Secret that is missing has its consequence", async || {
        let ran = fails(&kubeconfig, &[], &[]).await;
        let routes = found(&ran, "routes");
        let told = routes.contains("(SecretNotFound)")
            && routes.contains("its certificate and key are in 1 of these");
        if told { Ok(ran) } else { Err(routes) }
    })
    .await;
    let installed = results(&ran);
    assert_eq!(that_are(&installed, "warning"), ["routes", "secrets"], "{ran:?}");
    assert_eq!(
        that_are(&installed, "note"),
        ["authority", "encryption-at-rest", "federate", "policy", "review"]
    );
    assert!(found(&ran, "policy").contains("cannot be seen"), "{ran:?}");
    let blog = format!("{}/blog", ns.name());
    assert!(found(&ran, "routes").contains(&format!("failing: {blog}")), "{ran:?}");
    assert!(found(&ran, "secrets").contains(&format!("{blog} names absent")), "{ran:?}");
    assert_eq!(found(&ran, "route-api"), "route.openshift.io/v1, a CustomResourceDefinition");
    let table = trustplane(&kubeconfig, &["check"]).await;
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.ends_with("In order. 2 warnings.\n"), "{table:?}");
    assert!(table.out.lines().all(|line| line.chars().count() <= 100), "{table:?}");

    let user = ordinary_user(&cluster).await;
    // Users who may not see the Deployment are not told that it is there.
    let ran = fails(&user, &[], &["install-rights"]).await;
    let unlisted = [
        "account-rights",
        "authority",
        "deployment",
        "federate",
        "lease",
        "policy",
        "review",
        "routes",
    ];
    assert_eq!(that_are(&results(&ran), "warning"), unlisted, "{ran:?}");

    let without_status = json!([{ "op": "remove", "path": "/rules/1" }]).to_string();
    let role = "clusterrole/trustplane-inject";
    cluster.kubectl(&["patch", role, "--type=json", "-p", &without_status]).await.expect("patched");
    let ran = fails(&kubeconfig, &[], &["account-rights"]).await;
    let lacks = found(&ran, "account-rights");
    assert!(lacks.ends_with("missing: patch routes.route.openshift.io/status"), "{lacks}");
    cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-k", BASE])
        .await
        .expect("corrected");
    pretend_ready(&cluster, 2).await;
    fails(&kubeconfig, &[], &[]).await;

    let deployment = ["-n", "trustplane", "patch", "deployment/trustplane-inject", "--type=json"];
    let flag = "/spec/template/spec/containers/0/args/0";
    let reviewing =
        json!([{ "op": "add", "path": flag, "value": "--metrics-auth=token" }]).to_string();
    cluster.kubectl(&[&deployment[..], &["-p", &reviewing]].concat()).await.expect("patched");
    let ran = fails(&kubeconfig, &[], &["account-rights"]).await;
    let lacks = found(&ran, "account-rights");
    assert!(lacks.contains("missing: create tokenreviews.authentication.k8s.io"), "{lacks}");
    let back = json!([{ "op": "remove", "path": flag }]).to_string();
    cluster.kubectl(&[&deployment[..], &["-p", &back]].concat()).await.expect("patched");

    let policy = "validatingadmissionpolicy/trustplane-route-secrets";
    let ignore = json!({ "spec": { "failurePolicy": "Ignore" } }).to_string();
    cluster.kubectl(&["patch", policy, "--type=merge", "-p", &ignore]).await.expect("patched");
    let ran = fails(&kubeconfig, &[], &["policy"]).await;
    assert!(found(&ran, "policy").ends_with("spec.failurePolicy"), "{ran:?}");
    cluster.kubectl(&["apply", "-k", POLICY]).await.expect("corrected");
    let binding = "validatingadmissionpolicybinding/trustplane-route-secrets";
    cluster.kubectl(&["delete", binding]).await.expect("deleted");
    let ran = fails(&kubeconfig, &[], &["policy"]).await;
    assert!(found(&ran, "policy").starts_with("installed, but not bound"), "{ran:?}");

    controller.terminate().await;
    let ran = fails(&kubeconfig, &[], &["lease", "policy"]).await;
    assert_eq!(found(&ran, "lease"), "nobody: the Lease was released");

    cluster
        .kubectl(&["-n", "trustplane", "delete", "deployment", "trustplane-inject"])
        .await
        .expect("deleted");
    cluster.kubectl(&["delete", "clusterrolebinding", "trustplane-inject"]).await.expect("deleted");
    cluster.kubectl(&["delete", policy]).await.expect("deleted");
    let ran = eventually(PATIENCE, "nothing of it is in force", async || {
        let ran = fails(&kubeconfig, &[], &[]).await;
        let comes = results(&ran);
        let expected = ["account-rights", "deployment", "lease", "policy"];
        if that_are(&comes, "not-yet") == expected { Ok(ran) } else { Err(comes) }
    })
    .await;
    assert_eq!(ran.json()["installed"], false);
    fails(&kubeconfig, &["--installed"], &["account-rights", "deployment", "lease", "policy"])
        .await;

    cluster.kubectl(&["delete", "crd", "routes.route.openshift.io"]).await.expect("deleted");
    let ran = fails(&kubeconfig, &[], &["route-api"]).await;
    assert_eq!(found(&ran, "route-api"), "missing");
    let table = trustplane(&kubeconfig, &["check"]).await;
    assert_eq!(table.code, 1, "{table:?}");
    assert!(
        table.out.contains("kubectl apply -f crds/route.openshift.io_routes.yaml"),
        "{table:?}"
    );
}

#[tokio::test]
async fn a_controller_for_one_namespace_needs_its_rights_there_alone() {
    let cluster = Cluster::get().await;
    let overlay =
        concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/overlays/single-namespace/without-policy");
    cluster.kubectl(&["create", "namespace", "shop"]).await.expect("made");
    cluster.kubectl(&["apply", "-k", overlay]).await.expect("accepted");
    let kubeconfig = admin(&cluster);
    // Nobody starts it here.
    let ran = fails(&kubeconfig, &["--namespace", "shop"], &["deployment", "lease"]).await;
    assert!(found(&ran, "account-rights").ends_with(" of deploy/base, in shop"), "{ran:?}");
    assert_eq!(results(&ran)["policy"], "warning", "it can do without: {ran:?}");
    let binding = ["-n", "shop", "delete", "rolebinding", "trustplane-inject"];
    cluster.kubectl(&binding).await.expect("deleted");
    let lacking = ["account-rights", "deployment", "lease"];
    let ran = fails(&kubeconfig, &["--namespace", "shop"], &lacking).await;
    assert!(
        found(&ran, "account-rights").contains("get routes.route.openshift.io in shop"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn who_may_not_install_is_told_which_rights_are_missing() {
    let cluster = Cluster::get().await;
    let user = ordinary_user(&cluster).await;
    let ran = fails(&user, &["--namespace", "elsewhere"], &["install-rights"]).await;
    let lacks = found(&ran, "install-rights");
    assert!(
        lacks.contains("missing: get namespaces, create namespaces, patch namespaces"),
        "{lacks}"
    );
}

#[tokio::test]
async fn an_api_server_of_the_sandbox_alone_is_named_as_one_without_an_injector() {
    let TestServer::Sandbox(sandbox) = TestServer::sandbox().await else {
        panic!("asked for the sandbox")
    };
    let ran = trustplane(sandbox.kubeconfig(), &["check", "-o", "json"]).await;
    let results = results(&ran);
    assert_eq!(that_are(&results, "failed"), [""; 0], "{ran:?}");
    assert_eq!(that_are(&results, "not-yet"), [""; 0], "{ran:?}");
    assert_eq!(results["status-certificate"], "ok");
    assert_eq!(ran.json()["sandbox"], true);
    assert!(found(&ran, "api-server").ends_with("without its injector"), "{ran:?}");
}

#[tokio::test]
async fn an_api_server_that_is_not_there_or_never_answers_ends_it_with_code_2() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let silent_at = silent.local_addr().expect("an address");
    for (address, limit) in [(closed, 5), (silent_at, 20)] {
        let url = format!("http://{address}");
        let access = Access { url: url.clone(), authority: String::new(), token: "none".into() };
        let kubeconfig =
            suite::subfolder("commands").join(format!("{}.kubeconfig", address.port()));
        access.write_kubeconfig(&kubeconfig);
        let start = Instant::now();
        let ran = trustplane(&kubeconfig, &["check"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains(&format!("error: nothing could be checked at {url}")), "{ran:?}");
        assert!(start.elapsed() < Duration::from_secs(limit), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn credentials_that_the_api_server_does_not_know_end_it_with_code_2() {
    let cluster = Cluster::get().await;
    let kubeconfig = cluster.kubeconfig(&cluster.admin_access().with_token("nonsense".into()));
    let ran = trustplane(&kubeconfig, &["check"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("does not know these credentials"), "{ran:?}");
}

#[tokio::test]
async fn switches_that_exclude_each_other_are_refused_however_they_are_set() {
    let run = async |arguments: &[&str]| {
        let arguments = [&["federate", "--create-only"], arguments].concat();
        let mut command = command(Path::new("/nonexistent"), &arguments);
        let output = command.env("TRUSTPLANE_DRY_RUN", "1").output().await.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).contains("exclude each other");
        (output.status.code(), said)
    };
    assert_eq!(run(&[]).await, (Some(2), true), "the variable counts");
    assert_eq!(run(&["--dry-run=false"]).await, (Some(1), false), "the flag wins");
}

#[tokio::test]
async fn a_wrong_command_line_or_no_kubeconfig_ends_it_with_code_2() {
    let nowhere = Path::new("/nonexistent");
    for arguments in [&["check", "--namespace", "No Name"][..], &["check", "--bogus"], &["check"]] {
        let ran = trustplane(nowhere, arguments).await;
        assert_eq!(ran.code, 2, "{ran:?}");
    }
}
