//! ClusterFederatedTrustDomain of the SPIRE controller manager: what we read of it, and what
//! `trustplane federation bootstrap` writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::TypeMeta;
use serde::{Deserialize, Serialize};

use super::{resource::resource, spire_server::Profile};

/// The API group.
pub const GROUP: &str = "spire.spiffe.io";
/// The version of that group that we speak.
pub const VERSION: &str = "v1alpha1";
/// The kind.
pub const KIND: &str = "ClusterFederatedTrustDomain";

/// A trust domain that the SPIRE server of this cluster federates with.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FederatedTrustDomain {
    /// Kind and version, which a creation has to name.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    pub metadata: ObjectMeta,
    pub spec: FederatedTrustDomainSpec,
}

/// `spec`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FederatedTrustDomainSpec {
    /// The other trust domain.
    pub trust_domain: String,
    /// Where its bundle is.
    #[serde(rename = "bundleEndpointURL")]
    pub bundle_endpoint_url: String,
    pub bundle_endpoint_profile: EndpointProfile,
    /// Its bundle, as a SPIFFE bundle document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain_bundle: Option<String>,
    /// Which controller manager is to heed it; one with another class skips it without a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
}

/// `spec.bundleEndpointProfile`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct EndpointProfile {
    pub r#type: Profile,
    /// Which SPIFFE ID it has, for `https_spiffe`.
    #[serde(rename = "endpointSPIFFEID", default, skip_serializing_if = "Option::is_none")]
    pub endpoint_spiffe_id: Option<String>,
}

resource!(
    FederatedTrustDomain,
    ClusterResourceScope,
    GROUP,
    VERSION,
    KIND,
    "clusterfederatedtrustdomains"
);
