//! The fields of a Route that a router reads.

use std::borrow::Cow;

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::route::{ExternalCertificate, GROUP, VERSION},
    runtime::redact::PrivateKeyPem,
};

/// A Route with the fields that routers need and the injector does not.
#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub host: Option<String>,
    /// The Route gets only requests below this path.
    pub path: Option<String>,
    /// `None` or `Subdomain`.
    pub wildcard_policy: Option<String>,
    pub to: To,
    pub port: Option<Port>,
    /// Absent for plain HTTP.
    pub tls: Option<Tls>,
}

/// `spec.to`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct To {
    pub name: String,
}

/// `spec.port`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// A number or a name.
    pub target_port: IntOrString,
}

/// `spec.tls`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// `edge`, `reencrypt` or `passthrough`.
    pub termination: String,
    pub certificate: String,
    pub key: Option<PrivateKeyPem>,
    /// PEM with the CAs that `certificate` must verify with.
    pub ca_certificate: String,
    /// PEM with the CAs of the backend of a `reencrypt` Route.
    #[serde(rename = "destinationCACertificate")]
    pub destination_ca_certificate: String,
    /// A Secret that OpenShift's router reads by itself.
    pub external_certificate: Option<ExternalCertificate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// One entry per router. Those of others are not touched.
    pub ingress: Vec<Value>,
}

impl Spec {
    /// The normalised host; empty if there is none.
    pub fn host(&self) -> Option<String> {
        self.host.as_deref().map(comparable).filter(|host| !host.is_empty())
    }

    /// Whether the Route claims every name in its host's domain.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard_policy.as_deref() == Some("Subdomain")
    }

    /// The name that the Route claims: its host, or `*.` with the domain of its host.
    pub fn claim(&self) -> Option<String> {
        let host = self.host()?;
        match host.split_once('.') {
            Some((_, domain)) if self.is_wildcard() => Some(format!("*.{domain}")),
            _ => Some(host),
        }
    }

    /// The path prefix of the Route's requests; `/` for all.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default().trim_end_matches('/')
    }
}

/// Normalises a host: lower case, no trailing dot.
pub fn comparable(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

impl kube::Resource for Route {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Route".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
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
