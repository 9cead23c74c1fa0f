//! `.status.ingress`, as OpenShift's router keeps it.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use testkit::router::plan::{Admission, At, Entry, offer, status};

use crate::router::route;

fn noon() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn entry(ingress: Value) -> Entry {
    let mut route = route("shop", json!({ "termination": "edge" }));
    route.status.ingress = serde_json::from_value(ingress).expect("a list");
    let at = At { namespace: "web".to_owned(), name: "shop".to_owned() };
    let offer = offer(route.spec.tls.as_ref());
    Entry { at, route, offer }
}

fn refused(message: &str) -> Admission {
    Admission::Refused { reason: "ExtendedValidationFailed", message: message.to_owned() }
}

#[test]
fn the_whole_status_is_replaced_by_what_a_router_knows_of() {
    let replacement = status::replacement(&entry(json!([])), &Admission::Admitted, noon());
    let expected = json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": { "namespace": "web", "name": "shop", "resourceVersion": "7" },
        "status": { "ingress": [{
            "host": "shop.example.com",
            "routerName": "default",
            "routerCanonicalHostname": "router-default.apps.stack.test",
            "wildcardPolicy": "None",
            "conditions": [{
                "type": "Admitted",
                "status": "True",
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            }],
        }] },
    });
    assert_eq!(replacement, Some(expected));
}

#[test]
fn what_is_said_is_not_said_again() {
    let said = status::replacement(&entry(json!([])), &refused("no key"), noon()).expect("news");
    let entry = entry(said["status"]["ingress"].clone());
    let later = noon() + TimeDelta::hours(1);
    assert_eq!(status::replacement(&entry, &refused("no key"), later), None);
}

#[test]
fn the_time_moves_with_the_status_and_not_with_the_words() {
    let said = status::replacement(&entry(json!([])), &refused("no key"), noon()).expect("news");
    let entry = entry(said["status"]["ingress"].clone());
    let time = |admission: &Admission| {
        let replacement =
            status::replacement(&entry, admission, noon() + TimeDelta::hours(1)).expect("news");
        replacement["status"]["ingress"][0]["conditions"][0]["lastTransitionTime"].clone()
    };
    assert_eq!(time(&refused("another key")), "2026-03-01T12:00:00Z");
    assert_eq!(time(&Admission::Admitted), "2026-03-01T13:00:00Z");
}

#[test]
fn what_other_routers_say_stays() {
    let other = json!({ "routerName": "other", "host": "shop.example.com", "extra": [1] });
    let said = status::replacement(&entry(json!([other])), &Admission::Admitted, noon());
    let said = said.expect("news");
    let ingress = said["status"]["ingress"].as_array().expect("a list");
    assert_eq!((ingress.len(), &ingress[0]), (2, &other));
}
