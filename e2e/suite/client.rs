//! A TLS client that tells which certificate it was served, and whether one who trusts a given root
//! and nobody else would have gone on.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest that a visit may take.
const PATIENCE: Duration = Duration::from_secs(10);

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(config);

/// SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// The request of a visitor after the handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Nothing: on a foreign cluster there is no backend of ours.
    Nothing,
    /// A page. The status of the answer is noted.
    Page,
}

/// The certificate and answer that a visitor got.
pub struct Served {
    chain: Vec<CertificateDer<'static>>,
    /// HTTP status, where a page was asked for.
    pub answer: Option<u16>,
}

/// Opens a new connection to `router`, with `host` as server name.
pub async fn visit(router: &str, host: &str, ask: Ask) -> Result<Served, String> {
    let late = |_| format!("{host}: no answer within {PATIENCE:?}");
    tokio::time::timeout(PATIENCE, connect(router, host, ask)).await.map_err(late)?
}

async fn connect(router: &str, host: &str, ask: Ask) -> Result<Served, String> {
    let told = |what: &str, error: std::io::Error| format!("{host}: {what}: {error}");
    let stream = TcpStream::connect(router).await.map_err(|error| told("connect", error))?;
    // Else a request would wait until the end of the handshake is acknowledged.
    stream.set_nodelay(true).map_err(|error| told("connect", error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(CONFIG.clone()).connect(name, stream).await;
    let mut stream = stream.map_err(|error| told("handshake", error))?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = shown.iter().map(|certificate| certificate.clone().into_owned()).collect();
    let answer = match ask {
        Ask::Nothing => None,
        Ask::Page => Some(page(&mut stream, host).await.map_err(|error| told("request", error))?),
    };
    // The peer may be gone already.
    let _ = stream.shutdown().await;
    Ok(Served { chain, answer })
}

async fn page(stream: &mut TlsStream<TcpStream>, host: &str) -> std::io::Result<u16> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.ok_or_else(|| std::io::Error::other(format!("answered {line:?}")))
}

impl Served {
    /// Of the leaf.
    pub fn fingerprint(&self) -> Fingerprint {
        Sha256::digest(self.leaf()).into()
    }

    /// Common name of the leaf's issuer.
    pub fn issuer(&self) -> String {
        issuer_and_serial(self.leaf()).0
    }

    /// Serial number of the leaf, in hex as our Events have it.
    pub fn serial(&self) -> String {
        issuer_and_serial(self.leaf()).1
    }

    /// The verdict of a client that trusts this root alone.
    pub fn judged_with(&self, root: &str, host: &str) -> Result<(), String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let between = self.chain.get(1..).unwrap_or_default();
        let verified =
            trusting(root)?.verify_server_cert(self.leaf(), between, &name, &[], UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }

    fn leaf(&self) -> &CertificateDer<'static> {
        self.chain.first().expect("a TLS server shows a certificate")
    }
}

/// Of the first certificate of a PEM text.
pub fn fingerprint_of(pem: &str) -> Fingerprint {
    Sha256::digest(first(pem)).into()
}

/// Serial number of the first certificate of a PEM text, in hex.
pub fn serial_of(pem: &str) -> String {
    issuer_and_serial(&first(pem)).1
}

fn first(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("the text starts with a certificate")
}

fn issuer_and_serial(der: &CertificateDer<'_>) -> (String, String) {
    let (_, certificate) = X509Certificate::from_der(der).expect("a certificate that TLS took");
    let name = certificate.issuer().iter_common_name().next();
    let issuer = name.and_then(|name| name.as_str().ok()).unwrap_or("?").to_owned();
    let serial = certificate.raw_serial();
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    (issuer, hex::encode(&serial[zeros..]))
}

fn trusting(root: &str) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    roots.add(first(root)).map_err(|error| error.to_string())?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone())
        .build()
        .map_err(|error| error.to_string())
}

fn config() -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(JudgedLater))
        .with_no_client_auth();
    // A resumed session would show an old certificate.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Takes any certificate, since also the default one is of interest; [`Served::judged_with`] judges.
/// That the server has the key to it is verified here.
#[derive(Debug)]
struct JudgedLater;

impl ServerCertVerifier for JudgedLater {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}
