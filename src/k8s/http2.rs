//! A transport of requests that share one HTTP/2 connection, or use HTTP/1.1 where the server speaks nothing else.
//!
//! hyper-util's pool learns only after a handshake that a connection can be shared. So a hundred requests that
//! come while there is none make a hundred connections, and drop all but one. Here they share one attempt, and
//! how it ends.

use std::{
    error::Error,
    fmt,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use self::dial::{Dial, Dialed};
use crate::runtime::lock::lock;

mod dial;

/// For TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that is silent for so long is asked for a sign of life, and closed if none comes: together 10 s,
/// which is how long a review may take.
const PING_AFTER: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection without a request for once to twice as long is closed: each costs memory here, and pings.
const IDLE: Duration = Duration::from_secs(60);
/// A server that spoke HTTP/1.1 may have been upgraded.
const HTTP1_FOR: Duration = Duration::from_secs(300);
/// A request that could not leave because its connection was closed just then takes another.
const CONNECTIONS: usize = 3;

pub(super) type Http1 = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

#[derive(Clone)]
pub(super) struct Transport(Arc<Server>);

struct Server {
    /// None for plain HTTP.
    dial: Option<Dial>,
    http1: Http1,
    connection: Mutex<Connection>,
}

#[derive(Default)]
struct Connection {
    /// How many were opened: tells a connection from its successor.
    number: u64,
    state: State,
    /// Since the last look at whether it is idle.
    used: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    Opening(Opening),
    Open(Link),
}

type Opening = Shared<BoxFuture<'static, Result<Link, ConnectError>>>;

#[derive(Clone)]
enum Link {
    Http2 { sender: http2::SendRequest<Body>, number: u64 },
    Http1 { until: Instant },
}

impl Link {
    fn is_usable(&self) -> bool {
        match self {
            Self::Http2 { sender, .. } => !sender.is_closed(),
            Self::Http1 { until } => Instant::now() < *until,
        }
    }
}

/// Why there is no connection, told to each request that waited for it.
#[derive(Clone, Debug)]
struct ConnectError(Arc<dyn Error + Send + Sync>);

impl ConnectError {
    fn new(error: impl Into<BoxError>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection")
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl Transport {
    fn new(dial: Option<Dial>, http1: Http1) -> Self {
        Self(Arc::new(Server { dial, http1, connection: Mutex::default() }))
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.clone().send(request).boxed()
    }
}

impl Server {
    async fn send(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, BoxError> {
        for _ in 0..CONNECTIONS {
            let (mut sender, number) = match self.link().await? {
                Link::Http1 { .. } => return self.http1.clone().oneshot(request).await,
                Link::Http2 { sender, number } => (sender, number),
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    // The server may have got it, so nobody sends it again.
                    None => return Err(error.into_error().into()),
                },
            }
            self.close(number);
        }
        Err("each connection was closed at once".into())
    }

    async fn link(self: &Arc<Self>) -> Result<Link, ConnectError> {
        let opening = {
            let mut connection = lock(&self.connection);
            connection.used = true;
            match &connection.state {
                State::Open(link) if link.is_usable() => return Ok(link.clone()),
                // One that has ended without noting how has crashed.
                State::Opening(opening) if opening.peek().is_none() => opening.clone(),
                _ => {
                    connection.number += 1;
                    let opening = self.open(connection.number);
                    connection.state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        opening.await
    }

    /// Opens a connection in a task of its own: a request that waits for it may be given up, the others go on.
    fn open(self: &Arc<Self>, number: u64) -> Opening {
        let server = self.clone();
        let task = tokio::spawn(async move {
            let opened = server.connect(number).await;
            lock(&server.connection).state = match &opened {
                Ok(link) => State::Open(link.clone()),
                Err(_) => State::Closed,
            };
            opened
        });
        async move { task.await.unwrap_or_else(|crashed| Err(ConnectError::new(crashed))) }
            .boxed()
            .shared()
    }

    async fn connect(self: &Arc<Self>, number: u64) -> Result<Link, ConnectError> {
        let http1 = Link::Http1 { until: Instant::now() + HTTP1_FOR };
        let Some(dial) = &self.dial else { return Ok(http1) };
        let dialed = timeout(CONNECT_TIMEOUT, dial()).await;
        let dialed = dialed.map_err(|_| ConnectError::new("connecting took too long"))?;
        let stream = match dialed.map_err(ConnectError::new)? {
            Dialed::Http2(stream) => stream,
            Dialed::Http1 => return Ok(http1),
        };
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(stream);
        let (sender, connection) = handshake.await.map_err(ConnectError::new)?;
        tokio::spawn(keep(connection, Arc::downgrade(self), number));
        Ok(Link::Http2 { sender, number })
    }

    fn close(&self, number: u64) {
        let mut connection = lock(&self.connection);
        if connection.number == number {
            connection.state = State::Closed;
        }
    }

    fn close_if_idle(&self, number: u64) {
        let is_idle = !std::mem::take(&mut lock(&self.connection).used);
        if is_idle {
            self.close(number);
        }
    }
}

/// Ends with the connection. Requests under way go on when it is closed to new ones.
async fn keep(
    connection: impl Future<Output = hyper::Result<()>>,
    server: Weak<Server>,
    number: u64,
) {
    let mut connection = pin!(connection);
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = sleep(IDLE) => {}
        }
        if let Some(server) = server.upgrade() {
            server.close_if_idle(number);
        }
    }
}

#[cfg(test)]
mod tests;
