//! As many peers as a SpireServer may have, some of them slow or dead. The peers are small TLS
//! servers of this process.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use testkit::{
    Controller, Pair, eventually, free_port, pair,
    stage::{self, Stage},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use trustplane::spiffe::bundle::write;

use crate::peer_outage::trusting;

/// Refresh hint of the peers, the shortest that there is.
const HINT: Duration = Duration::from_secs(60);
const LATENCY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq)]
pub enum Peer {
    Good,
    /// Says everything too late.
    Slow,
    /// Nobody listens.
    Refusing,
    /// Takes the connection and is never heard of again.
    Silent,
    /// Takes the connection and ends it.
    HangingUp,
}

use Peer::{Good, HangingUp, Refusing, Silent, Slow};

/// The bad ones first: a client that asks in this order meets them before all others.
fn fifty_peers() -> Vec<(String, Peer)> {
    let bad = [Slow, Silent, Silent, Refusing, Refusing, HangingUp];
    let good = std::iter::repeat_n(Good, 44);
    let named = |(number, peer)| (format!("peer-{number}.test"), peer);
    bad.into_iter().chain(good).enumerate().map(named).collect()
}

/// State that the peers share.
pub struct Served {
    acceptor: TlsAcceptor,
    bundle: String,
    /// Served in place of the bundle.
    instead: Mutex<Option<String>>,
}

impl Served {
    pub fn new(pair: &Pair) -> Arc<Self> {
        Self::asking_for(HINT, pair)
    }

    /// Peers that ask to be asked so often.
    pub fn asking_for(hint: Duration, pair: &Pair) -> Arc<Self> {
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a pair");
        let authority = CertificateDer::from_pem_slice(pair.authority.as_bytes());
        let bundle = write::document(&[authority.expect("an authority")], 7, hint);
        let (acceptor, bundle) = (TlsAcceptor::from(Arc::new(config)), bundle.expect("a bundle"));
        Arc::new(Self { acceptor, bundle, instead: Mutex::default() })
    }

    /// The document that they serve.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// They serve this one from now on.
    pub fn serve(&self, document: &Value) {
        *self.instead.lock().expect("the document") = Some(document.to_string());
    }

    /// Starts a peer. Answers its port.
    pub async fn start(self: &Arc<Self>, peer: Peer, peers: &mut JoinSet<()>) -> u16 {
        if peer == Refusing {
            return free_port().expect("a free port");
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let served = self.clone();
        peers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(served.clone().meet(stream, peer));
            }
        });
        port
    }

    async fn meet(self: Arc<Self>, stream: TcpStream, peer: Peer) {
        match peer {
            Good => drop(self.answer(stream, Duration::ZERO).await),
            Slow => drop(self.answer(stream, LATENCY).await),
            Silent => std::future::pending().await,
            Refusing | HangingUp => drop(stream),
        }
    }

    async fn answer(&self, stream: TcpStream, after: Duration) -> std::io::Result<()> {
        let mut stream = self.acceptor.accept(stream).await?;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await?);
        }
        tokio::time::sleep(after).await;
        let instead = self.instead.lock().expect("the document").clone();
        let bundle = instead.as_deref().unwrap_or(&self.bundle);
        let length = bundle.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{bundle}");
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }
}

fn federation(peers: &[(String, Peer, u16)]) -> Value {
    let peer = |(trust_domain, _, port): &(String, Peer, u16)| {
        json!({
            "trustDomain": trust_domain,
            "bundleEndpointUrl": format!("https://localhost:{port}"),
            "bundleEndpointProfile": "https_web",
        })
    };
    let mut federation = stage::spiffe();
    federation["federatesWith"] = peers.iter().map(peer).collect();
    federation
}

/// The peers of which there is something to tell.
pub async fn peers_of(stage: &Stage) -> Vec<Value> {
    let server = stage.server().await;
    let peers = server["status"]["federation"]["peers"].as_array().cloned().unwrap_or_default();
    let told = |it: &Value| it["lastSuccessTime"].is_string() || it["lastError"].is_string();
    peers.into_iter().filter(told).collect()
}

/// Waits until so many peers are told of. Answers them, and how long that took.
async fn until_told(stage: &Stage, number: usize, within: Duration) -> (Vec<Value>, Duration) {
    let start = Instant::now();
    let told = eventually(within, &format!("{number} peers are told of"), async || {
        let told = peers_of(stage).await;
        if told.len() >= number { Ok(told) } else { Err(told.len()) }
    })
    .await;
    (told, start.elapsed())
}

fn well(peer: &&Value) -> bool {
    peer["reachable"] == true && peer["profileVerified"] == true && peer["lastError"].is_null()
}

/// A figure of a process's memory, such as `VmRSS`, in KiB.
fn memory(controller: &Controller, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.pid()));
    let status = status.expect("the controller runs");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {figure} in {status}"))
}

#[tokio::test]
async fn of_fifty_peers_the_slow_and_the_dead_delay_nobody() {
    let pair = pair::issued("localhost");
    let served = Served::new(&pair);
    let mut tasks = JoinSet::new();
    let mut peers = Vec::new();
    for (name, peer) in fifty_peers() {
        let port = served.start(peer, &mut tasks).await;
        peers.push((name, peer, port));
    }
    let stage = Stage::start("federation-many-peers").await;
    stage.create(federation(&peers)).await;
    let environment = trusting(&stage, &pair);
    // They are all on this machine, and each is to say what is wrong with it.
    let flags = ["--peer-error-detail=all"];
    let controller = stage.controller_with(&flags, &environment).await;

    let (early, quickly) = until_told(&stage, 47, LATENCY).await;
    assert_eq!(early.iter().filter(well).count(), 44, "{early:#?}");
    let waiting = |name: &str| !early.iter().any(|it| it["trustDomain"] == name);
    assert!(waiting("peer-0.test"), "the slow one is still being waited for: {early:#?}");

    let (all, later) = until_told(&stage, 50, 2 * HINT - quickly).await;
    let errors: Vec<&str> = all.iter().filter_map(|it| it["lastError"].as_str()).collect();
    assert_eq!(errors.len(), 5, "{errors:#?}");
    assert!(well(&&all[0]), "slow is not dead: {}", all[0]);
    assert_eq!(all.iter().filter(well).count(), 45);
    for peer in &all[1..6] {
        assert_eq!(peer["profileVerified"], false, "{peer}");
    }
    for peer in all[6..].iter().chain(&all[..1]) {
        assert_eq!(peer["sequence"], 7, "{peer}");
        assert_eq!(peer["refreshHint"], HINT.as_secs(), "{peer}");
    }
    println!(
        "50 peers: the good ones told of after {quickly:.1?}, all after {:.1?}; resident memory of the \
         controller {} KiB, at most {} KiB; {errors:#?}",
        quickly + later,
        memory(&controller, "VmRSS"),
        memory(&controller, "VmHWM"),
    );
    assert_eq!(stage.refused(), Vec::<String>::new());
}
