//! A cluster of its own for each measurement, and the released program on it.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use kube::Client;

use crate::{
    journal::{self, Journal},
    support::{Access, Controller, Launch, Servers, kubectl, token_of, until_served},
};

/// A running API server with our CRDs and deploy/base.
pub struct Stage {
    servers: Servers,
    admin: Access,
    account: PathBuf,
    /// As administrator.
    pub client: Client,
    pub journal: Journal,
}

impl Stage {
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let servers = Servers::start_auditing(name, &journal::policy()).await;
        let servers = servers.map_err(|why| anyhow!(why))?;
        let admin = Access {
            url: servers.url.clone(),
            authority: servers.authority.clone(),
            token: servers.admin_token.clone(),
        };
        let kubeconfig = servers.scratch.join("admin.kubeconfig");
        admin.write_kubeconfig(&kubeconfig);
        for part in ["crds", "deploy/base"] {
            let folder = format!("{}/{part}", env!("CARGO_MANIFEST_DIR"));
            let applied = kubectl(&kubeconfig, &["apply", "--server-side", "-k", &folder]).await;
            applied.map_err(|why| anyhow!(why))?;
        }
        let client = admin.try_client().await?;
        let token = token_of(&client, "trustplane", "trustplane").await;
        until_served(&client).await;
        let account = servers.scratch.join("account.kubeconfig");
        admin.with_token(token).write_kubeconfig(&account);
        let journal = Journal::following(servers.logs.join("audit.log"));
        Ok(Self { servers, admin, account, client, journal })
    }

    /// A kubeconfig of the administrator, for another process.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.servers.scratch.join("admin.kubeconfig")
    }

    /// Starts the controller with its defaults, as deploy/base does.
    pub fn controller(&self) -> Controller {
        let arguments = ["inject", "--listen", "127.0.0.1:0", "--log-format", "json"];
        Launch::exactly("scale", &arguments, self.account.clone()).env("RUST_LOG", "info").start()
    }

    /// Starts the API server anew, after the store has forgotten all that was before: who watches is
    /// told 410 and has to list again.
    pub async fn forget_history(&mut self) -> anyhow::Result<()> {
        self.servers.stop_api().await;
        let compacted = self.servers.compact().await;
        compacted.map_err(|why| anyhow!(why))?;
        self.servers.start_api().await.map_err(|why| anyhow!(why))?;
        self.client = self.admin.try_client().await.context("a client after the restart")?;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It is large, and everything that was measured has been read from it.
        let _ = std::fs::remove_file(self.servers.logs.join("audit.log"));
    }
}
