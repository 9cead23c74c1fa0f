//! The columns of the built-in kinds.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::documented;
use crate::kinds::{Column, Kind, text};

/// Name of a column and its description: that of a field, or a text. Columns with a plus are shown
/// only with `-o wide`.
type Columns = &'static [(&'static str, &'static str)];

const NAME: (&str, &str) = ("Name", "ObjectMeta.name");
const AGE: (&str, &str) = ("Age", "ObjectMeta.creationTimestamp");
const CREATED: (&str, &str) = ("Created At", "ObjectMeta.creationTimestamp");

const COLUMNS: [(&str, Columns); 12] = [
    ("Namespace", &[NAME, ("Status", "The status of the namespace"), AGE]),
    ("Secret", &[NAME, ("Type", "Secret.type"), ("Data", "Secret.data"), AGE]),
    ("ConfigMap", &[NAME, ("Data", "ConfigMap.data"), AGE]),
    ("ServiceAccount", &[NAME, AGE]),
    ("Role", &[NAME, CREATED]),
    ("ClusterRole", &[NAME, CREATED]),
    ("RoleBinding", &[NAME, ("Role", "RoleBinding.roleRef"), AGE]),
    ("ClusterRoleBinding", &[NAME, ("Role", "ClusterRoleBinding.roleRef"), AGE]),
    (
        "Service",
        &[
            NAME,
            ("Type", "ServiceSpec.type"),
            ("Cluster-IP", "ServiceSpec.clusterIP"),
            ("External-IP", "ServiceSpec.externalIPs"),
            ("Port(s)", "ServiceSpec.ports"),
            AGE,
            ("+Selector", "ServiceSpec.selector"),
        ],
    ),
    ("Lease", &[NAME, ("Holder", "LeaseSpec.holderIdentity"), AGE]),
    (
        "StatefulSet",
        &[
            NAME,
            ("Ready", "Number of the pod with ready state"),
            AGE,
            ("+Containers", "Names of each container in the template."),
            ("+Images", "Images referenced by each container in the template."),
        ],
    ),
    (
        "Event",
        &[
            ("Last Seen", "Event.lastTimestamp"),
            ("Type", "Event.type"),
            ("Reason", "Event.reason"),
            ("Object", "Event.involvedObject"),
            ("+Subobject", "ObjectReference.fieldPath"),
            ("+Source", "Event.source"),
            ("Message", "Event.message"),
            ("+First Seen", "Event.firstTimestamp"),
            ("+Count", "Event.count"),
            ("+Name", "ObjectMeta.name"),
        ],
    ),
];

pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    let all = COLUMNS.iter().find(|(name, _)| *name == kind.kind).map_or(&[][..], |(_, all)| all);
    let column = |(name, place): &(&str, &str)| Column {
        name: name.trim_start_matches('+').to_owned(),
        r#type: "string".into(),
        format: if name.ends_with("Name") { "name".into() } else { String::new() },
        description: if place.contains(' ') { (*place).to_owned() } else { documented(place) },
        priority: i32::from(name.starts_with('+')),
        ..Column::default()
    };
    all.iter().map(column).collect()
}

/// The cells of an object as it is stored.
pub(super) fn of(kind: &Kind, object: &Value, now: DateTime<Utc>) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    let age = since(&object["metadata"]["creationTimestamp"], now);
    let count = |field: &str| object[field].as_object().map_or(0, |map| map.len());
    match kind.kind {
        "Namespace" => vec![name, object["status"]["phase"].clone(), age],
        "Secret" => vec![name, object["type"].clone(), count("data").into(), age],
        "ConfigMap" => vec![name, (count("data") + count("binaryData")).into(), age],
        "Service" => service(object, name, age),
        "Lease" => vec![name, text(object, &["spec", "holderIdentity"]).into(), age],
        "StatefulSet" => stateful_set(object, name, age),
        "Event" => event(object, name, now),
        "Role" | "ClusterRole" => vec![name, object["metadata"]["creationTimestamp"].clone()],
        "RoleBinding" | "ClusterRoleBinding" => {
            let role = ["kind", "name"].map(|field| text(object, &["roleRef", field]));
            vec![name, role.join("/").into(), age]
        }
        _ => vec![name, age],
    }
}

fn since(time: &Value, now: DateTime<Utc>) -> Value {
    let time = time.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    time.map_or("<unknown>".into(), |time| age(time.to_utc(), now).into())
}

/// An age in at most two units, as kubectl prints it.
pub(super) fn age(then: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - then).num_seconds();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let both = |many: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{many}{unit}"),
        rest => format!("{many}{unit}{rest}{smaller}"),
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => both(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => both(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => both(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => both(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(",")
}

fn or_none(text: String) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn service(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let spec = &object["spec"];
    let external = joined(items(&spec["externalIPs"]).filter_map(Value::as_str));
    let external = match text(spec, &["type"]) {
        "ExternalName" => or_none(text(spec, &["externalName"]).to_owned()),
        "LoadBalancer" => {
            let ingress = items(&object["status"]["loadBalancer"]["ingress"]);
            let given = joined(ingress.map(|one| match text(one, &["ip"]) {
                "" => text(one, &["hostname"]),
                ip => ip,
            }));
            match joined([given.as_str(), external.as_str()].into_iter()) {
                none if none.is_empty() => "<pending>".into(),
                all => all.into(),
            }
        }
        _ => or_none(external),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .map(|port| {
            let protocol = match text(port, &["protocol"]) {
                "" => "TCP",
                protocol => protocol,
            };
            match port["nodePort"].as_i64().unwrap_or(0) {
                0 => format!("{}/{protocol}", port["port"]),
                node => format!("{}:{node}/{protocol}", port["port"]),
            }
        })
        .collect();
    let selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let cluster_ip = or_none(text(spec, &["clusterIP"]).to_owned());
    let (ports, selector) = (or_none(ports.join(",")), or_none(selector.join(",")));
    vec![name, spec["type"].clone(), cluster_ip, external, ports, age, selector]
}

fn stateful_set(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ready = object["status"]["readyReplicas"].as_i64().unwrap_or(0);
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(0);
    let containers = || items(&object["spec"]["template"]["spec"]["containers"]);
    let names = joined(containers().map(|one| text(one, &["name"])));
    let images = joined(containers().map(|one| text(one, &["image"])));
    vec![name, format!("{ready}/{wanted}").into(), age, names.into(), images.into()]
}

fn event(object: &Value, name: Value, now: DateTime<Utc>) -> Vec<Value> {
    let or = |time: &Value, other: Value| if time.is_null() { other } else { since(time, now) };
    let first = or(&object["firstTimestamp"], since(&object["eventTime"], now));
    let mut last = or(&object["lastTimestamp"], first.clone());
    let mut count = object["count"].as_i64().filter(|count| *count != 0).unwrap_or(1);
    if let Some(series) = object.get("series").filter(|series| series.is_object()) {
        last = since(&series["lastObservedTime"], now);
        count = series["count"].as_i64().unwrap_or(0);
    }
    let about = &object["involvedObject"];
    let about_kind = text(about, &["kind"]).to_lowercase();
    let target = match text(about, &["name"]) {
        "" => about_kind,
        name => format!("{about_kind}/{name}"),
    };
    let either = |one: &[&str], other: &[&str]| match text(object, one) {
        "" => text(object, other).to_owned(),
        text => text.to_owned(),
    };
    let component = either(&["source", "component"], &["reportingComponent"]);
    let host = either(&["source", "host"], &["reportingInstance"]);
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    vec![
        last,
        object.get("type").cloned().unwrap_or(json!("")),
        object.get("reason").cloned().unwrap_or(json!("")),
        target.into(),
        text(about, &["fieldPath"]).into(),
        source.into(),
        text(object, &["message"]).trim().into(),
        first,
        count.into(),
        name,
    ]
}
