//! Over pipes, on a clock that moves when everybody waits, and over TLS at the end.

use std::{fs, net::SocketAddr, path::PathBuf};

use axum::{Extension, routing::get};
use futures::future::join_all;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy_bidirectional, duplex},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_rustls::TlsConnector;

use super::*;
use Protocol::{Http1, Http2};

const HALF_A_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: api.test\r\nX: ha";

/// Requests for `/held` are answered when they are released.
#[derive(Clone)]
struct Held {
    begun: Arc<watch::Sender<usize>>,
    released: CancellationToken,
}

impl Held {
    fn new() -> Self {
        Self { begun: Arc::default(), released: CancellationToken::new() }
    }

    fn router(&self) -> Router {
        let Self { begun, released } = self.clone();
        let hold = move || async move {
            begun.send_modify(|it| *it += 1);
            released.cancelled().await;
        };
        let who = |caller: Option<Extension<ClientCertificate>>| async {
            caller.map_or(Vec::new(), |Extension(certificate)| certificate.0.to_vec())
        };
        let router = Router::new().route("/", get(|| async { "ok" }));
        router.route("/held", get(hold)).route("/who", get(who))
    }

    async fn have_begun(&self, many: usize) {
        self.begun.subscribe().wait_for(|begun| *begun >= many).await.unwrap();
    }
}

/// Accepts pipes.
struct Pipes(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for Pipes {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Stage {
    pipes: mpsc::UnboundedSender<DuplexStream>,
    held: Held,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Stage {
    fn start(most: usize) -> Self {
        let (pipes, accepted) = mpsc::unbounded_channel();
        let (held, stop) = (Held::new(), CancellationToken::new());
        let router = held.router();
        let requests = move |_: &DuplexStream| Requests::new(router.clone(), None);
        let limit = IdleFirst::new(most);
        let served = tokio::spawn(accept(Pipes(accepted), limit, stop.clone(), requests));
        Self { pipes, held, stop, served }
    }

    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(64 * 1024);
        self.pipes.send(theirs).unwrap();
        ours
    }

    async fn client(&self, protocol: Protocol) -> Client {
        Client::over(self.connect(), protocol).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

/// One connection, and the task that ends with it.
struct Client {
    sender: Sender,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn over<S>(stream: S, protocol: Protocol) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        match protocol {
            Http1 => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                Self { sender: Sender::Http1(sender), connection: tokio::spawn(connection) }
            }
            Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), stream);
                let (sender, connection) = handshake.await.unwrap();
                Self { sender: Sender::Http2(sender), connection: tokio::spawn(connection) }
            }
        }
    }

    fn send(&mut self, path: &str) -> JoinHandle<hyper::Result<Response<Incoming>>> {
        self.send_with(path, "")
    }

    fn send_with(
        &mut self,
        path: &str,
        header: &str,
    ) -> JoinHandle<hyper::Result<Response<Incoming>>> {
        let request = Request::get(format!("http://api.test{path}")).header("host", "api.test");
        let request = request.header("x-header", header).body(Empty::new()).unwrap();
        match &mut self.sender {
            Sender::Http1(sender) => tokio::spawn(sender.send_request(request)),
            Sender::Http2(sender) => tokio::spawn(sender.send_request(request)),
        }
    }

    async fn get(&mut self, path: &str) -> hyper::Result<StatusCode> {
        let response = self.send(path).await.unwrap()?;
        let status = response.status();
        response.into_body().collect().await?;
        Ok(status)
    }
}

#[tokio::test(start_paused = true)]
async fn three_hundred_idle_and_half_open_connections_cut_no_request_and_keep_no_caller_out() {
    let stage = Stage::start(200);
    let (mut busy, mut answers) = (Vec::new(), Vec::new());
    for protocol in [Http1, Http2].repeat(25) {
        let mut client = stage.client(protocol).await;
        answers.push(client.send("/held"));
        busy.push(client);
    }
    stage.held.have_begun(50).await;

    let (mut silent, mut idle) = (Vec::new(), Vec::new());
    for protocol in [Http1, Http2].repeat(50) {
        silent.push(stage.connect());
        silent.push(stage.connect());
        silent.last_mut().unwrap().write_all(HALF_A_REQUEST).await.unwrap();
        let mut used = stage.client(protocol).await;
        assert_eq!(used.get("/").await.unwrap(), StatusCode::OK);
        idle.push(used);
    }

    let begin = Instant::now();
    for protocol in [Http1, Http2] {
        let mut caller = stage.client(protocol).await;
        assert_eq!(caller.get("/").await.unwrap(), StatusCode::OK);
    }
    assert!(begin.elapsed().is_zero());
    assert!(silent[0].read(&mut [0; 64]).await.is_ok_and(|read| read == 0), "it is closed");
    assert!(!idle.last().unwrap().connection.is_finished());
    stage.held.released.cancel();
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_makes_room_is_told_so() {
    for protocol in [Http1, Http2] {
        let stage = Stage::start(1);
        let mut idle = stage.client(protocol).await;
        idle.get("/").await.unwrap();
        let mut caller = stage.client(protocol).await;
        caller.get("/").await.unwrap();
        idle.connection.await.unwrap().expect("the end is an orderly one");
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_connections_are_busy_a_new_one_is_closed_and_none_of_them() {
    let stage = Stage::start(1);
    let mut busy = stage.client(Http2).await;
    let answer = busy.send("/held");
    stage.held.have_begun(1).await;
    assert_eq!(stage.connect().read(&mut [0; 64]).await.unwrap(), 0);
    stage.held.released.cancel();
    answer.await.unwrap().unwrap();
}

fn is_about_ten_minutes(age: Duration) -> bool {
    (AGE.mul_f64(0.75)..=AGE.mul_f64(1.25) + LEAVE).contains(&age)
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http_2_ends_after_ten_minutes_and_requests_under_way_are_answered() {
    let stage = Stage::start(10);
    let (mut idle, mut busy) = (stage.client(Http2).await, stage.client(Http2).await);
    idle.get("/").await.unwrap();
    let answer = busy.send("/held");
    let begin = Instant::now();
    idle.connection.await.unwrap().expect("the end is an orderly one");
    assert!(is_about_ten_minutes(begin.elapsed()), "{:?}", begin.elapsed());

    sleep(AGE).await;
    busy.get("/").await.expect_err("it takes no new requests");
    stage.held.released.cancel();
    assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    busy.connection.await.unwrap().expect("the end is an orderly one");
}

#[tokio::test(start_paused = true)]
async fn callers_that_came_together_do_not_all_leave_together() {
    let stage = Stage::start(100);
    let begin = Instant::now();
    let ages = (0..20).map(async |_| {
        let client = stage.client(Http2).await;
        client.connection.await.unwrap().unwrap();
        begin.elapsed()
    });
    let ages = join_all(ages).await;
    let (first, last) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
    assert!(*last - *first > Duration::from_secs(30), "{ages:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_http_1_tells_a_caller_that_its_connection_ends_after_ten_minutes() {
    let stage = Stage::start(10);
    let mut client = stage.client(Http1).await;
    let begin = Instant::now();
    loop {
        let response = client.send("/").await.unwrap().expect("no request is lost");
        let last = response.headers().contains_key(header::CONNECTION);
        response.into_body().collect().await.unwrap();
        if last {
            break;
        }
        sleep(LEAVE / 2).await;
    }
    assert!(is_about_ten_minutes(begin.elapsed()), "{:?}", begin.elapsed());
    client.connection.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn at_the_end_requests_under_way_are_answered_and_nobody_else_is_waited_for() {
    let stage = Stage::start(100);
    let (_silent, mut half) = (stage.connect(), stage.connect());
    half.write_all(HALF_A_REQUEST).await.unwrap();
    let mut idle = stage.client(Http1).await;
    idle.get("/").await.unwrap();
    let mut answers = Vec::new();
    for protocol in [Http1, Http2] {
        let mut client = stage.client(protocol).await;
        answers.push((client.send("/held"), client));
    }
    stage.held.have_begun(2).await;
    let begin = Instant::now();
    stage.stop.cancel();
    stage.pipes.closed().await;
    sleep(Duration::from_secs(15)).await;
    assert!(!stage.served.is_finished());
    stage.held.released.cancel();
    for (answer, client) in answers {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
        client.connection.await.unwrap().expect("the end is an orderly one");
    }
    stage.served.await.unwrap();
    assert!(begin.elapsed() <= Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_on_its_way_at_the_end_is_answered() {
    for protocol in [Http1, Http2] {
        let stage = Stage::start(100);
        let mut client = stage.client(protocol).await;
        let mut used = stage.client(protocol).await;
        used.get("/").await.unwrap();
        stage.stop.cancel();
        stage.pipes.closed().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(client.get("/").await.unwrap(), StatusCode::OK, "{protocol:?}");
        if let Http1 = protocol {
            assert_eq!(used.get("/").await.unwrap(), StatusCode::OK);
        }
        stage.served.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn headers_and_streams_have_limits() {
    let stage = Stage::start(10);
    let long = "x".repeat(LONGEST_HEADERS);
    for protocol in [Http1, Http2] {
        let mut client = stage.client(protocol).await;
        let fits = client.send_with("/", &long[..30 * 1024]).await.unwrap().unwrap();
        assert_eq!(fits.status(), StatusCode::OK, "{protocol:?}");
        fits.into_body().collect().await.unwrap();
        let refused = client.send_with("/", &long).await.unwrap().unwrap();
        assert_eq!(refused.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{protocol:?}");
    }
    let mut client = stage.client(Http2).await;
    // The first answer brings the server's settings.
    client.get("/").await.unwrap();
    let answers: Vec<_> = (0..300).map(|_| client.send("/held")).collect();
    stage.held.have_begun(250).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*stage.held.begun.borrow(), 250);
    stage.held.released.cancel();
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_vanished_without_a_word_is_noticed() {
    let stage = Stage::start(1);
    let ((ours, mut near), mut far) = (duplex(64 * 1024), stage.connect());
    let cut = CancellationToken::new();
    let until = cut.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = copy_bidirectional(&mut near, &mut far) => {}
            () = until.cancelled() => std::future::pending().await,
        }
    });
    let mut vanished = Client::over(ours, Http2).await;
    let _answer = vanished.send("/held");
    stage.held.have_begun(1).await;
    cut.cancel();
    let begin = Instant::now();
    while stage.client(Http2).await.get("/").await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(begin.elapsed() <= Duration::from_secs(35), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn callers_that_let_their_answers_lie_keep_nobody_out() {
    let stage = Stage::start(1);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let stream = TokioIo::new(stage.connect());
    let (mut sender, connection) =
        builder.initial_stream_window_size(0).handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://api.test/").body(Empty::<Bytes>::new()).unwrap();
    let _answer = sender.send_request(request).await.unwrap();
    sleep(2 * TAKE).await;
    let mut caller = stage.client(Http2).await;
    assert_eq!(caller.get("/").await.unwrap(), StatusCode::OK);
}

/// A CA, or a certificate of it.
struct Pair {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    key: Vec<u8>,
}

impl Pair {
    fn new(name: &str, parent: Option<&Self>) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let der = key.serialize_der();
        let mut parameters = rcgen::CertificateParams::new(vec![name.into()]).unwrap();
        let certificate = match parent {
            None => {
                parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
                parameters.self_signed(&key).unwrap()
            }
            Some(parent) => parameters.signed_by(&key, &parent.issuer).unwrap(),
        };
        let issuer = rcgen::Issuer::new(parameters, key);
        Self { certificate, issuer, key: der }
    }
}

/// Serves TLS on a port, for the CA `ours`.
struct TlsStage {
    address: SocketAddr,
    root: rcgen::Certificate,
    ours: Pair,
    _folder: tempfile::TempDir,
}

impl TlsStage {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: String| -> PathBuf {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let root = parameters.self_signed(&key).unwrap();
        let (pem, key) = (put("tls.crt", root.pem()), put("tls.key", key.serialize_pem()));
        let ours = Pair::new("ours", None);
        let roots = ClientRoots::read(&put("ca.crt", ours.certificate.pem())).unwrap();
        let certificate = CertReloader::read(&pem, &key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Some(ApiTls { certificate, client_roots: Some(roots) });
        let (router, stop) = (Held::new().router(), CancellationToken::new());
        tokio::spawn(serve_api(listener, tls, router, CONNECTIONS, stop));
        Self { address, root, ours, _folder: folder }
    }

    async fn ask(&self, protocol: Protocol, shows: Option<&Pair>) -> (Version, Bytes) {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shows {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::try_from(pair.key.clone()).unwrap();
                config.with_client_auth_cert(vec![pair.certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = match protocol {
            Http1 => vec![b"http/1.1".to_vec()],
            Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let mut client = Client::over(stream, protocol).await;
        let response = client.send("/who").await.unwrap().unwrap();
        (response.version(), response.into_body().collect().await.unwrap().to_bytes())
    }
}

#[tokio::test]
async fn over_tls_a_certificate_counts_if_a_ca_of_ours_signed_it_and_ends_no_handshake_otherwise() {
    let stage = TlsStage::start().await;
    let (ours, foreign) = (Pair::new("caller", Some(&stage.ours)), Pair::new("foreign", None));
    for (protocol, version) in [(Http1, Version::HTTP_11), (Http2, Version::HTTP_2)] {
        let seen = Bytes::from(ours.certificate.der().to_vec());
        assert_eq!(stage.ask(protocol, Some(&ours)).await, (version, seen));
        for nobody in [None, Some(&foreign)] {
            assert_eq!(stage.ask(protocol, nobody).await, (version, Bytes::new()));
        }
    }
}

#[tokio::test]
async fn in_the_clear_both_protocols_are_spoken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (router, stop) = (Held::new().router(), CancellationToken::new());
    let serving = serve_api(listener, None, router, CONNECTIONS, stop.clone());
    let serving = tokio::spawn(serving);
    for (protocol, version) in [(Http1, Version::HTTP_11), (Http2, Version::HTTP_2)] {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = Client::over(stream, protocol).await;
        let response = client.send("/").await.unwrap().unwrap();
        assert_eq!((response.version(), response.status()), (version, StatusCode::OK));
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}
