//! One of several peers goes dark, and the others go on.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use testkit::{
    Controller, Pair, eventually, free_port, pair,
    stage::{self, Stage},
    suite,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    figures::Figures,
    many_peers::{Peer, Served, peers_of},
    side::{HINT, well},
};

/// The way to a peer: counts who takes it, and can be cut.
pub struct Way {
    port: u16,
    peer: u16,
    taken: Arc<AtomicUsize>,
    open: JoinSet<()>,
}

impl Way {
    pub async fn to(peer: u16) -> Self {
        let port = free_port().expect("a free port");
        let mut way = Self { port, peer, taken: Arc::default(), open: JoinSet::new() };
        way.restore().await;
        way
    }

    /// How often somebody set out for the peer.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Nobody listens any more, and who is under way does not arrive.
    pub async fn cut(&mut self) {
        self.open.shutdown().await;
    }

    /// As if nothing had been.
    pub async fn restore(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.expect("our own port");
        self.open.spawn(lead(listener, self.peer, self.taken.clone()));
    }

    /// As a peer that the machine's authorities vouch for.
    pub fn as_peer(&self, trust_domain: &str) -> Value {
        json!({
            "trustDomain": trust_domain,
            "bundleEndpointUrl": format!("https://localhost:{}", self.port),
            "bundleEndpointProfile": "https_web",
        })
    }
}

async fn lead(listener: TcpListener, peer: u16, taken: Arc<AtomicUsize>) {
    let mut travellers = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        taken.fetch_add(1, Ordering::SeqCst);
        travellers.spawn(async move {
            let mut onward = TcpStream::connect(("127.0.0.1", peer)).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut onward).await
        });
    }
}

/// Environment that makes the controller trust this pair.
pub fn trusting(stage: &Stage, pair: &Pair) -> [(String, String); 2] {
    let trusted = stage.cluster.scratch().join("trusted.pem");
    suite::write_private(&trusted, &pair.authority);
    [
        ("SSL_CERT_FILE".to_owned(), trusted.display().to_string()),
        ("NO_PROXY".to_owned(), "localhost".to_owned()),
    ]
}

/// Whether its figure says that a peer is up; nothing where it has no such figure.
pub async fn up(controller: &mut Controller, trust_domain: &str) -> Option<bool> {
    let metrics = controller.metrics().await;
    let figure = format!("trustplane_federation_peer_up{{trust_domain=\"{trust_domain}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&figure))?;
    Some(value.parse::<f64>().expect("a number") > 0.0)
}

const DARK: &str = "dark.test";
const OTHERS: [&str; 2] = ["b.test", "c.test"];

/// Waits until this holds for what is told of a peer.
async fn until(stage: &Stage, peer: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    eventually(2 * HINT, &format!("{peer}: {what}"), async || {
        let told = of(stage, peer).await;
        if holds(&told) { Ok(told) } else { Err(told.to_string()) }
    })
    .await
}

async fn of(stage: &Stage, peer: &str) -> Value {
    let told = peers_of(stage).await;
    told.into_iter().find(|it| it["trustDomain"] == peer).unwrap_or_default()
}

/// Waits until every one of these was asked more often than that.
async fn until_asked_again(ways: &[Way], before: &[usize]) {
    eventually(2 * HINT, "the others are asked again", async || {
        let now: Vec<usize> = ways.iter().map(Way::taken).collect();
        if now.iter().zip(before).all(|(now, before)| now > before) { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_goes_dark_is_told_of_while_the_others_go_on_and_it_comes_back_by_itself() {
    let pair = pair::issued("localhost");
    let mut tasks = JoinSet::new();
    let served = Served::new(&pair).start(Peer::Good, &mut tasks).await;
    let mut dark = Way::to(served).await;
    let others = [Way::to(served).await, Way::to(served).await];
    let stage = Stage::start("federation-dark").await;
    let mut federation = stage::spiffe();
    let peers = OTHERS.iter().zip(&others).map(|(name, way)| way.as_peer(name));
    federation["federatesWith"] = std::iter::once(dark.as_peer(DARK)).chain(peers).collect();
    stage.create(federation).await;
    let figures = Figures::start().await;
    figures.count("OK", &[&OTHERS[..], &[DARK]].concat());
    let flag = figures.flag();
    let mut controller = stage.controller_with(&[&flag], &trusting(&stage, &pair)).await;
    for name in [DARK].into_iter().chain(OTHERS) {
        until(&stage, name, "it is well", well).await;
    }

    dark.cut().await;
    let before: Vec<usize> = others.iter().map(Way::taken).collect();
    let told = until(&stage, DARK, "it is dark", |peer| peer["lastError"].is_string()).await;
    assert_eq!(told["reachable"], false, "{told}");
    let error = told["lastError"].as_str().unwrap_or_default();
    assert!(error.starts_with("unreachable. "), "it is on this machine: {error}");
    assert_eq!(told["x509Authorities"], 1, "what is known of it stays: {told}");
    assert_eq!(told["sequence"], 7, "what is known of it stays: {told}");
    assert_eq!(up(&mut controller, DARK).await, Some(false));
    let message = stage.until_condition("PeersReachable", "False", "PeersUnreachable").await;
    assert!(message.starts_with("1 of 3 peers: dark.test: "), "{message}");

    until_asked_again(&others, &before).await;
    for name in OTHERS {
        assert!(well(&of(&stage, name).await), "{}", of(&stage, name).await);
        assert_eq!(up(&mut controller, name).await, Some(true), "{name}");
    }

    dark.restore().await;
    until(&stage, DARK, "it is back", well).await;
    stage.until_condition("PeersReachable", "True", "AllPeersReachable").await;
    assert_eq!(up(&mut controller, DARK).await, Some(true));
    let well = "Normal PeersReachable: dark.test: all is well, its bundle is fetched";
    let told = stage.until_event(well).await;
    assert_eq!(told.iter().filter(|it| *it == well).count(), 1, "{told:#?}");
    assert_eq!(stage.refused(), Vec::<String>::new());
}
