//! Why nothing could be offered or taken.

use crate::{
    api::spire_server,
    bundle::fetch::{FetchError, RootsError},
    federate::decide::{bootstrap::SameTrustDomain, render::BUNDLE, validate::UrlError},
    k8s::api_error::ApiError,
    spiffe::{bundle::BundleError, id::IdError},
};

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
    #[error(transparent)]
    SameTrustDomain(#[from] SameTrustDomain),
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
        cause: ApiError,
    },
}
