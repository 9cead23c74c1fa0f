//! TLS for our own pages, with a certificate from two files that are read anew when they change.

use std::{
    collections::VecDeque,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
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

/// How often the files are looked at, at most.
const LOOK: Duration = Duration::from_secs(1);
/// A peer that does not finish its handshake is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes under way at once.
const AT_ONCE: usize = 64;

/// Why a pair can't be served. Names files, never what is in them.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A file can't be read.
    #[error("{} can't be read: {cause}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It holds no certificate.
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// It holds no key.
    #[error("{} holds no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// The two do not belong together, or can't be used.
    #[error("{} and {} are no usable pair", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// Two files, and the pair that was last read from them.
pub struct CertReloader {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    held: Mutex<Held>,
}

struct Held {
    pair: Arc<CertifiedKey>,
    /// Of what stood in the files when they were last looked at.
    digest: [u8; 32],
    looked: Instant,
}

impl fmt::Debug for CertReloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertReloader({}, {})", self.certificate.display(), self.key.display())
    }
}

impl CertReloader {
    /// Reads both; fails where they hold no usable pair.
    pub fn read(certificate: &Path, key: &Path) -> Result<Arc<Self>, PairError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let files = Files::read(certificate, key)?;
        let pair = Arc::new(files.pair(&provider)?);
        let held = Mutex::new(Held { pair, digest: files.digest(), looked: Instant::now() });
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Arc::new(Self { certificate, key, provider, held }))
    }

    /// The pair to serve now. A new one that can't be used is told of once, and the old one stays.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut held = self.held();
        if held.looked.elapsed() < LOOK {
            return held.pair.clone();
        }
        held.looked = Instant::now();
        let files = match Files::read(&self.certificate, &self.key) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, "the certificate of our own pages stays as it is");
                return held.pair.clone();
            }
        };
        let digest = files.digest();
        if digest != held.digest {
            held.digest = digest;
            match files.pair(&self.provider) {
                Ok(pair) => {
                    held.pair = Arc::new(pair);
                    tracing::info!("our own pages are served with a new certificate");
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate of our own pages stays as it is");
                }
            }
        }
        held.pair.clone()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }
}

impl ResolvesServerCert for CertReloader {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// What stands in the two files.
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
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .ok()
            .filter(|chain: &Vec<_>| !chain.is_empty())
            .ok_or_else(|| PairError::NoCertificate(certificate.to_owned()))?;
        let private = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| PairError::NoKey(key.to_owned()))?;
        CertifiedKey::from_der(chain, private, provider).map_err(|_| PairError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }
}

/// A listener whose connections have finished their handshake. Each does so in a task of its own:
/// a slow peer keeps no other waiting.
pub struct SecureListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl SecureListener {
    /// Serves TLS on a port that was taken.
    pub fn over(listener: TcpListener, pair: Arc<CertReloader>) -> io::Result<Self> {
        Self::resolving(listener, pair.provider.clone(), pair)
    }

    /// Serves TLS with whatever certificate the resolver names for a handshake.
    pub fn resolving(
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
        let (send, ready) = mpsc::channel(AT_ONCE);
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
            if let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await {
                let _ = ready.send((stream, peer)).await;
            }
        });
        make_room(&mut under_way);
        under_way.push_back(handshake.abort_handle());
    }
}

/// Lets go of the oldest handshake where there are too many. An honest one takes milliseconds and
/// is through by then; a peer that stays silent must not keep the kubelet's probes waiting.
fn make_room(under_way: &mut VecDeque<AbortHandle>) {
    under_way.retain(|handshake| !handshake.is_finished());
    while under_way.len() >= AT_ONCE {
        if let Some(oldest) = under_way.pop_front() {
            oldest.abort();
        }
    }
}

impl axum::serve::Listener for SecureListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task that accepts ends only after us.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests;
