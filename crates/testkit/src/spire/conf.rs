//! Adapts a Pod's configuration to this machine: maps paths into a folder and ports to free
//! loopback ones. A kubeconfig replaces the in-cluster configuration; without one, plugins that
//! need a cluster are removed.

use std::path::Path;

use serde_json::{Value, json};

use crate::free_port;

const LOOPBACK: &str = "127.0.0.1";

/// Ports of a server, free when chosen.
#[derive(Clone, Copy)]
pub struct Ports {
    /// For agents.
    pub api: u16,
    /// The bundle endpoint.
    pub federation: u16,
    /// `/live` and `/ready`.
    pub health: u16,
    /// Prometheus.
    pub metrics: u16,
}

impl Ports {
    /// Free ports, except given ones for bundle endpoint and metrics.
    pub fn choose(federation: Option<u16>, metrics: Option<u16>) -> Self {
        let free = || free_port().expect("a free port");
        Self {
            api: free(),
            federation: federation.unwrap_or_else(free),
            health: free(),
            metrics: metrics.unwrap_or_else(free),
        }
    }
}

/// The configuration for a server with its files in `folder`.
pub fn mapped(mut conf: Value, folder: &Path, ports: Ports, kubeconfig: Option<&Path>) -> Value {
    let file = |name: &str| json!(folder.join(name));
    let server = &mut conf["server"];
    server["bind_address"] = json!(LOOPBACK);
    server["bind_port"] = json!(ports.api.to_string());
    server["socket_path"] = file("api.sock");
    server["data_dir"] = file("data");
    if let Some(endpoint) = conf.pointer_mut("/server/federation/bundle_endpoint") {
        endpoint["address"] = json!(LOOPBACK);
        endpoint["port"] = json!(ports.federation);
    }
    map_serving_certificate(&mut conf, folder);
    map_plugins(&mut conf["plugins"], folder);
    match kubeconfig {
        Some(kubeconfig) => map_cluster(&mut conf["plugins"], kubeconfig),
        None => leave_cluster_out(&mut conf["plugins"]),
    }
    conf["health_checks"] = json!({
        "listener_enabled": true,
        "bind_address": LOOPBACK,
        "bind_port": ports.health.to_string(),
        "live_path": "/live",
        "ready_path": "/ready",
    });
    if let Some(prometheus) = conf.pointer_mut("/telemetry/Prometheus") {
        *prometheus = json!({ "host": LOOPBACK, "port": ports.metrics });
    }
    conf
}

/// Maps `serving_cert_file` into the folder. Returns whether there is one.
pub fn map_serving_certificate(conf: &mut Value, folder: &Path) -> bool {
    let profile = "/server/federation/bundle_endpoint/profile/https_web/serving_cert_file";
    let Some(pair) = conf.pointer_mut(profile) else {
        return false;
    };
    pair["cert_file_path"] = json!(folder.join("tls.crt"));
    pair["key_file_path"] = json!(folder.join("tls.key"));
    true
}

fn map_plugins(plugins: &mut Value, folder: &Path) {
    let sql = plugins.pointer_mut("/DataStore/0/sql/plugin_data").expect("a data store");
    assert_eq!(sql["database_type"], "sqlite3", "there is no other database here");
    sql["connection_string"] = json!(folder.join("data/datastore.sqlite3"));
    if let Some(disk) = plugins.pointer_mut("/KeyManager/0/disk/plugin_data") {
        disk["keys_path"] = json!(folder.join("data/keys.json"));
    }
}

fn map_cluster(plugins: &mut Value, kubeconfig: &Path) {
    let clusters = plugins.pointer_mut("/NodeAttestor/0/k8s_psat/plugin_data/clusters/0");
    let clusters = clusters.and_then(Value::as_object_mut).expect("clusters whose nodes it knows");
    for cluster in clusters.values_mut() {
        cluster["kube_config_file"] = json!(kubeconfig);
    }
    let bundle = plugins.pointer_mut("/Notifier/0/k8sbundle/plugin_data");
    bundle.expect("a ConfigMap for its bundle")["kube_config_file_path"] = json!(kubeconfig);
}

fn leave_cluster_out(plugins: &mut Value) {
    plugins["NodeAttestor"] = json!([{ "join_token": { "plugin_data": {} } }]);
    plugins.as_object_mut().expect("plugins").remove("Notifier");
}
