//! Which certificate the edge serves for which host.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::TlsConnector;
use trustplane::demo::certificate_summary::CertificateSummary;
use trustplane::demo::edge::{CERTIFICATE_HEADER, ROUTE_HEADER};
use trustplane::demo::tour::probe::probe;

use crate::stage::{RouteFixture, Stage, holding};

#[tokio::test]
async fn every_host_gets_the_certificate_of_its_route() {
    let stage = Stage::new().await;
    let (shop, blog) = (stage.pair("shop.example.com"), stage.pair("blog.example.com"));
    stage.create(&RouteFixture::edge("shop").holding(&shop)).await;
    stage.create(&RouteFixture::edge("blog").holding(&blog)).await;
    let served = stage.eventually_serves("shop.example.com", &shop).await;
    assert_eq!(
        served.line,
        format!("Route default/shop (edge) | certificate {}", served.certificate)
    );
    stage.eventually_serves("blog.example.com", &blog).await;
}

#[tokio::test]
async fn a_route_without_a_certificate_gets_the_default_one() {
    let stage = Stage::new().await;
    stage.create(&RouteFixture::edge("shop")).await;
    let served = stage.eventually_default("shop.example.com", 200).await;
    assert!(served.line.contains("the edge's default certificate"), "{}", served.line);
}

#[tokio::test]
async fn a_host_that_no_route_has_gets_the_default_certificate_and_503() {
    let stage = Stage::new().await;
    let served = stage.eventually_default("unknown.example.com", 503).await;
    assert!(served.line.starts_with("No Route is served at"), "{}", served.line);
    // Clients send no server name for an address.
    stage.eventually_default("127.0.0.1", 503).await;
}

#[tokio::test]
async fn a_route_that_is_deleted_is_served_no_more() {
    let stage = Stage::new().await;
    let (route, pair) = (RouteFixture::edge("shop"), stage.pair("shop.example.com"));
    stage.create(&route.clone().holding(&pair)).await;
    stage.eventually_serves("shop.example.com", &pair).await;
    stage.delete(&route).await;
    stage.eventually_default("shop.example.com", 503).await;
}

#[tokio::test]
async fn a_wildcard_route_gets_every_name_of_its_domain() {
    let stage = Stage::new().await;
    let pair = stage.pair("*.apps.example.com");
    let route = RouteFixture::edge("any").host("www.apps.example.com").holding(&pair);
    stage.create(&route.clone().with("/spec/wildcardPolicy", json!("Subdomain"))).await;
    stage.eventually_serves("one.apps.example.com", &pair).await;
    stage.eventually_serves("two.apps.example.com", &pair).await;
    stage.eventually_default("example.com", 503).await;
    let ingress = stage.eventually_admitted(&route, "True").await;
    assert_eq!(ingress["wildcardPolicy"], "Subdomain");
}

#[tokio::test]
async fn the_request_chooses_the_route_and_the_handshake_the_certificate() {
    let stage = Stage::new().await;
    let pair = stage.pair("shop.example.com");
    stage.create(&RouteFixture::edge("shop").holding(&pair)).await;
    stage.create(&RouteFixture::edge("blog")).await;
    stage.eventually_serves("shop.example.com", &pair).await;
    stage.eventually_default("blog.example.com", 200).await;

    let mut client = Client::connect(&stage, "shop.example.com").await;
    let (route, certificate) = client.get("blog.example.com:443").await;
    assert_eq!(route, "default/blog");
    assert_eq!(certificate, format!("sha256:{}", CertificateSummary::of(&pair.der).sha256));
}

/// 50 connections a second while the certificate changes 20 times a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_fails_no_handshake_and_none_sees_half_of_it() {
    const SPAN: Duration = Duration::from_secs(3);
    let stage = Stage::new().await;
    let route = RouteFixture::edge("shop");
    let pairs: Vec<_> = (0..8).map(|_| stage.pair("shop.example.com")).collect();
    stage.create(&route.clone().holding(&pairs[0])).await;
    stage.eventually_serves("shop.example.com", &pairs[0]).await;

    let address = stage.edge.address();
    let connects = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (start, mut probes) = (Instant::now(), tokio::task::JoinSet::new());
        while start.elapsed() < SPAN {
            ticks.tick().await;
            probes.spawn(async move {
                probe(address, "shop.example.com").await.map_err(|error| error.to_string())
            });
        }
        probes.join_all().await
    });
    let mut renewals = 0;
    while !connects.is_finished() {
        renewals += 1;
        stage.patch(&route, holding(&pairs[renewals % pairs.len()])).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let known: HashSet<_> =
        pairs.iter().map(|pair| CertificateSummary::of(&pair.der).sha256).collect();
    let outcomes = connects.await.unwrap();
    let mut seen = HashSet::new();
    for outcome in &outcomes {
        let served = outcome.as_ref().expect("no connection fails");
        assert!(known.contains(&served.certificate.sha256), "{served:?}");
        assert!(served.line.contains(served.certificate.short()), "{served:?}");
        assert_eq!(served.status, 200);
        seen.insert(&served.certificate.sha256);
    }
    println!("{} connections, {renewals} renewals, {} certificates", outcomes.len(), seen.len());
    assert!(outcomes.len() >= 100 && renewals >= 10 && seen.len() == pairs.len());
}

#[tokio::test]
async fn a_connection_under_way_outlives_renewals_and_keeps_its_certificate() {
    let stage = Stage::new().await;
    let (old, new) = (stage.pair("shop.example.com"), stage.pair("shop.example.com"));
    let route = RouteFixture::edge("shop");
    stage.create(&route.clone().holding(&old)).await;
    stage.eventually_serves("shop.example.com", &old).await;

    let mut client = Client::connect(&stage, "shop.example.com").await;
    let before = client.get("shop.example.com").await;
    stage.patch(&route, holding(&new)).await;
    stage.eventually_serves("shop.example.com", &new).await;
    assert_eq!(client.get("shop.example.com").await, before);
}

#[tokio::test]
async fn a_client_that_speaks_plain_http_gets_an_explanation() {
    let stage = Stage::new().await;
    let mut stream = TcpStream::connect(stage.edge.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("use https, not http.\n"), "{answer}");
}

/// A client that trusts the stage's authority, and stays connected.
struct Client(http1::SendRequest<Empty<Bytes>>);

impl Client {
    async fn connect(stage: &Stage, host: &'static str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(stage.authority.der().clone()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(stage.edge.address()).await.unwrap();
        let connector = TlsConnector::from(std::sync::Arc::new(config));
        let stream = connector.connect(ServerName::try_from(host).unwrap(), stream).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// Requests this host and returns the two headers.
    async fn get(&mut self, host: &str) -> (String, String) {
        let request = Request::get("/").header(header::HOST, host).body(Empty::new()).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let value = |name| response.headers()[&name].to_str().unwrap().to_owned();
        let headers = (value(ROUTE_HEADER), value(CERTIFICATE_HEADER));
        response.into_body().collect().await.unwrap();
        headers
    }
}
