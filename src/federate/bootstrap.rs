//! The one step of federation that needs a person: the first bundle of another trust domain.
//!
//! Whoever may read the ConfigMap of the SPIRE server in one cluster knows its authorities for
//! certain. With them the bundle endpoint is asked, and what it says is written down in the other
//! cluster once a person has compared its fingerprint.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::TypeMeta,
};
use serde_json::{Value, json};

use super::{
    render::{BUNDLE, CONTROLLER_MANAGER},
    validate::{self, UrlError},
};
use crate::{
    api::{
        federated_trust_domain::{EndpointProfile, FederatedTrustDomain, FederatedTrustDomainSpec},
        spire_server::{self, Profile, SpireServer},
    },
    bundle::fetch::{self, Endpoint, FetchError, Fetched, RootsError, Trust},
    kit::call::{self, CallError},
    names::FIELD_MANAGER,
    spiffe::{
        bundle::{Bundle, BundleError},
        id::{IdError, SpiffeId},
    },
};

/// What one cluster offers another.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its trust domain.
    pub trust_domain: String,
    /// Where its bundle is.
    pub url: String,
    /// Who vouches for that endpoint.
    pub profile: Profile,
    /// Which SPIFFE ID the endpoint has, for `https_spiffe`.
    pub endpoint_id: Option<String>,
    /// The bundle.
    pub bundle: Bundle,
    /// The same as a document.
    pub document: String,
}

/// Why nothing could be offered or taken.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// There is no SpireServer.
    #[error("there is no SpireServer {} in {context}. Apply one there first", spire_server::NAME)]
    NoServer {
        /// The cluster.
        context: String,
    },
    /// The SpireServer says nothing of federation, or its address is not known yet.
    #[error(
        "the SpireServer in {context} has no bundle endpoint with a known address. Set spec.federation, wait for status.federation.endpointUrl, or say --url"
    )]
    NoEndpoint {
        /// The cluster.
        context: String,
    },
    /// There is nothing to bring a bundle into.
    #[error(
        "{context} has no API for ClusterFederatedTrustDomains. Install the CRDs of the SPIRE controller manager there first, see docs/federate.md"
    )]
    NoApi {
        /// The cluster.
        context: String,
    },
    /// The SPIRE server has not published its authorities.
    #[error(
        "the SPIRE server in {context} has not published its bundle: ConfigMap {namespace}/{BUNDLE} is not there, or has no bundle.crt. Is the server running, and in that namespace (-n)?"
    )]
    NotPublished {
        /// The cluster.
        context: String,
        /// The server's namespace.
        namespace: String,
    },
    /// What it published can't be read.
    #[error("ConfigMap {BUNDLE} in {context}: {cause}")]
    Unreadable {
        /// The cluster.
        context: String,
        /// Why.
        cause: BundleError,
    },
    /// The two are one.
    #[error("both clusters are of trust domain {0}; one can't federate with itself")]
    SameTrustDomain(String),
    /// The address can't be asked.
    #[error("{url}: {cause}")]
    Url {
        /// The address.
        url: String,
        /// Why.
        cause: UrlError,
    },
    /// The trust domain can't be one.
    #[error("trust domain {trust_domain}: {cause}")]
    TrustDomain {
        /// Which.
        trust_domain: String,
        /// Why.
        cause: IdError,
    },
    /// The endpoint was asked in vain.
    #[error("{url}: {cause}")]
    Fetch {
        /// The endpoint.
        url: String,
        /// Why.
        cause: FetchError,
    },
    /// The endpoint offers other authorities than its cluster knows of.
    #[error(
        "{url} offers other authorities than ConfigMap {BUNDLE} in {context}. Either its SPIRE server has just made new ones: try again in a minute. Or something else answers there"
    )]
    OtherAuthorities {
        /// The endpoint.
        url: String,
        /// The cluster.
        context: String,
    },
    /// Nobody is trusted here.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The API server was asked in vain.
    #[error("{context}: {what}: {cause}")]
    Call {
        /// The cluster.
        context: String,
        /// What for.
        what: String,
        /// Why.
        cause: CallError,
    },
}

/// A cluster that an administrator can reach.
#[derive(Clone)]
pub struct Cluster {
    /// What the administrator calls it.
    pub context: String,
    /// The way to it.
    pub client: Client,
}

impl Cluster {
    /// The trust domain of its SPIRE server.
    pub async fn trust_domain(&self) -> Result<String, BootstrapError> {
        Ok(self.server().await?.spec.trust_domain)
    }

    /// What it offers, from the API server's own hands and from its bundle endpoint.
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
            Profile::HttpsWeb => (Trust::Web(fetch::web_roots()?), None),
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
        // Whoever vouches for the endpoint: what it says must be what the API server knows.
        let same = |a: &Bundle, b: &Bundle| a.x509.iter().all(|it| b.x509.contains(it));
        if bundle.x509.is_empty() || !same(&bundle, &published) || !same(&published, &bundle) {
            return Err(BootstrapError::OtherAuthorities { url, context: self.context.clone() });
        }
        Ok(Offer { trust_domain, url, profile, endpoint_id, bundle, document })
    }

    async fn server(&self) -> Result<SpireServer, BootstrapError> {
        let api: Api<SpireServer> = Api::all(self.client.clone());
        let found = call::bounded(api.get_opt(spire_server::NAME)).await;
        let found = found.map_err(|cause| self.failed("SpireServer cluster", cause))?;
        found.ok_or_else(|| BootstrapError::NoServer { context: self.context.clone() })
    }

    /// The authorities that the SPIRE server keeps in its ConfigMap.
    async fn published(&self, namespace: &str) -> Result<Bundle, BootstrapError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = call::bounded(api.get_opt(BUNDLE)).await;
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

    /// The objects that stand here, under whatever name.
    async fn standing(&self) -> Result<Vec<FederatedTrustDomain>, BootstrapError> {
        let api: Api<FederatedTrustDomain> = Api::all(self.client.clone());
        let listed = call::bounded(api.list(&Default::default())).await;
        let objects = listed.map_err(|cause| match cause {
            CallError::NotFound => BootstrapError::NoApi { context: self.context.clone() },
            cause => self.failed("ClusterFederatedTrustDomains", cause),
        })?;
        Ok(objects.items)
    }

    /// What taking the offer would do here.
    pub async fn consider(&self, offer: &Offer) -> Result<Taking, BootstrapError> {
        if self.trust_domain().await? == offer.trust_domain {
            return Err(BootstrapError::SameTrustDomain(offer.trust_domain.clone()));
        }
        let wanted = spec(offer);
        let standing = self.standing().await?;
        let taken =
            |name: &str| standing.iter().any(|it| it.metadata.name.as_deref() == Some(name));
        let name = Some(object_name(&wanted.trust_domain))
            .filter(|name| !taken(name))
            .unwrap_or_else(|| digest_name(&wanted.trust_domain));
        let of_it = standing.into_iter().filter(|it| it.spec.trust_domain == wanted.trust_domain);
        let (ours, others): (Vec<_>, Vec<_>) = of_it.partition(|it| is_ours(&it.spec));
        // The controller manager heeds the oldest.
        let age = |it: &FederatedTrustDomain| {
            (it.metadata.creation_timestamp.clone(), it.metadata.uid.clone())
        };
        Ok(match ours.into_iter().min_by_key(age) {
            None => Taking::Create { name, wanted, others },
            Some(standing) if says_the_same(&standing.spec, &wanted) => Taking::Nothing,
            Some(standing) => Taking::Change { standing: Box::new(standing), wanted },
        })
    }

    /// Takes the offer.
    pub async fn take(&self, taking: &Taking) -> Result<(), BootstrapError> {
        let api: Api<FederatedTrustDomain> = Api::all(self.client.clone());
        let what = "ClusterFederatedTrustDomain";
        match taking {
            Taking::Nothing => Ok(()),
            Taking::Create { name, wanted, .. } => {
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let types = Some(TypeMeta::resource::<FederatedTrustDomain>());
                let object = FederatedTrustDomain { types, metadata, spec: wanted.clone() };
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.into()),
                    ..PostParams::default()
                };
                let created = call::bounded(api.create(&params, &object)).await;
                created.map(drop).map_err(|cause| self.failed(what, cause))
            }
            Taking::Change { standing, wanted } => {
                let meta = &standing.metadata;
                let mut patch = json!({
                    "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
                    "spec": wanted,
                });
                // A merge patch keeps what it does not name.
                patch["spec"]["bundleEndpointProfile"]["endpointSPIFFEID"] =
                    json!(wanted.bundle_endpoint_profile.endpoint_spiffe_id);
                let params = PatchParams {
                    field_manager: Some(FIELD_MANAGER.into()),
                    ..PatchParams::default()
                };
                let name = meta.name.as_deref().unwrap_or_default();
                let changed = call::bounded(api.patch(name, &params, &Patch::Merge(patch))).await;
                changed.map(drop).map_err(|cause| self.failed(what, cause))
            }
        }
    }

    fn failed(&self, what: &str, cause: CallError) -> BootstrapError {
        BootstrapError::Call { context: self.context.clone(), what: what.to_owned(), cause }
    }
}

/// Without JWT keys, and without whatever another reader might see in the document.
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

/// What is to be done in the cluster that takes an offer.
#[derive(Clone, Debug)]
pub enum Taking {
    /// It has that bundle already.
    Nothing,
    /// It has none.
    Create {
        /// What the object is to be called.
        name: String,
        /// What is to stand there.
        wanted: FederatedTrustDomainSpec,
        /// Objects of the trust domain that another controller manager heeds. They stay.
        others: Vec<FederatedTrustDomain>,
    },
    /// It has another.
    Change {
        /// What stands there.
        standing: Box<FederatedTrustDomain>,
        /// What is to stand there.
        wanted: FederatedTrustDomainSpec,
    },
}

fn spec(offer: &Offer) -> FederatedTrustDomainSpec {
    FederatedTrustDomainSpec {
        trust_domain: offer.trust_domain.clone(),
        bundle_endpoint_url: marked(&offer.url, &offer.bundle),
        bundle_endpoint_profile: EndpointProfile {
            r#type: offer.profile,
            endpoint_spiffe_id: offer.endpoint_id.clone(),
        },
        trust_domain_bundle: Some(offer.document.clone()),
        class_name: Some(CONTROLLER_MANAGER.to_owned()),
    }
}

/// The address with the beginning of the bundle's fingerprint as its fragment.
///
/// The controller manager brings a bundle to the SPIRE server when it finds that the address or the
/// profile is another; bundles it does not compare. No client sends a fragment, and SPIRE keeps it.
fn marked(url: &str, bundle: &Bundle) -> String {
    let digits = bundle.fingerprint().replace(':', "");
    format!("{url}#{}", &digits[..16])
}

/// Whether the controller manager that we render heeds it, which takes objects without a class, too.
fn is_ours(spec: &FederatedTrustDomainSpec) -> bool {
    matches!(spec.class_name.as_deref(), None | Some("" | CONTROLLER_MANAGER))
}

/// Documents are compared by their keys: the order of fields says nothing. Both are ours, so that
/// the class says nothing either.
fn says_the_same(standing: &FederatedTrustDomainSpec, wanted: &FederatedTrustDomainSpec) -> bool {
    let bundle = |spec: &FederatedTrustDomainSpec| {
        Bundle::parse(spec.trust_domain_bundle.as_deref().unwrap_or_default().as_bytes()).ok()
    };
    let same_keys = match (bundle(standing), bundle(wanted)) {
        (Some(standing), Some(wanted)) => standing.same_keys(&wanted),
        _ => false,
    };
    let without_bundle = |spec: &FederatedTrustDomainSpec| FederatedTrustDomainSpec {
        trust_domain_bundle: None,
        class_name: None,
        ..spec.clone()
    };
    same_keys && without_bundle(standing) == without_bundle(wanted)
}

/// A name that Kubernetes takes: a trust domain may hold `_`, begin with `-` or be too long.
fn object_name(trust_domain: &str) -> String {
    let is_name = |label: &str| {
        let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric)
            && bytes.iter().all(|&c| alphanumeric(c) || c == b'-')
    };
    if trust_domain.len() <= 253 && trust_domain.split('.').all(is_name) {
        return trust_domain.to_owned();
    }
    digest_name(trust_domain)
}

fn digest_name(trust_domain: &str) -> String {
    format!("td-{}", &super::render::digest(trust_domain)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_after_its_trust_domain_where_kubernetes_takes_the_name() {
        assert_eq!(object_name("td-b.example.com"), "td-b.example.com");
        for odd in ["td_b", "-td", "td..b", &"a".repeat(255)] {
            let name = object_name(odd);
            assert!(name.starts_with("td-") && name.len() == 19, "{odd}: {name}");
        }
        assert_ne!(object_name("a_b"), object_name("a_c"));
    }

    /// What taking an offer of td-a.test would do where this object stands.
    async fn considered(standing: Value) -> Taking {
        let server = json!(super::super::render::tests::server(Value::Null));
        let wire = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let mut body = json!({ "metadata": {}, "items": [standing] });
            if request.uri().path().ends_with("/spireservers/cluster") {
                body = server.clone();
                body["spec"]["trustDomain"] = json!("td-b.test");
            }
            let body = kube::client::Body::from(body.to_string().into_bytes());
            async move { http::Response::builder().status(200).body(body) }
        });
        let client = crate::kit::client::over(wire, crate::kit::client::Gate::open());
        let cluster = Cluster { context: "b".to_owned(), client };
        let document = crate::spiffe::testing::document(&[&crate::spiffe::testing::Ca::new("a")]);
        let document = document.to_string();
        let offer = Offer {
            trust_domain: "td-a.test".to_owned(),
            url: "https://a.example".to_owned(),
            profile: Profile::HttpsWeb,
            endpoint_id: None,
            bundle: Bundle::parse(document.as_bytes()).unwrap(),
            document,
        };
        cluster.consider(&offer).await.unwrap()
    }

    fn object(name: &str, class: Value) -> Value {
        json!({
            "metadata": { "name": name, "uid": "1", "resourceVersion": "7" },
            "spec": {
                "trustDomain": "td-a.test",
                "bundleEndpointURL": "https://a.example",
                "bundleEndpointProfile": { "type": "https_web" },
                "className": class,
            },
        })
    }

    #[tokio::test]
    async fn an_object_of_another_controller_manager_is_left_to_it() {
        let free = considered(object("a", json!("another-spire"))).await;
        let taken = considered(object("td-a.test", json!("another-spire"))).await;
        let names = [free, taken].map(|taking| match taking {
            Taking::Create { name, others, .. } if others.len() == 1 => name,
            other => panic!("{other:?}"),
        });
        assert_eq!(names[0], "td-a.test");
        assert!(names[1].starts_with("td-") && names[1].len() == 19, "{names:?}");
    }

    #[tokio::test]
    async fn an_object_without_a_class_is_ours_as_is_one_of_our_class() {
        for class in [Value::Null, json!(""), json!(CONTROLLER_MANAGER)] {
            let taking = considered(object("a", class.clone())).await;
            assert!(matches!(taking, Taking::Change { .. }), "{class}: {taking:?}");
        }
    }
}
