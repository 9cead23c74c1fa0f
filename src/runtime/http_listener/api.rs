//! Serves an API over HTTP/1.1 and HTTP/2 to callers that keep their connections.
//!
//! A connection ends in order: HTTP/2 has GOAWAY for it, and HTTP/1.1 an answer that says so. Each lives for some ten
//! minutes, so that callers spread over the replicas again after one was restarted.

use std::{
    convert::Infallible,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    serve::{Listener, ListenerExt as _},
};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderValue, Request, Response, Version, header};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::runtime::{
    idle_first::{IdleFirst, Slot, UnderWay},
    tls_listener::{CertReloader, ClientCertificate, ClientRoots, TlsListener},
};

/// Connections, unless the administrator wants others.
pub const CONNECTIONS: usize = 1024;
/// For the headers of an HTTP/1.1 request, the wait for it included. Longer than Go's clients keep a connection
/// that they do not use, so that none is closed while one of them sends: idle ones make room anyway.
const NEXT_REQUEST: Duration = Duration::from_secs(120);
/// What is read for them, and what HTTP/2 admits. A token has at most 16 KiB.
const LONGEST_HEADERS: usize = 32 * 1024;
const STREAMS_PER_CONNECTION: u32 = 250;
/// What a caller may send before it is read.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Of an answer that the caller does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// For a caller to take its answer. Then its connection can make room as an idle one, or nobody could come in while
/// some let theirs lie.
const TAKE: Duration = Duration::from_secs(10);
/// Finds a caller that vanished without a word.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const AGE: Duration = Duration::from_secs(600);
/// For what is on its way while a connection ends.
const LEAVE: Duration = Duration::from_secs(5);

pub struct ApiTls {
    pub certificate: Arc<CertReloader>,
    /// Callers with a certificate of these CAs have a [`ClientCertificate`] in the extensions of their requests.
    pub client_roots: Option<Arc<ClientRoots>>,
}

/// Serves until asked to stop, and then until the last request under way is answered. That is for the caller to
/// bound. Without `tls`, HTTP/2 is for clients that know of it.
pub async fn serve_api(
    listener: TcpListener,
    tls: Option<ApiTls>,
    router: Router,
    connections: usize,
    stop: CancellationToken,
) -> io::Result<()> {
    let limit = IdleFirst::new(connections);
    let Some(ApiTls { certificate, client_roots }) = tls else {
        let listener = listener.tap_io(|stream: &mut TcpStream| {
            // Together with a caller's late ACKs, an answer could wait 40 ms.
            let _ = stream.set_nodelay(true);
        });
        accept(listener, limit, stop, move |_| Requests::new(router.clone(), None)).await;
        return Ok(());
    };
    let listener = TlsListener::for_api(listener, certificate, client_roots.as_deref())?;
    let identify = move |stream: &TlsStream<TcpStream>| {
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = client_roots.as_ref().zip(shown);
        let certificate = certificate.and_then(|(roots, shown)| roots.verified(shown));
        Requests::new(router.clone(), certificate)
    };
    accept(listener, limit, stop, identify).await;
    Ok(())
}

async fn accept<L: Listener>(
    mut listener: L,
    limit: Arc<IdleFirst>,
    stop: CancellationToken,
    requests: impl Fn(&L::Io) -> Requests + Clone + Send + 'static,
) {
    let mut connections = JoinSet::new();
    let begin = |stream: L::Io, connections: &mut JoinSet<()>| {
        let Some(place) = limit.admit() else { return };
        let (requests, stop) = (requests.clone(), stop.clone());
        connections.spawn(async move {
            let requests = requests(&stream);
            serve_connection(stream, requests, place, stop).await;
        });
    };
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Frees what ended connections hold.
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (stream, _) = listener.accept() => begin(stream, &mut connections),
        }
    }
    // These callers were connected before, and may have sent a request.
    while let Some((stream, _)) = listener.accept().now_or_never() {
        begin(stream, &mut connections);
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve_connection<S>(stream: S, requests: Requests, place: Slot, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requests = Arc::new(requests);
    let service = service_fn(|request| answer(requests.clone(), place.request(), request));
    let builder = builder();
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = async {
        tokio::select! {
            () = place.displaced() => {}
            () = stop.cancelled() => {}
            () = sleep(AGE.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
        }
    };
    tokio::select! {
        // A caller that breaks off is its own affair.
        _ = serving.as_mut() => return,
        () = ended => {}
    }
    requests.last.store(true, Relaxed);
    let mut leave = None;
    if place.is_displaced() {
        let Some(taken) = place.may_take_leave() else { return };
        leave = Some(taken);
    } else if !requests.http2.load(Relaxed) && place.is_idle() {
        // The caller may be sending a request just now, and by HTTP/1.1 only its answer can tell.
        tokio::select! {
            _ = serving.as_mut() => return,
            () = place.displaced() => {}
            _ = timeout(LEAVE, place.next_request()) => {}
        }
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        _ = serving => {}
        () = place.idle_for(LEAVE) => {}
    }
    drop(leave);
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_REQUEST)
        .max_buf_size(LONGEST_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(LONGEST_HEADERS as u32)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// What the requests of one connection have in common.
struct Requests {
    router: Router,
    certificate: Option<ClientCertificate>,
    /// Whether one of them was HTTP/2.
    http2: AtomicBool,
    /// Whether the next answer is the last one.
    last: AtomicBool,
}

impl Requests {
    fn new(router: Router, certificate: Option<ClientCertificate>) -> Self {
        let (http2, last) = Default::default();
        Self { router, certificate, http2, last }
    }
}

async fn answer(
    requests: Arc<Requests>,
    under_way: UnderWay,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let is_http2 = request.version() == Version::HTTP_2;
    requests.http2.store(is_http2, Relaxed);
    if let Some(certificate) = &requests.certificate {
        request.extensions_mut().insert(certificate.clone());
    }
    let mut response = requests.router.clone().oneshot(request).await?;
    if !is_http2 && requests.last.load(Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let (sending, sent) = oneshot::channel();
    tokio::spawn(async move {
        let _ = timeout(TAKE, sent).await;
        drop(under_way);
    });
    Ok(response.map(|inner| Body { inner, _sending: sending }))
}

/// Of an answer, which is under way until its body is sent, or should have been.
struct Body {
    inner: axum::body::Body,
    _sending: oneshot::Sender<Infallible>,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
