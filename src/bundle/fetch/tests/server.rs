//! A TLS server that replies the same to everybody.

use std::{
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use http::Uri;
use rustls::{ServerConfig, SupportedProtocolVersion, crypto::aws_lc_rs};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::spiffe::testing::Issued;

#[derive(Clone)]
pub(crate) enum Reply {
    Raw(String),
    /// A body without an end.
    Endless,
    /// Nothing, and the connection stays open.
    Silent,
}

impl Reply {
    pub(crate) fn ok(body: &str) -> Self {
        Self::text("200 OK", "Content-Type: application/json\r\n", body)
    }

    pub(crate) fn text(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Raw(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
    }
}

pub(crate) fn redirect(to: &str) -> Reply {
    Reply::text("307 Temporary Redirect", &format!("Location: {to}\r\n"), "")
}

#[derive(Default)]
struct Seen {
    names: Vec<String>,
    requests: Vec<String>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Seen>>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(certificate: Issued, reply: Reply) -> Self {
        Self::with_versions(rustls::ALL_VERSIONS, certificate, reply).await
    }

    pub(crate) async fn with_versions(
        versions: &[&'static SupportedProtocolVersion],
        certificate: Issued,
        reply: Reply,
    ) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der], certificate.key)
            .unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Seen>>::default();
        let (acceptor, saw) = (TlsAcceptor::from(Arc::new(config)), seen.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away is what many tests are about.
                tokio::spawn(serve(stream, acceptor.clone(), reply.clone(), saw.clone()));
            }
        });
        Self { port, seen, serving }
    }

    pub(crate) fn url(&self, path: &str) -> Uri {
        format!("https://127.0.0.1:{}{path}", self.port).parse().unwrap()
    }

    /// What was asked for by SNI.
    pub(crate) fn names(&self) -> Vec<String> {
        self.seen.lock().unwrap().names.clone()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    reply: Reply,
    seen: Arc<Mutex<Seen>>,
) -> io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let name = stream.get_ref().1.server_name().map(str::to_owned);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    {
        let mut seen = seen.lock().unwrap();
        seen.names.extend(name);
        seen.requests.push(String::from_utf8_lossy(&request).into_owned());
    }
    match reply {
        Reply::Raw(text) => {
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await
        }
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
            loop {
                stream.write_all(&[b' '; 16 * 1024]).await?;
            }
        }
        Reply::Silent => std::future::pending().await,
    }
}
