//! Hosts, paths, backends and headers.

use serde_json::{Value, json};
use testkit::Cluster;

use super::{accepts, refuses};

#[tokio::test]
async fn defaults_are_openshifts() {
    let ns = Cluster::get().await.namespace("crd").await;
    let created = accepts(
        &ns,
        "plain",
        vec![("/spec/to", json!({ "name": "backend" })), ("/spec/tls", json!({}))],
    )
    .await;
    assert_eq!(
        created["spec"]["to"],
        json!({ "kind": "Service", "name": "backend", "weight": 100 })
    );
    assert_eq!(created["spec"]["wildcardPolicy"], "None");
    assert_eq!(created["spec"]["tls"], json!({ "termination": "edge" }));
}

#[tokio::test]
async fn a_host_is_a_dns_name() {
    let ns = Cluster::get().await.namespace("crd").await;
    for (name, host) in [
        ("lower", "shop.example.com"),
        ("upper", "Shop.Example.com"),
        ("digits", "1.2.3"),
        ("empty", ""),
        ("one", "localhost"),
    ] {
        accepts(&ns, name, vec![("/spec/host", json!(host))]).await;
    }
    // OpenShift accepts it with the annotation allow-non-dns-compliant-host.
    accepts(
        &ns,
        "long-label",
        vec![("/spec/host", json!(format!("{}.example.com", "a".repeat(70))))],
    )
    .await;
    accepts(&ns, "longest", vec![("/spec/host", json!(format!("{}a.com", "a.".repeat(124))))])
        .await;
    for (name, host) in [
        ("space", "a b"),
        ("star", "*.example.com"),
        ("dash", "-a.com"),
        ("dots", "a..com"),
        ("underscore", "a_b.com"),
        ("dot", "a.com."),
    ] {
        refuses(&ns, name, vec![("/spec/host", json!(host))], "spec.host").await;
    }
    refuses(
        &ns,
        "too-long",
        vec![("/spec/host", json!("a.".repeat(127) + "a"))],
        "may not be more than 253",
    )
    .await;
}

#[tokio::test]
async fn a_subdomain_has_labels_of_63_characters() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "short", vec![("/spec/subdomain", json!("shop.front"))]).await;
    accepts(&ns, "longest", vec![("/spec/subdomain", json!("a".repeat(63)))]).await;
    refuses(&ns, "too-long", vec![("/spec/subdomain", json!("a".repeat(64)))], "spec.subdomain")
        .await;
}

#[tokio::test]
async fn a_path_starts_with_a_slash_and_cannot_be_seen_through_tls() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "path", vec![("/spec/path", json!("/shop"))]).await;
    accepts(
        &ns,
        "empty",
        vec![("/spec/path", json!("")), ("/spec/tls", json!({ "termination": "passthrough" }))],
    )
    .await;
    refuses(&ns, "relative", vec![("/spec/path", json!("shop"))], "spec.path").await;
    let fields = vec![
        ("/spec/path", json!("/shop")),
        ("/spec/tls", json!({ "termination": "passthrough" })),
    ];
    refuses(&ns, "passthrough", fields, "a router cannot see the path inside TLS").await;
}

#[tokio::test]
async fn backends_are_one_to_four_services_with_weights_up_to_256() {
    let ns = Cluster::get().await.namespace("crd").await;
    let service =
        |name: &str, weight: i32| json!({ "kind": "Service", "name": name, "weight": weight });
    let three = json!([service("a", 0), service("b", 256), { "name": "c" }]);
    let created = accepts(&ns, "three", vec![("/spec/alternateBackends", three)]).await;
    assert_eq!(created["spec"]["alternateBackends"][2], service("c", 100));
    accepts(&ns, "kindless", vec![("/spec/to/kind", json!(""))]).await;

    let four = json!([service("a", 1), service("b", 1), service("c", 1), service("d", 1)]);
    refuses(&ns, "four", vec![("/spec/alternateBackends", four)], "must have at most 3 items")
        .await;
    refuses(&ns, "heavy", vec![("/spec/to/weight", json!(257))], "less than or equal to 256").await;
    refuses(
        &ns,
        "negative",
        vec![("/spec/alternateBackends", json!([service("a", -1)]))],
        "greater than or equal to 0",
    )
    .await;
    refuses(&ns, "nameless", vec![("/spec/to/name", json!(""))], "spec.to.name").await;
    refuses(&ns, "pod", vec![("/spec/to/kind", json!("Pod"))], "supported values: \"Service\"")
        .await;
    refuses(&ns, "nowhere", vec![("/spec/to", json!(null))], "spec.to: Required").await;
}

#[tokio::test]
async fn a_port_has_a_number_or_a_name() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "number", vec![("/spec/port", json!({ "targetPort": 8080 }))]).await;
    accepts(&ns, "name", vec![("/spec/port", json!({ "targetPort": "https" }))]).await;
    for (name, port) in [("zero", json!(0)), ("empty", json!(""))] {
        refuses(
            &ns,
            name,
            vec![("/spec/port", json!({ "targetPort": port }))],
            "a port number other than 0, or the name of a port",
        )
        .await;
    }
    refuses(&ns, "none", vec![("/spec/port", json!({}))], "spec.port.targetPort: Required").await;
}

#[tokio::test]
async fn a_wildcard_needs_a_host() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "hosted", vec![("/spec/wildcardPolicy", json!("Subdomain"))]).await;
    accepts(&ns, "unset", vec![("/spec/wildcardPolicy", json!("")), ("/spec/host", json!(""))])
        .await;
    let fields = vec![("/spec/wildcardPolicy", json!("Subdomain")), ("/spec/host", json!(""))];
    refuses(&ns, "hostless", fields, "wildcardPolicy Subdomain needs spec.host").await;
    refuses(&ns, "other", vec![("/spec/wildcardPolicy", json!("All"))], "supported values").await;
}

#[tokio::test]
async fn headers_are_set_or_deleted_with_the_expressions_that_openshift_permits() {
    let ns = Cluster::get().await.namespace("crd").await;
    let headers = |direction: &str, name: &str, action: Value| {
        vec![(
            "/spec/httpHeaders",
            json!({ "actions": { direction: [{ "name": name, "action": action }] } }),
        )]
    };
    let set = |value: &str| json!({ "type": "Set", "set": { "value": value } });
    accepts(&ns, "text", headers("request", "X-Shop", set("50%% off"))).await;
    accepts(&ns, "request", headers("request", "X-Target", set("%[req.hdr(X-target),lower]")))
        .await;
    accepts(&ns, "response", headers("response", "X-Client", set("%{+Q}[ssl_c_der,base64]"))).await;
    accepts(&ns, "delete", headers("response", "Server", json!({ "type": "Delete" }))).await;

    refuses(
        &ns,
        "fetch",
        headers("request", "X-Env", set("%[env(PATH)]")),
        "of HAProxy's expressions only req.hdr(NAME)",
    )
    .await;
    refuses(
        &ns,
        "direction",
        headers("response", "X-Target", set("%[req.hdr(X-target)]")),
        "of HAProxy's expressions only res.hdr(NAME)",
    )
    .await;
    refuses(
        &ns,
        "line",
        headers("request", "X-Shop", set("a\nb")),
        "of HAProxy's expressions only",
    )
    .await;
    refuses(&ns, "cookie", headers("response", "Set-Cookie", set("a")), "cannot be changed here")
        .await;
    refuses(&ns, "name", headers("request", "X Shop", set("a")), "name in body should match").await;
    refuses(
        &ns,
        "valueless",
        headers("request", "X-Shop", json!({ "type": "Set" })),
        "set belongs to type Set",
    )
    .await;
    refuses(
        &ns,
        "deleted",
        headers("request", "X-Shop", json!({ "type": "Delete", "set": { "value": "a" } })),
        "set belongs to type Set",
    )
    .await;
    let mut fields = headers("request", "X-Shop", set("a"));
    fields.push(("/spec/tls", json!({ "termination": "passthrough" })));
    refuses(&ns, "passthrough", fields, "a router cannot change headers inside TLS").await;
}

#[tokio::test]
async fn fields_that_no_route_has_are_dropped() {
    let ns = Cluster::get().await.namespace("crd").await;
    let created = accepts(
        &ns,
        "shop",
        vec![
            ("/spec/unknown", json!(1)),
            ("/spec/tls", json!({ "termination": "edge", "unknown": 1 })),
        ],
    )
    .await;
    assert_eq!(
        (&created["spec"]["unknown"], &created["spec"]["tls"]),
        (&Value::Null, &json!({ "termination": "edge" }))
    );
}

#[tokio::test]
async fn routes_can_be_selected_by_host_path_and_service() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "shop", vec![("/spec/path", json!("/shop"))]).await;
    accepts(&ns, "other", vec![("/spec/to/name", json!("other"))]).await;
    for selector in ["spec.host=shop.example.com", "spec.path=/shop", "spec.to.name=backend"] {
        let found = ns
            .routes()
            .list(&kube::api::ListParams::default().fields(selector))
            .await
            .expect("the selector is known");
        let names: Vec<_> =
            found.items.iter().filter_map(|route| route.metadata.name.as_deref()).collect();
        assert_eq!(names, ["shop"], "{selector}");
    }
}
