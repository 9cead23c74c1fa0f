//! gRPC over a connection that is open already: tonic hides why one could not be opened.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Error};

use crate::runtime::lock::lock;

/// A connection that is silent for this long is asked whether it lives, and has as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// It ends with the connection. Requests name `origin`.
pub(super) async fn channel<S>(stream: S, origin: Uri) -> Result<Channel, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let once = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_| {
        let stream = lock(&once).take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let endpoint = Endpoint::from_static("http://localhost")
        .origin(origin)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    endpoint.connect_with_connector(connector).await
}
