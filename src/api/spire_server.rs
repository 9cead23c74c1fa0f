//! SpireServer: one SPIRE server, its bundle endpoint, and the trust domains it federates with.
//!
//! Defaults, and what the API server validates, are in the CRD
//! (`crds/federate/operator.openshift.io_spireservers.yaml`), and are not repeated here.

use std::{collections::BTreeMap, fmt};

use chrono::{DateTime, Utc};
use k8s_openapi::{
    api::core::v1::{Affinity, ObjectReference, ResourceRequirements, Toleration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Serialize};

pub use super::condition::Condition;
use super::{
    metadata,
    resource::{reference, resource},
};

pub const GROUP: &str = "operator.openshift.io";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "operator.openshift.io/v1alpha1";
pub const KIND: &str = "SpireServer";
/// The only one there can be.
pub const NAME: &str = "cluster";

/// The SPIRE server that an administrator wants.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpireServer {
    #[serde(deserialize_with = "metadata::readable")]
    pub metadata: ObjectMeta,
    pub spec: SpireServerSpec,
    #[serde(default)]
    pub status: SpireServerStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpireServerSpec {
    pub trust_domain: String,
    /// The name of this cluster in node attestation.
    pub cluster_name: String,
    /// `debug`, `info`, `warn` or `error`.
    pub log_level: String,
    /// `text` or `json`.
    pub log_format: String,
    pub jwt_issuer: String,
    /// Of the server's CA certificates, as Go writes durations.
    pub ca_validity: String,
    /// Of X.509-SVIDs, unless the entry says otherwise.
    pub default_x509_validity: String,
    /// Of JWT-SVIDs, unless the entry says otherwise.
    #[serde(rename = "defaultJWTValidity")]
    pub default_jwt_validity: String,
    /// `rsa-2048`, `rsa-4096`, `ec-p256` or `ec-p384`.
    pub ca_key_type: String,
    /// That of the CA if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_key_type: Option<String>,
    /// Of the server's CA certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_subject: Option<CaSubject>,
    /// The volume for keys and data.
    pub persistence: Persistence,
    pub datastore: Datastore,
    /// The bundle endpoint and its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<Federation>,
    /// For all rendered objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For both containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CaSubject {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub country: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub organization: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub common_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    pub size: String,
    pub access_mode: String,
    /// The cluster's default if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// Its driver takes everything from the connection string.
pub const POSTGRES: &str = "postgres";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Datastore {
    pub database_type: String,
    pub connection_string: ConnectionString,
    /// The Secret with the database's CA and our certificate for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret_name: Option<String>,
    pub max_open_conns: i32,
    pub max_idle_conns: i32,
    /// In seconds; 0 means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conn_max_lifetime: Option<i32>,
    /// `"true"` or `"false"`.
    pub disable_migration: String,
}

/// It may contain a password, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ConnectionString(String);

impl ConnectionString {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionString({} bytes)", self.0.len())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    pub bundle_endpoint: BundleEndpoint,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub federates_with: Vec<Peer>,
    /// `"true"`: we manage the Route; `"false"`: the administrator exposes the endpoint.
    pub managed_route: String,
    /// The default host if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_host: Option<String>,
}

impl SpireServerSpec {
    pub fn peers(&self) -> &[Peer] {
        self.federation.as_ref().map(|it| &*it.federates_with).unwrap_or_default()
    }
}

impl Federation {
    pub fn manages_route(&self) -> bool {
        self.managed_route != "false"
    }
}

/// How a bundle endpoint is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// By an X.509-SVID of the trust domain itself.
    HttpsSpiffe,
    /// By a CA that the client's machine trusts.
    HttpsWeb,
}

impl Profile {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HttpsSpiffe => "https_spiffe",
            Self::HttpsWeb => "https_web",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleEndpoint {
    pub profile: Profile,
    /// In seconds.
    pub refresh_hint: u32,
    /// For `https_web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_web: Option<HttpsWeb>,
}

/// One of the two is set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsWeb {
    /// The server obtains its certificate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<Acme>,
    /// The router has the certificate, and the cluster's own CA signs that of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving_cert: Option<ServingCert>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Acme {
    pub directory_url: String,
    /// The name in the certificate.
    pub domain_name: String,
    pub email: String,
    /// `"true"` or `"false"`.
    pub tos_accepted: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingCert {
    /// How often the server looks for a new certificate, in seconds.
    pub file_sync_interval: u32,
    /// The certificate that the Route serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_secret_ref: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub trust_domain: String,
    pub bundle_endpoint_url: String,
    pub bundle_endpoint_profile: Profile,
    /// For `https_spiffe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_spiffe_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireServerStatus {
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub federation: Option<FederationStatus>,
    /// A digest of the last valid spec, without its peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_valid_spec: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FederationStatus {
    /// Where others fetch our bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_url: Option<String>,
    /// Peers without a known problem, such as `3/4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers_summary: Option<String>,
    pub peers: Vec<PeerStatus>,
}

/// Whether the SPIRE server itself fetches a peer's bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpireFetch {
    Ok,
    Failing,
    /// Its metrics do not show it.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerStatus {
    pub trust_domain: String,
    /// At the last attempt.
    pub reachable: bool,
    /// At the last attempt.
    pub profile_verified: bool,
    /// Updated once per refresh interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<DateTime<Utc>>,
    /// Since when it has these keys, as far as we saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle_since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The number before this one, if it was higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_went_back_from: Option<u64>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_hint: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x509_authorities: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt_authorities: Option<usize>,
    /// Of the first CA certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_expiry: Option<DateTime<Utc>>,
    /// Of the last CA certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Oddities of a bundle or certificate that is used all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// None while SPIRE's metrics have not shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spire_fetch: Option<SpireFetch>,
    /// Why it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spire_detail: Option<String>,
}

impl SpireServerStatus {
    pub fn peers(&self) -> &[PeerStatus] {
        self.federation.as_ref().map(|it| &*it.peers).unwrap_or_default()
    }
}

impl SpireServer {
    /// For Events.
    pub fn reference(&self) -> ObjectReference {
        reference(self)
    }
}

resource!(SpireServer, ClusterResourceScope, GROUP, VERSION, KIND, "spireservers");
