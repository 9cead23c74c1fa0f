//! The fields of a Route that the router reads.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use trustplane::runtime::redact::PrivateKeyPem;

#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub host: String,
    pub wildcard_policy: String,
    /// Absent for plain HTTP.
    pub tls: Option<Tls>,
}

/// `spec.tls`. All texts are PEM, and empty if absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    pub termination: String,
    pub certificate: String,
    pub key: Option<PrivateKeyPem>,
    pub ca_certificate: String,
    #[serde(rename = "destinationCACertificate")]
    pub destination_ca_certificate: String,
}

/// `status` in the router's own type, without the fields of others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub ingress: Vec<Value>,
}

impl Spec {
    /// Whether the Route claims every name in its host's domain.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard_policy == "Subdomain"
    }

    /// The name that the Route claims: its host, or `*.` with the domain of its host.
    pub fn claim(&self) -> Option<String> {
        let host = self.host.trim_end_matches('.').to_ascii_lowercase();
        match host.split_once('.') {
            _ if host.is_empty() => None,
            Some((_, domain)) if self.is_wildcard() => Some(format!("*.{domain}")),
            _ => Some(host),
        }
    }
}

impl Tls {
    /// The key; empty if absent.
    pub fn key(&self) -> &str {
        self.key.as_ref().map_or("", PrivateKeyPem::expose)
    }
}

impl kube::Resource for Route {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Route".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "route.openshift.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "routes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
