//! The installation of `trustplane review`: the service, its configuration, and how it stands with each cluster.

use std::{collections::BTreeMap, path::Path};

use chrono::{DateTime, Utc};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PodSpec},
};
use kube::{Api, Client};
use serde::Deserialize;

use super::{
    controller::{Controller, ControllerFound},
    found::{Answer, DeploymentFound},
    rights::{self, ManifestError},
};
use crate::{
    k8s::api_error,
    names::{REVIEW_CONFIG_MAP, REVIEW_DEPLOYMENT, REVIEW_LEASE, REVIEW_STATUS_CONFIG_MAP},
    review::decide::config::{self, Config, Fault},
    runtime::clock::Clock,
};

mod mounts;

/// What the configuration is called in its ConfigMap.
pub const CONFIG_KEY: &str = "clusters.yaml";

pub const CONTROLLER: Controller = Controller {
    deployment: REVIEW_DEPLOYMENT,
    lease: REVIEW_LEASE,
    namespace_variable: "POD_NAMESPACE",
    policy: None,
};

#[derive(Clone, Debug)]
pub struct Installation {
    pub controller: ControllerFound,
    /// Where its Secret and its status are.
    pub state_namespace: String,
    pub configuration: Answer<ConfigurationFound>,
    /// None where nothing was written yet.
    pub status: Answer<Option<StatusFound>>,
}

/// The ConfigMap with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationFound {
    pub config_map: String,
    /// None where it is missing.
    pub read: Option<Result<Config, Vec<Fault>>>,
    /// The clusters whose `token_path` or `ca_cert` is in no volume of the Pods.
    pub unmounted: Vec<String>,
}

/// What the leader says of each cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFound {
    /// None for an entry that can't be read.
    pub clusters: BTreeMap<String, Option<ClusterStatus>>,
    pub read_at: DateTime<Utc>,
}

/// As far as it is understood: another version may have written it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    pub reachable: bool,
    pub outage: Option<Outage>,
    /// None for the cluster that it runs in.
    pub credential: Option<CredentialStatus>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Outage {
    pub since: DateTime<Utc>,
    pub error: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CredentialStatus {
    /// None for one without an end.
    #[serde(default)]
    pub expires: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    pub reason: String,
    pub text: String,
}

pub async fn gather(
    client: &Client,
    namespace: &str,
    clock: &Clock,
) -> Result<Answer<Option<Installation>>, ManifestError> {
    match CONTROLLER.deployment(client, namespace).await {
        Ok(Some(found)) => Ok(Ok(Some(installation(client, namespace, clock, found).await?))),
        Ok(None) => Ok(Ok(None)),
        Err(error) => Ok(Err(error)),
    }
}

async fn installation(
    client: &Client,
    namespace: &str,
    clock: &Clock,
    deployment: DeploymentFound,
) -> Result<Installation, ManifestError> {
    let state_namespace = state_namespace(&deployment, namespace).to_owned();
    let needed = rights::of_review(namespace, &state_namespace)?;
    let (controller, configuration, status) = tokio::join!(
        CONTROLLER.gather(client, namespace, clock, deployment, needed),
        configuration(client, namespace),
        status(client, &state_namespace, clock),
    );
    Ok(Installation { controller: controller?, state_namespace, configuration, status })
}

/// Where its Secret and its status are.
pub fn state_namespace<'a>(deployment: &'a DeploymentFound, namespace: &'a str) -> &'a str {
    // POD_NAMESPACE comes from the Pod, so it is not in the Deployment.
    deployment.served.first().map_or(namespace, String::as_str)
}

async fn configuration(client: &Client, namespace: &str) -> Answer<ConfigurationFound> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = api_error::with_timeout(deployments.get_opt(REVIEW_DEPLOYMENT)).await?;
    let pod = deployment.and_then(|it| it.spec.template.spec).unwrap_or_default();
    let name = mounts::config_map(&pod, CONFIG_KEY).unwrap_or(REVIEW_CONFIG_MAP);
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api_error::with_timeout(config_maps.get_opt(name)).await?;
    Ok(ConfigurationFound::read(name, found.as_ref(), &pod))
}

impl ConfigurationFound {
    fn read(name: &str, config_map: Option<&ConfigMap>, pod: &PodSpec) -> Self {
        let text = config_map.and_then(|it| it.data.as_ref()?.get(CONFIG_KEY));
        let read = text.map(|text| config::read(text));
        let unmounted = match &read {
            Some(Ok(config)) => unmounted(config, pod),
            _ => Vec::new(),
        };
        Self { config_map: name.to_owned(), read, unmounted }
    }
}

async fn status(client: &Client, namespace: &str, clock: &Clock) -> Answer<Option<StatusFound>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api_error::with_timeout(api.get_opt(REVIEW_STATUS_CONFIG_MAP)).await?;
    Ok(found.map(|found| StatusFound::read(&found, clock.now())))
}

impl StatusFound {
    fn read(config_map: &ConfigMap, read_at: DateTime<Utc>) -> Self {
        let entries = config_map.data.iter().flatten();
        let clusters = entries.map(|(name, text)| (name.clone(), serde_json::from_str(text).ok()));
        Self { clusters: clusters.collect(), read_at }
    }
}

fn unmounted(config: &Config, pod: &PodSpec) -> Vec<String> {
    let is_missing = |path: &Path| !mounts::has(pod, path);
    let remote = config.clusters.iter().filter_map(|(name, it)| Some((name, it.remote.as_ref()?)));
    let unmounted = remote.filter(|(_, remote)| {
        is_missing(&remote.token_path) || remote.ca_cert.as_deref().is_some_and(is_missing)
    });
    unmounted.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests;
