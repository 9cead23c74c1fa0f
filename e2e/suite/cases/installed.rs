//! Other ways to install it, and other ways to run the suite.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::suite;
use tokio::process::Command;

use super::*;
use crate::suite::namespace::CaseNamespace;
use crate::suite::permissions;

/// The applied objects without the Route API, whose removal would take every Route along.
const OVERLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/overlays/openshift");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/chart");
const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/role.yaml");

/// The stack was installed by `kubectl apply -k`, and every other case ran on that.
pub async fn a_chart_installed_by_helm_does_the_same(scene: Scene) -> Shown {
    let stack = scene.world.stack();
    stack.stop_injectors().await;
    stack.kubectl(&["delete", "--wait", "-k", OVERLAY]).await.expect("what was applied goes");
    let install =
        ["install", "trustplane", CHART, "--namespace", "trustplane", "--create-namespace"];
    stack.helm(&install).await.expect("the chart is installed");
    stack.redeploy().await;

    kinds::smoke(scene).await
}

/// A process that knows no more of the stack than of any cluster: a kubeconfig, of an account with
/// the rights of e2e/role.yaml and no others, and where the router is.
pub async fn the_suite_needs_a_kubeconfig_alone(scene: Scene) -> Shown {
    let place = scene.place().await;
    let kubeconfig = suite::folder().join("visitor.kubeconfig");
    suite::write_private(&kubeconfig, &visitor(&place).await);

    let refused = child(&place, &kubeconfig).output().await.expect("we can start ourselves");
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && said.contains("nothing can run: we may not"), "{said}");

    allow(&place).await;
    let ended = child(&place, &kubeconfig).status().await.expect("we can start ourselves");
    std::fs::remove_file(&kubeconfig).expect("its token is of no more use");
    assert!(ended.success(), "see its table above");
    Ok(())
}

fn child(place: &CaseNamespace, kubeconfig: &Path) -> Command {
    let kept = |name| std::env::var_os(name).map(|value| (name, value));
    let mut command = Command::new(std::env::current_exe().expect("we run from a file"));
    command
        .args(["--cluster", "--quick"])
        .env_clear()
        .envs(["PATH", "HOME"].into_iter().filter_map(kept))
        // Its leftovers belong to this run.
        .env("TRUSTPLANE_SUITE", suite::folder())
        .env("KUBECONFIG", kubeconfig)
        .env("TRUSTPLANE_E2E_ROUTER", place.world.router())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The kubeconfig of a new account that may do nothing yet.
async fn visitor(place: &CaseNamespace) -> String {
    let stack = place.world.stack();
    let made = stack.kubectl(&["-n", &place.name, "create", "serviceaccount", "visitor"]).await;
    made.expect("the account is accepted");
    let token = stack.kubectl(&["-n", &place.name, "create", "token", "visitor"]).await;
    let token = token.expect("a token is issued");
    let text = std::fs::read_to_string(stack.kubeconfig()).expect("a kubeconfig");
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).expect("a kubeconfig");
    kubeconfig["users"][0]["user"] = json!({ "token": token.trim() });
    // JSON is YAML.
    kubeconfig.to_string()
}

/// Gives that account the rights of e2e/role.yaml.
async fn allow(place: &CaseNamespace) {
    let stack = place.world.stack();
    stack.kubectl(&["apply", "-f", ROLES]).await.expect("the roles are accepted");
    for role in permissions::roles() {
        let name = format!("{}-{}", place.name, role.name());
        let role = format!("--clusterrole={}", role.name());
        let account = format!("--serviceaccount={}:visitor", place.name);
        let bound = stack.kubectl(&["create", "clusterrolebinding", &name, &role, &account]).await;
        bound.expect("the binding is accepted");
    }
}
