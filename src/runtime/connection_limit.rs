//! A listener that is never full: where too many are connected, the one that came first has to go.
//!
//! A peer that sends half a request, or never reads its answer, stays as long as it likes and holds
//! memory. Who asks and listens is through in a moment, and gone before its turn to go comes.

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

/// Connections at once. Each may make hyper hold 400 KiB of headers.
pub const AT_ONCE: usize = 128;

/// Bounds the connections of another listener.
pub struct LimitedListener<L> {
    listener: L,
    inside: VecDeque<(Weak<()>, CancellationToken)>,
}

impl<L> LimitedListener<L> {
    /// Bounds those of this listener.
    pub fn over(listener: L) -> Self {
        Self { listener, inside: VecDeque::new() }
    }

    fn let_in<S>(&mut self, stream: S) -> LimitedStream<S> {
        self.inside.retain(|(here, _)| here.strong_count() > 0);
        while self.inside.len() >= AT_ONCE {
            if let Some((_, out)) = self.inside.pop_front() {
                out.cancel();
            }
        }
        let (here, out) = (Arc::new(()), CancellationToken::new());
        self.inside.push_back((Arc::downgrade(&here), out.clone()));
        LimitedStream { stream, shown_out: Box::pin(out.cancelled_owned()), _here: here }
    }
}

impl<L: Listener> Listener for LimitedListener<L> {
    type Io = LimitedStream<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = self.listener.accept().await;
        (self.let_in(stream), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that can be asked to go.
pub struct LimitedStream<S> {
    stream: S,
    shown_out: Pin<Box<WaitForCancellationFutureOwned>>,
    _here: Arc<()>,
}

impl<S> fmt::Debug for LimitedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitedStream")
    }
}

impl<S> LimitedStream<S> {
    fn stays(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.shown_out.as_mut().poll(context) {
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
        self.stays(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stays(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stays(context)?;
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
        tokio::spawn(axum::serve(LimitedListener::over(listener), router).into_future());
        let mut first = ask(address, b"GET /livez HTTP/1.1\r\nX: half").await;
        let mut others = Vec::new();
        for _ in 0..2 * AT_ONCE {
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
