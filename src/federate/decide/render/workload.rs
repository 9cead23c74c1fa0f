//! The Service and the StatefulSet of the server.

use serde_json::{Value, json};

use super::{
    CONTROLLER_MANAGER, FEDERATION_PORT, PodUser, RenderContext, SERVER, SERVING_CERT, config,
    serving_cert, set_present,
};
use crate::{
    api::spire_server::{POSTGRES, SpireServerSpec},
    federate::decide::digest,
    names::CONFIG_ANNOTATION,
};

const TLS_VOLUME: &str = "spire-server-tls";
/// Names the Secret that OpenShift's service CA fills.
const SERVING_CERT_ANNOTATION: &str = "service.beta.openshift.io/serving-cert-secret-name";

/// Immutable.
fn selector() -> Value {
    json!({ "app.kubernetes.io/instance": "cluster", "app.kubernetes.io/name": SERVER })
}

/// For agents and the router.
pub fn service(spec: &SpireServerSpec) -> Value {
    let port = |name: &str, port: u16, target: &str| json!({ "name": name, "port": port, "protocol": "TCP", "targetPort": target });
    let mut ports = vec![port("grpc", 443, "grpc"), port("metrics", 9402, "metrics")];
    let mut metadata = json!({ "name": SERVER });
    if spec.federation.is_some() {
        ports.push(port("federation", FEDERATION_PORT, "federation"));
        metadata["annotations"] = json!({ SERVING_CERT_ANNOTATION: SERVING_CERT });
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": { "type": "ClusterIP", "ports": ports, "selector": selector() },
    })
}

/// The server with the controller manager as a sidecar.
pub fn stateful_set(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    let mut labels = json!(spec.labels);
    if let (Some(labels), Some(ours)) = (labels.as_object_mut(), selector().as_object()) {
        labels.extend(ours.clone());
    }
    let mut pod = json!({
        "serviceAccountName": SERVER,
        "shareProcessNamespace": true,
        "securityContext": user(setting),
        "containers": [server(spec, setting), controller_manager(spec, setting)],
        "volumes": volumes(spec),
    });
    let optional = [
        ("affinity", spec.affinity.as_ref().map(|it| pruned(json!(it)))),
        ("tolerations", (!spec.tolerations.is_empty()).then(|| json!(spec.tolerations))),
        ("nodeSelector", (!spec.node_selector.is_empty()).then(|| json!(spec.node_selector))),
    ];
    set_present(&mut pod, optional);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": SERVER },
        "spec": {
            "replicas": 1,
            // Otherwise a Pod that can't start, for example with a wrong image, is never replaced.
            "podManagementPolicy": "Parallel",
            "serviceName": SERVER,
            "selector": { "matchLabels": selector() },
            "template": {
                "metadata": { "labels": labels, "annotations": { CONFIG_ANNOTATION: rollout(spec, setting) } },
                "spec": pod,
            },
            "volumeClaimTemplates": [claim(spec)],
        },
    })
}

/// Keeps placement and resources of the live StatefulSet.
pub fn keep_placement(wanted: &mut Value, live: &Value) {
    const POD: &str = "/spec/template/spec";
    let (Some(wanted), Some(live)) = (wanted.pointer_mut(POD), live.pointer(POD)) else { return };
    for field in ["affinity", "tolerations", "nodeSelector"] {
        keep(wanted, live, field);
    }
    let containers = live["containers"].as_array().into_iter().flatten();
    for container in wanted["containers"].as_array_mut().into_iter().flatten() {
        let same = containers.clone().find(|it| it["name"] == container["name"]);
        keep(container, same.unwrap_or(&Value::Null), "resources");
    }
}

fn keep(wanted: &mut Value, live: &Value, field: &str) {
    if let Some(wanted) = wanted.as_object_mut() {
        wanted.remove(field);
        wanted.extend(live.get(field).map(|it| (field.to_owned(), it.clone())));
    }
}

/// The processes read their configuration once, so each change must restart the Pod.
fn rollout(spec: &SpireServerSpec, setting: &RenderContext) -> String {
    let configs = [config::server(spec, setting), config::controller_manager(spec)];
    digest::digest(&configs.map(|config| config["data"].to_string()).join("\n"))
}

fn server(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    let port =
        |name: &str, port: u16| json!({ "name": name, "containerPort": port, "protocol": "TCP" });
    let mut ports = vec![port("grpc", 8081), port("healthz", 8080), port("metrics", 9402)];
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let mut mounts = vec![
        // For SQLite's temporary files; the rest of the container is read-only.
        mount("spire-server-tmp", "/tmp"),
        mount("spire-server-socket", "/tmp/spire-server/private"),
        json!({ "name": "spire-config", "mountPath": "/run/spire/config", "readOnly": true }),
        mount("spire-data", config::DATA),
    ];
    if let Some(federation) = &spec.federation {
        ports.push(port("federation", FEDERATION_PORT));
        if serving_cert(federation).is_some() {
            mounts.push(
                json!({ "name": TLS_VOLUME, "mountPath": config::SERVER_TLS, "readOnly": true }),
            );
        }
    }
    if spec.datastore.tls_secret_name.is_some() {
        mounts
            .push(json!({ "name": "db-tls", "mountPath": config::DATABASE_TLS, "readOnly": true }));
    }
    let probe = |path: &str, every: u16| json!({ "httpGet": { "path": path, "port": "healthz" }, "periodSeconds": every });
    let mut container = json!({
        "name": SERVER,
        "image": setting.server_image,
        // The image's entrypoint is `spire-server run`.
        "args": ["-config", "/run/spire/config/server.conf"],
        "ports": ports,
        "volumeMounts": mounts,
        "livenessProbe": probe("/live", 60),
        "readinessProbe": probe("/ready", 5),
        "securityContext": security(),
    });
    let environment = Some(setting.proxy.environment()).filter(|it| !it.is_empty());
    let optional = [("env", environment.map(Value::from)), ("resources", resources(spec))];
    set_present(&mut container, optional);
    container
}

fn resources(spec: &SpireServerSpec) -> Option<Value> {
    spec.resources.as_ref().map(|it| pruned(json!(it)))
}

fn controller_manager(spec: &SpireServerSpec, setting: &RenderContext) -> Value {
    let mut container = json!({
        "name": CONTROLLER_MANAGER,
        "image": setting.controller_manager_image,
        "args": ["--config=/run/spire/controller-manager/controller-manager-config.yaml"],
        "env": [{ "name": "ENABLE_WEBHOOKS", "value": "false" }],
        "ports": [{ "name": "cm-healthz", "containerPort": 8083, "protocol": "TCP" }],
        "volumeMounts": [
            { "name": "spire-server-socket", "mountPath": "/tmp/spire-server/private", "readOnly": true },
            { "name": "controller-manager-config", "mountPath": "/run/spire/controller-manager", "readOnly": true },
        ],
        "livenessProbe": { "httpGet": { "path": "/healthz", "port": "cm-healthz" } },
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "cm-healthz" } },
        "securityContext": security(),
    });
    set_present(&mut container, [("resources", resources(spec))]);
    container
}

fn volumes(spec: &SpireServerSpec) -> Vec<Value> {
    let secret =
        |name: &str, secret: &str| json!({ "name": name, "secret": { "secretName": secret } });
    let mut volumes = vec![
        json!({ "name": "spire-server-tmp", "emptyDir": {} }),
        json!({ "name": "spire-server-socket", "emptyDir": {} }),
        json!({ "name": "spire-config", "configMap": { "name": SERVER } }),
        json!({ "name": "controller-manager-config", "configMap": { "name": CONTROLLER_MANAGER } }),
    ];
    if spec.federation.as_ref().is_some_and(|it| serving_cert(it).is_some()) {
        volumes.push(secret(TLS_VOLUME, SERVING_CERT));
    }
    if let Some(name) = &spec.datastore.tls_secret_name {
        let mut volume = secret("db-tls", name);
        if spec.datastore.database_type == POSTGRES {
            // Its driver refuses a key that everybody can read. The Pod's group may.
            volume["secret"]["defaultMode"] = json!(0o440);
        }
        volumes.push(volume);
    }
    volumes
}

fn claim(spec: &SpireServerSpec) -> Value {
    let persistence = &spec.persistence;
    let mut claim = json!({
        "metadata": { "name": "spire-data" },
        "spec": {
            "accessModes": [persistence.access_mode],
            "resources": { "requests": { "storage": persistence.size } },
        },
    });
    if let Some(class) = persistence.storage_class.as_ref().filter(|class| !class.is_empty()) {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

/// Removes the empty lists and maps that the API server drops, which would be written again and again.
/// Other empty objects stay, because they mean something: a selector of everything, a term that no node
/// meets.
fn pruned(value: Value) -> Value {
    const MAPS: [&str; 3] = ["matchLabels", "limits", "requests"];
    let is_dropped = |name: &str, value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&name),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, value)| !is_dropped(name, value));
            kept.map(|(name, value)| (name, pruned(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        value => value,
    }
}

fn user(setting: &RenderContext) -> Value {
    // By default the kubelet makes all files of the volume readable by the group at every start, including
    // the server's private keys.
    let mut context = json!({ "fsGroupChangePolicy": "OnRootMismatch" });
    if let PodUser::Id(id) = setting.pod_user.unwrap_or_default() {
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            context[field] = json!(id);
        }
    }
    context
}

fn security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}
