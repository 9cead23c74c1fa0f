use std::net::Ipv4Addr;

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
async fn only_get_on_the_root_is_answered_and_the_answer_is_json() {
    let ca = Ca::new("td-b");
    let endpoint = serving(&ca).await;
    let asked = async |method: Method, path: &str| {
        let answer = answer(State(endpoint.offer.clone()), method, path.parse().unwrap()).await;
        let header = |name| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        (answer.status().as_u16(), header(header::CONTENT_TYPE), header(header::ALLOW))
    };
    let json = Some("application/json".to_owned());
    assert_eq!(asked(Method::GET, "/").await, (200, json, None));
    for method in [Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let (status, _, allowed) = asked(method.clone(), "/").await;
        assert_eq!((status, allowed.as_deref()), (405, Some("GET")), "{method}");
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
