//! Joining, as a client sees it.

use std::{path::Path, process::Output, sync::Arc, time::Duration};

use rustls::RootCertStore;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tonic::Code;
use trustplane::authority::join::{
    client::{JoinError, Joined, ServerTrust},
    messages::Role,
};

use crate::{
    join_server::{Ca, Foreign, JoinServer, OWN, PARTNER, Profile, document},
    stage::Partner,
};

/// Joins, after a change to how the server behaves.
async fn join(change: impl FnOnce(&JoinServer)) -> Result<Joined, JoinError> {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    change(&server);
    server.client(foreign.source()).join(&server.trust()).await
}

fn error(joined: Result<Joined, JoinError>) -> JoinError {
    joined.err().expect("nobody joins here")
}

#[tokio::test]
async fn whoever_holds_the_key_of_an_svid_gets_one_of_the_trust_domain_and_its_bundles() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    server.publish(|it| {
        it.insert(PARTNER.to_owned(), document(&[foreign.ca.jwk()]).into_bytes());
    });
    let mut client = server.client(foreign.source());
    for (role, id) in
        [(Role::Bot, "spiffe://own.test/bot/ci"), (Role::Agent, "spiffe://own.test/agent/one")]
    {
        client.role = role;
        let mut joined = client.join(&server.trust()).await.unwrap();
        assert_eq!(joined.svid.id.to_string(), id);
        let names: Vec<_> = joined.bundles.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, [OWN, PARTNER]);
        if role == Role::Agent {
            server.publish(|it| {
                it.remove(PARTNER);
            });
            let bundles = joined.following.next().await.unwrap();
            assert_eq!(bundles.iter().count(), 1);
        }
    }
}

#[tokio::test]
async fn a_client_may_ask_for_less_time_than_it_would_get() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let mut client = server.client(foreign.source());
    client.ttl = Some(Duration::from_secs(60));
    let joined = client.join(&server.trust()).await.unwrap();
    let life = joined.svid.not_after - chrono::Utc::now();
    assert!(life.num_seconds() <= 60 && life.num_seconds() > 30, "{life}");
    for longer_than_any_time in [Duration::MAX, Duration::from_secs(1 << 43)] {
        client.ttl = Some(longer_than_any_time);
        assert!(client.join(&server.trust()).await.is_ok());
    }
}

#[tokio::test]
async fn a_server_that_is_not_the_one_that_is_meant_gets_nothing_of_us() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let client = server.client(foreign.source());
    let other = JoinServer::start().await;
    let refused = error(client.join(&other.trust()).await);
    assert!(matches!(refused, JoinError::Handshake { .. }), "{refused}");
    assert!(refused.to_string().contains("no authority of the bundle of own.test"), "{refused}");
    let roots = Arc::new(RootCertStore::empty());
    let refused = error(client.join(&ServerTrust::Web(roots)).await);
    assert!(matches!(refused, JoinError::Handshake { .. }), "{refused}");
    assert_eq!(server.joined(), 0);
}

#[tokio::test]
async fn a_server_may_be_known_by_a_web_certificate() {
    let (server, foreign) = (JoinServer::start_with(Profile::Web).await, Foreign::new());
    let mut roots = RootCertStore::empty();
    roots.add(server.web_ca.der()).unwrap();
    let client = server.client(foreign.source());
    assert!(client.join(&ServerTrust::Web(Arc::new(roots))).await.is_ok());
    let mut others = RootCertStore::empty();
    others.add(Ca::new("web.test").der()).unwrap();
    let refused = error(client.join(&ServerTrust::Web(Arc::new(others))).await);
    assert!(matches!(refused, JoinError::Handshake { .. }), "{refused}");
}

#[tokio::test]
async fn a_signature_for_one_server_is_worth_nothing_at_another() {
    let refused = error(join(|it| it.change(|it| it.trust_domain = "evil.test".to_owned())).await);
    assert!(matches!(refused, JoinError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("reference 0815"), "{refused}");
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reference_and_where_to_look() {
    let refused =
        |code| async move { error(join(|it| it.change(|it| it.refusal = Some(code))).await) };
    let denied = refused(Code::PermissionDenied).await;
    assert_eq!(denied.category(), "refused");
    let text = denied.to_string();
    assert!(text.contains("reference 4711") && text.contains("audit log"), "{text}");
    assert_eq!(refused(Code::Unavailable).await.category(), "unavailable");
    assert_eq!(refused(Code::ResourceExhausted).await.category(), "unavailable");
    assert_eq!(refused(Code::InvalidArgument).await.category(), "protocol");
}

#[tokio::test]
async fn an_answer_that_nobody_could_use_is_not_taken() {
    let other_key = error(join(|it| it.change(|it| it.other_key = true)).await);
    assert!(matches!(other_key, JoinError::Protocol(_)), "{other_key}");
    for id in ["spiffe://partner.test/agent/one", "spiffe://own.test/bot/ci"] {
        let other_id = error(join(|it| it.change(|it| it.id = Some(id.to_owned()))).await);
        assert!(matches!(other_id, JoinError::Protocol(_)), "{other_id}");
    }
    let other_ca = error(join(|it| it.change(|it| it.signer = Arc::new(Ca::new(OWN)))).await);
    assert!(matches!(other_ca, JoinError::Issued(_)), "{other_ca}");
    let no_bundle = error(join(|it| it.publish(|it| it.clear())).await);
    assert!(matches!(no_bundle, JoinError::Bundles(_)), "{no_bundle}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_so() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let mut client = server.client(foreign.source());
    client.server = "127.0.0.1:1".parse().unwrap();
    let unreachable = error(client.join(&server.trust()).await);
    assert!(matches!(unreachable, JoinError::Connect { .. }), "{unreachable}");
    assert!(unreachable.to_string().contains("--server"), "{unreachable}");
}

#[tokio::test]
async fn a_port_of_another_service_is_told_from_a_server_that_is_not_meant() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let mut client = server.client(foreign.source());
    let bundle_endpoint = Partner::start(PARTNER).await;
    client.server = bundle_endpoint.address().to_string().parse().unwrap();
    let other = error(client.join(&server.trust()).await);
    assert!(matches!(other, JoinError::Connect { .. }), "{other}");
    assert!(other.to_string().contains("it does not speak HTTP/2"), "{other}");

    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    client.server = plain.local_addr().unwrap().to_string().parse().unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    });
    let other = error(client.join(&server.trust()).await);
    assert!(other.to_string().contains("it does not speak TLS"), "{other}");
    answering.abort();
}

/// Runs `trustplane join` with the usual flags and these.
async fn run(server: &JoinServer, foreign: &Foreign, out: &Path, more: &[&str]) -> Output {
    let bundle = foreign.folder.path().join("bundle.json");
    std::fs::write(&bundle, document(&[server.ca.jwk()])).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trustplane"));
    command.env_clear().args(["join", "--token", "ci", "--role", "bot", "--trust-domain", OWN]);
    command.args(["--server", &server.address.to_string()]);
    command.arg("--server-bundle").arg(bundle);
    command.arg("--svid-file").arg(foreign.svid()).arg("--svid-key-file").arg(foreign.key());
    command.arg("--out").arg(out).args(more).output().await.unwrap()
}

#[tokio::test]
async fn the_command_writes_a_set_of_files_and_says_what_it_got() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    server.publish(|it| {
        it.insert(PARTNER.to_owned(), document(&[foreign.ca.jwk()]).into_bytes());
    });
    let out = foreign.folder.path().join("out");
    let ran = run(&server, &foreign, &out, &["-o", "json"]).await;
    assert!(ran.status.success(), "{ran:?}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["spiffeID"], "spiffe://own.test/bot/ci");
    assert_eq!(report["trustDomains"], serde_json::json!([OWN, PARTNER]));
    for file in report["files"].as_array().unwrap() {
        assert!(!std::fs::read(file.as_str().unwrap()).unwrap().is_empty(), "{file}");
    }
    let bundle = std::fs::read_to_string(out.join("bundle.partner.test.json")).unwrap();
    assert_eq!(bundle, document(&[foreign.ca.jwk()]));
    let ran = run(&server, &foreign, &out, &[]).await;
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.starts_with("Joined as spiffe://own.test/bot/ci, until "), "{text}");
    assert!(text.contains("Trusted: own.test, partner.test."), "{text}");
}

#[tokio::test]
async fn the_command_tells_a_refusal_from_a_fault_of_our_own_by_its_exit_code() {
    let (server, foreign) = (JoinServer::start().await, Foreign::new());
    let out = foreign.folder.path().join("out");
    server.change(|it| it.refusal = Some(Code::PermissionDenied));
    let refused = run(&server, &foreign, &out, &[]).await;
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("reference 4711"), "{text}");
    assert!(!out.join("svid.pem").exists());
    let asked = server.joined();
    let other = Foreign::new();
    std::fs::copy(other.key(), foreign.key()).unwrap();
    let mixed = run(&server, &foreign, &out, &[]).await;
    assert_eq!(mixed.status.code(), Some(2));
    let text = String::from_utf8(mixed.stderr).unwrap();
    assert!(text.contains("Do both files belong together?"), "{text}");
    assert_eq!(server.joined(), asked, "nobody was asked");
}
