//! `.status.ingress` as OpenShift's router writes it.
//!
//! The router writes the whole status from a type that has only `ingress`, so every write loses
//! other fields such as `.status.certificate`. The same happens here.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::table::{Admission, Entry};

/// This router's name.
pub const ROUTER_NAME: &str = "default";
/// Target of a CNAME.
const CANONICAL_HOST: &str = "router-default.apps.stack.test";

/// The Route to PUT to `status`, unless its status is the same already.
pub fn replacement(entry: &Entry, admission: &Admission, now: DateTime<Utc>) -> Option<Value> {
    let mine = |ingress: &&Value| ingress["routerName"] == ROUTER_NAME;
    let ingress = &entry.route.status.ingress;
    let standing = ingress.iter().find(mine);
    let wanted = ingress_of(entry, admission, standing, now);
    if standing == Some(&wanted) {
        return None;
    }
    let others = ingress.iter().filter(|ingress| !mine(ingress)).cloned();
    let ingress: Vec<Value> = others.chain([wanted]).collect();
    Some(json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {
            "namespace": entry.at.namespace,
            "name": entry.at.name,
            "resourceVersion": entry.route.metadata.resource_version,
        },
        "status": { "ingress": ingress },
    }))
}

fn ingress_of(
    entry: &Entry,
    admission: &Admission,
    standing: Option<&Value>,
    now: DateTime<Utc>,
) -> Value {
    let spec = &entry.route.spec;
    let mut ingress = json!({
        "routerName": ROUTER_NAME,
        "routerCanonicalHostname": CANONICAL_HOST,
        "wildcardPolicy": if spec.is_wildcard() { "Subdomain" } else { "None" },
        "conditions": [condition(admission, standing, now)],
    });
    if !spec.host.is_empty() {
        ingress["host"] = json!(spec.host);
    }
    ingress
}

/// lastTransitionTime changes with the status, not with the message.
fn condition(admission: &Admission, standing: Option<&Value>, now: DateTime<Utc>) -> Value {
    let mut condition = match admission {
        Admission::Admitted => json!({ "status": "True" }),
        Admission::Refused { reason, message } => {
            json!({ "status": "False", "reason": reason, "message": message })
        }
    };
    condition["type"] = json!("Admitted");
    let before = standing.map(|ingress| &ingress["conditions"][0]);
    let since = before
        .filter(|before| before["type"] == "Admitted" && before["status"] == condition["status"])
        .and_then(|before| before["lastTransitionTime"].as_str());
    condition["lastTransitionTime"] = match since {
        Some(since) => json!(since),
        None => json!(now.to_rfc3339_opts(SecondsFormat::Secs, true)),
    };
    condition
}
