//! Serves TLS with a certificate and key from two files, which are read again when they change.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::AbortHandle,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub use self::client_roots::{ClientCertificate, ClientRoots, RootsError};
use crate::runtime::{
    proxy_protocol,
    reloader::{Content, ReadError, Reloader},
};

mod client_roots;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 64;
/// Thousands of agents or callers that come back after a restart are no attack.
const MAX_HANDSHAKES_OF_MANY: usize = 512;

/// Names files, never their content.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds no private key in PEM", .0.display())]
    NoKey(PathBuf),
    #[error("{} and {} are no usable pair", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf },
}

/// Two files, and the pair that was last read from them.
#[derive(Debug)]
pub struct CertReloader {
    files: Reloader<Arc<CertifiedKey>, PairError>,
    provider: Arc<CryptoProvider>,
}

impl CertReloader {
    /// Fails unless the files hold a usable pair.
    pub fn read(certificate: &Path, key: &Path) -> Result<Arc<Self>, PairError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let paths = [certificate.to_owned(), key.to_owned()];
        let (used, named) = (provider.clone(), paths.clone());
        let parse = move |contents: &[Content]| pair(contents, &named, &used).map(Arc::new);
        let files = Reloader::read("certificate", paths.into(), parse)?;
        Ok(Arc::new(Self { files, provider }))
    }

    /// The pair to serve now.
    fn current(&self) -> Arc<CertifiedKey> {
        self.files.current()
    }
}

impl ResolvesServerCert for CertReloader {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn pair(
    contents: &[Content],
    [certificate, key]: &[PathBuf; 2],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, PairError> {
    let unusable = || PairError::Unusable { certificate: certificate.clone(), key: key.clone() };
    let [chain, private] = contents else { return Err(unusable()) };
    // Our administrator chose these files, so the usual reader will do. `src/tls` judges what
    // tenants wrote.
    let chain: Vec<_> = rustls_pemfile::certs(&mut &***chain)
        .collect::<Result<_, _>>()
        .ok()
        .filter(|chain: &Vec<_>| !chain.is_empty())
        .ok_or_else(|| PairError::NoCertificate(certificate.clone()))?;
    let private = rustls_pemfile::private_key(&mut &***private)
        .ok()
        .flatten()
        .ok_or_else(|| PairError::NoKey(key.clone()))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|_| unusable())
}

/// Yields connections that have finished their handshake. Each handshake is a task of its own, so
/// that a slow peer delays no other.
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

/// Where the address of a peer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// The TCP connection, whose other side may be a router.
    Connection,
    /// A header of PROXY protocol v2, which the router in front of us puts before everything else.
    ProxyHeader,
}

#[derive(Debug)]
enum Protocol {
    Http1,
    Grpc,
    /// HTTP/1.1 or HTTP/2. With a verifier, clients are asked for a certificate.
    Api(Option<Arc<dyn ClientCertVerifier>>),
}

impl Protocol {
    fn names(&self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Grpc => &[b"h2"],
            Self::Api(_) => &[b"h2", b"http/1.1"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }

    /// At the same time.
    fn handshakes(&self) -> usize {
        match self {
            Self::Http1 => MAX_HANDSHAKES,
            Self::Grpc | Self::Api(_) => MAX_HANDSHAKES_OF_MANY,
        }
    }
}

impl TlsListener {
    pub fn new(listener: TcpListener, pair: Arc<CertReloader>) -> io::Result<Self> {
        Self::with_resolver(listener, pair.provider.clone(), pair)
    }

    /// For HTTP/1.1.
    pub fn with_resolver(
        listener: TcpListener,
        provider: Arc<CryptoProvider>,
        resolver: Arc<dyn ResolvesServerCert>,
    ) -> io::Result<Self> {
        Self::start(listener, provider, resolver, Protocol::Http1, PeerAddress::Connection)
    }

    /// For HTTP/2 alone.
    pub fn for_grpc(
        listener: TcpListener,
        resolver: Arc<dyn ResolvesServerCert>,
        peers: PeerAddress,
    ) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Self::start(listener, provider, resolver, Protocol::Grpc, peers)
    }

    /// For HTTP/1.1 and HTTP/2, to clients that may show a certificate. Which of them count, `roots` says when
    /// they are connected.
    pub fn for_api(
        listener: TcpListener,
        pair: Arc<CertReloader>,
        roots: Option<&ClientRoots>,
    ) -> io::Result<Self> {
        let protocol = Protocol::Api(roots.map(ClientRoots::verifier));
        Self::start(listener, pair.provider.clone(), pair, protocol, PeerAddress::Connection)
    }

    fn start(
        listener: TcpListener,
        provider: Arc<CryptoProvider>,
        resolver: Arc<dyn ResolvesServerCert>,
        protocol: Protocol,
        peers: PeerAddress,
    ) -> io::Result<Self> {
        // TLS 1.2 and 1.3.
        let versions = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let verifier = match &protocol {
            Protocol::Api(Some(verifier)) => verifier.clone(),
            _ => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = versions.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        config.alpn_protocols = protocol.names();
        let most = protocol.handshakes();
        if matches!(protocol, Protocol::Grpc) {
            // Whoever comes back comes hours later, so nothing is gained by remembering its session.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        let address = listener.local_addr()?;
        let (send, ready) = mpsc::channel(most);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(accept(listener, Handshakes { acceptor, peers, most }, send));
        Ok(Self { address, ready })
    }
}

type Ready = mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>;

/// How connections begin.
#[derive(Clone)]
struct Handshakes {
    acceptor: TlsAcceptor,
    peers: PeerAddress,
    /// At the same time.
    most: usize,
}

impl Handshakes {
    async fn shake(
        self,
        mut stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<(TlsStream<TcpStream>, SocketAddr)> {
        // Answers are small, and waited for: together with the client's late ACKs, each could wait 40 ms.
        stream.set_nodelay(true)?;
        let peer = match self.peers {
            PeerAddress::Connection => peer,
            // The router's own health checks have no other address.
            PeerAddress::ProxyHeader => proxy_protocol::read(&mut stream).await?.unwrap_or(peer),
        };
        Ok((self.acceptor.accept(stream).await?, peer))
    }
}

async fn accept(mut listener: TcpListener, handshakes: Handshakes, ready: Ready) {
    let mut under_way = VecDeque::new();
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = ready.closed() => return,
            accepted = axum::serve::Listener::accept(&mut listener) => accepted,
        };
        let (shake, ready) = (handshakes.clone().shake(stream, peer), ready.clone());
        let handshake = tokio::spawn(async move {
            if let Ok(Ok(connection)) = timeout(HANDSHAKE_TIMEOUT, shake).await {
                let _ = ready.send(connection).await;
            }
        });
        make_room(&mut under_way, handshakes.most);
        under_way.push_back(handshake.abort_handle());
    }
}

/// Aborts the oldest handshake if there are too many. An honest one takes milliseconds; silent
/// peers must not delay the kubelet's probes.
fn make_room(under_way: &mut VecDeque<AbortHandle>, most: usize) {
    under_way.retain(|handshake| !handshake.is_finished());
    while under_way.len() >= most {
        if let Some(oldest) = under_way.pop_front() {
            oldest.abort();
        }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task outlives this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests;
