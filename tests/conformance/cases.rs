//! Cases that random calls rarely produce: limits, ends of watches, versions that are gone or not
//! yet there, other formats of an answer.

use serde_json::{Value, json};

use crate::call::{Body, Call};
use crate::spire;

const SECRETS: &str = "/api/v1/namespaces/${a}/secrets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/${a}/configmaps";
const ROUTES: &str = "/apis/route.openshift.io/v1/namespaces/${a}/routes";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/${a}/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/${a}/leases";

/// All cases, each in its own namespaces.
pub fn scenarios() -> Vec<(&'static str, Vec<Call>)> {
    vec![
        ("objects can be too large", too_large()),
        ("a watch ends when its time is up", ending_watch()),
        (
            "a watch from long ago is told so",
            vec![Call::watch(ROUTES).with("resourceVersion", "1")],
        ),
        ("a version that is not there yet", from_the_future()),
        ("other forms of an answer", forms()),
        ("pages show what was there at the first", pages()),
        ("objects enter and leave what a watch selects", entering_and_leaving()),
        ("a Lease as controllers use it", lease()),
        ("an Event as controllers use it", event()),
        ("a Route as controllers use it", route()),
        ("namespaces and their finalizers", namespaces()),
        ("bodies of other kinds", lists_as_bodies()),
        ("whole numbers may have a fraction of zero", whole_numbers()),
        ("the kinds of the SPIRE controller manager", spire::calls()),
    ]
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn with(name: &str, field: &str, value: Value) -> Value {
    let mut object = named(name);
    object[field] = value;
    object
}

fn too_large() -> Vec<Call> {
    let annotated =
        json!({ "metadata": { "name": "d", "annotations": { "a": "x".repeat(263_000) } } });
    vec![
        Call::post(CONFIG_MAPS, with("a", "data", json!({ "a": "x".repeat(1_048_577) }))),
        Call::post(CONFIG_MAPS, with("b", "data", json!({ "a": "x".repeat(1_048_570) }))),
        Call::post(SECRETS, with("a", "stringData", json!({ "a": "x".repeat(1_048_577) }))),
        Call::post(SECRETS, with("b", "stringData", json!({ "a": "x".repeat(1_048_576) }))),
        Call::post(CONFIG_MAPS, annotated),
        Call::post(CONFIG_MAPS, with("c", "data", json!({ "a": "x".repeat(3_200_000) }))),
    ]
}

fn ending_watch() -> Vec<Call> {
    vec![
        Call::watch(SECRETS).with("timeoutSeconds", "1"),
        Call::post(SECRETS, named("a")),
        // Takes more than a second, so that the watch is over when it is compared.
        Call::get(SECRETS)
            .with("resourceVersion", "99999999")
            .with("resourceVersionMatch", "NotOlderThan"),
    ]
}

fn from_the_future() -> Vec<Call> {
    vec![
        Call::get(SECRETS).with("resourceVersion", "99999999"),
        Call::get(SECRETS)
            .with("resourceVersion", "99999999")
            .with("resourceVersionMatch", "Exact"),
        Call::get(format!("{SECRETS}/a")).with("resourceVersion", "99999999"),
    ]
}

fn forms() -> Vec<Call> {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut calls = vec![
        Call::post(SECRETS, with("a", "data", json!({ "a": "eA==", "b": "eQ==" }))),
        Call::post(CONFIG_MAPS, with("a", "data", json!({ "a": "x" }))),
        Call::post(LEASES, with("a", "spec", json!({ "holderIdentity": "one" }))),
        Call::post(
            ROUTES,
            json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": "a" }, "spec": { "host": "a.example.com", "to": { "name": "web" }, "tls": {} } }),
        ),
    ];
    for collection in [SECRETS, CONFIG_MAPS, LEASES, ROUTES, "/api/v1/namespaces"] {
        calls.push(Call::get(collection).header("accept", table));
    }
    for object in
        [format!("{SECRETS}/a"), format!("{ROUTES}/a"), "/api/v1/namespaces/${a}".to_owned()]
    {
        calls.push(Call::get(object).header("accept", table));
    }
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let metadata_list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for collection in [SECRETS, ROUTES] {
        calls.push(Call::get(collection).header("accept", metadata_list));
        calls.push(Call::get(format!("{collection}/a")).header("accept", metadata));
        calls.push(Call::watch(collection).header("accept", metadata));
        calls.push(Call::get(collection).header("accept", metadata));
        calls.push(Call::get(format!("{collection}/a")).header("accept", metadata_list));
    }
    calls.push(Call::get(format!("{SECRETS}/none")).header("accept", table));
    calls.push(Call::get(SECRETS).header("accept", "application/json;as=Table;v=v9;g=meta.k8s.io"));
    calls
}

fn pages() -> Vec<Call> {
    let mut calls: Vec<_> =
        ["a", "b", "c", "d"].map(|name| Call::post(SECRETS, named(name))).into();
    calls.extend([
        Call::get(SECRETS).with("limit", "2"),
        Call::delete(format!("{SECRETS}/c")),
        Call::post(SECRETS, named("b2")),
        Call::get(SECRETS).with("limit", "1").with("continue", format!("${{continue {SECRETS}}}")),
        Call::get(SECRETS).with("limit", "5").with("continue", format!("${{continue {SECRETS}}}")),
        Call::get(SECRETS),
    ]);
    calls
}

fn entering_and_leaving() -> Vec<Call> {
    let object = format!("{CONFIG_MAPS}/a");
    let label = |value: Value| {
        Call::merge(object.clone(), json!({ "metadata": { "labels": { "app": value } } }))
    };
    vec![
        Call::watch(CONFIG_MAPS).with("labelSelector", "app=web"),
        Call::watch(CONFIG_MAPS).with("labelSelector", "app!=web"),
        Call::watch(CONFIG_MAPS).with("fieldSelector", "metadata.name=a"),
        Call::post(CONFIG_MAPS, named("a")),
        label(json!("web")),
        label(json!("web")),
        label(json!("db")),
        label(json!("web")),
        Call::merge(object.clone(), json!({ "data": { "x": "y" } })),
        Call::delete(object.clone()),
        Call::post(
            CONFIG_MAPS,
            json!({ "metadata": { "name": "a", "labels": { "app": "web" }, "finalizers": ["example.com/hold"] } }),
        ),
        Call::delete(object.clone()),
        label(json!(null)),
        Call::merge(object.clone(), json!({ "metadata": { "finalizers": null } })),
        Call::watch(CONFIG_MAPS)
            .with("labelSelector", "app=web")
            .with("resourceVersion", format!("${{stale {object}}}")),
    ]
}

fn lease() -> Vec<Call> {
    let path = format!("{LEASES}/leader");
    let spec = json!({ "holderIdentity": "one", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.678901Z", "renewTime": "2026-01-02T03:04:05.678901Z", "leaseTransitions": 0 });
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "leader" }, "spec": spec });
    let renewed = |holder: &str, version: &str| {
        let mut lease = lease.clone();
        lease["metadata"]["resourceVersion"] = format!("${{{version} {path}}}").into();
        lease["spec"]["holderIdentity"] = holder.into();
        Call::put(path.clone(), lease)
    };
    vec![
        Call::get(path.clone()),
        Call::post(LEASES, lease.clone()),
        Call::post(LEASES, lease.clone()),
        Call::get(path.clone()),
        renewed("one", "rv"),
        renewed("two", "rv"),
        renewed("one", "stale"),
        renewed("", "rv"),
        Call::get(path.clone()),
    ]
}

fn event() -> Vec<Call> {
    let path = format!("{EVENTS}/shop.1");
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "shop.1", "namespace": "${a}" },
        "regarding": { "apiVersion": "route.openshift.io/v1", "kind": "Route", "name": "shop", "namespace": "${a}" },
        "reason": "SecretNotFound", "note": "words", "type": "Warning", "action": "Inject", "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "trustplane.dev/injector", "reportingInstance": "injector-1",
    });
    let series = |count: u32| json!({ "series": { "count": count, "lastObservedTime": "2026-01-02T03:05:05.678901Z" } });
    vec![
        Call::watch(EVENTS),
        Call::watch("/api/v1/namespaces/${a}/events")
            .with("fieldSelector", "involvedObject.name=shop"),
        Call::post(EVENTS, event.clone()),
        Call::post(EVENTS, event),
        Call::merge(path.clone(), series(2)),
        Call::merge(path.clone(), series(3)),
        Call::get(path),
        Call::get("/api/v1/namespaces/${a}/events/shop.1"),
        Call::get("/api/v1/namespaces/${a}/events")
            .with("fieldSelector", "involvedObject.kind=Route,type=Warning"),
    ]
}

fn route() -> Vec<Call> {
    let path = format!("{ROUTES}/shop");
    let route = json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": "shop", "annotations": { "route.openshift.io/tls-secret-name": "shop-tls" } }, "spec": { "host": "shop.example.com", "to": { "name": "web" }, "tls": { "termination": "edge" } } });
    let version = format!("${{rv {path}}}");
    let conditions = |status: &str| json!({ "metadata": { "resourceVersion": version }, "status": { "certificate": [{ "type": "Managed", "status": status, "reason": "SecretInjected", "lastTransitionTime": "2026-01-02T03:04:05Z" }] } });
    let inject = |version: &str| json!({ "metadata": { "resourceVersion": version, "annotations": { "trustplane.dev/injected": "sha256:1" } }, "spec": { "tls": { "certificate": "text", "key": "text" } } });
    vec![
        Call::watch("/apis/route.openshift.io/v1/routes"),
        Call::post(ROUTES, route),
        Call::merge(path.clone(), inject(&version)),
        Call::merge(path.clone(), inject(&format!("${{stale {path}}}"))),
        Call::merge(format!("{path}/status"), conditions("True")),
        Call::merge(format!("{path}/status"), conditions("False")),
        Call::merge(format!("{path}/status"), conditions("False")),
        Call::merge(
            format!("{path}/status"),
            json!({ "metadata": { "resourceVersion": format!("${{stale {path}}}") }, "status": {} }),
        ),
        Call::merge(
            path.clone(),
            json!({ "metadata": { "annotations": { "trustplane.dev/injected": null } }, "spec": { "tls": { "certificate": null, "key": null } } }),
        ),
        Call::get(path.clone()),
        Call::get(format!("{path}/status")),
        Call::delete(path.clone())
            .json(json!({ "preconditions": { "uid": format!("${{uid {path}}}") } })),
        Call::merge(path, json!({})),
    ]
}

fn namespaces() -> Vec<Call> {
    let path = "/api/v1/namespaces/${a}";
    vec![
        Call::put(
            format!("{path}/finalize"),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "${a}" }, "spec": { "finalizers": ["kubernetes"] } }),
        ),
        Call::get(format!("{path}/status")),
        Call::merge(
            path,
            json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "other" } } }),
        ),
        Call::merge(path, json!({ "metadata": { "labels": null } })),
        Call::delete("/api/v1/namespaces"),
        Call::delete("/api/v1/namespaces/kube-system"),
        Call::delete("/api/v1/namespaces/default"),
        Call::get("/api/v1/namespaces").with("fieldSelector", "metadata.name=kube-system"),
        Call::post("/api/v1/namespaces", json!({ "metadata": { "name": "${c}.dotted" } })),
        Call::post("/api/v1/namespaces", json!({ "metadata": { "name": "x".repeat(64) } })),
    ]
}

fn whole_numbers() -> Vec<Call> {
    let route = |name: &str, weight: Value| json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": name }, "spec": { "to": { "name": "web", "weight": weight } } });
    vec![
        Call::post(ROUTES, route("a", json!(1.0))),
        Call::post(ROUTES, route("b", json!(1e2))),
        Call::post(ROUTES, route("c", json!(-0.0))),
        Call::get(ROUTES),
    ]
}

fn lists_as_bodies() -> Vec<Call> {
    vec![
        Call::post(
            SECRETS,
            json!({ "apiVersion": "v1", "kind": "SecretList", "items": [named("a")] }),
        ),
        Call::post(SECRETS, json!({ "apiVersion": "v1", "kind": "List", "items": [] })),
        Call::post(
            ROUTES,
            json!({ "apiVersion": "route.openshift.io/v1", "kind": "RouteList", "items": [] }),
        ),
        Call {
            body: Body::Text(
                "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels: {app: web}\n"
                    .to_owned(),
            ),
            ..Call::post(SECRETS, Value::Null)
        }
        .header("content-type", "application/yaml"),
        Call { body: Body::Text("a: [b\n".to_owned()), ..Call::post(SECRETS, Value::Null) }
            .header("content-type", "application/yaml"),
        Call::get(format!("{SECRETS}/a%2Fb")),
        Call::get(format!("{SECRETS}/a/b/c/d")),
    ]
}
