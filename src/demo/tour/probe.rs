//! A TLS client that reports which certificate the edge serves. It connects over TCP and accepts
//! every certificate.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, Error, crypto::aws_lc_rs, pki_types::ServerName};
use serde::Serialize;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tower::BoxError;

use crate::{
    demo::certificate_summary::CertificateSummary, runtime::server_verifier::server_verifier,
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Certificate and answer of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Served {
    pub certificate: CertificateSummary,
    pub status: u16,
    /// First line of the answer.
    pub line: String,
}

/// Requests `/` of this host.
pub async fn probe(edge: SocketAddr, host: &str) -> Result<Served, BoxError> {
    timeout(TIMEOUT, request(edge, host)).await?
}

async fn request(edge: SocketAddr, host: &str) -> Result<Served, BoxError> {
    let stream = TcpStream::connect(edge).await?;
    // Else the request waits 40 ms for the acknowledgement of the handshake.
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::new(config()?));
    let stream = connector.connect(ServerName::try_from(host.to_owned())?, stream).await?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = CertificateSummary::of(leaf.ok_or("no certificate was shown")?);

    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/").header(header::HOST, host).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    let line = String::from_utf8_lossy(&body).lines().next().unwrap_or_default().to_owned();
    Ok(Served { certificate, status, line })
}

fn config() -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(server_verifier(|_, _, _| Ok(())))
        .with_no_client_auth();
    Ok(config)
}
