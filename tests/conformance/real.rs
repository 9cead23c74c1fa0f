//! The real side: kube-apiserver with our CRDs, and the controllers for namespace deletion and
//! garbage collection, which the sandbox does itself.

use std::path::Path;

use testkit::{
    Cluster, suite,
    tied::{self, Tied},
    toolbox,
};
use tokio::sync::OnceCell;

use crate::side::{Server, Side};
use crate::spire;

/// A real cluster. Dropping it stops it.
pub struct Real {
    /// Declared first, so that it is dropped first.
    _controllers: Tied,
    cluster: Cluster,
}

impl Real {
    /// The cluster that the tests of this binary share. It ends with the process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Real> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                let cluster = Cluster::get().await;
                install_federation(&cluster).await;
                Self::around(cluster, "api")
            })
            .await
    }

    pub async fn start(name: &str) -> Self {
        Self::around(Cluster::start_another(name).await, name)
    }

    fn around(cluster: Cluster, name: &str) -> Self {
        let kubeconfig = cluster.kubeconfig(cluster.admin_access());
        let logs = suite::subfolder(&format!("{name}-controllers-{}", suite::next_number()));
        let log = logs.join("kube-controller-manager.log");
        let controllers = start_controllers(&kubeconfig, &log).expect("the controllers start");
        Self { _controllers: controllers, cluster }
    }

    pub fn kubeconfig(&self) -> std::path::PathBuf {
        self.cluster.kubeconfig(self.cluster.admin_access())
    }

    /// The key that signs tokens, in PEM.
    pub fn signing_key(&self) -> Vec<u8> {
        std::fs::read(self.cluster.scratch().join("accounts.key")).expect("the key is there")
    }

    /// A side without retries.
    pub async fn side(&self, name: &'static str) -> Side {
        let admin = self.cluster.admin_access();
        let client = admin.client_without_retries().await;
        Side { name, client, server: Server::Real(admin.clone()) }
    }
}

fn start_controllers(kubeconfig: &Path, log: &Path) -> std::io::Result<Tied> {
    let program = toolbox().map_err(std::io::Error::other)?.join("kube-controller-manager");
    let mut command = tied::command(&program, log, None);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--controllers=namespace-controller,garbage-collector-controller"])
        .args(["--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"]);
    Tied::spawn(command)
}

/// The CRDs of federate and the authority, and those of the SPIRE controller manager.
async fn install_federation(cluster: &Cluster) {
    let federate = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/federate");
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/spiffe");
    let released = spire::released().display().to_string();
    for source in [["-k", federate], ["-k", authority], ["-f", &released]] {
        let applied = cluster.kubectl(&[&["apply", "--server-side"], &source[..]].concat()).await;
        applied.expect("the CRDs are accepted");
    }
    let established = ["wait", "--for=condition=Established", "--timeout=30s"];
    let crds = [
        "crd/spireservers.operator.openshift.io",
        "crd/jointokens.trustplane.dev",
        "crd/spiffefederations.trustplane.dev",
        "crd/clusterfederatedtrustdomains.spire.spiffe.io",
        "crd/clusterspiffeids.spire.spiffe.io",
        "crd/clusterstaticentries.spire.spiffe.io",
    ];
    cluster.kubectl(&[&established[..], &crds].concat()).await.expect("the CRDs are served");
}
