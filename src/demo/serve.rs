//! Serves an API over TLS on a loopback port, to clients with the generated kubeconfig.
//!
//! Every user of the machine can reach the port, and the API holds private keys. So each request
//! needs the token, which is made at start and written only to the kubeconfig, or one that the API
//! itself knows.

use std::{convert::Infallible, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use kube::client::Body;
use rustls::ServerConfig;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::{BoxError, Service, ServiceExt};
use zeroize::Zeroizing;

use crate::{
    demo::{
        authority::{Authority, Issued},
        kubeconfig::{Kubeconfig, KubeconfigError},
        loopback::{self, Port},
    },
    runtime::clock::Clock,
};

/// The API server's own limit for a request.
const LARGEST_REQUEST: usize = 3 * 1024 * 1024;
/// For the TLS handshake and the headers of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options<'a> {
    pub port: Port,
    /// Path of the kubeconfig; a temporary folder if none.
    pub kubeconfig: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on 127.0.0.1 port {port} for the API. Choose another with --api-port")]
    Listen { port: u16, source: io::Error },
    #[error("cannot make a certificate for the API")]
    Certificate(#[source] BoxError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

/// A served API. Dropping it ends every connection and removes the kubeconfig.
#[derive(Debug)]
pub struct RunningApi {
    address: SocketAddr,
    kubeconfig: Kubeconfig,
    task: JoinHandle<()>,
    _stop: DropGuard,
}

impl RunningApi {
    pub async fn start<S, B>(
        api: S,
        options: Options<'_>,
        clock: &Clock,
    ) -> Result<Self, ServeError>
    where
        S: Api<B>,
        B: ApiBody,
    {
        Self::start_with(api, options, clock, OtherTokens::Refused).await
    }

    /// Like [`Self::start`], for an API that refuses unknown tokens itself: a request with another token
    /// than the kubeconfig's is handed on, `Authorization` and all. `ApiServer` takes it for that of a
    /// ServiceAccount.
    pub async fn start_for_accounts<S, B>(
        api: S,
        options: Options<'_>,
        clock: &Clock,
    ) -> Result<Self, ServeError>
    where
        S: Api<B>,
        B: ApiBody,
    {
        Self::start_with(api, options, clock, OtherTokens::HandedOn).await
    }

    async fn start_with<S, B>(
        api: S,
        options: Options<'_>,
        clock: &Clock,
        other_tokens: OtherTokens,
    ) -> Result<Self, ServeError>
    where
        S: Api<B>,
        B: ApiBody,
    {
        let (Port::Exactly(port) | Port::Rather(port)) = options.port;
        let failed = |source| ServeError::Listen { port, source };
        let listener = loopback::listen(options.port).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let now = clock.now();
        let authority = Authority::new("trustplane sandbox API", now).map_err(certificate_error)?;
        let issued =
            authority.issue(&["localhost", "127.0.0.1"], now).map_err(certificate_error)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(&issued).map_err(certificate_error)?));
        let token = Token::random().map_err(certificate_error)?;
        let kubeconfig = Kubeconfig::write(
            options.kubeconfig,
            &format!("https://{address}"),
            &authority.pem(),
            &token.text,
        )?;

        let stop = CancellationToken::new();
        let token_check = Arc::new(token.token_check(other_tokens));
        let task = tokio::spawn(loopback::accept(listener, stop.clone(), move |stream, _| {
            connection(stream, acceptor.clone(), token_check.clone(), api.clone())
        }));
        Ok(Self { address, kubeconfig, task, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// Resolves only if serving ends by itself, which is a bug.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
}

/// An API that kube's client can use.
pub trait Api<B>:
    Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
}

impl<B, S> Api<B> for S where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

/// Body of an answer; a stream for watches.
pub trait ApiBody: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

impl<B> ApiBody for B where B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

fn certificate_error(error: impl Into<BoxError>) -> ServeError {
    ServeError::Certificate(error.into())
}

fn tls(issued: &Issued) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![issued.der.clone()], issued.key_der())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn connection<S, B>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    token_check: Arc<TokenCheck>,
    api: S,
) where
    S: Api<B>,
    B: ApiBody,
{
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else {
        tracing::debug!("TLS handshake failed");
        return;
    };
    // By ALPN, because detecting the protocol from the first byte could block for ever.
    let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let server = auto::Builder::new(TokioExecutor::new());
    let mut server = if speaks_http2 { server.http2_only() } else { server.http1_only() };
    server.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    server.http2().timer(TokioTimer::new());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (token_check, api) = (token_check.clone(), api.clone());
        async move { Ok::<_, Infallible>(answer(request, &token_check, api).await) }
    });
    // Clients may disconnect at any time.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer<S, B>(
    request: Request<Incoming>,
    token_check: &TokenCheck,
    api: S,
) -> Response<Either<B, Full<Bytes>>>
where
    S: Api<B>,
    B: ApiBody,
{
    let (mut head, body) = request.into_parts();
    if !token_check.admit(&mut head.headers) {
        return error_response(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    }
    let body = match Limited::new(body, LARGEST_REQUEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return error_response(
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                "Request entity too large: limit is 3145728",
            );
        }
        Err(_) => {
            return error_response(
                StatusCode::BAD_REQUEST,
                "BadRequest",
                "the request was cut off",
            );
        }
    };
    match api.oneshot(Request::from_parts(head, Body::from(body))).await {
        Ok(response) => response.map(Either::Left),
        Err(never) => match never {},
    }
}

/// A Kubernetes Status.
fn error_response<B>(
    code: StatusCode,
    reason: &str,
    message: &str,
) -> Response<Either<B, Full<Bytes>>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Either::Right(Full::from(status.to_string())));
    *response.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The bearer token of the kubeconfig. It has no `Debug`.
struct Token {
    text: Zeroizing<String>,
}

impl Token {
    fn random() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice())?;
        Ok(Self { text: Zeroizing::new(hex::encode(bytes.as_slice())) })
    }

    fn token_check(&self, other_tokens: OtherTokens) -> TokenCheck {
        TokenCheck { digest: Sha256::digest(self.text.as_bytes()).into(), other_tokens }
    }
}

/// What becomes of a request with another token than the kubeconfig's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherTokens {
    Refused,
    HandedOn,
}

/// Comparing digests keeps timing from revealing the token.
struct TokenCheck {
    digest: [u8; 32],
    other_tokens: OtherTokens,
}

impl TokenCheck {
    /// Takes the kubeconfig's token away: the API itself doesn't know it.
    fn admit(&self, headers: &mut HeaderMap) -> bool {
        let Some(shown) = headers.get(header::AUTHORIZATION) else { return false };
        let token = shown.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        match token {
            Some(token) if Sha256::digest(token.as_bytes()).as_slice() == self.digest => {
                headers.remove(header::AUTHORIZATION);
                true
            }
            _ => self.other_tokens == OtherTokens::HandedOn,
        }
    }
}

#[cfg(test)]
mod tests;
