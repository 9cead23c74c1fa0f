//! The backend of all Routes: one server for every Service, because no Pods run here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header::HOST};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{Pair, pair};

/// The name in its certificate.
const HOST_NAME: &str = "backend.stack.test";

/// A running backend. Dropping it stops it.
pub struct Backend {
    plain: SocketAddr,
    tls: SocketAddr,
    authority: String,
    _tasks: JoinSet<()>,
}

impl Backend {
    /// Starts it on two free ports.
    pub async fn start() -> anyhow::Result<Self> {
        let pair = pair::issued(HOST_NAME);
        let acceptor = acceptor(&pair)?;
        let (plain, tls) =
            (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let (plain_address, tls_address) = (plain.local_addr()?, tls.local_addr()?);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(plain, None));
        tasks.spawn(serve(tls, Some(acceptor)));
        Ok(Self {
            plain: plain_address,
            tls: tls_address,
            authority: pair.authority,
            _tasks: tasks,
        })
    }

    /// Address for plain HTTP.
    pub fn plain(&self) -> SocketAddr {
        self.plain
    }

    /// Address for TLS.
    pub fn tls(&self) -> SocketAddr {
        self.tls
    }

    /// The name in its certificate.
    pub fn host(&self) -> &'static str {
        HOST_NAME
    }

    /// CA of its certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

fn acceptor(pair: &Pair) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let tls = tls.clone();
        connections.spawn(async move {
            match tls {
                None => answer(stream, "plain HTTP").await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    answer(stream, "TLS").await;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    spoken: &'static str,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let host = request.headers().get(HOST).map(|host| host.as_bytes()).unwrap_or_default();
        let line = format!("backend: {} over {spoken}\n", String::from_utf8_lossy(host));
        async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(line))) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
