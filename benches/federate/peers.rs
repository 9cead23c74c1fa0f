//! Peers: small bundle endpoints in this process, which record every fetch.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use openssl::{bn::BigNum, bn::BigNumContext, x509::X509};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use testkit::{Pair, pair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The shortest refresh hint: peers are polled four times as often.
pub const HINT: Duration = Duration::from_secs(60);

/// The fetching client, by its user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Controller,
    SpireServer,
    Other,
}

#[derive(Clone, Copy)]
pub struct Fetch {
    pub client: Client,
    pub sequence: u64,
    pub at: Instant,
}

/// A trust domain with its endpoint.
pub struct Peer {
    pub trust_domain: String,
    pub address: SocketAddr,
    state: Mutex<State>,
}

struct State {
    document: Arc<str>,
    sequence: u64,
    /// The newest two, as in a server that rotates.
    authorities: Vec<Value>,
    fetches: Vec<Fetch>,
}

/// Running endpoints. Dropping it stops them.
pub struct Peers {
    pub all: Vec<Arc<Peer>>,
    /// CA of their certificates, in PEM.
    pub authority: String,
    _tasks: JoinSet<()>,
}

impl Peers {
    pub async fn start(number: usize) -> anyhow::Result<Self> {
        let pair = pair::issued("localhost");
        let acceptor = acceptor(&pair)?;
        let (mut all, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..number {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let mut state = State {
                document: Arc::default(),
                sequence: 0,
                authorities: Vec::new(),
                fetches: Vec::new(),
            };
            state.rotate(authority()?);
            let peer = Arc::new(Peer {
                trust_domain: format!("peer-{number}.test"),
                address: listener.local_addr()?,
                state: Mutex::new(state),
            });
            all.push(peer.clone());
            tasks.spawn(serve(listener, acceptor.clone(), peer));
        }
        Ok(Self { all, authority: pair.authority, _tasks: tasks })
    }

    /// Rotates all peers at once. Returns the time and the new sequence.
    pub fn rotate(&self) -> anyhow::Result<(Instant, u64)> {
        let new = self.all.iter().map(|_| authority()).collect::<Result<Vec<_>, _>>()?;
        let (moment, mut sequence) = (Instant::now(), 0);
        for (peer, authority) in self.all.iter().zip(new) {
            sequence = peer.change(|state| {
                state.rotate(authority);
                state.sequence
            });
        }
        Ok((moment, sequence))
    }

    /// Their entries in a SpireServer.
    pub fn federates_with(&self) -> Value {
        let peer = |peer: &Arc<Peer>| {
            json!({
                "trustDomain": peer.trust_domain,
                "bundleEndpointUrl": format!("https://localhost:{}", peer.address.port()),
                "bundleEndpointProfile": "https_web",
            })
        };
        self.all.iter().map(peer).collect()
    }
}

impl Peer {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When a client first got this bundle.
    pub fn first_fetch(&self, client: Client, sequence: u64) -> Option<Instant> {
        let wanted = |it: &&Fetch| it.client == client && it.sequence == sequence;
        self.change(|state| state.fetches.iter().find(wanted).map(|it| it.at))
    }

    /// How often a client has fetched so far.
    pub fn fetches(&self, client: Client) -> usize {
        self.change(|state| state.fetches.iter().filter(|it| it.client == client).count())
    }
}

impl State {
    fn rotate(&mut self, authority: Value) {
        self.sequence += 1;
        self.authorities.push(authority);
        if self.authorities.len() > 2 {
            self.authorities.remove(0);
        }
        let document = json!({
            "keys": self.authorities,
            "spiffe_sequence": self.sequence,
            "spiffe_refresh_hint": HINT.as_secs(),
        });
        self.document = document.to_string().into();
    }
}

/// A new CA as a JWK. SPIRE reads the key's parameters beside the certificate.
fn authority() -> anyhow::Result<Value> {
    let certificate = X509::from_pem(pair::issued("peer.test").authority.as_bytes())?;
    let key = certificate.public_key()?.ec_key()?;
    let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
    let mut context = BigNumContext::new()?;
    key.public_key().affine_coordinates(key.group(), &mut x, &mut y, &mut context)?;
    let number = |it: &BigNum| it.to_vec_padded(32).map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    Ok(json!({
        "use": "x509-svid",
        "kty": "EC",
        "crv": "P-256",
        "x": number(&x)?,
        "y": number(&y)?,
        "x5c": [STANDARD.encode(certificate.to_der()?)],
    }))
}

fn acceptor(pair: &Pair) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().context("a certificate")?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("a key")?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, peer: Arc<Peer>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, peer) = (acceptor.clone(), peer.clone());
        // Errors of a client that disconnects are reported there.
        connections.spawn(async move { drop(answer(stream, acceptor, &peer).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, peer: &Peer) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut request).await?;
    }
    let client = client_of(&String::from_utf8_lossy(&request));
    let (document, sequence) = peer.change(|state| (state.document.clone(), state.sequence));
    let length = document.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{document}").as_bytes()).await?;
    stream.flush().await?;
    if client != Client::Other {
        let fetch = Fetch { client, sequence, at: Instant::now() };
        peer.change(|state| state.fetches.push(fetch));
    }
    stream.shutdown().await
}

fn client_of(request: &str) -> Client {
    let named = |line: &str| line.to_lowercase().strip_prefix("user-agent:").map(str::to_owned);
    match request.lines().find_map(named).unwrap_or_default().trim() {
        name if name.starts_with("trustplane/") => Client::Controller,
        name if name.starts_with("go-http-client/") => Client::SpireServer,
        _ => Client::Other,
    }
}
