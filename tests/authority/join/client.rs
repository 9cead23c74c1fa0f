//! A join client that can do everything wrong, and SVIDs of a partner that can, too.

use std::{net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SigningKey as _,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::{Value, json};
use testkit::suite::{self, KeyOf};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status, Streaming,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use trustplane::authority::{
    decide::challenge::{self, Signed},
    join::messages::{
        Certs, ChallengeSolution, InitialRequest, JoinRequest, METHOD, Request, RequestPayload,
        Response, ResponsePayload, Role, TrustBundles,
    },
};

use crate::stage::{OWN, PATIENCE};

/// Certificates of the server are another test's.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A connection to the server; the bytes come before TLS.
pub async fn tls(
    address: SocketAddr,
    first: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let verifier = Arc::new(AnyServer);
    let mut config = versions
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(first).await?;
    let name = ServerName::try_from("join.test").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// A client that makes whatever attempt it is told to. `JoinClient` is one, and `real` has one in Go.
pub trait Joins {
    /// All at once, the next one always at the next replica.
    async fn join_all(&mut self, attempts: &[&Attempt]) -> Vec<Result<Certs, Status>>;

    async fn join_once(&mut self, attempt: &Attempt) -> Result<Certs, Status> {
        self.join_all(&[attempt]).await.remove(0)
    }
}

/// One for each replica.
impl Joins for Vec<JoinClient> {
    async fn join_all(&mut self, attempts: &[&Attempt]) -> Vec<Result<Certs, Status>> {
        let replicas = self.iter().cycle();
        let joins = replicas.zip(attempts).map(|(client, attempt)| client.join(attempt));
        futures::future::join_all(joins).await
    }
}

#[derive(Clone)]
pub struct JoinClient(Channel);

impl JoinClient {
    pub async fn dial(address: SocketAddr) -> Self {
        Self::dial_with(address, b"").await
    }

    pub async fn dial_with(address: SocketAddr, first: &'static [u8]) -> Self {
        let connector = tower::service_fn(move |_: http::Uri| async move {
            tls(address, first).await.map(TokioIo::new)
        });
        let endpoint = Endpoint::from_static("http://join.test");
        Self(endpoint.connect_with_connector(connector).await.unwrap())
    }

    pub async fn open(&self) -> Result<Talk, Status> {
        self.open_at(METHOD).await
    }

    pub async fn open_at(&self, method: &'static str) -> Result<Talk, Status> {
        let mut grpc = Grpc::new(self.0.clone()).max_encoding_message_size(usize::MAX);
        grpc.ready().await.unwrap();
        let (requests, receiver) = mpsc::channel(8);
        let codec = ProstCodec::<Request, Response>::default();
        let stream = tonic::Request::new(ReceiverStream::new(receiver));
        let path = http::uri::PathAndQuery::from_static(method);
        let answers = grpc.streaming(stream, path, codec).await?.into_inner();
        Ok(Talk { requests, answers })
    }

    pub async fn join(&self, attempt: &Attempt) -> Result<Certs, Status> {
        self.follow(attempt).await.map(|(certs, _)| certs)
    }

    /// Joins, and leaves the stream open.
    pub async fn follow(&self, attempt: &Attempt) -> Result<(Certs, Talk), Status> {
        let (talk, nonce) = self.challenged(attempt).await?;
        talk.solve(attempt.signature(&nonce)).await
    }

    /// Joins, and answers the signature that it did so with.
    pub async fn join_and_tell(&self, attempt: &Attempt) -> Result<Vec<u8>, Status> {
        let (talk, nonce) = self.challenged(attempt).await?;
        let signature = attempt.signature(&nonce);
        talk.solve(signature.clone()).await?;
        Ok(signature)
    }

    async fn challenged(&self, attempt: &Attempt) -> Result<(Talk, Vec<u8>), Status> {
        let mut talk = self.open().await?;
        talk.send(RequestPayload::Init(attempt.init())).await;
        match talk.next().await? {
            Some(ResponsePayload::Challenge(challenge)) => Ok((talk, challenge.nonce)),
            other => panic!("{other:?} in place of a challenge"),
        }
    }
}

pub struct Talk {
    requests: mpsc::Sender<Request>,
    answers: Streaming<Response>,
}

impl Talk {
    pub async fn send(&self, payload: RequestPayload) {
        self.send_any(Request { payload: Some(payload) }).await;
    }

    /// A server that has said no reads no more.
    pub async fn send_any(&self, request: Request) {
        let _ = self.requests.send(request).await;
    }

    pub async fn next(&mut self) -> Result<Option<ResponsePayload>, Status> {
        let message = timeout(PATIENCE, self.answers.message()).await.expect("an answer in time");
        Ok(message?.and_then(|it| it.payload))
    }

    async fn solve(mut self, signed_nonce: Vec<u8>) -> Result<(Certs, Self), Status> {
        self.send(RequestPayload::ChallengeSolution(ChallengeSolution { signed_nonce })).await;
        match self.next().await? {
            Some(ResponsePayload::Certs(certs)) => Ok((certs, self)),
            other => panic!("{other:?} in place of certificates"),
        }
    }

    pub async fn bundles(&mut self) -> TrustBundles {
        match self.next().await.unwrap() {
            Some(ResponsePayload::TrustBundles(bundles)) => bundles,
            other => panic!("{other:?} in place of bundles"),
        }
    }
}

/// A join that holds, to be changed by a test.
#[derive(Clone)]
pub struct Attempt {
    pub key: Arc<KeyPair>,
    pub request: JoinRequest,
    pub svid: Vec<u8>,
    /// What is signed where it is something else.
    pub signed_csr: Option<Vec<u8>>,
    pub signed_token: Option<String>,
    pub signed_nonce: Option<Vec<u8>>,
    /// Sent in place of a signature.
    pub replayed: Option<Vec<u8>>,
    /// What the client takes for the server's trust domain.
    pub server: String,
}

impl Attempt {
    pub fn new(ca: &PartnerCa, path: &str) -> Self {
        Self::with(ca, svid_params(&[&format!("spiffe://{}{path}", ca.trust_domain)]))
    }

    pub fn with(ca: &PartnerCa, params: CertificateParams) -> Self {
        Self::for_key(KeyPair::generate().unwrap(), ca, params)
    }

    pub fn for_key(key: KeyPair, ca: &PartnerCa, params: CertificateParams) -> Self {
        if key.is_compatible(&PKCS_ECDSA_P256_SHA256) {
            suite::register_der_key(KeyOf::Svid, &key.serialize_der());
        } else {
            suite::register_key(&key.serialize_pem());
        }
        let svid = params.signed_by(&key, &ca.issuer).unwrap().der().to_vec();
        let request = JoinRequest {
            token: "ci".to_owned(),
            role: Role::Bot.into(),
            csr: csr(&CertificateParams::default()),
            ..JoinRequest::default()
        };
        let server = OWN.to_owned();
        let (signed_csr, signed_token, signed_nonce, replayed) = (None, None, None, None);
        let key = Arc::new(key);
        Self { key, request, svid, signed_csr, signed_token, signed_nonce, replayed, server }
    }

    pub fn init(&self) -> InitialRequest {
        InitialRequest { join_request: Some(self.request.clone()), x509_svid: self.svid.clone() }
    }

    pub fn signature(&self, nonce: &[u8]) -> Vec<u8> {
        if let Some(replayed) = &self.replayed {
            return replayed.clone();
        }
        let signed = Signed {
            chain: &self.svid,
            csr: self.signed_csr.as_ref().unwrap_or(&self.request.csr),
            token: self.signed_token.as_ref().unwrap_or(&self.request.token),
            role: self.request.role,
            expires: self.request.expires,
        };
        let nonce = self.signed_nonce.as_deref().unwrap_or(nonce);
        self.key.sign(&challenge::message(&self.server, nonce, &signed)).unwrap()
    }
}

/// A request for a certificate with a key of its own.
pub fn csr(params: &CertificateParams) -> Vec<u8> {
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

/// The CA of a partner, which signs whatever it is asked for.
pub struct PartnerCa {
    pub trust_domain: String,
    pub issuer: CertifiedIssuer<'static, KeyPair>,
}

impl PartnerCa {
    pub fn new(trust_domain: &str) -> Self {
        Self::with(trust_domain, |_| {})
    }

    pub fn with(trust_domain: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = ca_params(trust_domain);
        change(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { trust_domain: trust_domain.to_owned(), issuer }
    }

    pub fn jwk(&self) -> Value {
        let key = self.issuer.key();
        let point = rcgen::PublicKeyData::der_bytes(key);
        let number = |range: std::ops::Range<usize>| {
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&point[range])
        };
        json!({
            "kty": "EC", "use": "x509-svid", "crv": "P-256", "x": number(1..33), "y": number(33..65),
            "x5c": [STANDARD.encode(self.issuer.der())],
        })
    }

    pub fn source(&self) -> Value {
        bundle_of(&[self])
    }
}

/// As `bundleSource` of a SPIFFEFederation.
pub fn bundle_of(cas: &[&PartnerCa]) -> Value {
    let keys: Vec<_> = cas.iter().map(|it| it.jwk()).collect();
    let document = json!({ "keys": keys, "spiffe_sequence": cas.len() });
    json!({ "static": { "bundle": document.to_string() } })
}

pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub fn svid_params(uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "workload");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names =
        uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    params
}
