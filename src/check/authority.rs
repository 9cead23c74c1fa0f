//! The installation of `trustplane authority`: the controller, its API, the bundle that it publishes, and
//! the federations that it keeps.

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Resource};

use super::{
    controller::{Controller, ControllerFound},
    crd,
    found::{Answer, ConditionFound, DeploymentFound, Installed},
    join_port::{self, JoinPort},
    policy, questions,
    rights::{self, ManifestError},
};
use crate::{
    api::spiffe_federation::SpiffeFederation,
    authority::{
        act::apply::{BUNDLE, VIEW},
        decide::{
            ca::AuthorityState,
            sync::{SYNCED, TRUSTED},
        },
    },
    k8s::{
        api_error,
        decode::MaybeDecoded,
        pages::{Pages, Progress},
    },
    names::{AUTHORITY_DEPLOYMENT, AUTHORITY_LEASE, BUNDLE_CONFIG_MAP},
    runtime::clock::Clock,
    spiffe::bundle::{Bundle, BundleError},
};

pub const CONTROLLER: Controller = Controller {
    deployment: AUTHORITY_DEPLOYMENT,
    lease: AUTHORITY_LEASE,
    namespace_variable: "POD_NAMESPACE",
    policy: Some(policy::SPIFFE_STATUS),
};

#[derive(Clone, Debug)]
pub struct Installation {
    pub controller: ControllerFound,
    /// Where its Secret and ConfigMaps are.
    pub state_namespace: String,
    /// The SPIFFEFederation API, compared with ours; an error if it could not be read.
    pub federation_api: Answer<Installed>,
    /// The JoinToken API, in the same way.
    pub join_token_api: Answer<Installed>,
    pub join_port: Answer<JoinPort>,
    /// None where there is no ConfigMap with a bundle.
    pub published: Answer<Option<PublishedFound>>,
    pub federations: Answer<FederationsFound>,
}

/// The ConfigMap with our bundle.
#[derive(Clone, Debug)]
pub struct PublishedFound {
    /// The document; none where it is missing.
    pub bundle: Option<Result<Bundle, BundleError>>,
    /// Our CAs with their phases; none where they are missing or can't be read.
    pub state: Option<AuthorityState>,
    pub read_at: DateTime<Utc>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FederationsFound {
    pub federations: Vec<FederationFound>,
    /// The names of those that can't be decoded.
    pub undecodable: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederationFound {
    pub name: String,
    /// `Synced` and `Trusted`, as far as they are there.
    pub conditions: Vec<ConditionFound>,
    /// Whether they are about the spec as it is now.
    pub current: bool,
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
    let needed = rights::of_authority(namespace, &state_namespace)?;
    let (controller, federation_api, join_token_api, join_port, published, federations) = tokio::join!(
        CONTROLLER.gather(client, namespace, clock, deployment, needed),
        questions::crd(client, crd::SPIFFE_FEDERATION),
        questions::crd(client, crd::JOIN_TOKEN),
        join_port::gather(client, namespace),
        published(client, &state_namespace, clock),
        federations(client),
    );
    Ok(Installation {
        controller: controller?,
        state_namespace,
        federation_api: federation_api?,
        join_token_api: join_token_api?,
        join_port,
        published,
        federations,
    })
}

/// Where its Secret and ConfigMaps are.
pub fn state_namespace<'a>(deployment: &'a DeploymentFound, namespace: &'a str) -> &'a str {
    // POD_NAMESPACE comes from the Pod, so it is not in the Deployment.
    deployment.served.first().map_or(namespace, String::as_str)
}

pub async fn published(
    client: &Client,
    namespace: &str,
    clock: &Clock,
) -> Answer<Option<PublishedFound>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api_error::with_timeout(api.get_opt(BUNDLE_CONFIG_MAP)).await?;
    Ok(found.map(|found| PublishedFound::read(&found, clock.now())))
}

impl PublishedFound {
    fn read(config_map: &ConfigMap, read_at: DateTime<Utc>) -> Self {
        let value = |key: &str| config_map.data.as_ref()?.get(key);
        Self {
            bundle: value(BUNDLE).map(|document| Bundle::parse(document.as_bytes())),
            state: value(VIEW).and_then(|view| serde_json::from_str(view).ok()),
            read_at,
        }
    }
}

/// Page by page: each holds the bundle of a trust domain.
pub async fn federations(client: &Client) -> Answer<FederationsFound> {
    let api: Api<MaybeDecoded<SpiffeFederation>> = Api::all(client.clone());
    let mut pages = Pages::new(&api, None);
    let mut found = FederationsFound::default();
    while api_error::with_timeout(pages.next(|it| found.add(&it))).await? == Progress::More {}
    Ok(found)
}

impl FederationsFound {
    pub fn count(&self) -> usize {
        self.federations.len() + self.undecodable.len()
    }

    fn add(&mut self, federation: &MaybeDecoded<SpiffeFederation>) {
        match federation {
            MaybeDecoded::Decoded(it) => self.federations.push(FederationFound::read(it)),
            undecodable => {
                self.undecodable.push(undecodable.meta().name.clone().unwrap_or_default());
            }
        }
    }
}

impl FederationFound {
    fn read(federation: &SpiffeFederation) -> Self {
        let ours = [SYNCED, TRUSTED].into_iter().filter_map(|kind| federation.condition(kind));
        Self {
            name: federation.name().to_owned(),
            current: ours.clone().all(|it| it.observed_generation >= federation.generation()),
            conditions: ours
                .map(|it| ConditionFound {
                    kind: it.r#type.to_string(),
                    status: it.status.to_string(),
                    reason: it.reason.to_string(),
                })
                .collect(),
        }
    }

    pub fn condition(&self, kind: &str) -> Option<&ConditionFound> {
        self.conditions.iter().find(|it| it.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> DateTime<Utc> {
        "2030-06-15T12:00:00Z".parse().unwrap()
    }

    fn read(data: Value) -> PublishedFound {
        PublishedFound::read(&serde_json::from_value(json!({ "data": data })).unwrap(), now())
    }

    #[test]
    fn the_published_bundle_and_its_phases_are_read_each_by_itself() {
        let state =
            json!({ "trustDomain": "td-a.test", "sequence": 4, "refreshHint": 300, "cas": [] });
        let keys = json!({ "keys": [], "spiffe_sequence": 4 });
        let both = read(json!({ BUNDLE: keys.to_string(), VIEW: state.to_string() }));
        assert_eq!(both.bundle.unwrap().unwrap().sequence, Some(4));
        assert_eq!(both.state.unwrap().trust_domain, "td-a.test");

        let broken = read(json!({ BUNDLE: "{", VIEW: "{}" }));
        assert!(broken.bundle.unwrap().is_err() && broken.state.is_none());
        let empty = read(Value::Null);
        assert!(empty.bundle.is_none() && empty.state.is_none());
    }

    #[test]
    fn conditions_of_a_federation_are_read_and_those_about_an_earlier_spec_are_told_apart() {
        let condition = |kind: &str, generation: i64| {
            json!({
                "type": kind, "status": "False", "reason": "FetchFailed", "message": "",
                "lastTransitionTime": now(), "observedGeneration": generation,
            })
        };
        let federation = |conditions: Value| {
            json!({
                "metadata": { "name": "b.test", "generation": 3 },
                "spec": { "bundleSource": { "static": { "bundle": "{}" } } },
                "status": { "conditions": conditions },
            })
        };
        let mut found = FederationsFound::default();
        let mut add = |object: Value| found.add(&MaybeDecoded::from_json(&object.to_string()));
        add(federation(json!([condition("Synced", 3), condition("Audited", 0)])));
        add(federation(json!([condition("Trusted", 3), condition("Synced", 2)])));
        add(json!({ "metadata": { "name": "c.test" }, "spec": 1 }));

        let [current, earlier] = &found.federations[..] else { panic!("{found:?}") };
        assert!(current.current, "that of somebody else says nothing");
        assert_eq!(current.conditions.len(), 1, "{current:?}");
        assert_eq!(current.condition("Synced").unwrap().reason, "FetchFailed");
        assert!(!earlier.current);
        assert_eq!(found.undecodable, ["c.test"]);
    }
}
