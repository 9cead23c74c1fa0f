//! The one step of federation that needs a person: the first bundle of another trust domain.
//!
//! A reader of the SPIRE server's ConfigMap in one cluster knows its authorities for certain. They verify
//! the bundle endpoint, and its bundle is stored in the other cluster once a person has compared the
//! fingerprint.

mod error;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::Patch, core::TypeMeta};
use serde_json::{Value, json};

use crate::{
    api::{
        federated_trust_domain::FederatedTrustDomain,
        spire_server::{self, Profile, SpireServer},
    },
    bundle::fetch::{self, Endpoint, FetchError, Fetched, Trust},
    federate::decide::{
        bootstrap::{Facts, ImportPlan, Offer},
        render::BUNDLE,
        validate,
    },
    k8s::{
        api_error::{self, ApiError},
        client::{patch_params, post_params},
    },
    spiffe::{bundle::Bundle, id::SpiffeId},
};

pub use error::BootstrapError;

/// A cluster that an administrator can reach.
#[derive(Clone)]
pub struct Cluster {
    /// Its context in the kubeconfig.
    pub context: String,
    pub client: Client,
}

impl Cluster {
    pub async fn trust_domain(&self) -> Result<String, BootstrapError> {
        Ok(self.server().await?.spec.trust_domain)
    }

    /// Reads the bundle from the endpoint, and compares it with the one in the ConfigMap.
    pub async fn offer(
        &self,
        namespace: &str,
        url: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Offer, BootstrapError> {
        let server = self.server().await?;
        let no_endpoint = || BootstrapError::NoEndpoint { context: self.context.clone() };
        let federation = server.spec.federation.as_ref().ok_or_else(no_endpoint)?;
        let known = server.status.federation.as_ref().and_then(|it| it.endpoint_url.as_deref());
        let url = url.or(known).ok_or_else(no_endpoint)?.to_owned();
        let profile = federation.bundle_endpoint.profile;
        let trust_domain = server.spec.trust_domain;
        let published = self.published(namespace).await?;
        let (trust, endpoint_id) = match profile {
            Profile::HttpsWeb => (Trust::web(fetch::web_roots()?), None),
            Profile::HttpsSpiffe => {
                let bundle = Arc::new(published.clone());
                let id = format!("spiffe://{trust_domain}/spire/server");
                let parsed = SpiffeId::parse(&id).map_err(|cause| BootstrapError::TrustDomain {
                    trust_domain: trust_domain.clone(),
                    cause,
                })?;
                (Trust::Spiffe { id: parsed, bundle }, Some(id))
            }
        };
        let address = validate::https_url(&url)
            .map_err(|cause| BootstrapError::Url { url: url.clone(), cause })?;
        let fetched = fetch::fetch(&Endpoint { url: address, trust }, now).await;
        let fetched = fetched.map_err(|cause| fetch_error(&url, cause))?;
        let Fetched { bundle, document } = match profile {
            Profile::HttpsSpiffe => fetched,
            // The API server can't confirm JWT keys, and the trust domain does not vouch for them.
            Profile::HttpsWeb => authorities_alone(fetched),
        };
        // With either profile, the endpoint's bundle must match the one in the cluster.
        let same = |a: &Bundle, b: &Bundle| a.x509.iter().all(|it| b.x509.contains(it));
        if bundle.x509.is_empty() || !same(&bundle, &published) || !same(&published, &bundle) {
            return Err(BootstrapError::OtherAuthorities { url, context: self.context.clone() });
        }
        Ok(Offer { trust_domain, url, profile, endpoint_id, bundle, document })
    }

    async fn server(&self) -> Result<SpireServer, BootstrapError> {
        let api: Api<SpireServer> = Api::all(self.client.clone());
        let found = api_error::with_timeout(api.get_opt(spire_server::NAME)).await;
        let found = found.map_err(|cause| self.failed("SpireServer cluster", cause))?;
        found.ok_or_else(|| BootstrapError::NoServer { context: self.context.clone() })
    }

    /// The authorities that the SPIRE server keeps in its ConfigMap.
    async fn published(&self, namespace: &str) -> Result<Bundle, BootstrapError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = api_error::with_timeout(api.get_opt(BUNDLE)).await;
        let what = format!("ConfigMap {namespace}/{BUNDLE}");
        let found = found.map_err(|cause| self.failed(&what, cause))?;
        let text = found.and_then(|map| map.data?.remove("bundle.crt")).filter(|it| !it.is_empty());
        let text = text.ok_or_else(|| BootstrapError::NotPublished {
            context: self.context.clone(),
            namespace: namespace.to_owned(),
        })?;
        Bundle::from_pem(&text)
            .map_err(|cause| BootstrapError::Unreadable { context: self.context.clone(), cause })
    }

    async fn trust_domains(&self) -> Result<Vec<FederatedTrustDomain>, BootstrapError> {
        let api: Api<FederatedTrustDomain> = Api::all(self.client.clone());
        let listed = api_error::with_timeout(api.list(&Default::default())).await;
        let objects = listed.map_err(|cause| match cause {
            ApiError::NotFound => BootstrapError::NoApi { context: self.context.clone() },
            cause => self.failed("ClusterFederatedTrustDomains", cause),
        })?;
        Ok(objects.items)
    }

    pub async fn facts(&self) -> Result<Facts, BootstrapError> {
        Ok(Facts { server: self.server().await?, existing: self.trust_domains().await? })
    }

    pub async fn plan(&self, offer: &Offer) -> Result<ImportPlan, BootstrapError> {
        Ok(self.facts().await?.plan(offer)?)
    }

    pub async fn apply(&self, plan: &ImportPlan) -> Result<(), BootstrapError> {
        let api: Api<FederatedTrustDomain> = Api::all(self.client.clone());
        let what = "ClusterFederatedTrustDomain";
        match plan {
            ImportPlan::Nothing => Ok(()),
            ImportPlan::Create { name, wanted, .. } => {
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let types = Some(TypeMeta::resource::<FederatedTrustDomain>());
                let object = FederatedTrustDomain { types, metadata, spec: wanted.clone() };
                let created = api_error::with_timeout(api.create(&post_params(), &object)).await;
                created.map(drop).map_err(|cause| self.failed(what, cause))
            }
            ImportPlan::Change { existing, wanted } => {
                let meta = &existing.metadata;
                let mut patch = json!({
                    "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
                    "spec": wanted,
                });
                // A merge patch keeps what it does not name.
                patch["spec"]["bundleEndpointProfile"]["endpointSPIFFEID"] =
                    json!(wanted.bundle_endpoint_profile.endpoint_spiffe_id);
                let name = meta.name.as_deref().unwrap_or_default();
                let (params, patch) = (patch_params(), Patch::Merge(patch));
                let changed = api_error::with_timeout(api.patch(name, &params, &patch)).await;
                changed.map(drop).map_err(|cause| self.failed(what, cause))
            }
        }
    }

    fn failed(&self, what: &str, cause: ApiError) -> BootstrapError {
        BootstrapError::Call { context: self.context.clone(), what: what.to_owned(), cause }
    }
}

/// Drops JWT keys, and anything that another parser might see in the document.
fn authorities_alone(fetched: Fetched) -> Fetched {
    let read: Value = serde_json::from_str(&fetched.document).unwrap_or_default();
    let is_authority = |key: &&Value| {
        let alone = json!({ "keys": [key] }).to_string();
        Bundle::parse(alone.as_bytes()).is_ok_and(|it| !it.x509.is_empty())
    };
    let authorities: Vec<&Value> =
        read["keys"].as_array().into_iter().flatten().filter(is_authority).collect();
    let bundle = Bundle { jwt: Vec::new(), ..fetched.bundle };
    let document = json!({
        "keys": authorities,
        "spiffe_sequence": bundle.sequence,
        "spiffe_refresh_hint": bundle.refresh_hint.map(|it| it.as_secs()),
    });
    Fetched { bundle, document: document.to_string() }
}

fn fetch_error(url: &str, cause: FetchError) -> BootstrapError {
    BootstrapError::Fetch { url: url.to_owned(), cause }
}

#[cfg(test)]
mod tests;
