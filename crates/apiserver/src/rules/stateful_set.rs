//! StatefulSets. Only the required fields of the Pod template are validated.

use serde_json::{Value, json};

use crate::{api_error::Cause, kinds::text, name_rules};

/// Fields that may change after creation.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn or(object: &mut Value, field: &str, value: Value) {
    if object.get(field).is_none() {
        object[field] = value;
    }
}

pub(super) fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    or(spec, "podManagementPolicy", json!("OrderedReady"));
    or(spec, "replicas", json!(1));
    or(spec, "revisionHistoryLimit", json!(10));
    let strategy = &mut spec["updateStrategy"];
    if text(strategy, &["type"]).is_empty() {
        *strategy = json!({ "type": "RollingUpdate", "rollingUpdate": {} });
    }
    if let Some(rolling) = strategy.get_mut("rollingUpdate") {
        or(rolling, "partition", json!(0));
    }
    or(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    or(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenDeleted", json!("Retain"));
    or(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenScaled", json!("Retain"));
    default_pod(&mut spec["template"]["spec"]);
}

fn default_pod(pod: &mut Value) {
    or(pod, "dnsPolicy", json!("ClusterFirst"));
    or(pod, "restartPolicy", json!("Always"));
    or(pod, "securityContext", json!({}));
    or(pod, "terminationGracePeriodSeconds", json!(30));
    or(pod, "schedulerName", json!("default-scheduler"));
    // The older field has the same value.
    if let Some(account) = pod.get("serviceAccountName").cloned() {
        pod["serviceAccount"] = account;
    }
    for list in ["containers", "initContainers"] {
        let containers = pod.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(default_container);
    }
}

fn default_container(container: &mut Value) {
    let image = text(container, &["image"]);
    let name = image.rsplit('/').next().unwrap_or_default();
    let fixed = image.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    or(container, "imagePullPolicy", json!(if fixed { "IfNotPresent" } else { "Always" }));
    or(container, "terminationMessagePath", json!("/dev/termination-log"));
    or(container, "terminationMessagePolicy", json!("File"));
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        or(port, "protocol", json!("TCP"));
    }
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &object["spec"];
    let wanted = &spec["selector"]["matchLabels"];
    let labels = &spec["template"]["metadata"]["labels"];
    match wanted.as_object().filter(|wanted| !wanted.is_empty()) {
        None if spec["selector"]["matchExpressions"].is_array() => {}
        None => {
            causes.push(Cause::required("spec.selector", ""));
            let why = "`selector` does not match template `labels`";
            causes.push(Cause::invalid("spec.template.metadata.labels", "", why));
        }
        Some(wanted) => {
            if wanted.iter().any(|(key, value)| labels.get(key) != Some(value)) {
                let why = "`selector` does not match template `labels`";
                causes.push(Cause::invalid("spec.template.metadata.labels", "", why));
            }
        }
    }
    if let Some(replicas) = spec["replicas"].as_i64().filter(|number| *number < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &replicas.to_string(), why));
    }
    validate_containers(&spec["template"]["spec"]["containers"], &mut causes);
    causes
}

fn validate_containers(containers: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "spec.template.spec.containers";
    let containers = containers.as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        causes.push(Cause::required(PATH, ""));
    }
    for (at, container) in containers.iter().enumerate() {
        let name = text(container, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{PATH}[{at}].name"), ""));
        } else {
            for why in name_rules::label(name) {
                causes.push(Cause::invalid(
                    format!("{PATH}[{at}].name"),
                    &format!("{name:?}"),
                    why,
                ));
            }
        }
        if text(container, &["image"]).is_empty() {
            causes.push(Cause::required(format!("{PATH}[{at}].image"), ""));
        }
    }
}

pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes = validate(object);
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !MUTABLE.contains(&name.as_str()));
        }
        spec
    };
    if fixed(object) != fixed(current) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        causes.push(Cause::forbidden("spec", why));
    }
    causes
}
