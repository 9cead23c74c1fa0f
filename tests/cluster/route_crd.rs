//! The Route CRD accepts what OpenShift accepts and refuses what it refuses, with a message that
//! says what to do. Each rule has an object of either kind.

use serde_json::{Value, json};

use crate::support::{Cluster, Namespace, RouteFixture, pair};

/// Fields of a Route by JSON pointer, on top of [`RouteFixture::insecure`].
type Fields = Vec<(&'static str, Value)>;

async fn accepts(ns: &Namespace, name: &str, fields: Fields) -> Value {
    let created = route(name, fields).try_create(ns).await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{name}: {error}")))
        .expect("a Route is JSON")
}

async fn refuses(ns: &Namespace, name: &str, fields: Fields, message: &str) {
    match route(name, fields).try_create(ns).await {
        Ok(_) => panic!("{name} was accepted"),
        Err(error) => assert!(error.to_string().contains(message), "{name}: {error}"),
    }
}

fn route(name: &str, fields: Fields) -> RouteFixture {
    fields
        .into_iter()
        .fold(RouteFixture::insecure(name), |route, (pointer, value)| route.with(pointer, value))
}

fn tls(value: Value) -> Fields {
    vec![("/spec/tls", value)]
}

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
async fn tls_ends_in_one_of_three_places() {
    let ns = Cluster::get().await.namespace("crd").await;
    for termination in ["edge", "reencrypt", "passthrough"] {
        accepts(&ns, termination, tls(json!({ "termination": termination }))).await;
    }
    refuses(
        &ns,
        "other",
        tls(json!({ "termination": "Edge" })),
        "supported values: \"edge\", \"reencrypt\", \"passthrough\"",
    )
    .await;
}

#[tokio::test]
async fn passthrough_takes_no_certificate_at_all() {
    let ns = Cluster::get().await.namespace("crd").await;
    let empty = json!({ "termination": "passthrough", "certificate": "", "key": "", "caCertificate": "", "destinationCACertificate": "" });
    accepts(&ns, "empty", tls(empty)).await;
    for (name, field) in [
        ("certificate", "certificate"),
        ("key", "key"),
        ("ca", "caCertificate"),
        ("destination", "destinationCACertificate"),
    ] {
        refuses(
            &ns,
            name,
            tls(json!({ "termination": "passthrough", field: "x" })),
            "the backend brings its own certificate",
        )
        .await;
    }
    let external =
        json!({ "termination": "passthrough", "externalCertificate": { "name": "shop-tls" } });
    refuses(&ns, "external", tls(external), "the backend brings its own certificate").await;
}

#[tokio::test]
async fn a_destination_authority_is_for_reencrypt() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(
        &ns,
        "reencrypt",
        tls(json!({ "termination": "reencrypt", "destinationCACertificate": "x" })),
    )
    .await;
    refuses(
        &ns,
        "edge",
        tls(json!({ "termination": "edge", "destinationCACertificate": "x" })),
        "with termination edge no TLS reaches the backend",
    )
    .await;
}

#[tokio::test]
async fn plain_http_may_be_refused_redirected_or_served_unless_it_passes_through() {
    let ns = Cluster::get().await.namespace("crd").await;
    for (number, (termination, policy)) in [
        ("edge", "Allow"),
        ("reencrypt", "Redirect"),
        ("edge", ""),
        ("passthrough", "None"),
        ("passthrough", "Redirect"),
    ]
    .into_iter()
    .enumerate()
    {
        let fields =
            tls(json!({ "termination": termination, "insecureEdgeTerminationPolicy": policy }));
        accepts(&ns, &format!("accepted-{number}"), fields).await;
    }
    let fields = |termination: &str, policy: &str| {
        tls(json!({ "termination": termination, "insecureEdgeTerminationPolicy": policy }))
    };
    refuses(
        &ns,
        "allow",
        fields("passthrough", "Allow"),
        "insecureEdgeTerminationPolicy must be None, Redirect or empty",
    )
    .await;
    refuses(&ns, "other", fields("edge", "Disable"), "supported values").await;
}

#[tokio::test]
async fn a_certificate_comes_from_one_place() {
    let ns = Cluster::get().await.namespace("crd").await;
    let external = |certificate: &str, name: &str| {
        tls(
            json!({ "termination": "edge", "certificate": certificate, "externalCertificate": { "name": name } }),
        )
    };
    accepts(&ns, "external", external("", "shop-tls")).await;
    accepts(&ns, "inline", external("x", "")).await;
    refuses(
        &ns,
        "both",
        external("x", "shop-tls"),
        "certificate and externalCertificate exclude each other",
    )
    .await;
}

#[tokio::test]
async fn certificates_of_any_size_and_content_are_kept_as_they_are() {
    let ns = Cluster::get().await.namespace("crd").await;
    let held = pair::issued("shop.example.com");
    let chain = held.certificate.repeat(300);
    assert!(chain.len() > 150_000);
    let created = accepts(&ns, "large", tls(json!({ "termination": "edge", "certificate": chain, "key": held.key, "caCertificate": "not PEM" }))).await;
    assert_eq!(created["spec"]["tls"]["certificate"], chain);
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
async fn status_is_a_subresource_that_keeps_the_certificate() {
    let ns = Cluster::get().await.namespace("crd").await;
    let conditions = json!([
        { "type": "Default", "status": "False", "reason": "SecretInjected", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Custom", "status": "False", "reason": "SecretInjected", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Managed", "status": "True", "reason": "SecretInjected", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]);
    let created =
        accepts(&ns, "shop", vec![("/status", json!({ "certificate": conditions }))]).await;
    assert_eq!(created["status"], Value::Null, "status is not written with the Route");

    let written = ns
        .patch_route_status(
            "shop",
            json!({ "status": { "certificate": conditions }, "spec": { "host": "other" } }),
        )
        .await;
    assert_eq!(written["status"]["certificate"], conditions);
    assert_eq!(written["spec"]["host"], "shop.example.com");
    // What a router does: it writes a status that it knows only the half of.
    let router = json!([{ "host": "shop.example.com", "routerName": "default", "conditions": [{ "type": "Admitted", "status": "True" }] }]);
    let written = ns.patch_route_status("shop", json!({ "status": { "ingress": router } })).await;
    assert_eq!(written["status"], json!({ "certificate": conditions, "ingress": router }));
}

#[tokio::test]
async fn at_most_one_certificate_is_served() {
    let ns = Cluster::get().await.namespace("crd").await;
    accepts(&ns, "shop", vec![]).await;
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    for (certificate, message) in [
        (
            json!([condition("Custom", "True"), condition("Managed", "True")]),
            "at most one certificate can be the one that is served",
        ),
        (json!([condition("Custom", "True"), condition("Custom", "False")]), "Duplicate value"),
        (
            json!([condition("Other", "True")]),
            "supported values: \"Default\", \"Custom\", \"Managed\"",
        ),
        (json!([condition("Custom", "Yes")]), "supported values: \"True\", \"False\", \"Unknown\""),
    ] {
        let patch = kube::api::Patch::Merge(json!({ "status": { "certificate": certificate } }));
        let error = ns
            .routes()
            .patch_status("shop", &Default::default(), &patch)
            .await
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains(message), "{error}");
    }
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
