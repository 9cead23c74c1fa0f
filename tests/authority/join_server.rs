//! A stand-in for the server that one joins: it keeps to the protocol, trusts whoever holds the key of the
//! SVID that it shows, and does what a test tells it to. What the real one refuses is shown elsewhere.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use chrono::{DateTime, TimeDelta, Utc};
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use testkit::suite::{self, KeyOf};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use trustplane::{
    authority::{
        decide::challenge::{self, Signed},
        join::{
            client::{Client, ServerTrust},
            messages::{
                Certs, Challenge, InitialRequest, METHOD, Request, RequestPayload, Response,
                ResponsePayload, Role, TrustBundles,
            },
            own_svid::SvidSource,
        },
        run::Authority,
    },
    runtime::clock::Clock,
    spiffe::{bundle::Bundle, id::TrustDomain, key::PublicKey, svid::PresentedSvid},
};

pub const OWN: &str = "own.test";
pub const PARTNER: &str = "partner.test";
/// How long a test waits for what must come, however busy this machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An authority of a trust domain, valid now.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Issued {
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
}

/// A public key whose private half somebody else has.
struct Theirs<'a>(&'a [u8]);

impl PublicKeyData for Theirs<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Ca {
    pub fn new(trust_domain: &str) -> Self {
        let mut params = params(trust_domain, Utc::now() + TimeDelta::days(1));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.subject_alt_names = vec![uri(&format!("spiffe://{trust_domain}"))];
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    pub fn jwk(&self) -> Value {
        let (x, y) = self.issuer.key().public_key_raw()[1..].split_at(32);
        let number = |bytes| URL_SAFE_NO_PAD.encode(bytes);
        let x5c = [STANDARD.encode(self.issuer.der())];
        json!({
            "kty": "EC", "use": "x509-svid", "crv": "P-256", "x": number(x), "y": number(y), "x5c": x5c,
        })
    }

    pub fn issue(&self, id: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        suite::register_der_key(KeyOf::Svid, &key.serialize_der());
        let der = self.sign(id, &key, Utc::now() + TimeDelta::hours(1));
        Issued { der, key }
    }

    fn sign(
        &self,
        id: &str,
        key: &impl PublicKeyData,
        end: DateTime<Utc>,
    ) -> CertificateDer<'static> {
        let mut params = params("workload", end);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![uri(id)];
        params.signed_by(key, &self.issuer).unwrap().der().clone()
    }

    /// For https_web.
    fn web_certificate(&self) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = params("web", Utc::now() + TimeDelta::hours(1));
        params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        Issued { der: params.signed_by(&key, &self.issuer).unwrap().der().clone(), key }
    }
}

fn params(name: &str, end: DateTime<Utc>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let at = |at: DateTime<Utc>| {
        date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(at.timestamp()).unwrap())
    };
    // As the authority does: a little back.
    params.not_before = at(Utc::now() - TimeDelta::seconds(10));
    params.not_after = at(end);
    params.use_authority_key_identifier_extension = true;
    params
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

pub fn document(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

pub type Documents = BTreeMap<String, Vec<u8>>;

/// What the stand-in does; a test changes it at any time.
pub struct Behaviour {
    /// Refuses every join so.
    pub refusal: Option<Code>,
    pub ttl: TimeDelta,
    /// Signs with this one.
    pub signer: Arc<Ca>,
    /// Issues for this ID instead of the one of the role.
    pub id: Option<String>,
    /// Issues for a key of its own.
    pub other_key: bool,
    /// What it takes for its own trust domain.
    pub trust_domain: String,
}

pub struct JoinServer {
    pub address: SocketAddr,
    pub ca: Arc<Ca>,
    /// Signs for https_web.
    pub web_ca: Ca,
    pub behaviour: Mutex<Behaviour>,
    bundles: watch::Sender<Documents>,
    /// Ends open streams when it changes.
    cuts: watch::Sender<u32>,
    pub joins: AtomicUsize,
    accepting: Mutex<Option<JoinHandle<()>>>,
    tls: Mutex<TlsAcceptor>,
}

/// The certificate that a stand-in shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Spiffe,
    Web,
}

impl JoinServer {
    pub async fn start() -> Arc<Self> {
        Self::start_with(Profile::Spiffe).await
    }

    pub async fn start_with(profile: Profile) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (ca, web_ca) = (Arc::new(Ca::new(OWN)), Ca::new("web.test"));
        let behaviour = Behaviour {
            refusal: None,
            ttl: TimeDelta::hours(1),
            signer: ca.clone(),
            id: None,
            other_key: false,
            trust_domain: OWN.to_owned(),
        };
        let own = document(&[ca.jwk()]).into_bytes();
        let bundles = watch::Sender::new(BTreeMap::from([(OWN.to_owned(), own)]));
        let issued = match profile {
            Profile::Spiffe => server_svid(&ca),
            Profile::Web => web_ca.web_certificate(),
        };
        let this = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            ca,
            web_ca,
            behaviour: Mutex::new(behaviour),
            bundles,
            cuts: watch::Sender::new(0),
            joins: AtomicUsize::new(0),
            accepting: Mutex::default(),
            tls: Mutex::new(acceptor(issued)),
        });
        let accepting = tokio::spawn(this.clone().accept(listener));
        *this.accepting.lock().unwrap() = Some(accepting);
        this
    }

    /// Nobody can connect any more, and everybody who is connected is cut off.
    pub fn stop(&self) {
        if let Some(accepting) = self.accepting.lock().unwrap().take() {
            accepting.abort();
        }
        self.cut();
    }

    pub fn cut(&self) {
        self.cuts.send_modify(|it| *it += 1);
    }

    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// Shows an SVID of this CA from now on.
    pub fn present(&self, ca: &Ca) {
        *self.tls.lock().unwrap() = acceptor(server_svid(ca));
    }

    pub fn publish(&self, change: impl FnOnce(&mut Documents)) {
        self.bundles.send_modify(change);
    }

    pub fn joined(&self) -> usize {
        self.joins.load(Ordering::SeqCst)
    }

    pub fn trust(&self) -> ServerTrust {
        let id = Authority::endpoint_id(&TrustDomain::parse(OWN).unwrap()).unwrap();
        let bundle = Bundle::parse(document(&[self.ca.jwk()]).as_bytes()).unwrap();
        ServerTrust::Spiffe { id, bundle: Arc::new(bundle) }
    }

    pub fn client(&self, source: SvidSource) -> Client {
        Client {
            server: self.address.to_string().parse().unwrap(),
            trust_domain: TrustDomain::parse(OWN).unwrap(),
            token: "ci".to_owned(),
            role: Role::Agent,
            node_name: "node".to_owned(),
            ttl: None,
            source,
            clock: Clock::system(),
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let (this, tls) = (self.clone(), self.tls.lock().unwrap().clone());
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request| {
                    let this = this.clone();
                    async move { Ok::<_, Infallible>(this.answer(request).await) }
                });
                let _ = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    async fn answer(self: Arc<Self>, request: http::Request<Incoming>) -> http::Response<Body> {
        assert_eq!(request.uri().path(), METHOD);
        let service = tower::service_fn(move |request: tonic::Request<Streaming<Request>>| {
            let this = self.clone();
            async move {
                let (responses, outgoing) = mpsc::channel(1);
                tokio::spawn(async move {
                    if let Err(status) = this.serve(request.into_inner(), &responses).await {
                        let _ = responses.send(Err(status)).await;
                    }
                });
                Ok(tonic::Response::new(ReceiverStream::new(outgoing)))
            }
        });
        Grpc::new(ProstCodec::<Response, Request>::default()).streaming(service, request).await
    }

    async fn serve(
        &self,
        mut requests: Streaming<Request>,
        responses: &mpsc::Sender<Result<Response, Status>>,
    ) -> Result<(), Status> {
        let gone = |_| Status::cancelled("gone");
        let send = async |payload| {
            responses.send(Ok(Response { payload: Some(payload) })).await.map_err(gone)
        };
        let Some(RequestPayload::Init(init)) = next(&mut requests).await? else {
            return Err(Status::invalid_argument("no init"));
        };
        let nonce = vec![7; challenge::NONCE_LENGTH];
        send(ResponsePayload::Challenge(Challenge { nonce: nonce.clone() })).await?;
        let Some(RequestPayload::ChallengeSolution(solution)) = next(&mut requests).await? else {
            return Err(Status::invalid_argument("no solution"));
        };
        self.joins.fetch_add(1, Ordering::SeqCst);
        let certs = self.certs(&init, &nonce, &solution.signed_nonce)?;
        // All changes from here on are sent.
        let (mut bundles, mut cuts) = (self.bundles.subscribe(), self.cuts.subscribe());
        send(ResponsePayload::Certs(certs)).await?;
        loop {
            let documents = bundles.borrow_and_update().clone();
            send(ResponsePayload::TrustBundles(TrustBundles { bundles: documents })).await?;
            tokio::select! {
                _ = cuts.changed() => return Err(Status::unavailable("cut off")),
                _ = bundles.changed() => {}
                () = responses.closed() => return Ok(()),
            }
        }
    }

    fn certs(
        &self,
        init: &InitialRequest,
        nonce: &[u8],
        signature: &[u8],
    ) -> Result<Certs, Status> {
        let behaviour = self.behaviour.lock().unwrap();
        if let Some(code) = behaviour.refusal {
            return Err(Status::new(code, "no, reference 4711"));
        }
        let request = init.join_request.clone().unwrap();
        let chain = [CertificateDer::from(init.x509_svid.clone())];
        let svid = PresentedSvid::read(&chain).unwrap();
        let signed = Signed {
            chain: &init.x509_svid,
            csr: &request.csr,
            token: &request.token,
            role: request.role,
            expires: request.expires,
        };
        let message = challenge::message(&behaviour.trust_domain, nonce, &signed);
        if !svid.key().unwrap().has_signed(&message, signature) {
            return Err(Status::permission_denied("no, reference 0815"));
        }
        let role = match request.role() {
            Role::Bot => "bot/ci",
            _ => "agent/one",
        };
        let id = behaviour.id.clone().unwrap_or_else(|| format!("spiffe://{OWN}/{role}"));
        let key = PublicKey::of_request(&request.csr).unwrap();
        let longest = Utc::now() + behaviour.ttl;
        let wished = DateTime::from_timestamp(request.expires, 0).filter(|_| request.expires > 0);
        let end = wished.map_or(longest, |it| it.min(longest));
        let der = match behaviour.other_key {
            true => behaviour.signer.issue(&id).der,
            false => behaviour.signer.sign(&id, &Theirs(key.bytes()), end),
        };
        Ok(Certs { x509_svid: vec![der.to_vec()], spiffe_id: id, expires: end.timestamp() })
    }
}

fn server_svid(ca: &Ca) -> Issued {
    ca.issue(&format!("spiffe://{OWN}/trustplane/authority"))
}

fn acceptor(issued: Issued) -> TlsAcceptor {
    let key: PrivateKeyDer<'_> = PrivatePkcs8KeyDer::from(issued.key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.der], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn next(requests: &mut Streaming<Request>) -> Result<Option<RequestPayload>, Status> {
    Ok(requests.message().await?.and_then(|it| it.payload))
}

/// Files with an SVID of the partner.
pub struct Foreign {
    pub folder: tempfile::TempDir,
    pub ca: Ca,
}

impl Foreign {
    pub fn new() -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap(), ca: Ca::new(PARTNER) };
        this.renew("spiffe://partner.test/node");
        this
    }

    pub fn renew(&self, id: &str) {
        let issued = self.ca.issue(id);
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(&issued.der)
        );
        std::fs::write(self.svid(), pem).unwrap();
        std::fs::write(self.key(), issued.key.serialize_pem()).unwrap();
    }

    pub fn svid(&self) -> std::path::PathBuf {
        self.folder.path().join("svid.pem")
    }

    pub fn key(&self) -> std::path::PathBuf {
        self.folder.path().join("svid_key.pem")
    }

    pub fn source(&self) -> SvidSource {
        SvidSource::Files { svid: self.svid(), key: self.key() }
    }
}
