//! Metrics behind authentication: who is let in, and over what.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use testkit::{Cluster, Launch, Pair, eventually, pair, suite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::program::trustplane;

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with the pair that the pages are served with.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Each file is whole at any time, as with a mounted Secret.
    fn put(&self, pair: &Pair) {
        for (name, text) in [("tls.crt", &pair.certificate), ("tls.key", &pair.key)] {
            let path = self.0.path().join("new");
            suite::write_private(&path, text);
            fs::rename(&path, self.0.path().join(name)).expect("renamed");
        }
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// GETs a page over TLS, trusting this authority alone. Answers code, headers and body.
async fn get(
    address: SocketAddr,
    authority: &str,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, String), String> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let text = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(text)?;
    let name = ServerName::try_from("metrics.example.com").expect("a name");
    let mut stream =
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(text)?;
    let token = token.map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
    let request = format!("GET {path} HTTP/1.0\r\nHost: metrics.example.com\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut answer = Vec::new();
    // The server may close without saying goodbye in TLS.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(|| format!("no HTTP: {answer}"))?, answer))
}

/// Two accounts, of which one may read metrics, and the right to find that out for our own.
async fn accounts(cluster: &Cluster) -> (String, String) {
    let ns = cluster.namespace("scrape").await;
    for account in ["reader", "stranger"] {
        cluster
            .kubectl(&["-n", ns.name(), "create", "serviceaccount", account])
            .await
            .expect("made");
    }
    let reader = format!("--serviceaccount={}:reader", ns.name());
    let steps: [&[&str]; 3] = [
        &[
            "create",
            "clusterrolebinding",
            "trustplane-auth",
            "--clusterrole=system:auth-delegator",
            "--serviceaccount=trustplane:trustplane",
        ],
        &["create", "clusterrole", "metrics-reader", "--verb=get", "--non-resource-url=/metrics"],
        &[
            "create",
            "clusterrolebinding",
            "metrics-reader",
            "--clusterrole=metrics-reader",
            &reader,
        ],
    ];
    for step in steps {
        cluster.kubectl(step).await.expect("accepted");
    }
    (cluster.token_of(ns.name(), "reader").await, cluster.token_of(ns.name(), "stranger").await)
}

#[tokio::test]
async fn only_who_may_get_metrics_gets_them_and_the_certificate_follows_its_file() {
    // Asking about tokens is no right of deploy/base.
    let cluster = Cluster::forbidding().await;
    let (reader, stranger) = accounts(&cluster).await;
    let (first, second) =
        (pair::issued("metrics.example.com"), pair::issued("metrics.example.com"));
    let files = Files::new();
    files.put(&first);
    let ns = cluster.namespace("metrics").await;
    ns.allow_leases().await;
    let flags = [
        "--metrics-auth=token",
        "--tls-cert-file",
        &files.path("tls.crt"),
        "--tls-key-file",
        &files.path("tls.key"),
        "--leader-elect",
        "--leader-elect-namespace",
        ns.name(),
    ];
    let mut controller = Launch::within(&ns).flags(&flags).start();
    let address = controller.address().await;
    let ask = async |path: &str, token: Option<&str>| {
        get(address, &first.authority, path, token).await.expect("an answer")
    };
    for path in ["/livez", "/readyz"] {
        eventually(PATIENCE, "health needs no token", async || match ask(path, None).await {
            (200, _) => Ok(()),
            other => Err(other),
        })
        .await;
    }
    eventually(PATIENCE, "who may read metrics reads them", async || {
        let (code, answer) = ask("/metrics", Some(&reader)).await;
        if code == 200 && answer.contains("trustplane_leader") { Ok(()) } else { Err(code) }
    })
    .await;
    let (code, answer) = ask("/metrics", None).await;
    assert_eq!(code, 401);
    assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    let mut forged = reader.clone();
    forged.truncate(reader.len() - 4);
    assert_eq!(ask("/metrics", Some(&forged)).await.0, 401, "a token that was tampered with");
    assert_eq!(ask("/metrics", Some("nonsense")).await.0, 401);
    assert_eq!(ask("/metrics", Some(&stranger)).await.0, 403);

    let reviews = cluster.audit().entries();
    let reviews = reviews.iter().filter(|entry| entry.resource == "tokenreviews").count();
    for _ in 0..20 {
        assert_eq!(ask("/metrics", Some(&reader)).await.0, 200);
    }
    let after = cluster.audit().entries();
    let after = after.iter().filter(|entry| entry.resource == "tokenreviews").count();
    assert_eq!(after, reviews, "who was let in is not asked about every time");

    files.put(&second);
    eventually(PATIENCE, "the new certificate is served", async || {
        get(address, &second.authority, "/livez", None).await
    })
    .await;
    get(address, &first.authority, "/livez", None).await.expect_err("the old one is gone");
    files.put(&second.with_key_of(&first));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (code, _) = get(address, &second.authority, "/livez", None).await.expect("still served");
    assert_eq!(code, 200, "a key that does not fit changes nothing");

    let log = controller.log();
    for token in [&reader, &stranger, &forged] {
        let signature = token.rsplit('.').next().expect("a token has parts");
        assert!(!log.contains(signature), "a token is in the log");
    }
    let (code, _) = controller.terminate().await;
    assert_eq!(code, 0);
}

#[tokio::test]
async fn tokens_in_the_clear_and_half_a_pair_are_refused_at_the_start() {
    let nowhere = Path::new("/nonexistent");
    let clear = ["inject", "--metrics-auth=token", "--listen", "0.0.0.0:0"];
    let ran = trustplane(nowhere, &clear).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("--metrics-auth=token without TLS"), "{ran:?}");
    let ran = trustplane(nowhere, &["inject", "--tls-cert-file", "/nonexistent/tls.crt"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let absent =
        ["inject", "--tls-cert-file", "/nonexistent/a", "--tls-key-file", "/nonexistent/b"];
    let ran = trustplane(nowhere, &absent).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("/nonexistent/a can't be read"), "{ran:?}");
    let loopback = ["inject", "--metrics-auth=token", "--listen", "127.0.0.1:0"];
    let ran = trustplane(nowhere, &loopback).await;
    assert!(ran.err.contains("no usable cluster"), "loopback needs no TLS: {ran:?}");
}
