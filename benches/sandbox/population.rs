//! Objects of a cluster in which cert-manager renews and trustplane injects.

use anyhow::Context;
use apiserver::{
    api_error::ApiError,
    kinds,
    store::{Call, Part, Patch, Store},
};
use chrono::Utc;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_RSA_SHA256,
    RsaKeySize,
};
use serde_json::{Value, json};
use testkit::cert_manager_metadata;
use trustplane::demo::api_server::route as route_kind;

pub const ROUTES_PER_NAMESPACE: usize = 100;
/// RSA keys are slow to make, and the store does not care that some are the same.
const DIFFERENT_PAIRS: usize = 4;

/// The same objects every time.
pub struct Population {
    routes: usize,
    pairs: Vec<Pair>,
}

/// A chain of three RSA certificates and the leaf's key, together about 5 KB.
struct Pair {
    chain: String,
    key: String,
    authority: String,
}

impl Pair {
    fn new() -> Result<Self, rcgen::Error> {
        let rsa = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(authority.clone(), rsa()?)?;
        let issuer = CertifiedIssuer::signed_by(authority, rsa()?, &root)?;
        let key = rsa()?;
        let leaf = CertificateParams::new(vec!["*.apps.example.com".to_owned()])?;
        let chain = leaf.signed_by(&key, &issuer)?.pem() + &issuer.pem() + &root.pem();
        Ok(Self { chain, key: key.serialize_pem(), authority: root.pem() })
    }
}

impl Population {
    pub fn of(routes: usize) -> Result<Self, rcgen::Error> {
        let pairs = (0..DIFFERENT_PAIRS).map(|_| Pair::new()).collect::<Result<_, _>>()?;
        Ok(Self { routes, pairs })
    }

    pub fn routes(&self) -> usize {
        self.routes
    }

    pub fn namespaces(&self) -> usize {
        self.routes.div_ceil(ROUTES_PER_NAMESPACE)
    }

    /// Namespace and name of a Route.
    pub fn route_at(&self, number: usize) -> (String, String) {
        (namespace(number / ROUTES_PER_NAMESPACE), format!("route-{number}"))
    }

    /// Length of a certificate and its key.
    pub fn pair_bytes(&self) -> usize {
        self.pairs.first().map_or(0, |pair| pair.chain.len() + pair.key.len())
    }

    /// Creates everything under the rules for requests, the status of a Route with a separate
    /// write.
    pub fn move_into(&self, store: &mut Store) -> anyhow::Result<()> {
        self.try_move_into(store)
            .map_err(|refusal| refusal.message)
            .map_err(anyhow::Error::msg)
            .context("the sandbox does not take the objects")
    }

    fn try_move_into(&self, store: &mut Store) -> Result<(), ApiError> {
        let call = &mut Call::at(Utc::now());
        for number in 0..self.namespaces() {
            let name = json!({ "metadata": { "name": namespace(number) } });
            store.create(kinds::namespace(), "", name, call)?;
        }
        for number in 0..self.routes {
            let pair = &self.pairs[number % self.pairs.len()];
            let (namespace, name) = self.route_at(number);
            store.create(kinds::secret(), &namespace, secret(&name, pair), call)?;
            store.create(route_kind(), &namespace, route(&name, pair), call)?;
            let status = Patch::Merge(json!({ "status": status(&name) }));
            store.patch(route_kind(), (&namespace, &name), Part::Status, &status, call)?;
        }
        Ok(())
    }
}

fn namespace(number: usize) -> String {
    format!("tenant-{number}")
}

fn secret(name: &str, pair: &Pair) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": cert_manager_metadata(&format!("{name}-tls"), name),
        "stringData": { "tls.crt": pair.chain, "tls.key": pair.key, "ca.crt": pair.authority },
    })
}

fn route(name: &str, pair: &Pair) -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/part-of": "shop",
            },
            "annotations": {
                "route.openshift.io/tls-secret-name": format!("{name}-tls"),
                "trustplane.dev/injected": format!("v1:{:064x}:{:064x}", 1, 2),
                "haproxy.router.openshift.io/timeout": "30s",
            },
        },
        "spec": {
            "host": format!("{name}.apps.example.com"),
            "to": { "kind": "Service", "name": name, "weight": 100 },
            "port": { "targetPort": "https" },
            "tls": {
                "termination": "edge", "insecureEdgeTerminationPolicy": "Redirect",
                "certificate": pair.chain, "key": pair.key,
            },
            "wildcardPolicy": "None",
        },
    })
}

fn status(name: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": "SecretInjected", "message": message,
            "lastTransitionTime": time,
        })
    };
    json!({
        "ingress": [{
            "host": format!("{name}.apps.example.com"), "routerName": "default",
            "routerCanonicalHostname": "router-default.apps.example.com",
            "wildcardPolicy": "None",
            "conditions": [{ "type": "Admitted", "status": "True", "lastTransitionTime": time }],
        }],
        "certificate": [
            condition("Default", "False", ""),
            condition("Custom", "False", ""),
            condition("Managed", "True", &format!("The certificate of Secret {name}-tls is served.")),
        ],
    })
}
