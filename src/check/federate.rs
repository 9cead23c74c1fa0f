//! The installation of `trustplane federate`: the controller, the APIs, and the SpireServer.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::Value;

use super::{
    controller::{Controller, ControllerFound},
    crd,
    found::{Answer, ConditionFound, DeploymentFound, Installed},
    policy, questions,
    rights::{self, ManifestError},
};
use crate::{
    api::{federated_trust_domain, spire_server},
    k8s::api_error::{self, ApiError},
    names::{FEDERATE_DEPLOYMENT, FEDERATE_LEASE, SPIRE_NAMESPACE},
    runtime::clock::Clock,
};

pub const CONTROLLER: Controller = Controller {
    deployment: FEDERATE_DEPLOYMENT,
    lease: FEDERATE_LEASE,
    namespace_variable: "TRUSTPLANE_SPIRE_NAMESPACE",
    policy: Some(policy::ENDPOINT),
};

/// The kinds of the SPIRE controller manager, by their plural names.
const SPIRE_KINDS: [(&str, &str); 3] = [
    ("clusterfederatedtrustdomains", "ClusterFederatedTrustDomain"),
    ("clusterspiffeids", "ClusterSPIFFEID"),
    ("clusterstaticentries", "ClusterStaticEntry"),
];

#[derive(Clone, Debug)]
pub struct FederateFound {
    /// Its Deployment, with what was asked about the installation if there is one.
    pub installation: Answer<Option<Installation>>,
    /// The SpireServer, of any controller; none where there is no such API.
    pub server: Answer<Option<SpireServerFound>>,
}

#[derive(Clone, Debug)]
pub struct Installation {
    /// Its Deployment serves one namespace: that of the SPIRE server, which the policy guards.
    pub controller: ControllerFound,
    /// The SpireServer API, compared with ours; an error if it could not be read.
    pub spire_server_api: Answer<Installed>,
    /// The kinds of the SPIRE controller manager that are not served.
    pub missing_kinds: Answer<Vec<&'static str>>,
}

impl Installation {
    pub fn spire_namespace(&self) -> &str {
        spire_namespace(&self.controller.deployment)
    }
}

/// The namespace of the SPIRE server that this Deployment keeps.
pub fn spire_namespace(deployment: &DeploymentFound) -> &str {
    deployment.served.first().map_or(SPIRE_NAMESPACE, String::as_str)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpireServerFound {
    pub trust_domain: String,
    pub conditions: Vec<ConditionFound>,
    /// Whether they are about the spec as it is now.
    pub current: bool,
    /// Each peer, and whether nothing is wrong with it.
    pub peers: Vec<(String, bool)>,
}

pub async fn gather(
    client: &Client,
    namespace: &str,
    clock: &Clock,
) -> Result<FederateFound, ManifestError> {
    let (deployment, server) = tokio::join!(deployment(client, namespace), spire_server(client));
    let installation = match deployment {
        Ok(Some(deployment)) => Ok(Some(installation(client, namespace, clock, deployment).await?)),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(FederateFound { installation, server })
}

async fn installation(
    client: &Client,
    namespace: &str,
    clock: &Clock,
    deployment: DeploymentFound,
) -> Result<Installation, ManifestError> {
    let needed = rights::of_federate(namespace, spire_namespace(&deployment))?;
    let (controller, spire_server_api, missing_kinds) = tokio::join!(
        CONTROLLER.gather(client, namespace, clock, deployment, needed),
        questions::crd(client, crd::SPIRE_SERVER),
        missing_kinds(client),
    );
    let (controller, spire_server_api) = (controller?, spire_server_api?);
    Ok(Installation { controller, spire_server_api, missing_kinds })
}

pub async fn deployment(client: &Client, namespace: &str) -> Answer<Option<DeploymentFound>> {
    CONTROLLER.deployment(client, namespace).await
}

/// The SpireServer; none where there is no such object or API.
pub async fn spire_server(client: &Client) -> Answer<Option<SpireServerFound>> {
    use spire_server::{GROUP, KIND, NAME, VERSION};
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = api_error::with_timeout(api.get_opt(NAME)).await?;
    Ok(found.map(|found| {
        SpireServerFound::read(&found.data, found.metadata.generation.unwrap_or_default())
    }))
}

impl SpireServerFound {
    fn read(object: &Value, generation: i64) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let status = &object["status"];
        let conditions = list(&status["conditions"]);
        // Two answers: ours, and that of the SPIRE server itself where it can be seen.
        let is_well = |peer: &Value| {
            peer["reachable"] == true
                && peer["lastError"].is_null()
                && peer["spireFetch"] != "failing"
        };
        let is_current = |it: &Value| it["observedGeneration"].as_i64() >= Some(generation);
        Self {
            trust_domain: text(&object["spec"]["trustDomain"]),
            // Others may add conditions, and say nothing of the spec in them.
            current: conditions.iter().filter(|it| it["type"] == "Ready").all(is_current),
            conditions: conditions
                .iter()
                .map(|it| ConditionFound {
                    kind: text(&it["type"]),
                    status: text(&it["status"]),
                    reason: text(&it["reason"]),
                })
                .collect(),
            peers: list(&status["federation"]["peers"])
                .iter()
                .map(|peer| (text(&peer["trustDomain"]), is_well(peer)))
                .collect(),
        }
    }
}

async fn missing_kinds(client: &Client) -> Answer<Vec<&'static str>> {
    use federated_trust_domain::{GROUP, VERSION};
    let version = format!("{GROUP}/{VERSION}");
    let served = match api_error::with_timeout(client.list_api_group_resources(&version)).await {
        Ok(list) => list.resources,
        Err(ApiError::NotFound) => Vec::new(),
        Err(error) => return Err(error),
    };
    let is_missing =
        |(plural, _): &(&str, &str)| !served.iter().any(|resource| resource.name == *plural);
    Ok(SPIRE_KINDS.into_iter().filter(is_missing).map(|(_, kind)| kind).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_and_peers_are_read_and_those_about_an_earlier_spec_are_told_apart() {
        let condition = |generation: i64| {
            json!({
                "type": "Ready", "status": "False", "reason": "StatefulSetNotReady", "message": "",
                "observedGeneration": generation,
            })
        };
        let object = |generation| {
            json!({
                "spec": { "trustDomain": "a.test" },
                "status": {
                    "conditions": [condition(generation)],
                    "federation": { "peers": [
                        { "trustDomain": "b.test", "reachable": true },
                        { "trustDomain": "c.test", "reachable": true, "lastError": "no bundle" },
                        { "trustDomain": "d.test", "reachable": false },
                        { "trustDomain": "e.test", "reachable": true, "spireFetch": "failing" },
                    ] },
                },
            })
        };
        let found = SpireServerFound::read(&object(3), 3);
        assert!(found.current);
        assert_eq!(found.trust_domain, "a.test");
        let [ready] = &found.conditions[..] else { panic!("{found:?}") };
        assert_eq!(
            (&*ready.kind, &*ready.status, &*ready.reason),
            ("Ready", "False", "StatefulSetNotReady")
        );
        let well: Vec<_> = found.peers.iter().map(|(name, well)| (&**name, *well)).collect();
        let failing = ["c.test", "d.test", "e.test"].map(|name| (name, false));
        assert_eq!(well, [&[("b.test", true)], &failing[..]].concat());
        assert!(!SpireServerFound::read(&object(2), 3).current);
        let mut shared = object(3);
        let theirs =
            json!({ "type": "Audited", "status": "True", "reason": "Weekly", "message": "" });
        shared["status"]["conditions"].as_array_mut().unwrap().push(theirs);
        assert!(SpireServerFound::read(&shared, 3).current, "that of somebody else says nothing");
    }
}
