//! A SPIFFE bundle endpoint: one document at one path, over TLS, from a server with an X509-SVID
//! (https_spiffe) or a certificate from files (https_web).
//!
//! It answers GET and HEAD there and nothing else. Bundles are public, so clients need no authentication.
//! A client that is slow to finish its handshake or its headers is dropped, and beyond a limit the oldest
//! connection is closed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use prometheus_client::metrics::{counter::Counter, family::Family};
use rustls::{
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::runtime::{
    http_listener,
    lock::lock,
    tls_listener::{CertReloader, TlsListener},
};

/// Answers by HTTP status.
pub type RequestCounter = Family<[(&'static str, &'static str); 1], Counter>;

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
    /// https_spiffe at `/`, as SPIRE serves it.
    pub fn start(
        listener: TcpListener,
        document: String,
        svid: ServerSvid,
    ) -> Result<Self, ServeError> {
        Self::start_at(listener, "/", document, svid, RequestCounter::default())
    }

    /// https_spiffe.
    pub fn start_at(
        listener: TcpListener,
        path: &'static str,
        document: String,
        svid: ServerSvid,
        requests: RequestCounter,
    ) -> Result<Self, ServeError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certificate = certified(svid, &provider)?;
        let current = Current::new(document, Some(certificate));
        let offer = Arc::new(Offer {
            path,
            provider: provider.clone(),
            requests,
            current: Mutex::new(current),
        });
        Self::run(
            listener,
            |listener| TlsListener::with_resolver(listener, provider, offer.clone()),
            offer.clone(),
        )
    }

    /// https_web.
    pub fn start_web(
        listener: TcpListener,
        path: &'static str,
        document: String,
        pair: Arc<CertReloader>,
        requests: RequestCounter,
    ) -> Result<Self, ServeError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Mutex::new(Current::new(document, None));
        let offer = Arc::new(Offer { path, provider, requests, current });
        Self::run(listener, |listener| TlsListener::new(listener, pair), offer)
    }

    fn run(
        listener: TcpListener,
        tls: impl FnOnce(TcpListener) -> io::Result<TlsListener>,
        offer: Arc<Offer>,
    ) -> Result<Self, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let listener = tls(listener).map_err(ServeError::Listener)?;
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
        *self.offer.current() = Current::new(document, Some(certificate));
        Ok(())
    }

    /// Serves another document with the same certificate.
    pub fn replace_document(&self, document: &str) {
        let mut current = self.offer.current();
        let certificate = current.certificate.clone();
        *current = Current::new(document.to_owned(), certificate);
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

/// The newest SVID of ours, for listeners that are no bundle endpoint. Without one, handshakes fail.
#[derive(Debug, Default)]
pub struct SvidResolver(Mutex<Option<Arc<CertifiedKey>>>);

impl SvidResolver {
    pub fn replace(&self, svid: &ServerSvid) -> Result<(), ServeError> {
        let copy = ServerSvid { chain: svid.chain.clone(), key: svid.key.clone_key() };
        *lock(&self.0) = Some(certified(copy, &aws_lc_rs::default_provider())?);
        Ok(())
    }
}

impl ResolvesServerCert for SvidResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).clone()
    }
}

struct Offer {
    path: &'static str,
    provider: Arc<CryptoProvider>,
    requests: RequestCounter,
    current: Mutex<Current>,
}

/// Both change together: a bundle without the authority of the SVID would lock everybody out.
struct Current {
    document: Bytes,
    /// A strong validator: a digest of the document.
    etag: HeaderValue,
    /// None with https_web.
    certificate: Option<Arc<CertifiedKey>>,
}

impl Current {
    fn new(document: String, certificate: Option<Arc<CertifiedKey>>) -> Self {
        let digest = format!("\"{}\"", hex::encode(&Sha256::digest(&document)[..16]));
        // Digits and quotes are always a header's value.
        let etag = HeaderValue::try_from(digest).unwrap_or(HeaderValue::from_static("\"\""));
        Self { document: document.into(), etag, certificate }
    }
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
    /// The same for every name: with https_spiffe a server is known by its SPIFFE ID.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().certificate.clone()
    }
}

fn certified(
    ServerSvid { chain, key }: ServerSvid,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, ServeError> {
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(ServeError::Svid)
}

async fn answer(State(offer): State<Arc<Offer>>, request: Request) -> Response {
    let response = respond(&offer, &request);
    let code = match response.status() {
        StatusCode::OK => "200",
        StatusCode::NOT_MODIFIED => "304",
        StatusCode::NOT_FOUND => "404",
        _ => "405",
    };
    offer.requests.get_or_create(&[("code", code)]).inc();
    response
}

fn respond(offer: &Offer, request: &Request) -> Response {
    if request.uri().path() != offer.path {
        return (StatusCode::NOT_FOUND, format!("the bundle is at {}\n", offer.path))
            .into_response();
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let allowed = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, "only GET and HEAD\n").into_response();
    }
    let (document, etag) = {
        let current = offer.current();
        (current.document.clone(), current.etag.clone())
    };
    let is_known = is_known(request.headers(), &etag);
    // A cache must ask each time: a bundle may revoke.
    let fixed =
        [(header::ETAG, etag), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, fixed).into_response(),
        // For HEAD, hyper leaves the body out and keeps its length.
        false => (fixed, [(header::CONTENT_TYPE, "application/json")], document).into_response(),
    }
}

/// Whether the client has this document already.
fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = lists.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    tags.any(|tag| {
        let tag = tag.trim();
        tag == "*" || etag == tag.strip_prefix("W/").unwrap_or(tag)
    })
}

#[cfg(test)]
mod tests;
