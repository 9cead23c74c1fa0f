//! Backends of the edge: reencrypt, passthrough, and Services for ports of this machine.

use std::convert::Infallible;

use chrono::Utc;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use trustplane::demo::authority::Authority;

use crate::stage::{RouteFixture, Stage};

const SERVICES: &str = "CN=trustplane sandbox services";

#[tokio::test]
async fn passthrough_brings_the_certificate_of_the_backend() {
    let stage = Stage::new().await;
    let route = RouteFixture::passthrough("shop");
    stage.create(&route).await;
    let served = stage.eventually("shop.example.com", |it| it.status == 200).await;
    assert_eq!(served.certificate.subject, "CN=shop.example.com");
    assert_eq!(served.certificate.issuer, SERVICES);
    // The edge adds nothing to the answer, which it can't decrypt.
    assert_eq!(served.line, "Service default/backend over TLS, as \"shop.example.com\"");
    assert_eq!(stage.served("shop.example.com").await, served, "the same certificate every time");
    stage.eventually_admitted(&route, "True").await;
}

#[tokio::test]
async fn reencrypt_serves_the_certificate_of_the_route_and_verifies_the_backend() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    let said = |route: &str, certificate| {
        let edge = format!("Route default/{route} (reencrypt) | certificate {certificate}");
        format!("{edge} | Service default/backend over TLS, as \"backend.default.svc\"")
    };
    stage.create(&RouteFixture::reencrypt("shop").holding(&pair)).await;
    let served = stage.eventually_serves("shop.example.com", &pair).await;
    assert_eq!(served.line, said("shop", &served.certificate));

    let named = RouteFixture::reencrypt("named").host("named.example.com").holding(&pair);
    let authority = json!(stage.edge.service_authority());
    stage.create(&named.with("/spec/tls/destinationCACertificate", authority)).await;
    let served = stage.eventually_serves("named.example.com", &pair).await;
    assert_eq!(served.line, said("named", &served.certificate));
}

#[tokio::test]
async fn reencrypt_does_not_talk_to_a_backend_of_another_authority() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    let other = Authority::new("another CA", Utc::now()).unwrap().pem();
    let route = RouteFixture::reencrypt("shop").holding(&pair);
    let route = route.with("/spec/tls/destinationCACertificate", json!(other));
    stage.create(&route).await;
    stage.eventually_admitted(&route, "True").await;
    let served = stage.served("shop.example.com").await;
    assert_eq!(served.status, 503);
    assert!(served.line.contains("the backend can't be used: "), "{}", served.line);
    assert!(served.line.contains("UnknownIssuer"), "{}", served.line);
}

#[tokio::test]
async fn a_service_that_leads_to_this_machine_gets_the_requests() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(answer(listener));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "mine" },
        "spec": {
            "type": "ExternalName", "externalName": "localhost",
            "ports": [{ "name": "web", "port": port, "protocol": "TCP" }],
        },
    });
    stage.send(Method::POST, "/api/v1/namespaces/default/services", &service).await;
    let pair = stage.pair("shop.example.com");
    let route = RouteFixture::edge("shop").with("/spec/to/name", json!("mine")).holding(&pair);
    stage.create(&route).await;
    let served = stage.eventually_serves("shop.example.com", &pair).await;
    assert_eq!(served.line, "my own answer to GET / for shop.example.com, by https");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_503_with_the_reason() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "mine" },
        "spec": { "type": "ExternalName", "externalName": "127.0.0.1", "ports": [{ "port": port, "protocol": "TCP" }] },
    });
    stage.send(Method::POST, "/api/v1/namespaces/default/services", &service).await;
    stage.create(&RouteFixture::edge("shop").with("/spec/to/name", json!("mine"))).await;
    let served = stage
        .eventually("shop.example.com", |it| it.line.contains("the backend can't be used"))
        .await;
    assert_eq!(served.status, 503);
}

async fn answer(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(|request: Request<Incoming>| async move {
            let header = |name| request.headers()[name].to_str().unwrap().to_owned();
            let line = format!(
                "my own answer to {} {} for {}, by {}\n",
                request.method(),
                request.uri().path(),
                header("host"),
                header("x-forwarded-proto")
            );
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(line)))
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
