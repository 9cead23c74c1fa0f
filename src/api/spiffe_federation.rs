//! SPIFFEFederation: a trust domain whose SVIDs are trusted here, and where its bundle comes from.
//!
//! What the API server validates is in the CRD (`crds/spiffe/trustplane.dev_spiffefederations.yaml`), and
//! is not repeated here.

use chrono::{DateTime, Utc};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    condition::Condition,
    metadata,
    resource::{reference, resource},
};

pub const GROUP: &str = "trustplane.dev";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "trustplane.dev/v1";
pub const KIND: &str = "SPIFFEFederation";

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpiffeFederation {
    #[serde(deserialize_with = "metadata::readable")]
    pub metadata: ObjectMeta,
    pub spec: SpiffeFederationSpec,
    #[serde(default)]
    pub status: SpiffeFederationStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpiffeFederationSpec {
    /// The object's name, if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    pub bundle_source: BundleSource,
}

/// Exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct BundleSource {
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<StaticSource>,
    #[serde(rename = "httpsWeb", default, skip_serializing_if = "Option::is_none")]
    pub https_web: Option<HttpsWebSource>,
    #[serde(rename = "httpsSPIFFE", default, skip_serializing_if = "Option::is_none")]
    pub https_spiffe: Option<HttpsSpiffeSource>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StaticSource {
    /// A SPIFFE bundle document.
    pub bundle: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsWebSource {
    #[serde(rename = "bundleEndpointURL")]
    pub bundle_endpoint_url: String,
    /// CA certificates in PEM that are trusted instead of this machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// SHA-256 of the public keys (SPKI) that the server's certificate may have, in hexadecimal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
    /// Absent means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_redirects: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsSpiffeSource {
    #[serde(rename = "bundleEndpointURL")]
    pub bundle_endpoint_url: String,
    #[serde(rename = "endpointSPIFFEID")]
    pub endpoint_spiffe_id: String,
    /// Verifies the first fetch from an endpoint in the trust domain that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_bootstrap: Option<String>,
    /// Absent means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_redirects: Option<bool>,
}

/// Written by the authority alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpiffeFederationStatus {
    /// The bundle that counts, byte for byte as it was fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_bundle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_bundle_synced_at: Option<DateTime<Utc>>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_bundle_refresh_hint: Option<i64>,
    /// The source that it came from, with digests of long texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_bundle_synced_from: Option<BundleSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_sync_at: Option<DateTime<Utc>>,
    /// The last one that was seen. As text, because 64 bits do not fit into a number of JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Of a bundle whose sequence is lower than the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_fingerprint: Option<String>,
    /// The request for a refresh that was last carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_refresh: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_refresh_at: Option<DateTime<Utc>>,
    /// The acceptance of a lower sequence that was last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_accept: Option<String>,
    /// The generation that was last written to the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audited_generation: Option<i64>,
    pub conditions: Vec<Condition>,
}

impl SpiffeFederation {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// As in the spec, or the object's name.
    pub fn trust_domain(&self) -> &str {
        self.spec.trust_domain.as_deref().unwrap_or_else(|| self.name())
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn condition(&self, about: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.r#type == about)
    }

    /// For Events.
    pub fn reference(&self) -> ObjectReference {
        reference(self)
    }
}

/// A digest in place of a text that may be long.
pub fn digest(text: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

impl BundleSource {
    /// The same with digests of bundles and certificates, to compare: an object may have 1.5 MiB at most.
    pub fn digested(&self) -> Self {
        let mut digested = self.clone();
        if let Some(fixed) = &mut digested.fixed {
            fixed.bundle = digest(&fixed.bundle);
        }
        if let Some(web) = &mut digested.https_web {
            web.ca_bundle = web.ca_bundle.as_deref().map(digest);
        }
        if let Some(spiffe) = &mut digested.https_spiffe {
            spiffe.bundle_bootstrap = spiffe.bundle_bootstrap.as_deref().map(digest);
        }
        digested
    }

    /// For people: the profile, and the endpoint if there is one.
    pub fn summary(&self) -> String {
        match (&self.fixed, &self.https_web, &self.https_spiffe) {
            (_, Some(web), _) => format!("https_web {}", web.bundle_endpoint_url),
            (_, _, Some(spiffe)) => format!("https_spiffe {}", spiffe.bundle_endpoint_url),
            _ => "static".to_owned(),
        }
    }
}

resource!(SpiffeFederation, ClusterResourceScope, GROUP, VERSION, KIND, "spiffefederations");
