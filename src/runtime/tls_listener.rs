//! Serves TLS with a certificate and key from two files, which are read again when they change.

use std::{
    collections::VecDeque,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use zeroize::Zeroizing;

use crate::runtime::{lock::lock, proxy_protocol};

/// The files are checked for changes at most this often.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 64;
/// Thousands of agents that come back after a restart are no attack.
const MAX_GRPC_HANDSHAKES: usize = 512;

/// Names files, never their content.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("{} can't be read: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds no private key in PEM", .0.display())]
    NoKey(PathBuf),
    #[error("{} and {} are no usable pair", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf },
}

/// Two files, and the pair that was last read from them.
pub struct CertReloader {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    pair: Arc<CertifiedKey>,
    /// Of the files when they were last checked.
    digest: [u8; 32],
    checked_at: Instant,
}

impl fmt::Debug for CertReloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertReloader({}, {})", self.certificate.display(), self.key.display())
    }
}

impl CertReloader {
    /// Fails unless the files hold a usable pair.
    pub fn read(certificate: &Path, key: &Path) -> Result<Arc<Self>, PairError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let files = Files::read(certificate, key)?;
        let pair = Arc::new(files.pair(&provider)?);
        let loaded = Loaded { pair, digest: files.digest(), checked_at: Instant::now() };
        let loaded = Mutex::new(loaded);
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Arc::new(Self { certificate, key, provider, loaded }))
    }

    /// The pair to serve now. An unusable new one is logged once, and the old one stays.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut loaded = lock(&self.loaded);
        if loaded.checked_at.elapsed() >= RELOAD_INTERVAL {
            loaded.checked_at = Instant::now();
            if let Err(error) = self.reload(&mut loaded) {
                tracing::warn!(%error, "reloading the certificate failed, the old one stays");
            }
        }
        loaded.pair.clone()
    }

    fn reload(&self, loaded: &mut Loaded) -> Result<(), PairError> {
        let files = Files::read(&self.certificate, &self.key)?;
        let digest = files.digest();
        if std::mem::replace(&mut loaded.digest, digest) != digest {
            loaded.pair = Arc::new(files.pair(&self.provider)?);
            tracing::info!("certificate reloaded");
        }
        Ok(())
    }
}

impl ResolvesServerCert for CertReloader {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

struct Files<'a> {
    paths: (&'a Path, &'a Path),
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl<'a> Files<'a> {
    fn read(certificate: &'a Path, key: &'a Path) -> Result<Self, PairError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|cause| PairError::Read { path: path.to_owned(), cause })
        };
        let paths = (certificate, key);
        Ok(Self { paths, certificate: read(certificate)?, key: Zeroizing::new(read(key)?) })
    }

    fn digest(&self) -> [u8; 32] {
        let length = (self.certificate.len() as u64).to_be_bytes();
        let digest = Sha256::new().chain_update(length).chain_update(&self.certificate);
        digest.chain_update(&*self.key).finalize().into()
    }

    fn pair(&self, provider: &CryptoProvider) -> Result<CertifiedKey, PairError> {
        let (certificate, key) = self.paths;
        // Our administrator chose these files, so the usual reader will do. `src/tls` judges what
        // tenants wrote.
        let chain: Vec<_> = rustls_pemfile::certs(&mut &*self.certificate)
            .collect::<Result<_, _>>()
            .ok()
            .filter(|chain: &Vec<_>| !chain.is_empty())
            .ok_or_else(|| PairError::NoCertificate(certificate.to_owned()))?;
        let private = rustls_pemfile::private_key(&mut &**self.key)
            .ok()
            .flatten()
            .ok_or_else(|| PairError::NoKey(key.to_owned()))?;
        CertifiedKey::from_der(chain, private, provider).map_err(|_| PairError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }
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

/// The certificate, in DER, of a client whose chain leads to one of our CAs for clients. An extension of its
/// requests.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Http1,
    Grpc,
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
        let mut config = versions.with_no_client_auth().with_cert_resolver(resolver);
        let (name, most) = match protocol {
            Protocol::Http1 => (&b"http/1.1"[..], MAX_HANDSHAKES),
            Protocol::Grpc => (&b"h2"[..], MAX_GRPC_HANDSHAKES),
        };
        config.alpn_protocols = vec![name.to_vec()];
        if protocol == Protocol::Grpc {
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
