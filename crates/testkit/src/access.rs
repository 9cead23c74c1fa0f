//! Access to an API server: clients and kubeconfig files.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::suite;

/// User name of the account of deploy/base.
pub const ACCOUNT: &str = "system:serviceaccount:trustplane:trustplane";

/// An API server and a token for it.
#[derive(Clone)]
pub struct Access {
    /// Address of the server; a plain `http://` one for a [`crate::proxy::Proxy`].
    pub url: String,
    /// CA of the server's certificate, in PEM.
    pub authority: String,
    /// Bearer token.
    pub token: String,
}

impl Access {
    /// The same identity for another address, such as a proxy.
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

    pub async fn client_without_retries(&self) -> Client {
        let mut config = self.config().await.expect("a configuration for the API server");
        config.default_retry = false;
        Client::try_from(config).expect("a client for the test's API server")
    }

    /// Like [`Access::client`], for a server that is still starting.
    pub async fn try_client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// A kube configuration, for clients with other settings.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig())?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The proxy of the environment is not for loopback.
        config.proxy_url = None;
        Ok(config)
    }

    /// Writes a kubeconfig with mode 0600.
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
