//! An API server for each measurement, with the objects of a filled store and the release build.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use kube::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{
    Access, Controller, Launch, Servers, eventually, flow_control::classed, kubectl,
    process::Process, suite::copy_folder, token_of, until_served,
};

use crate::{
    journal::{self, Journal},
    requests::{create, get},
};

const NAMESPACE: &str = "trustplane";
/// The plain client, with the controller's role and priority.
const PLAIN_CLIENT: &str = "plain-client";
/// Renews Secrets like cert-manager.
const ISSUER: &str = "issuer";

/// A running API server with our CRDs, deploy/base and deploy/flow-control.
pub struct Stage {
    servers: Servers,
    admin: Access,
    issuer: Access,
    account: PathBuf,
    pub journal: Journal,
}

impl Stage {
    /// Starts with an empty store.
    pub async fn empty() -> anyhow::Result<Self> {
        Self::start("fill", None).await
    }

    /// Starts with a copy of this store.
    pub async fn with(name: &str, store: &Path) -> anyhow::Result<Self> {
        Self::start(name, Some(store)).await
    }

    async fn start(name: &str, store: Option<&Path>) -> anyhow::Result<Self> {
        let servers = Servers::start_with(name, &journal::policy(), store).await;
        let servers = servers.map_err(|why| anyhow!(why))?;
        let admin = Access {
            url: servers.url.clone(),
            authority: servers.authority.clone(),
            token: servers.admin_token.clone(),
        };
        let client = admin.try_client().await?;
        if store.is_none() {
            install(&servers, &admin, &client).await?;
        }
        until_served(&client).await;
        let account = servers.scratch.join("account.kubeconfig");
        let controller = admin.with_token(token_of(&client, NAMESPACE, "trustplane").await);
        controller.write_kubeconfig(&account);
        let plain = admin.with_token(token_of(&client, NAMESPACE, PLAIN_CLIENT).await);
        plain.write_kubeconfig(&servers.scratch.join("plain.kubeconfig"));
        for access in [&controller, &plain] {
            until_on_workload_high(&client, &access.try_client().await?).await;
        }
        let token = token_of(&client, NAMESPACE, ISSUER).await;
        let issuer = admin.with_token(token);
        let journal = Journal::following(servers.logs.join("audit.log"));
        Ok(Self { servers, admin, issuer, account, journal })
    }

    /// A client of the administrator with a new connection: the server may close an idle one just
    /// when it is used again.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.admin.try_client().await
    }

    /// A client of the account that renews Secrets.
    pub async fn issuer(&self) -> anyhow::Result<Client> {
        self.issuer.try_client().await
    }

    pub fn api_server(&self) -> Process {
        Process(self.servers.api.pid())
    }

    pub fn etcd(&self) -> Process {
        Process(self.servers.etcd.pid())
    }

    /// A kubeconfig of the plain client.
    pub fn plain_kubeconfig(&self) -> PathBuf {
        self.servers.scratch.join("plain.kubeconfig")
    }

    /// Starts the controller with its defaults, without leader election.
    pub fn controller(&self) -> Controller {
        let arguments = ["inject", "--listen", "127.0.0.1:0", "--log-format", "json"];
        let launch = Launch::exactly("scale", &arguments, self.account.clone());
        launch.env("RUST_LOG", "info").image_environment().start()
    }

    /// Copies the store.
    pub fn copy_store(&mut self, to: &Path) -> anyhow::Result<()> {
        // While etcd is stopped, its files are as consistent as after a crash.
        self.servers.etcd.signal(Signal::STOP);
        let copied = copy_folder(&self.servers.data(), to);
        self.servers.etcd.signal(Signal::CONT);
        copied.with_context(|| format!("a copy of the store in {}", to.display()))
    }

    /// Compacts the store and restarts the API server: watches get a 410 and clients must list
    /// again.
    pub async fn forget_history(&mut self) -> anyhow::Result<()> {
        self.servers.stop_api().await;
        let compacted = self.servers.compact().await;
        compacted.map_err(|why| anyhow!(why))?;
        self.servers.start_api().await.map_err(|why| anyhow!(why))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It is large and no longer needed.
        let _ = std::fs::remove_file(self.servers.logs.join("audit.log"));
    }
}

async fn install(servers: &Servers, admin: &Access, client: &Client) -> anyhow::Result<()> {
    let kubeconfig = servers.scratch.join("admin.kubeconfig");
    admin.write_kubeconfig(&kubeconfig);
    for part in ["crds", "deploy/base", "deploy/flow-control"] {
        let folder = format!("{}/{part}", env!("CARGO_MANIFEST_DIR"));
        let applied = kubectl(&kubeconfig, &["apply", "--server-side", "-k", &folder]).await;
        applied.map_err(|why| anyhow!(why))?;
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": ISSUER },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"] }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await?;
    account_with_role(client, PLAIN_CLIENT, "trustplane-inject").await?;
    priority_of_controller(client, PLAIN_CLIENT).await?;
    account_with_role(client, ISSUER, ISSUER).await
}

/// A FlowSchema like the controller's for this account.
async fn priority_of_controller(client: &Client, account: &str) -> anyhow::Result<()> {
    let path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let deployed: Value = get(client, &format!("{path}/trustplane-inject")).await?;
    let mut schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": { "name": format!("bench-{account}") },
        "spec": deployed["spec"],
    });
    schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"]["name"] = json!(account);
    create(client, path, &schema).await
}

/// The API server applies a FlowSchema a moment after it has accepted it.
async fn until_on_workload_high(admin: &Client, somebody: &Client) {
    eventually(Duration::from_secs(30), "requests are on workload-high", async || {
        match classed(admin, somebody, "/version").await {
            Ok(classed) if classed.level == "workload-high" => Ok(()),
            other => Err(other),
        }
    })
    .await
}

async fn account_with_role(client: &Client, name: &str, role: &str) -> anyhow::Result<()> {
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    create(client, &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account).await?;
    let group = "rbac.authorization.k8s.io";
    let binding: Value = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("bench-{name}") },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }],
    });
    create(client, &format!("/apis/{group}/v1/clusterrolebindings"), &binding).await
}
