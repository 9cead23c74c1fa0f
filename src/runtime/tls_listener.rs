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
    server::{ClientHello, ResolvesServerCert},
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

use crate::runtime::lock::lock;

/// The files are checked for changes at most this often.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 64;

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

impl TlsListener {
    pub fn new(listener: TcpListener, pair: Arc<CertReloader>) -> io::Result<Self> {
        Self::with_resolver(listener, pair.provider.clone(), pair)
    }

    pub fn with_resolver(
        listener: TcpListener,
        provider: Arc<CryptoProvider>,
        resolver: Arc<dyn ResolvesServerCert>,
    ) -> io::Result<Self> {
        // TLS 1.2 and 1.3.
        let versions = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let mut config = versions.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let address = listener.local_addr()?;
        let (send, ready) = mpsc::channel(MAX_HANDSHAKES);
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), send));
        Ok(Self { address, ready })
    }
}

type Ready = mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>;

async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, ready: Ready) {
    let mut under_way = VecDeque::new();
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = ready.closed() => return,
            accepted = axum::serve::Listener::accept(&mut listener) => accepted,
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        let handshake = tokio::spawn(async move {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                let _ = ready.send((stream, peer)).await;
            }
        });
        make_room(&mut under_way);
        under_way.push_back(handshake.abort_handle());
    }
}

/// Aborts the oldest handshake if there are too many. An honest one takes milliseconds; silent
/// peers must not delay the kubelet's probes.
fn make_room(under_way: &mut VecDeque<AbortHandle>) {
    under_way.retain(|handshake| !handshake.is_finished());
    while under_way.len() >= MAX_HANDSHAKES {
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
