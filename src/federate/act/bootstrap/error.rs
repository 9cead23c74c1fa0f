//! Why a bootstrap or an import failed.

use crate::{
    api::spire_server,
    bundle::fetch::{FetchError, RootsError},
    federate::decide::{bootstrap::SameTrustDomain, render::BUNDLE, validate::UrlError},
    k8s::api_error::ApiError,
    spiffe::{bundle::BundleError, id::IdError},
};

#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("there is no SpireServer {} in {context}. Apply one there first", spire_server::NAME)]
    NoServer { context: String },
    #[error(
        "the SpireServer in {context} has no bundle endpoint with a known address. Set spec.federation, wait for status.federation.endpointUrl, or say --url"
    )]
    NoEndpoint { context: String },
    #[error(
        "{context} has no API for ClusterFederatedTrustDomains. Install the CRDs of the SPIRE controller manager there first, see docs/federate.md"
    )]
    NoApi { context: String },
    #[error(
        "the SPIRE server in {context} has not published its bundle: ConfigMap {namespace}/{BUNDLE} is not there, or has no bundle.crt. Is the server running, and in that namespace (-n)?"
    )]
    NotPublished { context: String, namespace: String },
    #[error("ConfigMap {BUNDLE} in {context}: {cause}")]
    Unreadable { context: String, cause: BundleError },
    #[error(transparent)]
    SameTrustDomain(#[from] SameTrustDomain),
    #[error("{url}: {cause}")]
    Url { url: String, cause: UrlError },
    #[error("trust domain {trust_domain}: {cause}")]
    TrustDomain { trust_domain: String, cause: IdError },
    #[error("{url}: {cause}")]
    Fetch { url: String, cause: FetchError },
    #[error(
        "{url} offers other authorities than ConfigMap {BUNDLE} in {context}. Either its SPIRE server has just made new ones: try again in a minute. Or something else answers there"
    )]
    OtherAuthorities { url: String, context: String },
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error("{context}: {what}: {cause}")]
    Call { context: String, what: String, cause: ApiError },
}
