use serde_json::{Value, json};

use super::*;
use crate::{
    demo::authority::Authority,
    inject::decide::marker::Marker,
    names::{INJECTED_ANNOTATION, SECRET_NAME_ANNOTATION},
};

const PAIR: (&str, &str) = ("certificate", "key");

fn route(name: &str, secret: &str, held: bool, reason: Option<&str>) -> Value {
    let marker = Marker::of("1", PAIR.0, PAIR.1).to_string();
    let mut route = json!({
        "metadata": { "name": name, "namespace": "web", "uid": "1", "annotations": {} },
        "spec": { "tls": { "termination": "edge" } },
    });
    if !secret.is_empty() {
        route["metadata"]["annotations"][SECRET_NAME_ANNOTATION] = json!(secret);
    }
    if held {
        route["metadata"]["annotations"][INJECTED_ANNOTATION] = json!(marker);
        route["spec"]["tls"]["certificate"] = json!(PAIR.0);
        route["spec"]["tls"]["key"] = json!(PAIR.1);
    }
    if let Some(reason) = reason {
        let condition = json!({ "type": "Default", "status": "False", "reason": reason });
        route["status"]["certificate"] = json!([condition]);
    }
    route
}

fn seen_at(routes: &[Value], now: DateTime<Utc>) -> Vec<RouteSeen> {
    let read = |route: &Value| {
        let listed: ListedRoute = serde_json::from_str(&route.to_string()).unwrap();
        RouteSeen::of(&listed, now)
    };
    routes.iter().map(read).collect()
}

fn count(routes: &[Value], secrets: Answer<Secrets>) -> RoutesFound {
    RoutesFound::count(&seen_at(routes, Utc::now()), Vec::new(), secrets)
}

fn secret(name: &str, pair: (&str, &str)) -> Secrets {
    HashMap::from([(ObjectRef::new("web", name), Some(Fingerprint::of(pair.0, pair.1)))])
}

fn names(routes: &[ObjectRef]) -> Vec<&str> {
    routes.iter().map(|at| &*at.name).collect()
}

fn reasons(found: &RoutesFound) -> Vec<(&str, Option<&str>)> {
    found.failing.iter().map(|(at, why)| (&*at.name, why.as_deref())).collect()
}

#[test]
fn routes_are_counted_by_what_they_ask_for_and_what_they_hold() {
    let mut owned = route("owned", "shop-tls", false, None);
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": "2", "controller": true,
    }]);
    let routes = [
        route("plain", "", false, Some("NoCertificate")),
        route("good", "shop-tls", true, Some("SecretInjected")),
        route("kept", "shop-tls", true, Some("SecretInvalidKeepingLast")),
        route("empty", "absent", false, Some("SecretNotFound")),
        route("new", "shop-tls", false, None),
        owned,
    ];

    let found = count(&routes, Ok(secret("shop-tls", PAIR)));

    assert_eq!((found.all, found.annotated, found.left_alone), (6, 4, 1));
    assert_eq!((found.injected, found.current.as_ref()), (2, Ok(&2)));
    assert_eq!(names(&found.unreadable), ["good", "kept"], "no certificate at all, to be exact");
    assert_eq!(
        reasons(&found),
        [
            ("kept", Some("SecretInvalidKeepingLast")),
            ("empty", Some("SecretNotFound")),
            ("new", None)
        ]
    );
    let absent = (ObjectRef::new("web", "empty"), "absent".to_owned());
    assert_eq!(found.without_secret, Ok(vec![absent]));
}

#[test]
fn what_was_injected_once_is_not_taken_for_what_the_secret_has_now() {
    let routes = [route("shop", "shop-tls", true, Some("SecretInjected"))];
    let found = count(&routes, Ok(secret("shop-tls", ("renewed", "key"))));
    assert_eq!((found.injected, found.current.as_ref()), (1, Ok(&0)));
    let why = "not the certificate and key of Secret shop-tls";
    assert_eq!(reasons(&found), [("shop", Some(why))]);
}

#[test]
fn without_the_right_to_list_secrets_nothing_is_compared_and_none_is_called_missing() {
    let routes = [route("shop", "shop-tls", true, Some("SecretInjected"))];
    let found = count(&routes, Err(ApiError::Forbidden));
    assert_eq!(found.without_secret, Err(ApiError::Forbidden));
    assert_eq!((found.injected, found.current.as_ref()), (1, Err(&ApiError::Forbidden)));
    assert_eq!(reasons(&found), []);
}

/// A Route that asks, with a certificate for this host.
fn serving(name: &str, host: &str, now: DateTime<Utc>) -> Value {
    let pair = Authority::new("ca", now).unwrap().issue(&[host], now).unwrap();
    let mut route = route(name, "shop-tls", false, None);
    route["spec"]["host"] = json!("shop.example.com");
    route["spec"]["tls"]["certificate"] = json!(pair.certificate);
    route["spec"]["tls"]["key"] = json!(pair.key.expose());
    route
}

#[test]
fn expired_certificates_those_for_another_host_and_refused_routes_are_named() {
    let (long_ago, now) = (Utc::now() - chrono::TimeDelta::days(1000), Utc::now());
    let mut refused = serving("refused", "shop.example.com", now);
    refused["status"]["ingress"] = json!([
        { "routerName": "first", "conditions": [{ "type": "Admitted", "status": "True" }] },
        { "routerName": "sec\u{1b}ond", "conditions": [{
            "type": "Admitted", "status": "False", "reason": "ExtendedValidationFailed",
        }] },
    ]);
    let mut passthrough = serving("passthrough", "other.example.com", long_ago);
    passthrough["spec"]["tls"]["termination"] = json!("passthrough");
    let routes = [
        serving("good", "shop.example.com", now),
        serving("old", "shop.example.com", long_ago),
        serving("other", "other.example.com", now),
        serving("early", "shop.example.com", now + chrono::TimeDelta::days(10)),
        refused,
        passthrough,
    ];

    let found = count(&routes, Err(ApiError::Forbidden));

    assert_eq!(names(&found.expired), ["old"]);
    assert_eq!(names(&found.wrong_host), ["other"]);
    assert_eq!(names(&found.not_yet_valid), ["early"]);
    assert_eq!(names(&found.expiring), [""; 0]);
    let why = "ExtendedValidationFailed, router sec\\u{1b}ond".to_owned();
    assert_eq!(found.refused, [(ObjectRef::new("web", "refused"), why)]);
}

#[test]
fn certificates_of_routes_that_do_not_ask_are_their_owners_business() {
    let mut own = serving("own", "other.example.com", Utc::now());
    own["metadata"]["annotations"] = json!({});
    let found = count(&[own], Ok(Secrets::new()));
    assert_eq!(names(&found.wrong_host), [""; 0]);
}

#[test]
fn a_route_whose_annotation_is_misspelt_is_named_with_it() {
    let mut slip = route("slip", "", false, None);
    slip["metadata"]["annotations"]["route.openshift.io/tls-secret-nam"] = json!("shop-tls");
    let found = count(&[slip, route("good", "shop-tls", false, None)], Ok(Secrets::new()));
    let key = "route.openshift.io/tls-secret-nam".to_owned();
    assert_eq!(found.misspelt, [(ObjectRef::new("web", "slip"), key)]);
    assert_eq!(found.annotated, 1);
}
