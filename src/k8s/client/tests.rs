//! What is sent, and over what.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use futures::future::join_all;
use http::{Method, StatusCode, Version};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn as handler,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::{Barrier, watch},
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{k8s::api_error::ApiError, runtime::lock::lock};

const MANY: usize = 100;

#[tokio::test]
async fn the_client_that_we_connect_has_the_gate_in_it() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
    let (_hold, deadline) = watch::channel(None);
    let gate = Gate::until(deadline);
    let client = connect(Config::new(url), gate, Duration::from_secs(5)).unwrap();

    let request = Request::builder()
        .method(Method::PATCH)
        .uri("/apis/route.openshift.io/v1/namespaces/web/routes/shop")
        .body(Vec::new())
        .unwrap();
    let refused = client.request_text(request).await.unwrap_err();
    assert_eq!(ApiError::from(refused), ApiError::NotLeader);
    let nobody = tokio::time::timeout(Duration::from_millis(200), server.accept()).await;
    assert!(nobody.is_err(), "not even a connection was made");
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq)]
struct Received {
    version: Version,
    authorization: Option<String>,
    agent: Option<String>,
}

/// An API server with a certificate of its own.
struct Server {
    address: SocketAddr,
    certificate: Vec<u8>,
    connections: AtomicUsize,
    received: Mutex<Vec<Received>>,
    /// What is asked for `/together` waits until each of as many requests has come.
    together: Barrier,
}

impl Server {
    async fn start(protocols: &[&str]) -> Arc<Self> {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(certificate.clone())], key)
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, received) = Default::default();
        let together = Barrier::new(MANY);
        let server = Arc::new(Self { address, certificate, connections, received, together });
        tokio::spawn(server.clone().accept(listener, TlsAcceptor::from(Arc::new(tls))));
        server
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                server.connections.fetch_add(1, SeqCst);
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = TokioIo::new(stream);
                let answer = handler(move |request| server.clone().answer(request));
                let _ = match is_http2 {
                    true => {
                        let builder = http2::Builder::new(TokioExecutor::new());
                        builder.serve_connection(stream, answer).await
                    }
                    false => http1::Builder::new().serve_connection(stream, answer).await,
                };
            });
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<String>, Infallible> {
        let text = |name| {
            let value: Option<&HeaderValue> = request.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        lock(&self.received).push(Received {
            version: request.version(),
            authorization: text(header::AUTHORIZATION),
            agent: text(header::USER_AGENT),
        });
        if request.uri().path() == "/together" {
            self.together.wait().await;
        }
        let mut response = Response::new("ok".to_owned());
        if request.uri().path() == "/moved" {
            *response.status_mut() = StatusCode::FOUND;
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
        }
        Ok(response)
    }

    fn config(&self) -> Config {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.certificate.clone()]);
        config
    }

    fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }
}

#[derive(Default)]
struct Token(Mutex<Option<&'static str>>);

impl Token {
    fn put(&self, token: Option<&'static str>) {
        *lock(&self.0) = token;
    }
}

impl Bearer for Token {
    fn header(&self) -> Option<HeaderValue> {
        let token = *lock(&self.0);
        token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")).unwrap())
    }
}

async fn get(client: &Client, path: &str) -> Result<StatusCode, ApiError> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    Ok(client.send(request).await?.status())
}

#[tokio::test]
async fn a_hundred_requests_share_one_connection_of_http_2() {
    let server = Server::start(&["h2", "http/1.1"]).await;
    let client = connect_http2(server.config(), None).unwrap();
    let answers = join_all((0..MANY).map(|_| get(&client, "/together"))).await;
    assert!(answers.iter().all(|it| *it == Ok(StatusCode::OK)), "{answers:?}");
    let received = server.received();
    assert_eq!(received.len(), MANY);
    assert!(received.iter().all(|it| it.version == Version::HTTP_2), "{received:?}");
    assert!(received.iter().all(|it| it.agent.as_deref() == Some(USER_AGENT)), "{received:?}");
    assert_eq!(server.connections.load(SeqCst), 1);
}

#[tokio::test]
async fn a_server_without_http_2_is_asked_over_http_1() {
    for protocols in [&["http/1.1"][..], &[]] {
        let server = Server::start(protocols).await;
        let client = connect_http2(server.config(), None).unwrap();
        for _ in 0..3 {
            assert_eq!(get(&client, "/").await, Ok(StatusCode::OK));
        }
        let received = server.received();
        assert!(received.iter().all(|it| it.version == Version::HTTP_11), "{received:?}");
        // The first one only showed what the server speaks.
        assert_eq!(server.connections.load(SeqCst), 2);
    }
}

#[tokio::test]
async fn each_request_carries_the_token_of_its_moment_and_none_is_sent_without() {
    let server = Server::start(&["h2"]).await;
    let token = Arc::new(Token::default());
    let mut config = server.config();
    config.auth_info.username = Some("kube".into());
    config.auth_info.password = Some("secret".to_owned().into());
    config.auth_info.impersonate = Some("somebody".into());
    let client = connect_http2(config, Some(token.clone())).unwrap();
    for now in [Some("first"), Some("second"), None] {
        token.put(now);
        let answer = get(&client, "/").await;
        assert_eq!(answer, now.map(|_| StatusCode::OK).ok_or(ApiError::NoToken));
    }
    let received = server.received();
    let sent = received.iter().map(|it| it.authorization.as_deref().unwrap());
    assert_eq!(sent.collect::<Vec<_>>(), ["Bearer first", "Bearer second"]);
}

#[tokio::test]
async fn without_a_token_of_ours_the_configuration_has_the_credentials() {
    let server = Server::start(&["h2"]).await;
    let mut config = server.config();
    config.auth_info.token = Some("of-the-config".to_owned().into());
    let client = connect_http2(config, None).unwrap();
    get(&client, "/").await.unwrap();
    let sent = server.received()[0].authorization.clone();
    assert_eq!(sent.as_deref(), Some("Bearer of-the-config"));
}

#[test]
fn a_token_is_marked_so_that_no_log_and_no_table_of_headers_holds_it() {
    let token = Token::default();
    token.put(Some("secret"));
    let mut request = Request::new(Body::empty());
    authorize(&mut request, Some(&token)).unwrap();
    assert!(request.headers()[header::AUTHORIZATION].is_sensitive());
    assert!(!format!("{request:?}").contains("secret"), "{request:?}");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let server = Server::start(&["h2"]).await;
    let client = connect_http2(server.config(), None).unwrap();
    assert_eq!(get(&client, "/moved").await, Ok(StatusCode::FOUND));
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_server_with_the_wrong_ca_gets_no_request_and_the_error_names_the_certificate() {
    let (server, other) = (Server::start(&["h2"]).await, Server::start(&["h2"]).await);
    let mut config = server.config();
    config.root_cert = other.config().root_cert;
    let client = connect_http2(config, None).unwrap();
    let error = get(&client, "/").await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Unreachable { why } if why.contains("certificate")),
        "{error}"
    );
    assert!(server.received().is_empty());
}

/// Leads to whatever it is asked for. Also answers how it was asked.
async fn proxy() -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<String>>::default());
    let noted = asked.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let mut server = TcpStream::connect(head.split(' ').nth(1).unwrap()).await.unwrap();
        *lock(&noted) = head;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut server).await;
    });
    (address, asked)
}

#[tokio::test]
async fn a_proxy_of_the_configuration_leads_to_the_server() {
    let server = Server::start(&["h2"]).await;
    let (address, asked) = proxy().await;
    let mut config = server.config();
    config.proxy_url = Some(format!("http://user:pa%40ss@{address}").parse().unwrap());
    let client = connect_http2(config, None).unwrap();
    assert_eq!(get(&client, "/").await, Ok(StatusCode::OK));
    assert_eq!(server.received()[0].version, Version::HTTP_2);
    let asked = lock(&asked).clone();
    assert!(asked.starts_with(&format!("CONNECT {} ", server.address)), "{asked}");
    assert!(asked.contains("Basic dXNlcjpwYUBzcw=="), "{asked}");
}
