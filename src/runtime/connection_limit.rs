//! A listener that is never full: beyond a limit, each new connection closes the oldest.
//!
//! A peer that sends half a request, or never reads its answer, holds memory for as long as it
//! likes. Well-behaved clients finish long before they become the oldest connection.

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Each connection may make hyper hold 400 KiB of headers.
const MAX_CONNECTIONS: usize = 128;

/// Bounds the connections of another listener.
pub struct LimitedListener<L> {
    listener: L,
    /// The oldest first. The `Weak` is dead once the connection has ended.
    connections: VecDeque<(Weak<()>, CancellationToken)>,
}

impl<L> LimitedListener<L> {
    pub fn new(listener: L) -> Self {
        Self { listener, connections: VecDeque::new() }
    }

    fn track<S>(&mut self, stream: S) -> LimitedStream<S> {
        self.connections.retain(|(alive, _)| alive.strong_count() > 0);
        while self.connections.len() >= MAX_CONNECTIONS {
            if let Some((_, close)) = self.connections.pop_front() {
                close.cancel();
            }
        }
        let (alive, close) = (Arc::new(()), CancellationToken::new());
        self.connections.push_back((Arc::downgrade(&alive), close.clone()));
        LimitedStream { stream, closed: Box::pin(close.cancelled_owned()), _alive: alive }
    }
}

impl<L: Listener> Listener for LimitedListener<L> {
    type Io = LimitedStream<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = self.listener.accept().await;
        (self.track(stream), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

pub struct LimitedStream<S> {
    stream: S,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _alive: Arc<()>,
}

impl<S> fmt::Debug for LimitedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitedStream")
    }
}

impl<S> LimitedStream<S> {
    fn check_open(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    // Without these two, hyper copies the body behind the headers.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    use super::*;

    async fn ask(address: SocketAddr, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn half_requests_are_let_go_of_and_who_asks_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/livez", get(|| async { "ok\n" }));
        tokio::spawn(axum::serve(LimitedListener::new(listener), router).into_future());
        let mut first = ask(address, b"GET /livez HTTP/1.1\r\nX: half").await;
        let mut others = Vec::new();
        for _ in 0..2 * MAX_CONNECTIONS {
            others.push(ask(address, b"GET /livez HTTP/1.1\r\nX: half").await);
        }

        let mut probe = ask(address, b"GET /livez HTTP/1.0\r\n\r\n").await;
        let mut answer = String::new();
        let second = Duration::from_secs(1);
        timeout(second, probe.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        let ended = timeout(second, first.read(&mut [0; 1024])).await;
        assert!(ended.is_ok(), "the first is still connected");
    }
}
