//! The API as clients see it.

use chrono::{DateTime, Utc};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body as ClientBody;
use serde_json::{Value, json};
use tower::Service;

use super::*;
use crate::testing::KINDS;

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn server() -> ApiServer {
    let server = ApiServer::new("test", Store::new(&KINDS, 1000, 7), noon);
    server.with(|store| {
        let web = json!({ "metadata": { "name": "web" } });
        store.create(kinds::namespace(), "", web, &mut Call::at(noon())).unwrap();
    });
    server
}

const ROUTES: &str = "/apis/route.openshift.io/v1/namespaces/web/routes";

fn route(name: &str) -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": name },
        "spec": { "to": { "name": "shop" } },
    })
}

fn ask(server: &ApiServer, method: Method, path: &str, body: Value) -> (u16, Value) {
    server.request(method, path, &body)
}

fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    ask(server, Method::GET, path, Value::Null)
}

/// The lines of a watch until it ends.
async fn watch(server: &ApiServer, path: &str) -> Vec<Value> {
    let request = Request::get(path).body(ClientBody::empty()).unwrap();
    let response = server.clone().call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn types_and_names(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            (event["type"].as_str().unwrap(), name)
        })
        .collect()
}

#[test]
fn a_route_is_created_read_changed_and_deleted() {
    let server = server();
    let (code, created) = ask(&server, Method::POST, ROUTES, route("shop"));
    assert_eq!((code, &created["spec"]["to"]["weight"]), (201, &json!(100)), "{created}");
    let path = format!("{ROUTES}/shop");
    let patch = json!({ "spec": { "host": "shop.example.com" } });
    let (code, patched) = ask(&server, Method::PATCH, &path, patch);
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(2)));
    let outdated =
        json!({ "metadata": { "resourceVersion": created["metadata"]["resourceVersion"] } });
    let (code, status) = ask(&server, Method::PATCH, &path, outdated);
    assert_eq!((code, status["reason"].as_str()), (409, Some("Conflict")));
    let (code, _) = ask(&server, Method::DELETE, &path, Value::Null);
    assert_eq!((code, get(&server, &path).0), (200, 404));
}

#[test]
fn a_write_that_changes_nothing_keeps_the_version() {
    let server = server();
    let (_, created) = ask(&server, Method::POST, ROUTES, route("shop"));
    let version = server.with(|store| store.version());
    let nothing = json!({ "spec": { "to": { "name": "shop" } } });
    let (_, patched) = ask(&server, Method::PATCH, &format!("{ROUTES}/shop"), nothing);
    assert_eq!(patched, created);
    assert_eq!(server.with(|store| store.version()), version);
}

#[test]
fn the_status_is_written_through_its_own_path_and_nothing_else_is() {
    let server = server();
    ask(&server, Method::POST, ROUTES, route("shop"));
    let both =
        json!({ "spec": { "host": "a.example" }, "status": { "ingress": [{ "host": "b" }] } });
    let (_, route) = ask(&server, Method::PATCH, &format!("{ROUTES}/shop/status"), both.clone());
    assert_eq!((route["spec"].get("host"), &route["status"]), (None, &both["status"]));
    assert_eq!(route["metadata"]["generation"], 1);
    let other = json!({ "status": { "ingress": [] } });
    let (_, route) = ask(&server, Method::PATCH, &format!("{ROUTES}/shop"), other);
    assert_eq!(route["status"], both["status"]);
}

#[test]
fn a_list_comes_in_pages_that_show_one_moment() {
    let server = server();
    for name in ["a", "b", "c"] {
        ask(&server, Method::POST, ROUTES, route(name));
    }
    let (_, first) = get(&server, &format!("{ROUTES}?limit=2"));
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    ask(&server, Method::DELETE, &format!("{ROUTES}/c"), Value::Null);
    ask(&server, Method::POST, ROUTES, route("d"));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&server, &format!("{ROUTES}?limit=2&continue={token}"));
    let names: Vec<_> = second["items"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(names[0]["metadata"]["name"], "c");
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happened_since_and_what_happens() {
    let server = server();
    let (_, list) = get(&server, ROUTES);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    ask(&server, Method::POST, ROUTES, route("early"));
    let path = format!("{ROUTES}?watch=true&resourceVersion={version}&timeoutSeconds=20");
    let path = format!("{path}&allowWatchBookmarks=true");
    let late = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        ask(&server, Method::POST, ROUTES, route("late"));
        ask(&server, Method::DELETE, &format!("{ROUTES}/early"), Value::Null);
    };
    let (events, ()) = tokio::join!(watch(&server, &path), late);
    let expected = [("ADDED", "early"), ("ADDED", "late"), ("DELETED", "early"), ("BOOKMARK", "")];
    assert_eq!(types_and_names(&events), expected);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_forgotten_gets_a_410_and_open_ones_go_on() {
    let server = server();
    let old = server.with(|store| store.version());
    let open = watch(&server, "/api/v1/secrets?watch=true&timeoutSeconds=9");
    let others = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let secret = json!({ "metadata": { "name": "one" } });
        ask(&server, Method::POST, "/api/v1/namespaces/web/secrets", secret);
        server.with(|store| store.compact(store.version()));
        let path = format!("/api/v1/secrets?watch=true&resourceVersion={old}");
        let events = watch(&server, &path).await;
        assert_eq!(events.len(), 1);
        assert_eq!(
            (&events[0]["type"], &events[0]["object"]["code"]),
            (&json!("ERROR"), &json!(410))
        );
    };
    let (events, ()) = tokio::join!(open, others);
    assert_eq!(types_and_names(&events), [("ADDED", "one")]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_sent_as_deleted() {
    let server = server();
    let secrets = "/api/v1/namespaces/web/secrets";
    let labelled = |value| json!({ "metadata": { "name": "one", "labels": { "tier": value } } });
    let changes = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        ask(&server, Method::POST, secrets, labelled("front"));
        ask(&server, Method::PATCH, &format!("{secrets}/one"), labelled("back"));
    };
    let path = format!("{secrets}?watch=1&labelSelector=tier%3Dfront&timeoutSeconds=5");
    let (events, ()) = tokio::join!(watch(&server, &path), changes);
    assert_eq!(types_and_names(&events), [("ADDED", "one"), ("DELETED", "one")]);
}

#[test]
fn events_of_both_groups_are_the_same_objects() {
    let server = server();
    let event = json!({
        "metadata": { "name": "e" }, "regarding": { "kind": "Route", "name": "shop", "namespace": "web" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "note": "look", "action": "Look", "reason": "Because",
        "type": "Normal", "reportingController": "trustplane.dev/test", "reportingInstance": "a",
    });
    let newer = "/apis/events.k8s.io/v1/namespaces/web/events";
    let (code, created) = ask(&server, Method::POST, newer, event);
    assert_eq!(
        (code, &created["eventTime"]),
        (201, &json!("2026-01-01T00:00:00.000000Z")),
        "{created}"
    );
    let (_, old) = get(&server, "/api/v1/namespaces/web/events/e");
    assert_eq!((&old["message"], &old["involvedObject"]["name"]), (&json!("look"), &json!("shop")));
    let (_, list) = get(&server, &format!("{newer}?fieldSelector=regarding.name%3Dshop"));
    assert_eq!(list["items"][0]["note"], "look");
    assert_eq!(list["items"][0].get("apiVersion"), None);
}

#[test]
fn printing_changes_of_a_secret_shows_no_key() {
    let server = server();
    let key = "c2VjcmV0IGtleSBvZiB0aGlzIHRlc3Q=";
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "shop-tls" },
        "data": { "tls.key": key },
    });
    let before = server.with(|store| store.version());
    assert_eq!(ask(&server, Method::POST, "/api/v1/namespaces/web/secrets", secret).0, 201);
    let shown = server.with(|store| {
        let changes: Vec<_> = store.changes_since(before).unwrap().cloned().collect();
        format!("{changes:?}")
    });
    assert!(shown.contains("shop-tls"), "nothing is shown");
    assert!(!shown.contains(key), "the key of a Secret stands in `Debug` of store::Change");
}
