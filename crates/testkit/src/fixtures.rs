//! Routes and Secrets as users write them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, PostParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use trustplane::names::SECRET_NAME_ANNOTATION;

use crate::namespace::Namespace;
use crate::pair::Pair;

/// A Route to create.
#[derive(Clone)]
pub struct RouteFixture(Value);

impl RouteFixture {
    /// An edge Route.
    pub fn edge(name: &str) -> Self {
        Self::insecure(name).with("/spec/tls", json!({ "termination": "edge" }))
    }

    /// A reencrypt Route with `destination` as its destinationCACertificate.
    pub fn reencrypt(name: &str, destination: &str) -> Self {
        Self::insecure(name).with(
            "/spec/tls",
            json!({ "termination": "reencrypt", "destinationCACertificate": destination }),
        )
    }

    /// A passthrough Route.
    pub fn passthrough(name: &str) -> Self {
        Self::insecure(name).with("/spec/tls", json!({ "termination": "passthrough" }))
    }

    /// A Route without TLS.
    pub fn insecure(name: &str) -> Self {
        Self(json!({
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": { "name": name },
            "spec": { "host": format!("{name}.example.com"), "to": { "kind": "Service", "name": "backend" } },
        }))
    }

    /// Replaces the default host NAME.example.com.
    pub fn host(self, host: &str) -> Self {
        self.with("/spec/host", json!(host))
    }

    /// Sets the annotation with the Secret's name.
    pub fn annotated(self, secret: &str) -> Self {
        self.annotation(SECRET_NAME_ANNOTATION, secret)
    }

    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][name] = json!(value);
        self
    }

    /// Sets certificate and key.
    pub fn holding(self, pair: &Pair) -> Self {
        self.with("/spec/tls/certificate", json!(pair.certificate))
            .with("/spec/tls/key", json!(pair.key))
    }

    /// Sets the caCertificate.
    pub fn authority(self, pem: &str) -> Self {
        self.with("/spec/tls/caCertificate", json!(pem))
    }

    /// Sets the externalCertificate.
    pub fn external_certificate(self, secret: &str) -> Self {
        self.with("/spec/tls/externalCertificate", json!({ "name": secret }))
    }

    /// Makes it owned by an Ingress of this API version, as from ingress-to-route.
    pub fn owned_by_ingress(self, api_version: &str) -> Self {
        let owner = json!({ "apiVersion": api_version, "kind": "Ingress", "name": "web", "uid": "0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e", "controller": true });
        self.with("/metadata/ownerReferences", json!([owner]))
    }

    /// Sets any other field by its JSON pointer, and creates missing parents.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let place = pointer.split('/').skip(1).fold(&mut self.0, |place, field| &mut place[field]);
        *place = value;
        self
    }

    /// The object as it is sent.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// Creates it and returns the server's object.
    pub async fn create(&self, namespace: &Namespace) -> DynamicObject {
        self.try_create(namespace).await.expect("the Route is accepted")
    }

    /// Creates it, if the server accepts it.
    pub async fn try_create(&self, namespace: &Namespace) -> kube::Result<DynamicObject> {
        let route: DynamicObject =
            serde_json::from_value(self.0.clone()).map_err(kube::Error::SerdeError)?;
        namespace.routes().create(&PostParams::default(), &route).await
    }
}

/// A Secret to create.
#[derive(Clone)]
pub struct SecretFixture {
    name: String,
    kind: &'static str,
    data: BTreeMap<String, ByteString>,
}

impl SecretFixture {
    /// A kubernetes.io/tls Secret with this pair.
    pub fn tls(name: &str, pair: &Pair) -> Self {
        Self { name: name.to_owned(), kind: "kubernetes.io/tls", data: BTreeMap::new() }
            .certificate(&pair.certificate)
            .key(&pair.key)
    }

    /// The same content under type Opaque.
    pub fn opaque(self) -> Self {
        Self { kind: "Opaque", ..self }
    }

    /// Replaces the certificate.
    pub fn certificate(self, bytes: impl AsRef<[u8]>) -> Self {
        self.with("tls.crt", bytes)
    }

    /// Replaces the key.
    pub fn key(self, bytes: impl AsRef<[u8]>) -> Self {
        self.with("tls.key", bytes)
    }

    fn with(mut self, entry: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.data.insert(entry.to_owned(), ByteString(bytes.as_ref().to_vec()));
        self
    }

    /// The object as it is sent.
    pub fn secret(&self) -> Secret {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        Secret {
            metadata,
            type_: Some(self.kind.to_owned()),
            data: Some(self.data.clone()),
            ..Secret::default()
        }
    }

    pub async fn create(&self, namespace: &Namespace) -> Secret {
        namespace
            .secrets()
            .create(&PostParams::default(), &self.secret())
            .await
            .expect("the Secret is accepted")
    }

    /// Updates the existing Secret of that name.
    pub async fn replace(&self, namespace: &Namespace) -> Secret {
        namespace
            .secrets()
            .replace(&self.name, &PostParams::default(), &self.secret())
            .await
            .expect("the Secret is accepted")
    }
}

/// `metadata` of a Secret that cert-manager made for a Certificate.
pub fn cert_manager_metadata(name: &str, certificate: &str) -> Value {
    json!({
        "name": name,
        "labels": { "controller.cert-manager.io/fao": "true" },
        "annotations": {
            "cert-manager.io/alt-names": format!("{certificate}.apps.example.com"),
            "cert-manager.io/certificate-name": certificate,
            "cert-manager.io/common-name": format!("{certificate}.apps.example.com"),
            "cert-manager.io/ip-sans": "", "cert-manager.io/uri-sans": "",
            "cert-manager.io/issuer-group": "cert-manager.io",
            "cert-manager.io/issuer-kind": "ClusterIssuer",
            "cert-manager.io/issuer-name": "apps",
        },
    })
}
