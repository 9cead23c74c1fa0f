//! Objects as a cluster has them where cert-manager renews certificates.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::certificates::Pair;

/// The Routes are spread over as many.
pub const NAMESPACES: usize = 20;
/// Here all Routes share a Secret.
pub const SHARED: &str = "shared";
/// Here one Route is alone.
pub const LONE: &str = "lone";
/// Here a tenant attacks all others.
pub const HOSTILE: &str = "hostile";
/// Here a plain client patches Routes that nobody annotated.
pub const RAW: &str = "raw";
/// The one of them that it patches alone.
pub const SINGLE: &str = "single";

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteRef {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl RouteRef {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Where the Secret of a Route is.
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

/// How much there is: Routes with a Secret each, and Secrets of types that are nobody's business.
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

/// Where the Route of that number is.
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
    let owner = name.trim_end_matches("-tls");
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "labels": { "controller.cert-manager.io/fao": "true" },
            "annotations": {
                "cert-manager.io/alt-names": format!("{owner}.apps.example.com"),
                "cert-manager.io/certificate-name": owner,
                "cert-manager.io/common-name": format!("{owner}.apps.example.com"),
                "cert-manager.io/ip-sans": "", "cert-manager.io/uri-sans": "",
                "cert-manager.io/issuer-group": "cert-manager.io",
                "cert-manager.io/issuer-kind": "ClusterIssuer",
                "cert-manager.io/issuer-name": "apps",
            },
        },
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
