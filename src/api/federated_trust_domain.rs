//! ClusterFederatedTrustDomain of the SPIRE controller manager: what we read of it, and what
//! `trustplane federation bootstrap` writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::TypeMeta;
use serde::{Deserialize, Serialize};

use super::{metadata, resource::resource, spire_server::Profile};

pub const GROUP: &str = "spire.spiffe.io";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "ClusterFederatedTrustDomain";

/// A trust domain that the SPIRE server of this cluster federates with.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FederatedTrustDomain {
    /// Needed for a creation.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    #[serde(deserialize_with = "metadata::readable")]
    pub metadata: ObjectMeta,
    pub spec: FederatedTrustDomainSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FederatedTrustDomainSpec {
    pub trust_domain: String,
    #[serde(rename = "bundleEndpointURL")]
    pub bundle_endpoint_url: String,
    pub bundle_endpoint_profile: EndpointProfile,
    /// As a SPIFFE bundle document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain_bundle: Option<String>,
    /// A controller manager with another class silently skips the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct EndpointProfile {
    pub r#type: Profile,
    /// For `https_spiffe`.
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
