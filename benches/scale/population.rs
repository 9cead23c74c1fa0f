//! Objects as a cluster has them where cert-manager renews certificates.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::certificates::{Issuer, Pair};

/// The Routes are spread over as many.
pub const NAMESPACES: usize = 20;
/// Signing takes time, and it makes no difference that some Routes have the same pair.
const DIFFERENT_PAIRS: usize = 97;
/// Here all Routes share a Secret.
pub const SHARED: &str = "shared";
/// Here one Route is alone.
pub const LONE: &str = "lone";
/// Here a plain client patches Routes that nobody annotated.
pub const RAW: &str = "raw";

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Place {
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

/// Routes with a Secret each, and Secrets that are nobody's business.
pub struct Population {
    pub issuer: Issuer,
    /// What each Route's Secret holds at the moment.
    pub pairs: Vec<Arc<Pair>>,
    pub other_secrets: usize,
}

impl Population {
    pub fn of(routes: usize, other_secrets: usize) -> anyhow::Result<Self> {
        let issuer = Issuer::new()?;
        let mut population = Self { issuer, pairs: Vec::new(), other_secrets };
        population.pairs = population.fresh_pairs(routes)?;
        Ok(population)
    }

    /// Pairs that were not there before, handed out in turn.
    pub fn fresh_pairs(&self, routes: usize) -> anyhow::Result<Vec<Arc<Pair>>> {
        let pairs: Vec<_> =
            (0..DIFFERENT_PAIRS).map(|_| self.issuer.pair()).collect::<Result<_, _>>()?;
        Ok((0..routes).map(|number| pairs[number % pairs.len()].clone()).collect())
    }

    pub fn routes(&self) -> usize {
        self.pairs.len()
    }

    pub fn place(&self, number: usize) -> Place {
        Place::new(&namespace(number), &format!("route-{number}"))
    }

    pub fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.routes()).map(|number| self.place(number))
    }
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

/// What else is in a cluster: passwords, registry accounts, Helm's releases.
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
