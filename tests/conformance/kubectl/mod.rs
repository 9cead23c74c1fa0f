//! The real kubectl prints the same against the sandbox on a loopback port as against a real API
//! server.

mod run;
mod scripts;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use trustplane::demo::api_server;
use trustplane::demo::loopback::Port;
use trustplane::demo::serve::{Options, RunningApi};
use trustplane::runtime::clock::Clock;

use self::run::{Kubectl, Output};
use crate::real::Real;

/// A sandbox on its own port. Dropping it stops it.
async fn serve() -> RunningApi {
    let clock = Clock::system();
    let server = api_server::server(api_server::store(100_000, 1), clock.clone());
    let options = Options { port: Port::Rather(0), kubeconfig: None };
    RunningApi::start_for_accounts(server, options, &clock).await.expect("a loopback port")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_same_for_the_sandbox_as_for_a_real_server() {
    let start = Instant::now();
    let serving = serve().await;
    let real = Kubectl::new(Real::shared().await.kubeconfig());
    let sandbox = Kubectl::new(serving.kubeconfig());
    let scripts = scripts::all();
    let runs = scripts.iter().map(|script| script.compare(&real, &sandbox));
    let failures: Vec<_> = futures::future::join_all(runs).await.concat();
    let commands: usize = scripts.iter().map(|script| script.commands().count()).sum();
    println!("{commands} commands in {:?}", start.elapsed());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_all_kinds_of_the_sandbox_and_none_that_a_real_server_lacks() {
    let serving = serve().await;
    let real = Kubectl::new(Real::shared().await.kubeconfig());
    let sandbox = Kubectl::new(serving.kubeconfig());
    for line in ["api-resources", "api-versions"] {
        let (real, sandbox) = (lines_of(&real, line).await, lines_of(&sandbox, line).await);
        let made_up: Vec<_> = sandbox.difference(&real).collect();
        assert!(sandbox.len() > 4 && made_up.is_empty(), "{line}: {made_up:?}");
    }
    let version = sandbox.run(Path::new("."), "version").await;
    assert!(version.success && version.out.contains("trustplane-sandbox"), "{version}");
    let described = sandbox.run(Path::new("."), "describe namespace default").await;
    assert!(described.success && described.out.contains("Active"), "{described}");
}

async fn lines_of(kubectl: &Kubectl, line: &str) -> BTreeSet<String> {
    let Output { out, .. } = kubectl.run(Path::new("."), line).await.normalised();
    out.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_plainly_refuses_what_it_does_not_support() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = r#"{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }"#;
    std::fs::write(folder.path().join("x.json"), manifest).expect("a manifest is written");
    let serving = serve().await;
    let kubectl = Kubectl::new(serving.kubeconfig());
    let refusals = [
        ("apply --server-side -f x.json", "the sandbox has no server-side apply"),
        ("auth can-i get routes", "the server could not find the requested resource"),
        ("get pods", "the server doesn't have a resource type \"pods\""),
        ("get deployments", "the server doesn't have a resource type \"deployments\""),
    ];
    for (line, why) in refusals {
        let output = kubectl.run(folder.path(), line).await;
        assert!(!output.success && output.err.contains(why), "kubectl {line}: {output}");
    }
    let applied = kubectl.run(folder.path(), "apply -f x.json").await;
    assert!(applied.success, "{applied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_enters_the_sandbox_with_its_token_and_finds_most_doors_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let review = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: x}\n";
    std::fs::write(folder.path().join("review.yaml"), review).expect("a manifest is written");
    let serving = serve().await;
    let kubectl = Kubectl::new(serving.kubeconfig());
    let run = async |line: &str| kubectl.run(folder.path(), line).await;
    assert!(run("create serviceaccount robot").await.success);
    let issued = run("create token robot").await;
    assert!(issued.success, "{issued}");
    let bearing = async |line: &str| run(&format!("--token={} {line}", issued.out)).await;
    let account = bearing("auth whoami").await;
    assert!(account.out.contains("system:serviceaccount:default:robot"), "{account}");
    let reviewed = bearing("create -f review.yaml -o jsonpath={.status.error}").await;
    assert_eq!(reviewed.out, "invalid bearer token", "{reviewed}");
    let refused = bearing("get secrets").await;
    assert!(!refused.success && refused.err.contains("Forbidden"), "{refused}");
    assert!(run("delete serviceaccount robot").await.success);
    let refused = bearing("auth whoami").await;
    assert!(!refused.success && refused.err.contains("Unauthorized"), "{refused}");
}
