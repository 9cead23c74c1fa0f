//! `.status.ingress`, as a router writes it: one entry per router, written only if it changed.
//! Pure.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::table::{Admission, Entry};

/// The edge's router name.
pub const ROUTER_NAME: &str = "sandbox";
/// The target for CNAME records.
const CANONICAL_HOST: &str = "edge.sandbox.localhost";

/// The patch for this admission, unless the status has it already.
///
/// Routers replace the whole status and drop fields that they don't know. This is a merge patch of
/// `ingress` alone, so `.status.certificate` stays.
pub fn patch(entry: &Entry, admission: &Admission, now: DateTime<Utc>) -> Option<Value> {
    let mine = |ingress: &&Value| ingress["routerName"] == ROUTER_NAME;
    let standing = entry.ingress.iter().find(mine);
    let wanted = ingress(entry, admission, standing, now);
    if standing == Some(&wanted) {
        return None;
    }
    let others = entry.ingress.iter().filter(|ingress| !mine(ingress)).cloned();
    let ingress: Vec<Value> = others.chain([wanted]).collect();
    Some(json!({
        "metadata": { "resourceVersion": entry.version },
        "status": { "ingress": ingress },
    }))
}

fn ingress(
    entry: &Entry,
    admission: &Admission,
    standing: Option<&Value>,
    now: DateTime<Utc>,
) -> Value {
    let policy = if entry.spec.is_wildcard() { "Subdomain" } else { "None" };
    let mut ingress = json!({
        "routerName": ROUTER_NAME,
        "routerCanonicalHostname": CANONICAL_HOST,
        "wildcardPolicy": policy,
        "conditions": [condition(admission, standing, now)],
    });
    if let Some(host) = entry.spec.host.as_deref().filter(|host| !host.is_empty()) {
        ingress["host"] = json!(host);
    }
    ingress
}

fn condition(admission: &Admission, standing: Option<&Value>, now: DateTime<Utc>) -> Value {
    let mut condition = match admission {
        Admission::Admitted { remark: None } => json!({ "status": "True" }),
        Admission::Admitted { remark: Some(remark) } => {
            json!({ "status": "True", "message": remark })
        }
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

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::demo::edge::route::Route;

    fn noon() -> DateTime<Utc> {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn entry(ingress: Value) -> Entry {
        let route: Route = serde_json::from_value(json!({
            "metadata": { "namespace": "web", "name": "shop", "resourceVersion": "7" },
            "spec": { "host": "shop.example.com", "to": { "name": "shop" } },
            "status": { "ingress": ingress },
        }))
        .unwrap();
        Entry::new(route, Err("not looked at here".to_owned()))
    }

    fn admitted() -> Admission {
        Admission::Admitted { remark: None }
    }

    fn refused(message: &str) -> Admission {
        Admission::Refused { reason: "ExtendedValidationFailed", message: message.to_owned() }
    }

    #[test]
    fn a_route_without_status_gets_an_entry_as_a_router_writes_it() {
        let patch = patch(&entry(json!([])), &admitted(), noon()).unwrap();
        let expected = json!({
            "metadata": { "resourceVersion": "7" },
            "status": { "ingress": [{
                "host": "shop.example.com",
                "routerName": "sandbox",
                "routerCanonicalHostname": "edge.sandbox.localhost",
                "wildcardPolicy": "None",
                "conditions": [
                    { "type": "Admitted", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z" },
                ],
            }] },
        });
        assert_eq!(patch, expected);
    }

    #[test]
    fn an_unchanged_status_is_not_written_again() {
        let written = patch(&entry(json!([])), &refused("no key"), noon()).unwrap();
        let entry = entry(written["status"]["ingress"].clone());
        assert_eq!(patch(&entry, &refused("no key"), noon() + TimeDelta::hours(1)), None);
    }

    #[test]
    fn the_time_moves_with_the_status_and_not_with_the_words() {
        let written = patch(&entry(json!([])), &refused("no key"), noon()).unwrap();
        let entry = entry(written["status"]["ingress"].clone());
        let later = noon() + TimeDelta::hours(1);
        let time = |admission: &Admission| {
            let patch = patch(&entry, admission, later).unwrap();
            patch["status"]["ingress"][0]["conditions"][0]["lastTransitionTime"].clone()
        };
        assert_eq!(time(&refused("another key")), "2026-03-01T12:00:00Z");
        assert_eq!(time(&admitted()), "2026-03-01T13:00:00Z");
    }

    #[test]
    fn entries_of_other_routers_stay() {
        let other = json!({ "routerName": "other", "host": "shop.example.com", "extra": [1] });
        let patch = patch(&entry(json!([other])), &admitted(), noon()).unwrap();
        let ingress = patch["status"]["ingress"].as_array().unwrap();
        assert_eq!((ingress.len(), &ingress[0]), (2, &other));
    }
}
