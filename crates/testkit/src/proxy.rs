//! An API server that fails on demand: a plain HTTP proxy in front of the real one, with a script
//! that chooses the fault of each request.
//!
//! ```ignore
//! let proxy = Proxy::start(&cluster, |request| match request {
//!     _ if request.is_watch_of("secrets") => Fault::Watch(WatchFault::StallAfter(0)),
//!     _ => Fault::Forward,
//! }).await;
//! let controller = Launch::within(&ns).kubeconfig(cluster.account_kubeconfig_through(proxy.url())).start();
//! ```

use std::convert::Infallible;
use std::io::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::access::Access;
use crate::cluster::Cluster;

type Answer = Response<UnsyncBoxBody<Bytes, Error>>;
type Script = dyn Fn(&SeenRequest) -> Fault + Send + Sync;

/// Long enough for hyper to send its buffers.
const FLUSHED: Duration = Duration::from_millis(20);

/// An action at a certain moment, such as killing the controller. It must not block for long.
pub type Callback = Box<dyn FnOnce() + Send>;

/// A request as the script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
}

impl SeenRequest {
    /// Whether it is a watch of this resource, such as `routes`.
    pub fn is_watch_of(&self, resource: &str) -> bool {
        self.is_watch() && self.path.ends_with(&format!("/{resource}"))
    }

    /// Whether it is a list of this resource.
    pub fn is_list_of(&self, resource: &str) -> bool {
        self.method == Method::GET
            && !self.is_watch()
            && self.path.ends_with(&format!("/{resource}"))
    }

    /// Whether it is a watch of anything.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1")
    }

    /// Whether it is a write to this object, such as `routes/shop` or `routes/shop/status`.
    pub fn is_write_to(&self, object: &str) -> bool {
        self.method != Method::GET && self.path.ends_with(&format!("/{object}"))
    }
}

/// What the proxy does with a request.
pub enum Fault {
    Forward,
    /// Runs the action, then forwards.
    BeforeForward(Callback),
    /// Forwards when the gate opens, even if the caller is gone, like a delayed packet.
    HoldBeforeForward(Gate),
    /// Forwards, and holds the answer until the gate opens.
    HoldBeforeAnswer(Gate),
    /// Runs the action when the server has answered, then forwards the answer.
    BeforeAnswer(Callback),
    /// Runs the action when the server has answered, then drops the connection: the write is
    /// committed, but the caller can't know.
    ForwardThenDropResponse(Callback),
    /// Drops the connection; the server never sees the request.
    DropRequest,
    /// Answers instead of the server, with a Status of this code and message.
    Answer(StatusCode, String),
    /// Changes the bytes of an answer that is not a watch's.
    MangleBody(Box<dyn FnOnce(Bytes) -> Bytes + Send>),
    /// Damages a watch.
    Watch(WatchFault),
}

/// How a watch is damaged. Events are counted from its start, including bookmarks.
#[derive(Clone, Debug)]
pub enum WatchFault {
    /// Nothing arrives after this many events, but the connection stays open.
    StallAfter(usize),
    /// The connection breaks after this many events.
    CutAfter(usize),
    /// Inserts a line after this many events.
    Inject { after: usize, line: String },
}

impl Fault {
    /// Answers with this error of the API server.
    pub fn answer(code: u16, message: &str) -> Self {
        Self::Answer(StatusCode::from_u16(code).expect("an HTTP status code"), message.to_owned())
    }
}

/// Holds requests until it is opened.
#[derive(Clone)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    waiting: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)), waiting: Arc::new(watch::Sender::new(0)) }
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until this many requests in total have reached the gate.
    pub async fn reached_by(&self, count: usize) {
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting >= count).await;
    }

    async fn pass(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// A running proxy. Dropping it ends it and its connections.
pub struct Proxy {
    address: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Shared {
    upstream: Client,
    script: RwLock<Box<Script>>,
    seen: Mutex<Vec<SeenRequest>>,
    /// Connections end when this changes.
    generation: watch::Sender<usize>,
}

impl Proxy {
    /// Starts one on the runtime of the calling test.
    pub async fn start(
        cluster: &Cluster,
        script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self::before(cluster.admin_access(), script).await
    }

    /// Like [`Proxy::start`], before any API server. Requests keep the identity of their sender.
    pub async fn before(
        server: &Access,
        script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let mut config = server.config().await.expect("a configuration for the API server");
        // Without retries and with the caller's own token, so that faults reach the caller
        // unchanged.
        config.auth_info = Default::default();
        config.default_retry = false;
        let upstream = Client::try_from(config).expect("a client for the API server");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let url = format!("http://{address}");
        let shared = Shared {
            upstream,
            script: RwLock::new(Box::new(script)),
            seen: Mutex::default(),
            generation: watch::Sender::new(0),
        };
        let shared = Arc::new(shared);
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, url, shared, accepting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address, for a kubeconfig.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Changes the script. Open watches keep the fault of the old one.
    pub fn follow(&self, script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static) {
        *self.shared.script.write().expect("no script panicked") = Box::new(script);
    }

    /// Breaks every connection.
    pub fn break_connections(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.shared.seen.lock().expect("no script panicked").clone()
    }

    /// Number of such requests so far.
    pub fn count(&self, like: impl Fn(&SeenRequest) -> bool) -> usize {
        self.seen().iter().filter(|asked| like(asked)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.break_connections();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, shared.clone()));
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let mut broken = shared.generation.subscribe();
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { shared.handle(request).await }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error is how a fault drops the connection.
        _ = connection => {}
        _ = broken.changed() => {}
    }
}

impl Shared {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Error> {
        let uri = request.uri();
        let asked = SeenRequest {
            method: request.method().clone(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        };
        self.seen.lock().expect("no script panicked").push(asked.clone());
        let fault = (self.script.read().expect("no script panicked"))(&asked);
        match fault {
            Fault::Forward => self.forward(request).await,
            Fault::BeforeForward(callback) => {
                callback();
                self.forward(request).await
            }
            Fault::HoldBeforeForward(gate) => {
                let request = whole_request(request).await?;
                let late = async move {
                    gate.pass().await;
                    self.send(request).await
                };
                // In its own task, because hyper drops ours when the caller disconnects.
                tokio::spawn(late).await.map_err(Error::other)?
            }
            Fault::HoldBeforeAnswer(gate) => {
                let answer = self.forward(request).await;
                gate.pass().await;
                answer
            }
            Fault::BeforeAnswer(callback) => {
                let answer = self.forward(request).await;
                callback();
                answer
            }
            Fault::ForwardThenDropResponse(callback) => {
                self.forward(request).await?;
                callback();
                Err(Error::other("dropped on purpose"))
            }
            Fault::DropRequest => Err(Error::other("dropped on purpose")),
            Fault::Answer(code, message) => Ok(status(code, &message)),
            Fault::MangleBody(mangle) => mangled(self.forward(request).await?, mangle).await,
            Fault::Watch(fault) => Ok(spoilt(self.forward(request).await?, fault)),
        }
    }

    /// Forwards the request with the caller's headers, and streams the answer back.
    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, Error> {
        self.send(whole_request(request).await?).await
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Answer, Error> {
        let (mut head, body) = request.into_parts();
        // Hop-by-hop headers are about the connection to us.
        for header in [HOST, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
            head.headers.remove(header);
        }
        let answer = self
            .upstream
            .send(Request::from_parts(head, Body::from(body.to_vec())))
            .await
            .map_err(Error::other)?;
        let (mut head, body) = answer.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        head.version = http::Version::HTTP_11;
        Ok(Response::from_parts(head, body.map_err(Error::other).boxed_unsync()))
    }
}

async fn whole_request(request: Request<Incoming>) -> Result<Request<Bytes>, Error> {
    let (head, body) = request.into_parts();
    Ok(Request::from_parts(head, body.collect().await.map_err(Error::other)?.to_bytes()))
}

fn whole(bytes: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, Error> {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn status(code: StatusCode, message: &str) -> Answer {
    let reason = match code.as_u16() {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "Unknown",
    };
    let status = serde_json::json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": message });
    Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json")
        .body(whole(status.to_string()))
        .expect("a response")
}

async fn mangled(
    answer: Answer,
    mangle: Box<dyn FnOnce(Bytes) -> Bytes + Send>,
) -> Result<Answer, Error> {
    let (mut head, body) = answer.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let bytes = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, whole(mangle(bytes))))
}

/// Applies a fault to the stream of events, which are one line each.
fn spoilt(answer: Answer, fault: WatchFault) -> Answer {
    let (head, body) = answer.into_parts();
    let data =
        BodyStream::new(body).try_filter_map(|frame| async move { Ok(frame.into_data().ok()) });
    let lines = lines_with_fault(data.boxed(), fault).map_ok(Frame::data);
    Response::from_parts(head, StreamBody::new(lines).boxed_unsync())
}

fn lines_with_fault(
    data: impl Stream<Item = Result<Bytes, Error>> + Unpin + Send + 'static,
    fault: WatchFault,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let start = (data, Vec::new(), 0, Some(fault));
    futures::stream::unfold(start, |(mut data, mut held, mut events, fault)| async move {
        loop {
            match &fault {
                Some(WatchFault::StallAfter(count)) if events >= *count => {
                    futures::future::pending().await
                }
                Some(WatchFault::CutAfter(count)) if events >= *count => {
                    // hyper sends its buffer while it waits, but drops it on an error.
                    tokio::time::sleep(FLUSHED).await;
                    return Some((Err(Error::other("cut on purpose")), (data, held, events, None)));
                }
                Some(WatchFault::Inject { after, line }) if events >= *after => {
                    let line = Bytes::from(format!("{line}\n"));
                    return Some((Ok(line), (data, held, events, None)));
                }
                _ => {}
            }
            if let Some(line) = take_line(&mut held) {
                events += 1;
                return Some((Ok(line), (data, held, events, fault)));
            }
            match data.next().await? {
                Ok(bytes) => held.extend_from_slice(&bytes),
                Err(error) => return Some((Err(error), (data, held, events, None))),
            }
        }
    })
}

fn take_line(held: &mut Vec<u8>) -> Option<Bytes> {
    let end = held.iter().position(|byte| *byte == b'\n')?;
    Some(held.drain(..=end).collect::<Vec<u8>>().into())
}
