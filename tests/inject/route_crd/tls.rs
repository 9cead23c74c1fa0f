//! Where TLS ends, and with which certificate.

use serde_json::json;
use testkit::{Cluster, pair};

use super::{accepts, refuses, tls};

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
