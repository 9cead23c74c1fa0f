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

/// A Route to be created.
#[derive(Clone)]
pub struct RouteFixture(Value);

impl RouteFixture {
    /// TLS ends at the router.
    pub fn edge(name: &str) -> Self {
        Self::insecure(name).with("/spec/tls", json!({ "termination": "edge" }))
    }

    /// TLS ends at the router, and another TLS starts there with a backend that `destination` vouches for.
    pub fn reencrypt(name: &str, destination: &str) -> Self {
        Self::insecure(name).with(
            "/spec/tls",
            json!({ "termination": "reencrypt", "destinationCACertificate": destination }),
        )
    }

    /// TLS ends at the backend.
    pub fn passthrough(name: &str) -> Self {
        Self::insecure(name).with("/spec/tls", json!({ "termination": "passthrough" }))
    }

    /// No TLS at all.
    pub fn insecure(name: &str) -> Self {
        Self(json!({
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": { "name": name },
            "spec": { "host": format!("{name}.example.com"), "to": { "kind": "Service", "name": "backend" } },
        }))
    }

    /// In place of NAME.example.com.
    pub fn host(self, host: &str) -> Self {
        self.with("/spec/host", json!(host))
    }

    /// Asks for a Secret's certificate.
    pub fn annotated(self, secret: &str) -> Self {
        self.annotation(SECRET_NAME_ANNOTATION, secret)
    }

    /// Any annotation.
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][name] = json!(value);
        self
    }

    /// With this certificate and key in it.
    pub fn holding(self, pair: &Pair) -> Self {
        self.with("/spec/tls/certificate", json!(pair.certificate))
            .with("/spec/tls/key", json!(pair.key))
    }

    /// With a caCertificate in it.
    pub fn authority(self, pem: &str) -> Self {
        self.with("/spec/tls/caCertificate", json!(pem))
    }

    /// The router reads this Secret itself.
    pub fn external_certificate(self, secret: &str) -> Self {
        self.with("/spec/tls/externalCertificate", json!({ "name": secret }))
    }

    /// Made by ingress-to-route from an Ingress of this API version.
    pub fn owned_by_ingress(self, api_version: &str) -> Self {
        let owner = json!({ "apiVersion": api_version, "kind": "Ingress", "name": "web", "uid": "0b4f7c4e-7a2b-4f3c-8d51-6f1a2b3c4d5e", "controller": true });
        self.with("/metadata/ownerReferences", json!([owner]))
    }

    /// Any other field, by its JSON pointer. Objects on the way there are made.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let place = pointer.split('/').skip(1).fold(&mut self.0, |place, field| &mut place[field]);
        *place = value;
        self
    }

    /// The object as it is sent.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// Creates it, and returns what the server made of it.
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

/// A Secret to be created.
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

    /// Other bytes for the certificate.
    pub fn certificate(self, bytes: impl AsRef<[u8]>) -> Self {
        self.with("tls.crt", bytes)
    }

    /// Other bytes for the key.
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

    /// Creates it.
    pub async fn create(&self, namespace: &Namespace) -> Secret {
        namespace
            .secrets()
            .create(&PostParams::default(), &self.secret())
            .await
            .expect("the Secret is accepted")
    }

    /// Puts this content into the Secret of that name, which exists.
    pub async fn replace(&self, namespace: &Namespace) -> Secret {
        namespace
            .secrets()
            .replace(&self.name, &PostParams::default(), &self.secret())
            .await
            .expect("the Secret is accepted")
    }
}
