//! A TLS proxy before an API server that notes every byte.
//!
//! It offers its client the protocol that the server chose of those that the client named, so both speak as they
//! would without it. What was noted is in the suite's folder, a file per connection and direction.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::Acceptor,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use super::leaks::{Search, TRAFFIC};
use crate::{Pair, authority::Authority, suite};

/// What becomes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    #[default]
    Flows,
    /// Nothing is passed on, but connections stay open: the cluster hangs.
    Stalls,
    /// All are closed, and so is every new one: the cluster is down.
    Breaks,
}

/// Where the bytes go.
#[derive(Clone)]
enum Upstream {
    Tls(SocketAddr, Arc<RootCertStore>),
    /// To another proxy of the tests. It speaks HTTP/1.1.
    Plain(SocketAddr),
}

/// Dropping it ends it and its connections.
pub struct RecordingProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: Upstream,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    folder: PathBuf,
    protocols: Mutex<BTreeSet<String>>,
    traffic: watch::Sender<Traffic>,
}

impl RecordingProxy {
    /// Before a server whose certificate is of the same CA, on the runtime of the caller.
    pub async fn start(cluster: &str, ca: &Authority, server: SocketAddr) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for root in certificates(&ca.root()) {
            roots.add(root).map_err(io::Error::other)?;
        }
        Self::before(cluster, &ca.issue("127.0.0.1"), Upstream::Tls(server, Arc::new(roots))).await
    }

    /// Before a proxy of the tests that takes HTTP without TLS.
    pub async fn start_before_plain(
        cluster: &str,
        ca: &Authority,
        server: SocketAddr,
    ) -> io::Result<Self> {
        Self::before(cluster, &ca.issue("127.0.0.1"), Upstream::Plain(server)).await
    }

    async fn before(cluster: &str, pair: &Pair, upstream: Upstream) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let folder = format!("{TRAFFIC}/{cluster}/{}", suite::next_number());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let shared = Arc::new(Shared {
            upstream,
            certificates: certificates(&pair.certificate),
            key: key.map_err(io::Error::other)?,
            folder: suite::subfolder(&folder),
            protocols: Mutex::default(),
            traffic: watch::Sender::default(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Changes what becomes of connections, those that are open, too.
    pub fn set(&self, traffic: Traffic) {
        self.shared.traffic.send_replace(traffic);
    }

    /// The protocols that clients and the server agreed on.
    pub fn protocols(&self) -> BTreeSet<String> {
        self.shared.protocols.lock().expect("nobody panics with it").clone()
    }

    /// Whether the server was sent one of these tokens.
    pub fn was_sent<'a>(&self, tokens: impl IntoIterator<Item = &'a str>) -> bool {
        let search = Search::of(tokens.into_iter().map(|token| ("", token)));
        self.files("sent").iter().any(|file| search.is_in(&read(file)))
    }

    /// How often these bytes were sent to the server.
    pub fn count(&self, bytes: &[u8]) -> usize {
        let found = |file: &PathBuf| {
            read(file).windows(bytes.len()).filter(|window| *window == bytes).count()
        };
        self.files("sent").iter().map(found).sum()
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let all = self.shared.folder.read_dir().into_iter().flatten().flatten();
        let all = all.map(|entry| entry.path());
        all.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
    }
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Traffic::Breaks);
    }
}

fn read(file: &Path) -> Vec<u8> {
    std::fs::read(file).expect("what was noted can be read")
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all: Result<_, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.expect("certificates of the tests are PEM")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let mut traffic = shared.traffic.subscribe();
            let broken = async move {
                let _ = traffic.wait_for(|it| *it == Traffic::Breaks).await;
            };
            tokio::select! {
                // An end that a fault brought about, or one of the two sides.
                _ = shared.converse(client) => {}
                () = broken => {}
            }
        });
    }
}

impl Shared {
    async fn converse(&self, client: TcpStream) -> io::Result<()> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), client).await?;
        let offered = hello.client_hello().alpn();
        let offered: Vec<_> = offered.into_iter().flatten().map(<[u8]>::to_vec).collect();
        match &self.upstream {
            Upstream::Plain(address) => {
                let server = TcpStream::connect(address).await?;
                let is_offered = offered.iter().any(|it| it == b"http/1.1");
                let chosen = is_offered.then(|| b"http/1.1".to_vec());
                let client = hello.into_stream(self.server_config(chosen.as_deref())?).await?;
                self.pump(client, server).await
            }
            Upstream::Tls(address, roots) => {
                let server = connect(*address, roots, offered).await?;
                let chosen = server.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
                let client = hello.into_stream(self.server_config(chosen.as_deref())?).await?;
                self.pump(client, server).await
            }
        }
    }

    fn server_config(&self, protocol: Option<&[u8]>) -> io::Result<Arc<ServerConfig>> {
        let named = protocol.map_or_else(|| "none".into(), |it| String::from_utf8_lossy(it));
        self.protocols.lock().expect("nobody panics with it").insert(named.into_owned());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth();
        let config = config.with_single_cert(self.certificates.clone(), self.key.clone_key());
        let mut config = config.map_err(io::Error::other)?;
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        Ok(Arc::new(config))
    }

    async fn pump(
        &self,
        client: impl AsyncRead + AsyncWrite,
        server: impl AsyncRead + AsyncWrite,
    ) -> io::Result<()> {
        let number = suite::next_number();
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        let both = tokio::join!(
            self.copy(from_client, to_server, self.record(&format!("{number}.sent"))?),
            self.copy(from_server, to_client, self.record(&format!("{number}.answered"))?),
        );
        both.0.and(both.1)
    }

    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        mut record: File,
    ) -> io::Result<()> {
        let mut traffic = self.traffic.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            let _ = traffic.wait_for(|it| *it != Traffic::Stalls).await;
            // Noted first: nothing reaches the other side unseen.
            record.write_all(&buffer[..length])?;
            to.write_all(&buffer[..length]).await?;
            to.flush().await?;
        }
    }

    fn record(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).open(self.folder.join(name))
    }
}

async fn connect(
    address: SocketAddr,
    roots: &Arc<RootCertStore>,
    protocols: Vec<Vec<u8>>,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_root_certificates(roots.clone());
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = protocols;
    let server = TcpStream::connect(address).await?;
    server.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), server).await
}
