//! The installation of `trustplane review`: the service, its configuration, and how it stands with each cluster.

use std::path::Path;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PodSpec},
};
use kube::{Api, Client};

use super::{
    controller::{Controller, ControllerFound},
    found::{Answer, DeploymentFound},
    rights::{self, ManifestError},
};
use crate::{
    k8s::api_error,
    names::{REVIEW_CONFIG_MAP, REVIEW_DEPLOYMENT, REVIEW_LEASE},
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
    let (controller, configuration) = tokio::join!(
        CONTROLLER.gather(client, namespace, clock, deployment, needed),
        configuration(client, namespace),
    );
    Ok(Installation { controller: controller?, state_namespace, configuration })
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
