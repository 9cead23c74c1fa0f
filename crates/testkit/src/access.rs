//! Access to an API server: clients and kubeconfig files.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::suite;

/// The account of deploy/base, as the API server names it.
pub const ACCOUNT: &str = "system:serviceaccount:trustplane:trustplane";

/// An API server and a token for it.
#[derive(Clone)]
pub struct Access {
    /// Address of the server; a plain `http://` one for a [`crate::proxy::Proxy`].
    pub url: String,
    /// PEM of what the server's certificate verifies with.
    pub authority: String,
    /// Bearer token.
    pub token: String,
}

impl Access {
    /// The same identity at another server, such as a proxy.
    pub fn through(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// The same server with another token.
    pub fn with_token(&self, token: String) -> Self {
        Self { token, ..self.clone() }
    }

    /// A client for the runtime of the calling test.
    pub async fn client(&self) -> Client {
        self.try_client().await.expect("a client for the test's API server")
    }

    /// A client that shows every failure at once, where kube's own would wait and try again.
    pub async fn client_without_retries(&self) -> Client {
        let mut config = self.config().await.expect("a configuration for the API server");
        config.default_retry = false;
        Client::try_from(config).expect("a client for the test's API server")
    }

    /// As [`Access::client`], for a server that is still starting.
    pub async fn try_client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// As kube's configuration, for clients with settings of their own.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig())?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The environment's proxy is not for loopback.
        config.proxy_url = None;
        Ok(config)
    }

    /// Writes a kubeconfig that only we may read.
    pub fn write_kubeconfig(&self, path: &Path) {
        // JSON is YAML.
        suite::write_private(path, &self.kubeconfig().to_string());
    }

    fn kubeconfig(&self) -> Value {
        let mut cluster = json!({ "server": self.url });
        if self.url.starts_with("https:") {
            cluster["certificate-authority-data"] =
                openssl::base64::encode_block(self.authority.as_bytes()).into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": { "token": self.token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        })
    }
}
