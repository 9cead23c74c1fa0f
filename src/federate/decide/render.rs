//! The objects that a SpireServer asks for. Pure.
//!
//! They are JSON, as an administrator reads them with kubectl; `merge` lays them over what stands
//! in the cluster.

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

/// The name of the server and of nearly everything around it.
pub const SERVER: &str = "spire-server";
/// The ConfigMap of the controller manager.
pub const CONTROLLER_MANAGER: &str = "spire-controller-manager";
/// The Route of the bundle endpoint.
pub const ROUTE: &str = "spire-server-federation";
/// The ConfigMap that the server keeps its bundle in, for the agents.
pub const BUNDLE: &str = "spire-bundle";
/// The ConfigMap with the bundles that were last fetched from peers.
pub const PEERS: &str = "trustplane-peers";
/// The Secret that OpenShift fills with a certificate of the Service.
pub const SERVING_CERT: &str = "spire-server-serving-cert";
/// The port of the bundle endpoint.
pub const FEDERATION_PORT: u16 = 8443;

/// What is wanted apart from the SpireServer itself.
#[derive(Clone, Debug)]
pub struct RenderContext {
    /// Where the server runs.
    pub namespace: String,
    /// The domain below which Routes get their hosts; none where nobody knows.
    pub apps_domain: Option<String>,
    /// The image of the SPIRE server.
    pub server_image: String,
    /// The image of the controller manager.
    pub controller_manager_image: String,
    /// Whose processes the server's Pod runs; none where what kind of cluster this is decides.
    pub pod_user: Option<PodUser>,
    /// How the server reaches other clusters.
    pub proxy: Proxy,
}

/// Whose processes the server's Pod runs. Both containers have the same user: the server's socket is
/// for its own user and group alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodUser {
    /// A user and a group that the cluster assigns, as OpenShift's `restricted-v2` does. It refuses
    /// Pods that name another.
    Assigned,
    /// This user, in a group of the same number. Elsewhere one has to be named: the controller
    /// manager's image has none, and the kubelet refuses to run such an image but as root.
    Id(u32),
}

impl Default for PodUser {
    /// The user of the official image of the server.
    fn default() -> Self {
        Self::Id(1000)
    }
}

/// One kind of object that is made of a SpireServer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// The account of the server.
    ServiceAccount,
    /// What it may do in the cluster.
    ClusterRole,
    /// That it may.
    ClusterRoleBinding,
    /// What it may do in its namespace.
    Role,
    /// That it may.
    RoleBinding,
    /// Where the server keeps its bundle.
    BundleConfigMap,
    /// The server's configuration.
    ServerConfigMap,
    /// The controller manager's configuration.
    ControllerManagerConfigMap,
    /// How agents and the router reach the server.
    Service,
    /// The server.
    StatefulSet,
    /// How other clusters reach the bundle endpoint.
    Route,
    /// What is remembered of peers.
    PeersConfigMap,
}

impl Component {
    /// All that a SpireServer asks for, in the order in which they are made.
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

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Which.
    pub part: Component,
    /// What it is to be.
    pub object: Value,
}

/// Everything that a SpireServer asks for, in the order in which it is made.
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

/// With the spec that it was made from, which counts while a newer one is invalid.
fn noting_spec(mut config_map: Value, server: &SpireServer) -> Value {
    if let Some(spec) = last_valid::written(&server.spec) {
        config_map["metadata"]["annotations"] = json!({ LAST_VALID_SPEC_ANNOTATION: spec });
    }
    config_map
}

/// The ConfigMap with the bundles that were last fetched from peers.
pub fn peers_config_map(
    server: &SpireServer,
    setting: &RenderContext,
    data: BTreeMap<String, String>,
) -> Rendered {
    let part = Component::PeersConfigMap;
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": PEERS },
        "data": data,
    });
    Rendered { part, object: common(object, part, server, &setting.namespace) }
}

/// The host of the bundle endpoint's Route.
///
/// With ACME it is the name that the certificate is for: the authority's challenge arrives with
/// that name in its SNI. Otherwise it is the one that OpenShift itself would give the Route, which
/// lies below the domain that the cluster's DNS covers.
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

/// Where the router ends TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// At the server: it proves its identity itself.
    Passthrough,
    /// At the router, and once more at the server.
    Reencrypt,
}

/// What the endpoint's profile demands of its Route.
pub fn termination(federation: &Federation) -> Termination {
    match serving_cert(federation) {
        Some(_) => Termination::Reencrypt,
        None => Termination::Passthrough,
    }
}

/// The certificate from the cluster, where that is what the endpoint uses.
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

/// Of a StatefulSet that is made while its configuration is not in place: which it runs with is not
/// known, so that it is rolled out once the configuration is.
pub fn forget_configuration(stateful_set: &mut Value) {
    stateful_set["spec"]["template"]["metadata"]["annotations"][CONFIG_ANNOTATION] =
        json!("unknown");
}

/// What all objects have: labels, an owner, and a namespace where there can be one.
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

/// A label can widen rights: `rbac.authorization.k8s.io/aggregate-to-view` folds a ClusterRole into
/// `view`. So what rights are made of has none of the user's.
fn labels(server: &SpireServer, part: Component) -> Value {
    let mut labels = match part {
        Component::ServiceAccount
        | Component::ClusterRole
        | Component::ClusterRoleBinding
        | Component::Role
        | Component::RoleBinding => json!({}),
        _ => json!(server.spec.labels),
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
