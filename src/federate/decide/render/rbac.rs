//! The SPIRE server's ServiceAccount and its permissions.

use serde_json::{Value, json};

use super::{BUNDLE, RenderContext, SERVER};

pub fn service_account() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": SERVER } })
}

/// Node attestation reviews tokens and looks up Pods; the controller manager turns Pods and its own objects
/// into entries.
pub fn cluster_role() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let own = ["clusterfederatedtrustdomains", "clusterspiffeids", "clusterstaticentries"];
    let status = own.map(|name| format!("{name}/status"));
    let status = status.each_ref().map(String::as_str);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": SERVER },
        "rules": [
            rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
            rule("", &["nodes", "pods"], &["get", "list", "watch"]),
            rule("", &["namespaces", "endpoints"], &["get", "list", "watch"]),
            rule("spire.spiffe.io", &own, &["get", "list", "watch"]),
            rule("spire.spiffe.io", &status, &["get", "patch", "update"]),
        ],
    })
}

pub fn cluster_role_binding(setting: &RenderContext) -> Value {
    binding("ClusterRoleBinding", "ClusterRole", setting)
}

/// The server publishes its bundle in a ConfigMap.
pub fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": { "name": SERVER },
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [BUNDLE], "verbs": ["get", "patch"] },
        ],
    })
}

pub fn role_binding(setting: &RenderContext) -> Value {
    binding("RoleBinding", "Role", setting)
}

fn binding(kind: &str, role: &str, setting: &RenderContext) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": SERVER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": SERVER },
        "subjects": [{ "kind": "ServiceAccount", "name": SERVER, "namespace": setting.namespace }],
    })
}
