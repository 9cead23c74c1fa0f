//! SpireServer: one SPIRE server, its bundle endpoint, and the trust domains it federates with.
//!
//! Defaults, and what the API server validates, are in the CRD
//! (`crds/federate/operator.openshift.io_spireservers.yaml`), and are not repeated here.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use chrono::{DateTime, Utc};
use k8s_openapi::{
    api::core::v1::{Affinity, ObjectReference, ResourceRequirements, Toleration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Serialize};

use super::resource::resource;

/// The API group.
pub const GROUP: &str = "operator.openshift.io";
/// The version of that group that we speak.
pub const VERSION: &str = "v1alpha1";
/// Group and version as an ObjectReference names them.
pub const API_VERSION: &str = "operator.openshift.io/v1alpha1";
/// The kind.
pub const KIND: &str = "SpireServer";
/// The only one there can be.
pub const NAME: &str = "cluster";

/// What an administrator wants of the SPIRE server of this cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SpireServer {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: SpireServerSpec,
    /// What we report.
    #[serde(default)]
    pub status: SpireServerStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpireServerSpec {
    /// The trust domain that the server is the authority of.
    pub trust_domain: String,
    /// The name of this cluster in node attestation.
    pub cluster_name: String,
    /// `debug`, `info`, `warn` or `error`.
    pub log_level: String,
    /// `text` or `json`.
    pub log_format: String,
    /// The issuer of JWT-SVIDs.
    pub jwt_issuer: String,
    /// How long a CA certificate of the server is valid, as Go writes durations.
    pub ca_validity: String,
    /// How long an X.509-SVID is valid, unless its entry says otherwise.
    pub default_x509_validity: String,
    /// How long a JWT-SVID is valid, unless its entry says otherwise.
    #[serde(rename = "defaultJWTValidity")]
    pub default_jwt_validity: String,
    /// `rsa-2048`, `rsa-4096`, `ec-p256` or `ec-p384`.
    pub ca_key_type: String,
    /// The same for JWT-SVIDs; that of the CA if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_key_type: Option<String>,
    /// The subject of the server's CA certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_subject: Option<CaSubject>,
    /// The volume that keys and data live on.
    pub persistence: Persistence,
    /// The database.
    pub datastore: Datastore,
    /// The bundle endpoint and its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<Federation>,
    /// Labels for everything that is made of this object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For the containers of the server's Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// For the server's Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// For the server's Pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// For the server's Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
}

/// `spec.caSubject`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CaSubject {
    /// Two letters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub country: String,
    /// The organization.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub organization: String,
    /// The common name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub common_name: String,
}

/// `spec.persistence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// How much room.
    pub size: String,
    /// How many nodes may use it at once.
    pub access_mode: String,
    /// The cluster's default if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// A kind of database whose driver takes everything from the connection string.
pub const POSTGRES: &str = "postgres";

/// `spec.datastore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Datastore {
    /// Which database.
    pub database_type: String,
    /// How to reach it.
    pub connection_string: ConnectionString,
    /// The Secret with the database's CA and our certificate for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret_name: Option<String>,
    /// Connections at most.
    pub max_open_conns: i32,
    /// Idle connections at most.
    pub max_idle_conns: i32,
    /// Seconds after which a connection is replaced; 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conn_max_lifetime: Option<i32>,
    /// `"true"` or `"false"`.
    pub disable_migration: String,
}

/// How to reach a database. It may hold a password, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ConnectionString(String);

impl ConnectionString {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionString({} bytes)", self.0.len())
    }
}

/// `spec.federation`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    /// How this cluster offers its bundle.
    pub bundle_endpoint: BundleEndpoint,
    /// Whose bundles this cluster fetches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub federates_with: Vec<Peer>,
    /// `"true"`: the Route is ours to keep; `"false"`: the administrator exposes the endpoint.
    pub managed_route: String,
    /// The Route's host, where it is not to be the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_host: Option<String>,
}

impl Federation {
    /// Whether the Route is ours to keep.
    pub fn manages_route(&self) -> bool {
        self.managed_route != "false"
    }
}

/// How a bundle endpoint is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The trust domain itself, with an X.509-SVID.
    HttpsSpiffe,
    /// A certificate authority that the client's machine trusts.
    HttpsWeb,
}

impl Profile {
    /// As objects and configurations spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HttpsSpiffe => "https_spiffe",
            Self::HttpsWeb => "https_web",
        }
    }
}

/// `spec.federation.bundleEndpoint`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleEndpoint {
    pub profile: Profile,
    /// How often clients are to ask, in seconds.
    pub refresh_hint: u32,
    /// The certificate, for `https_web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_web: Option<HttpsWeb>,
}

/// `spec.federation.bundleEndpoint.httpsWeb`: one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpsWeb {
    /// The server gets its certificate by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<Acme>,
    /// The router has the certificate, and the cluster's own authority vouches for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving_cert: Option<ServingCert>,
}

/// `acme`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Acme {
    /// Where the authority's directory is.
    pub directory_url: String,
    /// The name to get a certificate for.
    pub domain_name: String,
    /// Whom the authority writes to.
    pub email: String,
    /// `"true"` or `"false"`.
    pub tos_accepted: String,
}

/// `servingCert`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingCert {
    /// How often the server looks for a new certificate, in seconds.
    pub file_sync_interval: u32,
    /// The Secret with the certificate that the Route serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_secret_ref: Option<String>,
}

/// One of `spec.federation.federatesWith`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// The other trust domain.
    pub trust_domain: String,
    /// Where its bundle is.
    pub bundle_endpoint_url: String,
    pub bundle_endpoint_profile: Profile,
    /// Which SPIFFE ID that endpoint has, for `https_spiffe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_spiffe_id: Option<String>,
}

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireServerStatus {
    /// One of each type.
    pub conditions: Vec<Condition>,
    /// What became of the federation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub federation: Option<FederationStatus>,
    /// A digest of the last valid spec, its peers aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_valid_spec: Option<String>,
}

/// One of `status.conditions`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    pub r#type: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    /// Why, for machines.
    pub reason: Cow<'static, str>,
    /// Why, for people.
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: DateTime<Utc>,
    /// The generation of the object that this is about.
    #[serde(default)]
    pub observed_generation: i64,
}

/// `status.federation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FederationStatus {
    /// Where others find the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_url: Option<String>,
    /// How many of all peers have no known problem, such as `3/4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers_summary: Option<String>,
    /// What is known of each peer.
    pub peers: Vec<PeerStatus>,
}

/// Whether the SPIRE server itself fetches a peer's bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpireFetch {
    /// Its last fetch succeeded.
    Ok,
    /// Its last fetches failed.
    Failing,
    /// That can't be seen.
    Unknown,
}

/// One of `status.federation.peers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerStatus {
    /// Which peer.
    pub trust_domain: String,
    /// Whether its endpoint answered the last time.
    pub reachable: bool,
    /// Whether it proved who it is the last time.
    pub profile_verified: bool,
    /// When its bundle was last fetched; brought up to date once in a refresh interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<DateTime<Utc>>,
    /// Since when its bundle is what it is, as far as we saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle_since: Option<DateTime<Utc>>,
    /// The bundle's sequence number, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The number of the bundle before this one, where it was higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_went_back_from: Option<u64>,
    /// How often the peer asks to be asked, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_hint: Option<u64>,
    /// CA certificates in the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x509_authorities: Option<usize>,
    /// Keys for JWT-SVIDs in the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt_authorities: Option<usize>,
    /// When the first of the CA certificates runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_expiry: Option<DateTime<Utc>>,
    /// When the last of them does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<DateTime<Utc>>,
    /// What went wrong the last time, in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What is odd about its bundle or its certificate, which are used all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the SPIRE server itself fetches its bundle; none while its metrics have not shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spire_fetch: Option<SpireFetch>,
    /// Why it is not `ok`, in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spire_detail: Option<String>,
}

impl SpireServer {
    /// For Events about it.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(KIND.to_owned()),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

resource!(SpireServer, ClusterResourceScope, GROUP, VERSION, KIND, "spireservers");
