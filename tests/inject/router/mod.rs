//! The stack's router (`testkit::router`): what it makes of Routes, and what HAProxy is told.

mod offers;
mod rendered;
mod statuses;
mod tables;

use serde_json::{Value, json};

use testkit::router::plan::Route;

/// A Route of namespace `web` whose host is its name below example.com.
fn route(name: &str, tls: Value) -> Route {
    route_in("web", name, &format!("{name}.example.com"), tls)
}

fn route_in(namespace: &str, name: &str, host: &str, tls: Value) -> Route {
    let mut route = json!({
        "metadata": { "namespace": namespace, "name": name, "resourceVersion": "7" },
        "spec": { "host": host, "to": { "kind": "Service", "name": "backend" } },
    });
    if !tls.is_null() {
        route["spec"]["tls"] = tls;
    }
    serde_json::from_value(route).expect("a Route")
}

/// The same, made so many seconds after the first.
fn aged(mut route: Route, seconds: i64) -> Route {
    let time = json!(format!("2026-03-01T12:00:{seconds:02}Z"));
    route.metadata.creation_timestamp = serde_json::from_value(time).expect("a time");
    route
}
