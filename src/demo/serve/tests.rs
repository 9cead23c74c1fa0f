use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, stream};
use http_body_util::{Empty, StreamBody};
use hyper::{
    body::Frame,
    client::conn::{http1, http2},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::sync::mpsc;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::service_fn;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Answers with method, path and length of the body.
fn echo() -> impl Api<Full<Bytes>> {
    service_fn(|request: Request<Body>| async move {
        let line = format!("{} {}", request.method(), request.uri().path());
        let length = request.into_body().collect_bytes().await.unwrap().len();
        Ok(Response::new(Full::from(format!("{line} {length}"))))
    })
}

async fn serve<B: ApiBody>(api: impl Api<B>) -> RunningApi {
    let options = Options { port: Port::Exactly(0), kubeconfig: None };
    RunningApi::start(api, options, &Clock::system()).await.unwrap()
}

/// A value of the kubeconfig.
fn value(serving: &RunningApi, name: &str) -> String {
    let text = std::fs::read_to_string(serving.kubeconfig()).unwrap();
    let found = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    found.unwrap().to_owned()
}

async fn connect(serving: &RunningApi, protocol: &str) -> TlsStream<TcpStream> {
    let pem = BASE64_STANDARD.decode(value(serving, "certificate-authority-data")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(serving.address()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

fn get(serving: &RunningApi, path: &str, token: Option<&str>) -> Request<Empty<Bytes>> {
    let mut request = Request::get(format!("https://{}{path}", serving.address()));
    request = request.header("host", serving.address().to_string());
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).unwrap()
}

async fn over_http1(serving: &RunningApi, token: Option<&str>) -> (StatusCode, String) {
    let io = TokioIo::new(connect(serving, "http/1.1").await);
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(get(serving, "/version", token)).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn kubes_client_gets_in_with_the_kubeconfig() {
    let serving = serve(echo()).await;
    let kubeconfig = kube::config::Kubeconfig::read_from(serving.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let request = Request::post("/api/v1/namespaces").body(b"four".to_vec()).unwrap();
    assert_eq!(client.request_text(request).await.unwrap(), "POST /api/v1/namespaces 4");
}

#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let serving = serve(echo()).await;
    let token = value(&serving, "token");
    for wrong in [None, Some(""), Some("0"), Some(&token[1..])] {
        let (status, body) = over_http1(&serving, wrong).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(body.contains(r#""reason":"Unauthorized""#), "{body}");
    }
    assert_eq!(over_http1(&serving, Some(&token)).await.1, "GET /version 0");
}

#[tokio::test]
async fn an_api_with_accounts_gets_their_tokens_and_never_that_of_the_kubeconfig() {
    let shown = service_fn(|request: Request<Body>| async move {
        let token =
            request.headers().get("authorization").map(|it| it.to_str().unwrap().to_owned());
        Ok(Response::new(Full::<Bytes>::from(format!("{token:?}"))))
    });
    let options = Options { port: Port::Exactly(0), kubeconfig: None };
    let clock = Clock::system();
    let serving = RunningApi::start_for_accounts(shown, options, &clock).await.unwrap();
    let token = value(&serving, "token");
    assert_eq!(over_http1(&serving, Some(&token)).await.1, "None");
    assert_eq!(over_http1(&serving, Some("a.b.c")).await.1, r#"Some("Bearer a.b.c")"#);
    assert_eq!(over_http1(&serving, None).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_client_that_asks_for_http2_gets_it() {
    let serving = serve(echo()).await;
    let stream = connect(&serving, "h2").await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let token = value(&serving, "token");
    let response = sender.send_request(get(&serving, "/version", Some(&token))).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "GET /version 0");
}

#[tokio::test]
async fn a_watch_arrives_line_by_line_and_ends_with_the_server() {
    let (lines_sender, receiver) = mpsc::unbounded_channel::<&'static str>();
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let watch = service_fn(move |_: Request<Body>| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        let lines = stream::unfold(receiver, |mut receiver| async {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), receiver))
        });
        async move { Ok(Response::new(StreamBody::new(lines))) }
    });
    let serving = serve(watch).await;
    let token = value(&serving, "token");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(connect(&serving, "http/1.1").await)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(get(&serving, "/watch", Some(&token))).await.unwrap();
    let mut lines = response.into_body().into_data_stream();
    for line in ["one\n", "two\n"] {
        lines_sender.send(line).unwrap();
        let arrived = timeout(SECOND, lines.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(arrived, line);
    }
    drop(serving);
    let end = timeout(SECOND, lines.next()).await.expect("the connection ends");
    assert!(end.is_none_or(|last| last.is_err()));
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_kubernetes_is_refused() {
    let serving = serve(echo()).await;
    let kubeconfig = kube::config::Kubeconfig::read_from(serving.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let request = Request::post("/api").body(vec![0; LARGEST_REQUEST + 1]).unwrap();
    match client.request_text(request).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 413),
        _ => panic!("it must be refused as Kubernetes does"),
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_unless_any_other_will_do() {
    let first = serve(echo()).await;
    let port = first.address().port();
    let taken = Options { port: Port::Exactly(port), kubeconfig: None };
    let refused = RunningApi::start(echo(), taken, &Clock::system()).await.unwrap_err();
    assert!(refused.to_string().contains("--api-port"), "{refused}");
    let rather = Options { port: Port::Rather(port), kubeconfig: None };
    let second = RunningApi::start(echo(), rather, &Clock::system()).await.unwrap();
    assert_ne!(second.address().port(), port);
}

#[tokio::test]
async fn the_kubeconfig_is_removed_with_the_server() {
    let serving = serve(echo()).await;
    let path = serving.kubeconfig().to_owned();
    assert!(path.exists());
    drop(serving);
    assert!(!path.exists());
}
