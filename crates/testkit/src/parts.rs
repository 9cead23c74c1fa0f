//! Real components beside the API server, and installations with kubectl.

use std::path::Path;

use crate::tied::{self, Tied};
use crate::{Servers, at, free_port, kubectl, toolbox};

/// Tools that the toolbox must hold, besides those that [`toolbox`] checks itself.
const TOOLS: [&str; 4] =
    ["kube-controller-manager", "cert-manager-controller", CERT_MANAGER_CRDS, "helm"];
const CERT_MANAGER_CRDS: &str = "cert-manager.crds.yaml";

/// Controllers that finish deletions of objects and namespaces.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,\
    serviceaccount-controller,serviceaccount-token-controller";

/// One line about missing tools, if any.
pub fn are_present() -> Result<(), String> {
    let folder = toolbox()?;
    let missing = TOOLS.iter().find(|name| !folder.join(name).is_file());
    match missing {
        Some(name) => Err(format!("{name} is missing in the toolbox: run `make toolbox`")),
        None => crate::router::program().map(drop),
    }
}

pub fn controller_manager(servers: &Servers, kubeconfig: &Path) -> Result<Tied, String> {
    let key = servers.scratch.join("accounts.key");
    start(
        servers,
        "kube-controller-manager",
        &[
            &format!("--kubeconfig={}", kubeconfig.display()),
            &format!("--service-account-private-key-file={}", key.display()),
            &format!("--controllers={CONTROLLERS}"),
            "--leader-elect=false",
            // Its own port is not needed.
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
    )
}

/// Installs cert-manager's CRDs and starts its controller.
pub async fn cert_manager(servers: &Servers, kubeconfig: &Path) -> Result<Tied, String> {
    let crds = toolbox()?.join(CERT_MANAGER_CRDS).display().to_string();
    kubectl(kubeconfig, &["create", "namespace", "cert-manager"]).await?;
    // Too large for `apply`.
    kubectl(kubeconfig, &["create", "-f", &crds]).await?;
    kubectl(kubeconfig, &["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds])
        .await?;
    let port = free_port().map_err(|error| error.to_string())?;
    start(
        servers,
        "cert-manager-controller",
        &[
            &format!("--kubeconfig={}", kubeconfig.display()),
            &format!("--metrics-listen-address=127.0.0.1:{port}"),
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--v=1",
        ],
    )
}

/// Installs trustplane as a user would.
pub async fn install(kubeconfig: &Path) -> Result<(), String> {
    let overlay = at("deploy/overlays/kubernetes").display().to_string();
    kubectl(kubeconfig, &["apply", "-k", &overlay]).await.map(drop)
}

fn start(servers: &Servers, name: &str, arguments: &[&str]) -> Result<Tied, String> {
    let log = servers.logs.join(format!("{name}.log"));
    let mut command = tied::command(&toolbox()?.join(name), &log, None);
    command.args(arguments);
    Tied::spawn(command).map_err(|error| format!("{name}: {error}"))
}
