//! Recognises the API server of `trustplane sandbox`, which commands treat a little differently.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::version::Info};
use kube::{Api, Client};

use super::api_error;

#[cfg(feature = "demo")]
pub const SERVER_NAME: &str = "trustplane sandbox";
/// Its version ends like this.
const VERSION: &str = "+trustplane-sandbox";
/// A ConfigMap of namespace `default`: the injector runs in the sandbox's process.
pub const INJECTOR_CONFIG_MAP: &str = "trustplane-sandbox-injector";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injecting {
    Itself,
    /// A process outside, if any.
    Others,
}

/// Whether the API server with this version is a sandbox's.
pub async fn recognise(client: &Client, version: &Info) -> Option<Injecting> {
    if !version.git_version.ends_with(VERSION) {
        return None;
    }
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    match api_error::with_timeout(config_maps.get_opt(INJECTOR_CONFIG_MAP)).await {
        Ok(Some(_)) => Some(Injecting::Itself),
        _ => Some(Injecting::Others),
    }
}
