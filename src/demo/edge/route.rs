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

/// A Route, with what the injector has no use for.
#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    /// The usual metadata.
    pub metadata: ObjectMeta,
    /// The spec of the Route.
    #[serde(default)]
    pub spec: Spec,
    /// The status that routers write.
    #[serde(default)]
    pub status: Status,
}

/// `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The host that clients ask for.
    pub host: Option<String>,
    /// Only requests below it are the Route's.
    pub path: Option<String>,
    /// `None` or `Subdomain`.
    pub wildcard_policy: Option<String>,
    /// The Service behind it.
    pub to: To,
    /// The Service's port.
    pub port: Option<Port>,
    /// Absent when the Route is plain HTTP.
    pub tls: Option<Tls>,
}

/// `spec.to`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct To {
    /// The Service's name.
    pub name: String,
}

/// `spec.port`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// A number, or a name.
    pub target_port: IntOrString,
}

/// `spec.tls`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// `edge`, `reencrypt` or `passthrough`.
    pub termination: String,
    /// The certificate chain, PEM.
    pub certificate: String,
    /// Its private key, PEM.
    pub key: Option<PrivateKeyPem>,
    /// The pool that `certificate` must verify with, PEM.
    pub ca_certificate: String,
    /// Whom to trust behind a `reencrypt` Route, PEM.
    #[serde(rename = "destinationCACertificate")]
    pub destination_ca_certificate: String,
    /// A Secret that OpenShift's router reads itself.
    pub external_certificate: Option<ExternalCertificate>,
}

/// `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// One entry a router. Others' are kept as they are.
    pub ingress: Vec<Value>,
}

impl Spec {
    /// The host in the form in which hosts are compared; nothing if there is none.
    pub fn host(&self) -> Option<String> {
        self.host.as_deref().map(comparable).filter(|host| !host.is_empty())
    }

    /// Whether the Route asks for every name beside its host.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard_policy.as_deref() == Some("Subdomain")
    }

    /// The name that the Route lays claim to: its host, or `*` and the domain that its host is in.
    pub fn claim(&self) -> Option<String> {
        let host = self.host()?;
        match host.split_once('.') {
            Some((_, domain)) if self.is_wildcard() => Some(format!("*.{domain}")),
            _ => Some(host),
        }
    }

    /// The path below which requests are the Route's; `/` is everything.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default().trim_end_matches('/')
    }
}

/// A host as hosts are compared: in lower case, without the dot at the end.
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
