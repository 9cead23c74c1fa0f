mod server;

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use rcgen::{ExtendedKeyUsagePurpose, IsCa, SanType, date_time_ymd};
use rustls::RootCertStore;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::*;
use crate::spiffe::{
    bundle::BundleError,
    id::TrustDomain,
    svid::{SvidError, SvidWarning},
    testing::{Ca, Issued, bundle, document, id, noon, svid_params},
};
use server::redirect;
pub(crate) use server::{Reply, Server};

const SERVER: &str = "spiffe://td-b.test/spire/server";

fn domain() -> TrustDomain {
    TrustDomain::parse("td-b.test").unwrap()
}

fn spiffe(ca: &Ca) -> Trust {
    Trust::Spiffe { id: id(SERVER), bundle: Arc::new(bundle(&[ca])) }
}

fn web(ca: &Ca) -> Trust {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der()).unwrap();
    Trust::web(Arc::new(roots))
}

/// For `localhost` and 127.0.0.1.
pub(crate) fn host_certificate(ca: &Ca) -> Issued {
    let mut params = svid_params(&[]);
    params.subject_alt_names = vec![
        SanType::DnsName("localhost".try_into().unwrap()),
        SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
    ];
    ca.issue(params)
}

pub(crate) fn good(ca: &Ca) -> Reply {
    Reply::ok(&document(&[ca]).to_string())
}

async fn ask(server: &Server, trust: Trust) -> Result<Fetched, FetchError> {
    fetch(&Endpoint { url: server.url("/bundle"), trust }, noon()).await
}

async fn fetch_from(url: &str) -> Result<Fetched, FetchError> {
    let endpoint = Endpoint { url: url.parse().unwrap(), trust: spiffe(&Ca::new("td-b")) };
    fetch(&endpoint, noon()).await
}

/// The error for a server that proves its identity and then answers this.
async fn said_of(reply: Reply) -> FetchError {
    let ca = Ca::new("td-b");
    let server = Server::start(ca.svid(SERVER), reply).await;
    ask(&server, spiffe(&ca)).await.unwrap_err()
}

/// What is said of a server with this certificate, which is none for [`SERVER`] of this authority.
async fn said_of_certificate(certificate: Issued, ca: &Ca) -> FetchError {
    let server = Server::start(certificate, good(ca)).await;
    let error = ask(&server, spiffe(ca)).await.unwrap_err();
    assert!(error.reached() && !error.verified());
    assert_eq!(error.category(), "certificate");
    error
}

#[tokio::test]
async fn an_endpoint_of_profile_https_spiffe_is_read() {
    let ca = Ca::new("td-b");
    let server = Server::start(ca.svid(SERVER), good(&ca)).await;

    let fetched = ask(&server, spiffe(&ca)).await.unwrap();

    assert!(fetched.bundle.same_keys(&bundle(&[&ca])));
    assert_eq!(fetched.document, document(&[&ca]).to_string());
}

#[tokio::test]
async fn an_endpoint_of_profile_https_web_is_read_and_asked_for_by_its_name() {
    let (ca, authority) = (Ca::new("web"), Ca::new("td-b"));
    let server = Server::start(host_certificate(&ca), good(&authority)).await;
    let url = format!("https://localhost:{}/bundle?x=y", server.port).parse().unwrap();

    let fetched = fetch(&Endpoint { url, trust: web(&ca) }, noon()).await.unwrap();

    assert!(fetched.bundle.same_keys(&bundle(&[&authority])));
    assert_eq!(server.names(), ["localhost"]);
    let request = server.requests().remove(0);
    assert!(request.starts_with("GET /bundle?x=y HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: localhost:{}\r\n", server.port)), "{request}");
}

#[tokio::test]
async fn a_host_with_a_full_stop_at_its_end_is_asked_for_without_it() {
    let (ca, authority) = (Ca::new("web"), Ca::new("td-b"));
    let server = Server::start(host_certificate(&ca), good(&authority)).await;
    let url = format!("https://localhost.:{}/", server.port).parse().unwrap();

    let fetched = fetch(&Endpoint { url, trust: web(&ca) }, noon()).await;

    assert!(fetched.is_ok(), "{fetched:?}");
    assert_eq!(server.names(), ["localhost"]);
    // As Go has it, and as the URL does.
    let request = server.requests().remove(0);
    assert!(request.contains(&format!("host: localhost.:{}\r\n", server.port)), "{request}");
}

#[tokio::test]
async fn a_server_whose_certificate_is_for_servers_alone_is_read_with_a_warning() {
    let ca = Ca::new("td-b");
    let mut params = svid_params(&[SERVER]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = Server::start(ca.issue(params), good(&ca)).await;
    let endpoint = Endpoint { url: server.url("/bundle"), trust: spiffe(&ca) };

    let attempt = attempt(&endpoint, Redirects::Follow, noon()).await;

    assert!(attempt.outcome.is_ok(), "{:?}", attempt.outcome);
    assert_eq!(attempt.warnings, [SvidWarning::ServerAuthAlone]);
}

#[tokio::test]
async fn what_went_wrong_at_a_private_address_is_marked_as_such_however_far_it_came() {
    let ca = Ca::new("td-b");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let verified = Server::start(ca.svid(SERVER), Reply::text("404 Not Found", "", "")).await;
    let redirecting =
        Server::start(ca.svid(SERVER), redirect("https://nowhere.example.org/")).await;
    for url in [
        format!("https://{free}/"),
        format!("https://localhost:{}/", free.port()),
        format!("https://[::ffff:127.0.0.1]:{}/", free.port()),
        format!("https://{}/", silent.local_addr().unwrap()),
        verified.url("/").to_string(),
        redirecting.url("/").to_string(),
        "https://db.shop/".to_owned(),
    ] {
        let endpoint = Endpoint { url: url.parse().unwrap(), trust: spiffe(&ca) };
        let attempt =
            attempt_within(Duration::from_millis(500), &endpoint, Redirects::Follow, noon()).await;
        assert!(attempt.outcome.is_err() && attempt.internal, "{url}: {attempt:?}");
    }
}

#[tokio::test]
async fn tls_1_2_is_spoken_too() {
    let ca = Ca::new("td-b");
    let versions = [&rustls::version::TLS12];
    let server = Server::with_versions(&versions, ca.svid(SERVER), good(&ca)).await;
    assert!(ask(&server, spiffe(&ca)).await.is_ok());
}

#[tokio::test]
async fn a_certificate_for_another_id_is_refused() {
    let ca = Ca::new("td-b");
    let error = said_of_certificate(ca.svid("spiffe://td-b.test/other"), &ca).await;
    assert_eq!(
        error.to_string(),
        "the certificate is for spiffe://td-b.test/other, not for spiffe://td-b.test/spire/server"
    );
}

#[tokio::test]
async fn a_proxy_that_re_encrypts_is_suspected() {
    let ca = Ca::new("td-b");
    let error = said_of_certificate(host_certificate(&ca), &ca).await;
    assert_eq!(
        error.to_string(),
        "the certificate contains no URI SAN: is a re-encrypting proxy in front of it?"
    );
}

#[tokio::test]
async fn a_certificate_with_two_uris_is_refused() {
    let ca = Ca::new("td-b");
    let two = ca.issue(svid_params(&[SERVER, "spiffe://td-b.test/x"]));
    let error = said_of_certificate(two, &ca).await;
    assert_eq!(error, FetchError::Svid(SvidError::ManyUris(2)));
}

#[tokio::test]
async fn an_authority_that_expired_is_not_trusted() {
    let ca = Ca::with("td-b", |ca| ca.not_after = date_time_ymd(2030, 1, 1));
    let error = said_of_certificate(ca.svid(SERVER), &ca).await;
    assert_eq!(error, FetchError::Svid(SvidError::NoAuthority(domain())));
}

#[tokio::test]
async fn an_authority_outside_the_bundle_is_not_trusted() {
    let (ca, other) = (Ca::new("td-b"), Ca::new("td-b"));
    let error = said_of_certificate(other.svid(SERVER), &ca).await;
    assert_eq!(error, FetchError::Svid(SvidError::UnknownAuthority(domain())));
}

#[tokio::test]
async fn a_host_without_a_certificate_for_its_name_is_refused() {
    let ca = Ca::new("web");
    let server = Server::start(ca.svid(SERVER), good(&ca)).await;
    let error = ask(&server, web(&ca)).await.unwrap_err();
    assert_eq!(error.to_string(), "the certificate is not for 127.0.0.1");
    assert!(!error.verified());
}

#[tokio::test]
async fn a_ca_that_this_machine_does_not_know_is_refused() {
    let (ca, other) = (Ca::new("web"), Ca::new("other"));
    let server = Server::start(host_certificate(&other), good(&ca)).await;
    assert_eq!(ask(&server, web(&ca)).await, Err(FetchError::UnknownCa));
}

#[tokio::test]
async fn a_certificate_with_thousands_of_purposes_is_not_told_with_all_of_them() {
    let ca = Ca::new("web");
    let mut params = svid_params(&[]);
    params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    params.extended_key_usages =
        (1..3_000).map(|number| ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, number])).collect();
    let server = Server::start(ca.issue(params), good(&ca)).await;
    let error = ask(&server, web(&ca)).await.unwrap_err();
    assert!(matches!(error, FetchError::Handshake(_)), "{error}");
    let told = error.to_string();
    assert!(told.ends_with("...") && told.len() < 500, "{} bytes: {told}", told.len());
}

#[tokio::test]
async fn a_web_certificate_is_judged_at_the_time_that_is_given() {
    let ca = Ca::new("web");
    let server = Server::start(host_certificate(&ca), good(&ca)).await;
    let endpoint = Endpoint { url: server.url("/"), trust: web(&ca) };
    let at = async |now: &str| fetch(&endpoint, now.parse().unwrap()).await;

    assert_eq!(at("2036-01-01T00:00:00Z").await, Err(FetchError::Expired));
    assert_eq!(at("2024-01-01T00:00:00Z").await, Err(FetchError::NotYetValid));
    assert!(at("2030-01-01T00:00:00Z").await.is_ok());
}

#[tokio::test]
async fn a_bundle_is_never_asked_for_without_tls_or_with_a_password() {
    for (url, said) in [
        ("http://127.0.0.1:1/bundle", UrlError::NotHttps),
        ("https://me:secret@127.0.0.1:1/bundle", UrlError::UserInfo),
    ] {
        let error = fetch_from(url).await.unwrap_err();
        assert_eq!(error, FetchError::Url(said));
        assert!(!error.reached() && !error.verified());
    }
}

#[tokio::test]
async fn a_redirect_is_followed_under_the_same_rules() {
    let ca = Ca::new("td-b");
    let target = Server::start(ca.svid(SERVER), good(&ca)).await;
    let server = Server::start(ca.svid(SERVER), redirect(&target.url("/new").to_string())).await;

    assert!(ask(&server, spiffe(&ca)).await.is_ok());
    assert!(ask(&server, spiffe(&ca)).await.is_ok());

    assert_eq!(server.requests().len(), 2, "redirects are not remembered");
    assert!(target.requests()[0].starts_with("GET /new "));
}

#[tokio::test]
async fn a_redirect_to_http_is_refused() {
    let error = said_of(redirect("http://127.0.0.1:1/bundle")).await;
    let cause = Box::new(FetchError::Url(UrlError::NotHttps));
    let to = "http://127.0.0.1:1/bundle".to_owned();
    assert_eq!(error, FetchError::Redirected { to, cause });
    assert!(error.reached());
}

#[tokio::test]
async fn a_redirect_to_another_id_is_refused() {
    let ca = Ca::new("td-b");
    let target = Server::start(ca.svid("spiffe://td-b.test/other"), good(&ca)).await;
    let error = said_of_redirect(&ca, &target).await;
    assert!(
        matches!(&error, FetchError::Redirected { cause, .. }
            if matches!(**cause, FetchError::Svid(SvidError::OtherId { .. }))),
        "{error}"
    );
    assert!(error.reached() && !error.verified());
}

async fn said_of_redirect(ca: &Ca, target: &Server) -> FetchError {
    let server = Server::start(ca.svid(SERVER), redirect(&target.url("/").to_string())).await;
    ask(&server, spiffe(ca)).await.unwrap_err()
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let ca = Ca::new("td-b");
    let server = Server::start(ca.svid(SERVER), redirect("/bundle")).await;
    assert_eq!(ask(&server, spiffe(&ca)).await, Err(FetchError::ManyRedirects));
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn a_redirect_to_nowhere_is_told() {
    assert_eq!(said_of(Reply::text("302 Found", "", "")).await, FetchError::NoLocation);
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut() {
    let error = said_of(Reply::Endless).await;
    assert_eq!(error, FetchError::TooLong);
    assert!(error.verified());
}

#[tokio::test]
async fn an_answer_that_ends_early_is_no_bundle() {
    let half = Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"keys\": []}".into());
    assert_eq!(said_of(half).await, FetchError::Broken);
}

#[tokio::test]
async fn a_server_that_stays_silent_is_given_up() {
    let ca = Ca::new("td-b");
    let server = Server::start(ca.svid(SERVER), Reply::Silent).await;
    let endpoint = Endpoint { url: server.url("/"), trust: spiffe(&ca) };

    let limit = Duration::from_millis(500);
    let error =
        attempt_within(limit, &endpoint, Redirects::Follow, noon()).await.outcome.unwrap_err();

    assert_eq!(error, FetchError::TooSlow { after: limit, stage: Stage::Verified });
    assert!(error.reached() && error.verified());
    let real = FetchError::TooSlow { after: PATIENCE, stage: Stage::Began };
    assert!(real.to_string().starts_with("no answer within 30 s. "), "{real}");
    assert!(!real.reached());
}

#[tokio::test]
async fn a_server_that_never_begins_tls_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let endpoint = Endpoint { url, trust: spiffe(&Ca::new("td-b")) };

    let limit = Duration::from_millis(300);
    let error =
        attempt_within(limit, &endpoint, Redirects::Follow, noon()).await.outcome.unwrap_err();

    assert!(error.reached() && !error.verified(), "{error:?}");
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await?;
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await?;
        io::Result::Ok(())
    });

    assert_eq!(fetch_from(&url).await, Err(FetchError::NotTls));
    plain.abort();
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_told() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let error = fetch_from(&format!("https://{free}/")).await.unwrap_err();
    assert!(error.to_string().starts_with("connection refused. "), "{error}");
    assert!(!error.reached());
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_told() {
    let error = fetch_from("https://nowhere.invalid/").await.unwrap_err();
    assert!(error.to_string().starts_with("no such host: nowhere.invalid. "), "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_by_its_code() {
    let error = said_of(Reply::text("404 Not Found", "", "gone")).await;
    assert!(error.to_string().starts_with("it answers HTTP 404. "), "{error}");
    assert!(error.reached() && error.verified());
    assert_eq!(error.category(), "http");
}

#[tokio::test]
async fn garbage_is_no_bundle() {
    let error = said_of(Reply::ok("<html>secret</html>")).await;
    assert!(matches!(error, FetchError::Bundle(BundleError::Json(_))), "{error:?}");
    assert!(error.to_string().starts_with("not a bundle document: "), "{error}");
    assert!(error.verified());
    assert_eq!(said_of(Reply::Raw("no HTTP at all\r\n\r\n".into())).await, FetchError::Broken);
}

#[tokio::test]
async fn an_endpoint_in_its_own_trust_domain_is_next_verified_with_what_it_said() {
    let (old, new) = (Ca::new("td-b"), Ca::new("td-b, rotated"));
    let first =
        Server::start(old.svid(SERVER), Reply::ok(&document(&[&old, &new]).to_string())).await;
    let second = Server::start(new.svid(SERVER), good(&new)).await;

    let latest = Arc::new(ask(&first, spiffe(&old)).await.unwrap().bundle);

    assert!(ask(&second, spiffe(&old)).await.is_err());
    assert!(ask(&second, spiffe(&old).after(&domain(), latest.clone())).await.is_ok());
    let foreign = TrustDomain::parse("td-c.test").unwrap();
    assert!(ask(&second, spiffe(&old).after(&foreign, latest)).await.is_err());
}

#[tokio::test]
async fn an_authority_cannot_serve_as_a_server() {
    let ca = Ca::new("td-b");
    let mut params = svid_params(&[SERVER]);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let error = said_of_certificate(ca.issue(params), &ca).await;
    assert_eq!(error, FetchError::Svid(SvidError::OfAuthority));
}

/// The SHA-256 of the certificate's public key.
fn pin(certificate: &Issued) -> [u8; 32] {
    let (_, parsed) = X509Certificate::from_der(&certificate.der).unwrap();
    Sha256::digest(parsed.public_key().raw).into()
}

#[tokio::test]
async fn a_server_with_another_key_than_the_pinned_ones_is_refused() {
    let ca = Ca::new("web");
    let certificate = host_certificate(&ca);
    let (right, other) = (pin(&certificate), [7; 32]);
    let Trust::Web { roots, .. } = web(&ca) else { panic!("another profile") };
    let server = Server::start(certificate, good(&Ca::new("td-b"))).await;
    let pinned = |roots: &Arc<RootCertStore>, pins: &[[u8; 32]]| Trust::Web {
        roots: roots.clone(),
        pins: pins.to_vec(),
    };
    assert!(ask(&server, pinned(&roots, &[other, right])).await.is_ok());
    let refused = ask(&server, pinned(&roots, &[other])).await.unwrap_err();
    assert_eq!(refused, FetchError::NotPinned);
    assert!(refused.reached() && !refused.verified());
    // A pin replaces no CA.
    let Trust::Web { roots: others, .. } = web(&Ca::new("other")) else {
        panic!("another profile")
    };
    let unknown = ask(&server, pinned(&others, &[right])).await;
    assert_eq!(unknown, Err(FetchError::UnknownCa));
}

#[tokio::test]
async fn a_redirect_is_refused_where_redirects_are_switched_off() {
    let ca = Ca::new("td-b");
    let target = Server::start(ca.svid(SERVER), good(&ca)).await;
    let server = Server::start(ca.svid(SERVER), redirect(&target.url("/").to_string())).await;
    let endpoint = Endpoint { url: server.url("/bundle"), trust: spiffe(&ca) };
    let refused = attempt(&endpoint, Redirects::Refuse, noon()).await.outcome.unwrap_err();
    assert!(matches!(refused, FetchError::RedirectRefused { .. }), "{refused}");
    assert!(target.requests().is_empty());
}
