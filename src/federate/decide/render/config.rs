//! The configuration of the server and of the controller manager.

use serde_json::{Map, Value, json};

use super::{BUNDLE, CONTROLLER_MANAGER, FEDERATION_PORT, RenderContext, SERVER, set_present};
use crate::api::spire_server::{
    BundleEndpoint, CaSubject, Datastore, Federation, HttpsWeb, POSTGRES, Peer, Profile,
    SpireServerSpec,
};

/// Where the certificate for the database is mounted.
pub const DATABASE_TLS: &str = "/run/spire/db-tls";

/// The server's socket, which the controller manager uses.
pub const SOCKET: &str = "/tmp/spire-server/private/api.sock";
/// Where the server's volume is mounted.
pub const DATA: &str = "/run/spire/data";
/// Where the certificate from the cluster is mounted.
pub const SERVER_TLS: &str = "/run/spire/server-tls";

pub fn server(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    config_map(SERVER, json!({ "server.conf": pretty(&server_conf(spec, setting)) }))
}

/// The server publishes its bundle in it, so it is rendered without data.
pub fn bundle() -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": BUNDLE } })
}

pub fn controller_manager(spec: &SpireServerSpec) -> Value {
    let config = json!({
        "apiVersion": "spire.spiffe.io/v1alpha1",
        "kind": "ControllerManagerConfig",
        "metrics": { "bindAddress": "0.0.0.0:8082" },
        "health": { "healthProbeBindAddress": "0.0.0.0:8083" },
        "clusterName": spec.cluster_name,
        "trustDomain": spec.trust_domain,
        "clusterDomain": "cluster.local",
        // Regular expressions that are not anchored by default.
        "ignoreNamespaces": ["^kube-system$", "^kube-public$"],
        // It ignores entries with another prefix; without one it deletes those made by hand.
        "entryIDPrefix": spec.cluster_name,
        "spireServerSocketPath": SOCKET,
        // It would silently skip objects without a class.
        "watchClassless": true,
        "className": CONTROLLER_MANAGER,
        "parentIDTemplate":
            "spiffe://{{ .TrustDomain }}/spire/agent/k8s_psat/{{ .ClusterName }}/{{ .NodeMeta.UID }}",
    });
    config_map(CONTROLLER_MANAGER, json!({ "controller-manager-config.yaml": pretty(&config) }))
}

/// `federation` must be inside `server`: the server refuses it elsewhere.
pub fn server_conf(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    let mut server = json!({
        "audit_log_enabled": true,
        "bind_address": "0.0.0.0",
        "bind_port": "8081",
        "ca_key_type": spec.ca_key_type,
        "ca_ttl": spec.ca_validity,
        "data_dir": DATA,
        "default_jwt_svid_ttl": spec.default_jwt_validity,
        "default_x509_svid_ttl": spec.default_x509_validity,
        "jwt_issuer": spec.jwt_issuer,
        "log_format": spec.log_format,
        "log_level": spec.log_level,
        "socket_path": SOCKET,
        "trust_domain": spec.trust_domain,
    });
    let optional = [
        ("jwt_key_type", spec.jwt_key_type.as_ref().map(|it| json!(it))),
        ("ca_subject", spec.ca_subject.as_ref().map(|subject| json!([ca_subject(subject)]))),
        ("federation", spec.federation.as_ref().map(federation)),
    ];
    set_present(&mut server, optional);
    json!({
        "server": server,
        "plugins": plugins(spec, setting),
        "health_checks": {
            "bind_address": "0.0.0.0",
            "bind_port": "8080",
            "listener_enabled": true,
            "live_path": "/live",
            "ready_path": "/ready",
        },
        "telemetry": { "Prometheus": { "host": "0.0.0.0", "port": "9402" } },
    })
}

fn ca_subject(subject: &CaSubject) -> Value {
    let parts = [
        ("common_name", json!(subject.common_name), subject.common_name.is_empty()),
        ("country", json!([subject.country]), subject.country.is_empty()),
        ("organization", json!([subject.organization]), subject.organization.is_empty()),
    ];
    let set = parts.into_iter().filter(|(_, _, unset)| !unset);
    set.map(|(name, value, _)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

fn plugins(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    let datastore = &spec.datastore;
    let mut sql = json!({
        "connection_string": connection_string(datastore),
        "database_type": datastore.database_type,
        "disable_migration": datastore.disable_migration == "true",
        "max_idle_conns": datastore.max_idle_conns,
        "max_open_conns": datastore.max_open_conns,
    });
    if let Some(seconds) = datastore.conn_max_lifetime.filter(|&seconds| seconds > 0) {
        sql["conn_max_lifetime"] = json!(format!("{seconds}s"));
    }
    if datastore.tls_secret_name.is_some() {
        for (name, file) in [
            ("root_ca_path", "ca.crt"),
            ("client_cert_path", "tls.crt"),
            ("client_key_path", "tls.key"),
        ] {
            sql[name] = json!(format!("{}/{file}", DATABASE_TLS));
        }
    }
    let account = format!("{}:spire-agent", setting.namespace);
    let clusters = json!({ &spec.cluster_name: {
        "allowed_node_label_keys": [],
        "allowed_pod_label_keys": [],
        "audience": ["spire-server"],
        "service_account_allow_list": [account],
    }});
    let data = |name: &str, data: Value| json!([{ name: { "plugin_data": data } }]);
    json!({
        "DataStore": data("sql", sql),
        "KeyManager": data("disk", json!({ "keys_path": format!("{DATA}/keys.json") })),
        "NodeAttestor": data("k8s_psat", json!({ "clusters": [clusters] })),
        "Notifier": data("k8sbundle", json!({ "config_map": BUNDLE, "namespace": setting.namespace })),
    })
}

/// SPIRE reads the paths of certificates from its configuration only for MySQL. For PostgreSQL they must be
/// in the connection string. They come last, and `validate` refuses them in the user's part.
fn connection_string(datastore: &Datastore) -> String {
    let mut text = datastore.connection_string.expose().to_owned();
    if datastore.tls_secret_name.is_none() || datastore.database_type != POSTGRES {
        return text;
    }
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    for (name, file) in [("sslrootcert", "ca.crt"), ("sslcert", "tls.crt"), ("sslkey", "tls.key")] {
        let separator = match (is_url, text.contains('?')) {
            (false, _) => ' ',
            (true, false) => '?',
            (true, true) => '&',
        };
        text.push(separator);
        text.push_str(&format!("{name}={}/{file}", DATABASE_TLS));
    }
    text
}

fn federation(federation: &Federation) -> Value {
    let mut section = json!({ "bundle_endpoint": bundle_endpoint(&federation.bundle_endpoint) });
    if !federation.federates_with.is_empty() {
        let peers = federation.federates_with.iter();
        section["federates_with"] =
            peers.map(|peer| (peer.trust_domain.clone(), relationship(peer))).collect();
    }
    section
}

fn bundle_endpoint(endpoint: &BundleEndpoint) -> Value {
    json!({
        "address": "0.0.0.0",
        "port": FEDERATION_PORT,
        "profile": profile(endpoint),
        "refresh_hint": format!("{}s", endpoint.refresh_hint),
    })
}

fn profile(endpoint: &BundleEndpoint) -> Value {
    let web = match (endpoint.profile, &endpoint.https_web) {
        (Profile::HttpsSpiffe, _) => return json!({ "https_spiffe": {} }),
        (Profile::HttpsWeb, None) => json!({}),
        (Profile::HttpsWeb, Some(HttpsWeb { acme: Some(acme), .. })) => json!({ "acme": {
            "directory_url": acme.directory_url,
            "domain_name": acme.domain_name,
            "email": acme.email,
            "tos_accepted": acme.tos_accepted == "true",
        }}),
        (Profile::HttpsWeb, Some(HttpsWeb { serving_cert, .. })) => {
            // The server does not start without it.
            let interval = serving_cert.as_ref().map_or(86_400, |it| it.file_sync_interval);
            json!({ "serving_cert_file": {
                "cert_file_path": format!("{SERVER_TLS}/tls.crt"),
                "file_sync_interval": format!("{interval}s"),
                "key_file_path": format!("{SERVER_TLS}/tls.key"),
            }})
        }
    };
    json!({ "https_web": web })
}

fn relationship(peer: &Peer) -> Value {
    let profile = match peer.bundle_endpoint_profile {
        Profile::HttpsSpiffe => json!({ "endpoint_spiffe_id": peer.endpoint_spiffe_id }),
        Profile::HttpsWeb => json!({}),
    };
    json!({
        "bundle_endpoint_profile": { peer.bundle_endpoint_profile.as_str(): profile },
        "bundle_endpoint_url": peer.bundle_endpoint_url,
    })
}

pub(super) fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// Indented for people; serde_json sorts the names, so equal values are equal texts.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
