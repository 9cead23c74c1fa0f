//! Services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{finalizer_names, remove};
use crate::{api_error::Cause, kinds::text, name_rules, store};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    let or = |spec: &mut Value, field: &str, value: Value| {
        if spec.get(field).is_none() {
            spec[field] = value;
        }
    };
    or(spec, "sessionAffinity", json!("None"));
    match text(spec, &["sessionAffinity"]) {
        "None" => remove(spec, "sessionAffinityConfig"),
        "ClientIP" => {
            or(spec, "sessionAffinityConfig", json!({ "clientIP": { "timeoutSeconds": 10800 } }));
        }
        _ => {}
    }
    or(spec, "type", json!("ClusterIP"));
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        or(port, "protocol", json!("TCP"));
        if matches!(&port["targetPort"], Value::Null)
            || port["targetPort"] == 0
            || port["targetPort"] == ""
        {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = text(spec, &["type"]).to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        or(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind != "ExternalName" {
        or(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        or(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
}

/// Keeps addresses that the server assigned if the client omits them.
pub(super) fn prepare_update(object: &mut Value, current: &Value) {
    let (new, old) = (text(object, &["spec", "type"]), text(current, &["spec", "type"]));
    if new == "ExternalName" || old == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if object["spec"].get(field).is_none()
            && let Some(value) = current["spec"].get(field)
        {
            object["spec"][field] = value.clone();
        }
    }
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &object["spec"];
    let kind = text(spec, &["type"]);
    if !TYPES.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &format!("{kind:?}"), &TYPES));
    }
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let headless = text(spec, &["clusterIP"]) == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(spec, &["externalName"]).is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    validate_ports(ports, &mut causes);
    store::validate_labels(&spec["selector"], "spec.selector", &mut causes);
    let affinity = text(spec, &["sessionAffinity"]);
    if !matches!(affinity, "None" | "ClientIP") {
        let known = ["ClientIP", "None"];
        causes.push(Cause::unsupported("spec.sessionAffinity", &format!("{affinity:?}"), &known));
    }
    causes
}

fn validate_ports(ports: &[Value], causes: &mut Vec<Cause>) {
    let (mut seen_names, mut seen_ports) = (HashSet::new(), HashSet::new());
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = text(port, &["name"]);
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else if !name.is_empty() {
            for why in name_rules::label(name) {
                causes.push(Cause::invalid(format!("{path}.name"), &format!("{name:?}"), why));
            }
            if !seen_names.insert(name) {
                causes.push(Cause::duplicate(format!("{path}.name"), &format!("{name:?}")));
            }
        }
        let protocol = text(port, &["protocol"]);
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            let (shown, known) = (format!("{protocol:?}"), ["SCTP", "TCP", "UDP"]);
            causes.push(Cause::unsupported(format!("{path}.protocol"), &shown, &known));
        }
        for field in ["port", "targetPort"] {
            if let Some(number) =
                port[field].as_i64().filter(|number| !(1..=65535).contains(number))
            {
                let why = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("{path}.{field}"), &number.to_string(), why));
            }
        }
        if !seen_ports.insert((protocol, port["port"].as_i64())) {
            causes.push(Cause::duplicate(path, ""));
        }
    }
}

pub(super) fn validate_update(object: &Value, current: &Value) -> Vec<Cause> {
    let mut causes = validate(object);
    let same_type =
        object["spec"]["type"] != "ExternalName" && current["spec"]["type"] != "ExternalName";
    let (new, old) = (text(object, &["spec", "clusterIP"]), text(current, &["spec", "clusterIP"]));
    if same_type && !old.is_empty() && new != old {
        let why = "may not change once set";
        causes.push(Cause::invalid("spec.clusterIPs[0]", &format!("{new:?}"), why));
    }
    causes.extend(finalizer_names(&object["metadata"]["finalizers"], "metadata.finalizers"));
    causes
}
