//! Over pipes, on a clock that moves when everybody waits.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use futures::future::join_all;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    sync::Barrier,
};
use tokio_util::sync::CancellationToken;

use super::*;

const MANY: usize = 100;

struct Peer {
    connections: AtomicUsize,
    /// Seconds until one is there.
    slowness: AtomicU64,
    /// Until each of as many requests has come.
    together: Barrier,
    /// Once cancelled, what is connected hears nothing any more.
    silent: CancellationToken,
}

impl Peer {
    fn new() -> Arc<Self> {
        let (connections, slowness, silent) = Default::default();
        Arc::new(Self { connections, slowness, together: Barrier::new(MANY), silent })
    }

    fn transport(self: &Arc<Self>) -> Transport {
        let peer = self.clone();
        let dial = move || {
            peer.connections.fetch_add(1, SeqCst);
            let (ours, theirs) = duplex(64 * 1024);
            tokio::spawn(peer.clone().serve(theirs, peer.silent.child_token()));
            let pause = Duration::from_secs(peer.slowness.load(SeqCst));
            async move {
                sleep(pause).await;
                Ok(Dialed::Http2(Box::new(TokioIo::new(ours))))
            }
            .boxed()
        };
        Transport::new(Some(Box::new(dial)), no_http1())
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream, silent: CancellationToken) {
        let answer = service_fn(|request: Request<Incoming>| {
            let peer = self.clone();
            async move {
                if request.uri().path() == "/together" {
                    peer.together.wait().await;
                }
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), answer);
        let mut serving = pin!(serving);
        tokio::select! {
            _ = serving.as_mut() => {}
            () = silent.cancelled() => std::future::pending().await,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

fn no_http1() -> Http1 {
    let refuse = |_: Request<Body>| async { Err(BoxError::from("no HTTP/1.1 here")) };
    BoxCloneSyncService::new(tower::service_fn(refuse))
}

async fn get(transport: &Transport, path: &str) -> Result<(), BoxError> {
    let uri = format!("https://server.test{path}");
    let request = Request::get(uri).body(Body::empty()).unwrap();
    transport.clone().oneshot(request).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_hundred_requests_that_come_before_there_is_a_connection_share_the_first() {
    let peer = Peer::new();
    let transport = peer.transport();
    let answers = join_all((0..MANY).map(|_| get(&transport, "/together"))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_without_a_word_fails_its_requests_within_ten_seconds() {
    let peer = Peer::new();
    let transport = peer.transport();
    get(&transport, "/").await.unwrap();
    peer.silent.cancel();
    let begin = Instant::now();
    get(&transport, "/").await.unwrap_err();
    assert!(begin.elapsed() <= Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_while_nobody_used_it_fails_no_request() {
    let peer = Peer::new();
    let transport = peer.transport();
    get(&transport, "/").await.unwrap();
    peer.silent.cancel();
    sleep(Duration::from_secs(11)).await;
    let Link::Http2 { number, .. } = transport.0.link().await.unwrap() else { panic!() };
    assert_eq!((number, peer.connections()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_is_closed_and_the_next_request_opens_another() {
    let peer = Peer::new();
    let transport = peer.transport();
    get(&transport, "/").await.unwrap();
    sleep(IDLE / 2).await;
    get(&transport, "/").await.unwrap();
    assert_eq!(peer.connections(), 1);
    sleep(3 * IDLE).await;
    assert!(matches!(lock(&transport.0.connection).state, State::Closed));
    get(&transport, "/").await.unwrap();
    assert_eq!(peer.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_to_connect_is_told_to_all_that_waited_and_the_next_request_tries_again() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let dial = move || {
        counted.fetch_add(1, SeqCst);
        async {
            sleep(Duration::from_secs(1)).await;
            Err("refused".into())
        }
        .boxed()
    };
    let transport = Transport::new(Some(Box::new(dial)), no_http1());
    let answers = join_all((0..MANY).map(|_| get(&transport, "/"))).await;
    for answer in answers {
        assert_eq!(answer.unwrap_err().source().unwrap().to_string(), "refused");
    }
    assert_eq!(attempts.load(SeqCst), 1);
    get(&transport, "/").await.unwrap_err();
    assert_eq!(attempts.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_completes_a_connection_is_given_up_after_five_seconds() {
    let dial = || std::future::pending().boxed();
    let transport = Transport::new(Some(Box::new(dial)), no_http1());
    let begin = Instant::now();
    get(&transport, "/").await.unwrap_err();
    assert_eq!(begin.elapsed(), CONNECT_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_waiting_takes_the_connection_from_no_other() {
    let peer = Peer::new();
    peer.slowness.store(2, SeqCst);
    let transport = peer.transport();
    let mut impatient = get(&transport, "/").boxed();
    assert!(futures::poll!(&mut impatient).is_pending());
    let mut patient = pin!(get(&transport, "/"));
    assert!(futures::poll!(patient.as_mut()).is_pending());
    timeout(Duration::from_secs(1), impatient).await.unwrap_err();
    patient.await.unwrap();
    assert_eq!(peer.connections(), 1);
}
