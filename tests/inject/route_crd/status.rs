//! The status that routers and controllers write.

use serde_json::{Value, json};
use testkit::Cluster;

use super::accepts;

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
    // A router writes a status of which it knows only half.
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
