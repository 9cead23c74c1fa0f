//! Connects commands to the cluster that kubectl uses.

use std::time::Duration;

use anyhow::Context;
use kube::{Client, Config};

use crate::{
    k8s::{client, gate::Gate},
    runtime::controller::{Unable, no_cluster},
};

/// A connection may be silent for this long; each call has a shorter limit of its own.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

pub(super) async fn config() -> anyhow::Result<Config> {
    Ok(client::config().await.map_err(|error| Unable(no_cluster(error)))?)
}

pub(super) fn connect(config: Config) -> anyhow::Result<Client> {
    let client = client::connect(config, Gate::open(), SILENCE);
    Ok(client.context("cannot use the cluster's configuration").map_err(Unable)?)
}

/// Runs a command that is not a controller.
pub(super) fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new().context("cannot start")?.block_on(work)
}

/// The API server's rule for names of namespaces.
pub(super) fn namespace_name(text: &str) -> Result<String, String> {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = text.chars().all(|c| alphanumeric(c) || c == '-');
    if text.is_empty()
        || text.len() > 63
        || !inner
        || !text.starts_with(alphanumeric)
        || !text.ends_with(alphanumeric)
    {
        return Err("not a valid namespace name".to_owned());
    }
    Ok(text.to_owned())
}

/// For flags whose default is all namespaces.
pub(super) fn served_namespace(text: &str) -> Result<String, String> {
    namespace_name(text)
        .map_err(|error| format!("{error}; leave the flag out to serve all namespaces"))
}
