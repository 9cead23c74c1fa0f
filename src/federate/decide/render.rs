//! Renders the objects of a SpireServer. Pure.
//!
//! They are JSON, as administrators see them with kubectl; `merge` merges them into the live ones.

mod config;
mod proxy;
mod rbac;
mod workload;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::{
    api::spire_server::{self, Federation, HttpsWeb, Profile, ServingCert, SpireServer},
    federate::decide::last_valid,
    names::{CONFIG_ANNOTATION, LAST_VALID_SPEC_ANNOTATION, SECRET_NAME_ANNOTATION},
};

pub use self::{config::server_conf, proxy::Proxy, workload::keep_placement};

/// The name of most objects.
pub const SERVER: &str = "spire-server";
/// The name of the ConfigMap, the container and the class of the controller manager.
pub const CONTROLLER_MANAGER: &str = "spire-controller-manager";
pub const ROUTE: &str = "spire-server-federation";
/// The ConfigMap in which the server publishes its bundle for the agents.
pub const BUNDLE: &str = "spire-bundle";
/// The ConfigMap with the bundles last fetched from peers.
pub const PEERS: &str = "trustplane-peers";
/// The Secret that OpenShift fills with a certificate for the Service.
pub const SERVING_CERT: &str = "spire-server-serving-cert";
pub const FEDERATION_PORT: u16 = 8443;

/// The settings besides the SpireServer itself.
#[derive(Clone, Debug)]
pub struct RenderContext {
    pub namespace: String,
    /// The domain of the Routes' hosts; none if unknown.
    pub apps_domain: Option<String>,
    pub server_image: String,
    pub controller_manager_image: String,
    /// None if the kind of cluster decides.
    pub pod_user: Option<PodUser>,
    /// How the server reaches other clusters.
    pub proxy: Proxy,
}

/// The user of the server's Pod. Both containers have the same one: the server's socket is only for its own
/// user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodUser {
    /// The cluster assigns a user and a group, as OpenShift's `restricted-v2` does. It refuses Pods that name
    /// another.
    Assigned,
    /// This user, in a group of the same number. Other clusters need one: the controller manager's image
    /// names none, and the kubelet runs such an image only as root.
    Id(u32),
}

impl Default for PodUser {
    /// The user of the server's official image.
    fn default() -> Self {
        Self::Id(1000)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    ServiceAccount,
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
    BundleConfigMap,
    ServerConfigMap,
    ControllerManagerConfigMap,
    Service,
    StatefulSet,
    Route,
    PeersConfigMap,
}

impl Component {
    pub const RBAC: [Self; 5] = [
        Self::ServiceAccount,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::Role,
        Self::RoleBinding,
    ];
    /// In the order of creation, without the cache of bundles.
    pub const ALL: [Self; 11] = [
        Self::ServiceAccount,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::Role,
        Self::RoleBinding,
        Self::BundleConfigMap,
        Self::ServerConfigMap,
        Self::ControllerManagerConfigMap,
        Self::Service,
        Self::StatefulSet,
        Self::Route,
    ];
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub part: Component,
    pub object: Value,
}

/// In the order of creation.
pub fn render(server: &SpireServer, setting: &RenderContext) -> Vec<Rendered> {
    let object = |part: Component| match part {
        Component::ServiceAccount => Some(rbac::service_account()),
        Component::ClusterRole => Some(rbac::cluster_role()),
        Component::ClusterRoleBinding => Some(rbac::cluster_role_binding(setting)),
        Component::Role => Some(rbac::role()),
        Component::RoleBinding => Some(rbac::role_binding(setting)),
        Component::BundleConfigMap => Some(config::bundle()),
        Component::ServerConfigMap => {
            Some(noting_spec(config::server(&server.spec, setting), server))
        }
        Component::ControllerManagerConfigMap => Some(config::controller_manager(&server.spec)),
        Component::Service => Some(workload::service(&server.spec)),
        Component::StatefulSet => Some(workload::stateful_set(&server.spec, setting)),
        Component::Route => route(server, setting),
        Component::PeersConfigMap => None,
    };
    let rendered = |part| {
        Some(Rendered { part, object: common(object(part)?, part, server, &setting.namespace) })
    };
    Component::ALL.into_iter().filter_map(rendered).collect()
}

/// Adds the spec, which applies while a newer one is invalid.
fn noting_spec(mut config_map: Value, server: &SpireServer) -> Value {
    if let Some(spec) = last_valid::written(&server.spec) {
        config_map["metadata"]["annotations"] = json!({ LAST_VALID_SPEC_ANNOTATION: spec });
    }
    config_map
}

pub fn peers_config_map(
    server: &SpireServer,
    setting: &RenderContext,
    data: BTreeMap<String, String>,
) -> Rendered {
    let part = Component::PeersConfigMap;
    let object = config::config_map(PEERS, json!(data));
    Rendered { part, object: common(object, part, server, &setting.namespace) }
}

/// The host of the bundle endpoint's Route.
///
/// With ACME it is the name in the certificate: the authority's challenge arrives with that name as SNI.
/// Otherwise it is the name that OpenShift itself would choose, below the domain that the cluster's DNS
/// covers.
pub fn host(federation: &Federation, setting: &RenderContext) -> Option<String> {
    let endpoint = &federation.bundle_endpoint;
    let web = endpoint.https_web.as_ref().filter(|_| endpoint.profile == Profile::HttpsWeb);
    let acme = web.and_then(|web| web.acme.as_ref()).map(|acme| acme.domain_name.clone());
    let usual = || {
        let domain = setting.apps_domain.as_ref()?;
        Some(format!("{ROUTE}-{}.{domain}", setting.namespace))
    };
    acme.or_else(|| federation.route_host.clone()).or_else(usual)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// At the server, which proves its identity itself.
    Passthrough,
    /// At the router, and again at the server.
    Reencrypt,
}

/// As the endpoint's profile requires.
pub fn termination(federation: &Federation) -> Termination {
    match serving_cert(federation) {
        Some(_) => Termination::Reencrypt,
        None => Termination::Passthrough,
    }
}

/// None if the endpoint uses no certificate from the cluster.
pub fn serving_cert(federation: &Federation) -> Option<&ServingCert> {
    let endpoint = &federation.bundle_endpoint;
    let web = endpoint.https_web.as_ref().filter(|_| endpoint.profile == Profile::HttpsWeb);
    web.and_then(|HttpsWeb { serving_cert, .. }| serving_cert.as_ref())
}

fn route(server: &SpireServer, setting: &RenderContext) -> Option<Value> {
    let federation = server.spec.federation.as_ref().filter(|it| it.manages_route())?;
    let host = host(federation, setting)?;
    let termination = match termination(federation) {
        Termination::Passthrough => "passthrough",
        Termination::Reencrypt => "reencrypt",
    };
    let mut route = json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": { "name": ROUTE },
        "spec": {
            "host": host,
            "to": { "kind": "Service", "name": SERVER, "weight": 100 },
            "port": { "targetPort": "federation" },
            "wildcardPolicy": "None",
            "tls": { "termination": termination, "insecureEdgeTerminationPolicy": "Redirect" },
        },
    });
    let secret = serving_cert(federation).and_then(|it| it.external_secret_ref.as_deref());
    if let Some(secret) = secret.filter(|name| !name.is_empty()) {
        route["metadata"]["annotations"] = json!({ SECRET_NAME_ANNOTATION: secret });
    }
    Some(route)
}

/// For a StatefulSet that is created before its configuration is in place: nobody knows which configuration
/// it starts with, so it is rolled out once the configuration is there.
pub fn forget_configuration(stateful_set: &mut Value) {
    stateful_set["spec"]["template"]["metadata"]["annotations"][CONFIG_ANNOTATION] =
        json!("unknown");
}

fn set_present<const N: usize>(object: &mut Value, fields: [(&str, Option<Value>); N]) {
    for (name, value) in fields {
        if let Some(value) = value {
            object[name] = value;
        }
    }
}

/// Adds labels, the owner, and the namespace if the object has one.
fn common(mut object: Value, part: Component, server: &SpireServer, namespace: &str) -> Value {
    let metadata = &mut object["metadata"];
    if !matches!(part, Component::ClusterRole | Component::ClusterRoleBinding) {
        metadata["namespace"] = json!(namespace);
    }
    metadata["labels"] = labels(server, part);
    let owner = OwnerReference {
        api_version: spire_server::API_VERSION.to_owned(),
        kind: spire_server::KIND.to_owned(),
        name: server.metadata.name.clone().unwrap_or_default(),
        uid: server.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    metadata["ownerReferences"] = json!([owner]);
    object
}

/// A label can grant permissions: `rbac.authorization.k8s.io/aggregate-to-view` adds a ClusterRole to `view`.
/// So RBAC objects get none of the user's labels.
fn labels(server: &SpireServer, part: Component) -> Value {
    let mut labels = match Component::RBAC.contains(&part) {
        true => json!({}),
        false => json!(server.spec.labels),
    };
    let ours = [
        ("name", SERVER),
        ("instance", "cluster"),
        ("component", "control-plane"),
        ("part-of", "trustplane"),
        ("managed-by", "trustplane"),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    for (name, value) in ours {
        labels[format!("app.kubernetes.io/{name}")] = json!(value);
    }
    labels
}

#[cfg(test)]
pub(in crate::federate) mod tests;
