//! Objects of a cluster in which cert-manager renews certificates.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::cert_manager_metadata;
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::certificates::Pair;

/// Number of namespaces that the Routes are spread over.
pub const NAMESPACES: usize = 20;
/// All Routes in it share a Secret.
pub const SHARED: &str = "shared";
/// Namespace of the lone Route.
pub const LONE: &str = "lone";
/// Namespace of the hostile tenant.
pub const HOSTILE: &str = "hostile";
/// Namespace of the Routes without annotation that the plain client patches.
pub const RAW: &str = "raw";
/// The Route for single patches.
pub const SINGLE: &str = "single";

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteRef {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl RouteRef {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The Secret of a Route.
    pub fn secret(&self) -> Self {
        Self::new(&self.namespace, &format!("{}-tls", self.name))
    }

    pub fn secret_path(&self) -> String {
        format!("{}/{}", secrets_path(&self.namespace), self.name)
    }
}

pub fn routes_path(namespace: &str) -> String {
    format!("/apis/route.openshift.io/v1/namespaces/{namespace}/routes")
}

pub fn secrets_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

/// Size of a cluster: Routes with a Secret each, and Secrets of other types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub routes: usize,
    pub others: usize,
}

impl Size {
    pub fn places(self) -> impl Iterator<Item = RouteRef> {
        (0..self.routes).map(place)
    }
}

/// The Route of that number.
pub fn place(number: usize) -> RouteRef {
    RouteRef::new(&namespace(number), &format!("route-{number}"))
}

pub fn namespace(number: usize) -> String {
    format!("tenant-{}", number % NAMESPACES)
}

pub fn route(name: &str, secret: Option<&str>) -> Value {
    let mut route = json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/part-of": "shop",
            },
            "annotations": { "haproxy.router.openshift.io/timeout": "30s" },
        },
        "spec": {
            "host": format!("{name}.apps.example.com"),
            "to": { "kind": "Service", "name": name, "weight": 100 },
            "port": { "targetPort": "https" },
            "tls": { "termination": "edge", "insecureEdgeTerminationPolicy": "Redirect" },
            "wildcardPolicy": "None",
        },
    });
    if let Some(secret) = secret {
        route["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = secret.into();
    }
    route
}

/// As cert-manager makes it.
pub fn tls_secret(name: &str, pair: &Pair) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": cert_manager_metadata(name, name.trim_end_matches("-tls")),
        "data": data(pair),
    })
}

/// A merge patch that renews it.
pub fn renewal(pair: &Pair) -> Value {
    json!({ "data": data(pair) })
}

fn data(pair: &Pair) -> Value {
    json!({ "tls.crt": STANDARD.encode(&pair.chain), "tls.key": STANDARD.encode(&pair.key) })
}

/// Other Secrets of a cluster: passwords, registry accounts, Helm's releases.
pub fn other_secret(number: usize) -> Value {
    let (kind, data) = match number % 10 {
        0 => ("helm.sh/release.v1", json!({ "release": STANDARD.encode(vec![b'x'; 3_000]) })),
        1 | 2 => {
            let account =
                STANDARD.encode(r#"{"auths":{"registry.example.com":{"auth":"bm9ib2R5"}}}"#);
            ("kubernetes.io/dockerconfigjson", json!({ ".dockerconfigjson": account }))
        }
        _ => {
            let (user, password) =
                (STANDARD.encode("shop"), STANDARD.encode(format!("{number:032}")));
            ("Opaque", json!({ "username": user, "password": password }))
        }
    };
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": { "name": format!("other-{number}"), "labels": { "app.kubernetes.io/part-of": "shop" } },
        "data": data,
    })
}
