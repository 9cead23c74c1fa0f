//! The tools that bring Routes from Git into a cluster, as far as the API server can tell: each sends
//! a manifest the way the real one does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use testkit::{Namespace, suite, toolbox};
use tokio::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Argo CD's default: `kubectl apply`, which compares with what it noted in an annotation.
    ArgoCd,
    /// Argo CD with `ServerSideApply=true`.
    ArgoCdServerSide,
    /// Flux's kustomize-controller.
    Flux,
    /// The real helm 3.
    Helm,
}

impl Tool {
    pub const ALL: [Self; 4] = [Self::ArgoCd, Self::ArgoCdServerSide, Self::Flux, Self::Helm];

    /// Name of its Route here.
    pub fn name(self) -> &'static str {
        match self {
            Self::ArgoCd => "argocd",
            Self::ArgoCdServerSide => "argocd-server-side",
            Self::Flux => "flux",
            Self::Helm => "helm",
        }
    }

    pub fn is_server_side(self) -> bool {
        matches!(self, Self::ArgoCdServerSide | Self::Flux)
    }

    /// Brings the manifest into the namespace, or says why it was refused.
    pub async fn apply(self, ns: &Namespace, manifest: &Value) -> Result<(), String> {
        match self {
            Self::Helm => self.upgrade(ns, manifest).await,
            _ => self.kubectl(ns, "apply", manifest).await.map(drop),
        }
    }

    /// The difference between manifest and cluster that the tool would show.
    pub async fn diff(self, ns: &Namespace, manifest: &Value) -> Result<String, String> {
        self.kubectl(ns, "diff", manifest).await
    }

    async fn kubectl(self, ns: &Namespace, verb: &str, manifest: &Value) -> Result<String, String> {
        let manifest = written(ns, &format!("{}.json", self.name()), manifest);
        let manager = match self {
            Self::Flux => "--field-manager=kustomize-controller",
            _ => "--field-manager=argocd-controller",
        };
        let mut arguments = vec!["-n", ns.name(), verb, manager, "-f", text(&manifest)];
        if self.is_server_side() {
            // Both force: what is in Git is theirs, whoever wrote it last.
            arguments.extend(["--server-side", "--force-conflicts"]);
        }
        ns.cluster().kubectl(&arguments).await
    }

    async fn upgrade(self, ns: &Namespace, manifest: &Value) -> Result<(), String> {
        let chart = "apiVersion: v2\nname: shop\nversion: 0.1.0\n";
        let chart = written(ns, "chart/Chart.yaml", chart);
        written(ns, "chart/templates/route.yaml", manifest);
        let folder = chart.parent().expect("it is in the chart");
        let home = ns.cluster().scratch().join("helm");
        let mut helm = Command::new(toolbox()?.join("helm"));
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(variable, &home);
        }
        helm.env("KUBECONFIG", ns.cluster().kubeconfig(ns.cluster().admin_access()));
        helm.args(["upgrade", "--install", self.name()]).arg(folder).args(["-n", ns.name()]);
        let output = helm.stdin(Stdio::null()).output().await.map_err(|why| why.to_string())?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(complaint) }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path is text")
}

/// A file of this namespace. It goes with the cluster, for it may hold a key.
fn written(ns: &Namespace, name: &str, content: impl ToString) -> PathBuf {
    let path = ns.cluster().scratch().join("git").join(ns.name()).join(name);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
    suite::write_private(&path, &content.to_string());
    path
}
