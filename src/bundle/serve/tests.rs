use std::net::Ipv4Addr;

use axum::body::Body;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};

use super::*;
use crate::{
    bundle::fetch::{self, FetchError, Fetched, Trust},
    spiffe::{
        svid::SvidError,
        testing::{Ca, bundle, document, id, noon},
    },
};

const SERVER: &str = "spiffe://td-b.test/spire/server";

fn svid(ca: &Ca) -> ServerSvid {
    let issued = ca.svid(SERVER);
    ServerSvid { chain: vec![issued.der], key: issued.key }
}

fn served(ca: &Ca) -> String {
    document(&[ca]).to_string()
}

async fn serving(ca: &Ca) -> Endpoint {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    Endpoint::start(listener, served(ca), svid(ca)).unwrap()
}

async fn ask(address: SocketAddr, path: &str, known: &Ca) -> Result<Fetched, FetchError> {
    let trust = Trust::Spiffe { id: id(SERVER), bundle: Arc::new(bundle(&[known])) };
    let url = format!("https://{address}{path}").parse().unwrap();
    fetch::fetch(&fetch::Endpoint { url, trust }, noon()).await
}

#[tokio::test]
async fn whoever_knows_the_trust_domain_gets_its_bundle() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    for path in ["", "/", "/?any=query"] {
        let fetched = ask(endpoint.address(), path, &ca).await.unwrap();
        assert_eq!(fetched.document, served(&ca));
    }
    assert_eq!(ask(endpoint.address(), "/bundle", &ca).await, Err(FetchError::Status(404)));
    let stranger = ask(endpoint.address(), "/", &Ca::new("another")).await;
    let refused = matches!(&stranger, Err(FetchError::Svid(SvidError::UnknownAuthority(_))));
    assert!(refused, "{stranger:?}");
}

#[tokio::test]
async fn after_a_rotation_both_document_and_svid_are_the_new_ones() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let endpoint = serving(&old).await;
    endpoint.replace(served(&new), svid(&new)).unwrap();
    assert!(ask(endpoint.address(), "/", &old).await.is_err());
    assert_eq!(ask(endpoint.address(), "/", &new).await.unwrap().document, served(&new));

    let foreign = ServerSvid { key: old.svid(SERVER).key, ..svid(&old) };
    assert!(matches!(endpoint.replace(served(&old), foreign), Err(ServeError::Svid(_))));
    let none = ServerSvid { chain: Vec::new(), ..svid(&old) };
    assert!(matches!(endpoint.replace(served(&old), none), Err(ServeError::Svid(_))));
    assert_eq!(ask(endpoint.address(), "/", &new).await.unwrap().document, served(&new));
}

#[tokio::test]
async fn only_get_and_head_on_the_root_are_answered_and_the_answer_is_json() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    let asked = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = answer(State(endpoint.offer.clone()), request).await;
        let header = |name| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        (answer.status().as_u16(), header(header::CONTENT_TYPE), header(header::ALLOW))
    };
    let json = Some("application/json".to_owned());
    assert_eq!(asked(Method::GET, "/").await, (200, json.clone(), None));
    assert_eq!(asked(Method::HEAD, "/").await, (200, json, None));
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let (status, _, allowed) = asked(method.clone(), "/").await;
        assert_eq!((status, allowed.as_deref()), (405, Some("GET, HEAD")), "{method}");
    }
    for path in ["/bundle", "//", "/index.html"] {
        assert_eq!(asked(Method::GET, path).await.0, 404, "{path}");
        assert_eq!(asked(Method::POST, path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn tls_before_1_2_is_refused() {
    let endpoint = serving(&Ca::new("td-b")).await;
    let address = endpoint.address();
    let connect = move |version: SslVersion| {
        let mut builder = SslConnector::builder(SslMethod::tls()).unwrap();
        builder.set_verify(SslVerifyMode::NONE);
        builder.set_cipher_list("ALL@SECLEVEL=0").unwrap();
        builder.set_min_proto_version(Some(version)).unwrap();
        builder.set_max_proto_version(Some(version)).unwrap();
        let stream = std::net::TcpStream::connect(address).unwrap();
        builder.build().connect("td-b.test", stream).is_ok()
    };
    let versions = [SslVersion::TLS1_1, SslVersion::TLS1_2, SslVersion::TLS1_3];
    let connected = tokio::task::spawn_blocking(move || versions.map(connect)).await.unwrap();
    assert_eq!(connected, [false, true, true]);
}

#[tokio::test]
async fn an_endpoint_that_was_stopped_lets_go_of_its_port() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    let address = endpoint.address();
    assert!(ask(address, "/", &ca).await.is_ok());
    endpoint.stop().await;
    let start = std::time::Instant::now();
    while TcpListener::bind(address).await.is_err() {
        assert!(start.elapsed().as_secs() < 5, "the port is still taken");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_has_the_document_already_is_told_so_until_it_changes() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    let asked = async |tag: Option<&str>| {
        let mut request = Request::new(Body::empty());
        if let Some(tag) = tag {
            request.headers_mut().insert(header::IF_NONE_MATCH, tag.parse().unwrap());
        }
        let answer = answer(State(endpoint.offer.clone()), request).await;
        let header = |name| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(header::CACHE_CONTROL), "no-cache");
        (answer.status().as_u16(), header(header::ETAG))
    };
    let (status, tag) = asked(None).await;
    assert_eq!(status, 200);
    assert!(tag.starts_with('"') && tag.ends_with('"'), "strong: {tag}");
    for known in [&*tag, &format!("W/{tag}"), &format!("\"other\", {tag}"), "*"] {
        assert_eq!(asked(Some(known)).await, (304, tag.clone()), "{known}");
    }
    assert_eq!(asked(Some("\"other\"")).await.0, 200);
    endpoint.replace_document(&served(&Ca::new("new")));
    let (status, changed) = asked(Some(&tag)).await;
    assert_eq!(status, 200);
    assert_ne!(changed, tag);
}

#[tokio::test]
async fn a_client_that_never_finishes_its_headers_is_let_go() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    let address = endpoint.address();
    let ended = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let mut builder = SslConnector::builder(SslMethod::tls()).unwrap();
        builder.set_verify(SslVerifyMode::NONE);
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(2 * http_listener::HEADER_TIMEOUT)).unwrap();
        let mut stream = builder.build().connect("td-b.test", stream).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").unwrap();
        stream.read_to_end(&mut Vec::new())
    });
    let ended = ended.await.unwrap();
    assert!(
        !matches!(&ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
        "{ended:?}"
    );
}

#[tokio::test]
async fn the_web_endpoint_serves_with_the_pair_from_its_files() {
    let (ca, folder) = (Ca::new("td-b"), tempfile::tempdir().unwrap());
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let [cert_file, key_file] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    std::fs::write(&cert_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let pair = CertReloader::read(&cert_file, &key_file).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let counter = RequestCounter::default();
    let endpoint = Endpoint::start_web(
        listener,
        "/webapi/spiffe/bundle.json",
        served(&ca),
        pair,
        counter.clone(),
    )
    .unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let trust = Trust::web(Arc::new(roots));
    let at = |path: &str| format!("https://localhost:{}{path}", endpoint.address().port());
    let url = at("/webapi/spiffe/bundle.json").parse().unwrap();
    let fetched =
        fetch::fetch(&fetch::Endpoint { url, trust: trust.clone() }, noon()).await.unwrap();
    assert_eq!(fetched.document, served(&ca));
    let elsewhere = fetch::Endpoint { url: at("/").parse().unwrap(), trust };
    assert_eq!(fetch::fetch(&elsewhere, noon()).await, Err(FetchError::Status(404)));
    let count = |code: &'static str| counter.get_or_create(&[("code", code)]).get();
    assert_eq!((count("200"), count("404")), (1, 1));
}
