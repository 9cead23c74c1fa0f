//! What we read of an OpenShift Route, and the condition that we write to its status.

use std::borrow::Cow;

use chrono::{DateTime, Datelike, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};

use super::{metadata, resource::resource};
use crate::runtime::redact::PrivateKeyPem;

pub const GROUP: &str = "route.openshift.io";
pub const VERSION: &str = "v1";
/// For an ObjectReference.
pub const API_VERSION: &str = "route.openshift.io/v1";

/// The fields of a Route that the injector uses.
#[derive(Clone, Debug, Deserialize)]
pub struct Route {
    #[serde(deserialize_with = "metadata::slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: RouteSpec,
    #[serde(default)]
    pub status: RouteStatus,
}

/// The part of `spec` that decides about certificates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteSpec {
    pub host: Option<String>,
    /// `None` or `Subdomain`.
    pub wildcard_policy: Option<String>,
    /// Absent when the Route is plain HTTP.
    pub tls: Option<TlsConfig>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// `edge`, `reencrypt` or `passthrough`.
    pub termination: Option<String>,
    /// In PEM.
    pub certificate: Option<String>,
    pub key: Option<PrivateKeyPem>,
    /// The pool that the router verifies the certificate with before it serves it.
    pub ca_certificate: Option<String>,
    /// OpenShift's own reference to a Secret, which excludes `certificate`.
    pub external_certificate: Option<ExternalCertificate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ExternalCertificate {
    /// The Secret that the router itself reads.
    #[serde(default)]
    pub name: String,
}

/// The part of `status` that is ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RouteStatus {
    pub certificate: Vec<CertificateCondition>,
}

/// One entry of `.status.certificate`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateCondition {
    /// `Default`, `Custom` or `Managed`.
    pub r#type: Cow<'static, str>,
    /// `True` or `False`.
    pub status: Cow<'static, str>,
    #[serde(default)]
    pub reason: Cow<'static, str>,
    #[serde(default)]
    pub message: Box<str>,
    /// When `status` last changed.
    #[serde(default, deserialize_with = "readable_time", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<DateTime<Utc>>,
}

/// The API server accepts times that other parsers refuse, such as an offset of 24 hours, and returns
/// years that it does not accept. A writer of the status must not be able to hide the Route with one.
fn readable_time<'de, D: Deserializer<'de>>(time: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let text: Option<Cow<'de, str>> = Option::deserialize(time)?;
    let time: Option<DateTime<Utc>> = text.and_then(|text| text.parse().ok());
    Ok(time.filter(|time| (1..=9998).contains(&time.year())))
}

resource!(Route, NamespaceResourceScope, GROUP, VERSION, "Route", "routes");

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_time_in_a_status_hides_the_route_or_is_written_back() {
        let with = |time: &str| {
            let condition =
                json!({ "type": "Default", "status": "False", "lastTransitionTime": time });
            let route =
                json!({ "metadata": {}, "spec": {}, "status": { "certificate": [condition] } });
            let route: Route = serde_json::from_value(route).unwrap();
            route.status.certificate[0].last_transition_time
        };
        for odd in [
            "2026-01-01T00:00:00+24:00",
            "0000-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "yesterday",
            "",
        ] {
            assert_eq!(with(odd), None, "{odd}");
        }
        assert!(with("2026-01-01T00:00:00Z").is_some());
    }
}
