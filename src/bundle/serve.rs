//! A SPIFFE bundle endpoint with the profile https_spiffe: one document, over TLS, from a server with an
//! X509-SVID.
//!
//! It answers GET on `/` and nothing else, as SPIRE's does. Bundles are public, so clients need no
//! authentication. A client that is slow to finish its handshake is dropped, and beyond a limit the oldest
//! connection is closed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    extract::State,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use rustls::{
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::runtime::{http_listener, lock::lock, tls_listener::TlsListener};

/// Without `Debug`, because of the key.
pub struct ServerSvid {
    /// The SVID first, then its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the SVID cannot be served: its key is another one's, or TLS cannot use it")]
    Svid(#[source] rustls::Error),
    #[error("cannot serve a bundle on this listener")]
    Listener(#[source] io::Error),
}

/// Dropping it stops it.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    offer: Arc<Offer>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Endpoint {
    pub fn start(
        listener: TcpListener,
        document: String,
        svid: ServerSvid,
    ) -> Result<Self, ServeError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certificate = certified(svid, &provider)?;
        let current = Mutex::new(Current { document: document.into(), certificate });
        let offer = Arc::new(Offer { provider: provider.clone(), current });
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let listener = TlsListener::with_resolver(listener, provider, offer.clone())
            .map_err(ServeError::Listener)?;
        let router = Router::new().fallback(answer).with_state(offer.clone());
        let stop = CancellationToken::new();
        let serving = http_listener::serve_on(listener, router, stop.clone());
        let task = tokio::spawn(async move {
            // It never fails: a connection that can't be accepted is tried again.
            let _ = serving.await;
        });
        Ok(Self { address, offer, stop, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves another document and another SVID from the next handshake on. Where the SVID can't be
    /// served, both stay as they are.
    pub fn replace(&self, document: String, svid: ServerSvid) -> Result<(), ServeError> {
        let certificate = certified(svid, &self.offer.provider)?;
        *self.offer.current() = Current { document: document.into(), certificate };
        Ok(())
    }

    /// Stops listening, and answers the requests that are under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

struct Offer {
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

/// Both change together: a bundle without the authority of the SVID would lock everybody out.
struct Current {
    document: Bytes,
    certificate: Arc<CertifiedKey>,
}

impl Offer {
    fn current(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({} bytes)", self.current().document.len())
    }
}

impl ResolvesServerCert for Offer {
    /// Whatever name is asked for: with https_spiffe a server is known by its SPIFFE ID.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().certificate.clone())
    }
}

fn certified(
    ServerSvid { chain, key }: ServerSvid,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, ServeError> {
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(ServeError::Svid)
}

async fn answer(State(offer): State<Arc<Offer>>, method: Method, uri: Uri) -> Response {
    if uri.path() != "/" {
        return (StatusCode::NOT_FOUND, "the bundle is at /\n").into_response();
    }
    if method != Method::GET {
        let allowed = [(header::ALLOW, "GET")];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, "only GET\n").into_response();
    }
    let document = offer.current().document.clone();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

#[cfg(test)]
mod tests;
