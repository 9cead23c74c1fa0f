//! Objects of a hostile tenant as JSON, as large as the API server accepts. Long chains of
//! certificates are in [`crate::pair`].

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use trustplane::names::SECRET_NAME_ANNOTATION;

/// The API server's limit for all values of a Secret.
pub const MEBIBYTE: usize = 1 << 20;

/// Together 1.3 MB of managedFields. With the fields themselves this stays below etcd's limit of
/// 1.5 MiB.
const MANAGERS: usize = 5;
const FIELDS: usize = 1_000;
/// The API server's limit for a key of a Secret.
const KEY_LENGTH: usize = 253;

/// A Secret of type kubernetes.io/tls with any content.
pub fn tls_secret(name: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": name },
        "data": { "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key) },
    })
}

/// A TLS Secret of 1 MiB that holds no certificate.
pub fn junk_secret(name: &str) -> Value {
    static JUNK: LazyLock<String> = LazyLock::new(|| "x".repeat(MEBIBYTE));
    tls_secret(name, &JUNK, "")
}

/// A TLS Secret with many fields, for [`many_managers_secret`] to replace.
pub fn many_fields_secret(name: &str) -> Value {
    let mut secret = tls_secret(name, "", "");
    for key in field_names() {
        secret["data"][key] = "".into();
    }
    secret
}

/// The same with five managers, each of which owns all fields, as after five server-side applies.
/// Needs an update, because a created Secret has only its creator as manager.
pub fn many_managers_secret(name: &str) -> Value {
    static MANAGED_FIELDS: LazyLock<Value> = LazyLock::new(many_managers);
    let mut secret = many_fields_secret(name);
    secret["metadata"]["managedFields"] = MANAGED_FIELDS.clone();
    secret
}

fn many_managers() -> Value {
    let owned: Map<String, Value> =
        field_names().map(|key| (format!("f:{key}"), json!({}))).collect();
    let manager = |number: usize| {
        json!({
            "manager": format!("manager-{number}"), "operation": "Apply", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:data": owned },
        })
    };
    (0..MANAGERS).map(manager).collect()
}

fn field_names() -> impl Iterator<Item = String> {
    (0..FIELDS).map(|number| format!("{number:0>KEY_LENGTH$}"))
}

/// A Route of 1 MiB with this Secret's name.
pub fn large_route(name: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": { "name": name, "annotations": { SECRET_NAME_ANNOTATION: secret } },
        "spec": {
            "host": format!("{name}.example.com"),
            "to": { "kind": "Service", "name": "backend" },
            "tls": { "termination": "edge", "caCertificate": "x".repeat(MEBIBYTE) },
        },
    })
}
