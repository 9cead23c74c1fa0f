//! Another trust domain whose endpoint answers whatever a test wants, over real TLS.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use testkit::{Pair, authority::Authority as WebCa};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use trustplane::{
    authority::{
        act::signer::{LocalSigner, Signer, make_ca},
        decide::ca::{self, AuthorityState},
    },
    bundle::serve::ServerSvid,
    spiffe::id::SpiffeId,
};

use crate::stage::policy;

pub const HOST: &str = "127.0.0.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Spiffe,
    Web,
}

/// How a server proves its identity.
pub type Identity = Arc<ServerConfig>;

#[derive(Clone)]
pub enum Reply {
    Document(String),
    RedirectTo(String),
    /// A byte now and then, without an end.
    Slow,
}

pub struct Peer {
    pub trust_domain: String,
    profile: Profile,
    /// With one CA.
    pub state: AuthorityState,
    signer: LocalSigner,
    web: WebCa,
    endpoint: RawEndpoint,
}

impl Peer {
    /// Answers its document with this sequence.
    pub async fn start(trust_domain: &str, profile: Profile, sequence: u64) -> Self {
        let (state, signer) = authority(trust_domain, sequence, Utc::now());
        let web = WebCa::new("web");
        let identity = match profile {
            Profile::Spiffe => of_svid(svid(&signer, trust_domain, "/server")),
            Profile::Web => of_pair(&web.issue(HOST)),
        };
        let reply = Reply::Document(state.document().unwrap());
        let endpoint = RawEndpoint::start(identity, reply).await;
        Self { trust_domain: trust_domain.to_owned(), profile, state, signer, web, endpoint }
    }

    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    pub fn endpoint_id(&self) -> String {
        format!("spiffe://{}/server", self.trust_domain)
    }

    /// The certificates that verify its endpoint by https_web.
    pub fn web_ca(&self) -> &WebCa {
        &self.web
    }

    /// For a SPIFFEFederation.
    pub fn source(&self) -> Value {
        let url = self.url();
        match self.profile {
            Profile::Spiffe => json!({ "httpsSPIFFE": {
                "bundleEndpointURL": url,
                "endpointSPIFFEID": self.endpoint_id(),
                "bundleBootstrap": self.state.document().unwrap(),
            } }),
            Profile::Web => json!({ "httpsWeb": {
                "bundleEndpointURL": url, "caBundle": self.web.root(),
            } }),
        }
    }

    /// An SVID for a workload, with its chain.
    pub fn svid(&self) -> Vec<CertificateDer<'static>> {
        svid(&self.signer, &self.trust_domain, "/shop").chain
    }

    /// What its endpoint has by the profile that it does not have.
    pub fn other_profile(&self) -> Identity {
        match self.profile {
            Profile::Spiffe => of_pair(&self.web.issue(HOST)),
            Profile::Web => of_svid(svid(&self.signer, &self.trust_domain, "/server")),
        }
    }

    /// How often its endpoint was asked.
    pub fn asked(&self) -> usize {
        self.endpoint.shared.asked.load(Relaxed)
    }

    pub fn identity(&self) -> Identity {
        self.endpoint.shared.behaviour.lock().unwrap().0.clone()
    }

    /// Answers like this from now on, and proves its identity as before.
    pub fn reply(&self, reply: Reply) {
        self.behave(self.identity(), reply);
    }

    pub fn behave(&self, identity: Identity, reply: Reply) {
        *self.endpoint.shared.behaviour.lock().unwrap() = (identity, reply);
    }
}

/// A trust domain with one CA, made then.
pub fn authority(
    trust_domain: &str,
    sequence: u64,
    now: DateTime<Utc>,
) -> (AuthorityState, LocalSigner) {
    let made = make_ca(trust_domain, TimeDelta::days(1), now).unwrap();
    let before = ca::Before { sequence: Some(sequence - 1), ..ca::Before::default() };
    let state = ca::first(trust_domain, made.ca, before, &policy(), now);
    let signer = LocalSigner::new(trust_domain, &state.cas[0], &made.key).unwrap();
    (state, signer)
}

pub fn svid(signer: &LocalSigner, trust_domain: &str, path: &str) -> ServerSvid {
    let id = SpiffeId::parse(&format!("spiffe://{trust_domain}{path}")).unwrap();
    signer.sign(&id, TimeDelta::hours(1), Utc::now()).unwrap()
}

pub fn of_svid(svid: ServerSvid) -> Identity {
    identity(svid.chain, svid.key)
}

pub fn of_pair(pair: &Pair) -> Identity {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    identity(chain.map(Result::unwrap).collect(), key)
}

fn identity(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Identity {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// A TLS server that knows as little of HTTP as it takes to answer wrongly.
pub struct RawEndpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    behaviour: Mutex<(Identity, Reply)>,
    asked: AtomicUsize,
}

impl RawEndpoint {
    pub async fn start(identity: Identity, reply: Reply) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Mutex::new((identity, reply));
        let shared = Arc::new(Shared { behaviour, asked: AtomicUsize::new(0) });
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.asked.fetch_add(1, Relaxed);
                let (identity, reply) = serving.behaviour.lock().unwrap().clone();
                // A client that hangs up is what many tests are about.
                tokio::spawn(answer(stream, identity, reply));
            }
        });
        Self { address, shared, task }
    }

    pub fn url(&self) -> String {
        format!("https://{}/", self.address)
    }
}

impl Drop for RawEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(stream: TcpStream, identity: Identity, reply: Reply) -> io::Result<()> {
    let mut stream = TlsAcceptor::from(identity).accept(stream).await?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let head = match &reply {
        Reply::RedirectTo(url) => format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}\r\n"),
        _ => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await?;
    match reply {
        Reply::Document(document) => stream.write_all(document.as_bytes()).await?,
        Reply::RedirectTo(_) => {}
        Reply::Slow => loop {
            stream.write_all(b" ").await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        },
    }
    stream.shutdown().await
}
