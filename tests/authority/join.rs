//! Joining over the network, at one replica or two.

pub mod client;
pub mod refusals;

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http::Method;
use rcgen::{CertificateParams, SanType};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use trustplane::{
    authority::join::{
        messages::{Certs, Role},
        server::JoinOptions,
    },
    names::ROTATE_ANNOTATION,
    runtime::tls_listener::PeerAddress,
    spiffe::{
        bundle::Bundle,
        id::SpiffeId,
        svid::{self, PresentedSvid},
    },
};

use crate::stage::{FEDERATIONS, OWN, PATIENCE, REQUESTS, Replica, Stage, eventually};
use client::{Attempt, JoinClient, Joins, PartnerCa, ca_params, csr, tls};

pub const TOKENS: &str = "/apis/trustplane.dev/v1/jointokens";
pub const PARTNER: &str = "partner.test";

/// A token that lets `ci/*` of the partner join, changed by the test.
pub fn token(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut token = json!({
        "apiVersion": "trustplane.dev/v1", "kind": "JoinToken", "metadata": { "name": name },
        "spec": {
            "roles": ["Bot", "Agent"], "botName": "deployer", "joinMethod": "spiffe",
            "spiffe": { "allow": [{ "spiffeID": format!("spiffe://{PARTNER}/ci/*") }] },
        },
    });
    change(&mut token["spec"]);
    token
}

fn create_token(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) {
    let created = stage.ask(Method::POST, TOKENS, token(name, change));
    assert_eq!(created["kind"], "JoinToken", "{created}");
}

fn used_by(stage: &Stage) -> Vec<String> {
    let token = stage.get(&format!("{TOKENS}/ci"));
    let used_by = token["status"]["usedBy"].as_array().cloned().unwrap_or_default();
    used_by.iter().map(|it| it["spiffeID"].as_str().unwrap().to_owned()).collect()
}

fn join_options(stage: &Stage, peers: PeerAddress) -> JoinOptions {
    let listen = Some(([127, 0, 0, 1], 0).into());
    JoinOptions { listen, client: stage.server.client(), certificate: None, peers }
}

fn start(stage: &Stage, peers: PeerAddress) -> Replica {
    stage.start_with(|options| options.join = Some(join_options(stage, peers)))
}

/// A client of a replica that knows the token and the partner.
async fn ready(stage: &Stage, replica: &Replica) -> JoinClient {
    eventually("the replica is ready", || replica.authority.waiting_for().is_empty()).await;
    eventually("it listens", || replica.authority.join_address().is_some()).await;
    eventually("the partner is trusted", || stage.trusted(PARTNER).is_some()).await;
    let address = replica.authority.join_address().unwrap();
    // The SVID that it serves TLS with comes a moment after it is ready.
    while tls(address, b"").await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    JoinClient::dial(address).await
}

/// A replica with a token `ci`, a partner, and a client.
pub async fn scene() -> (Stage, PartnerCa, Replica, JoinClient) {
    let (stage, ca) = (Stage::new(), PartnerCa::new(PARTNER));
    stage.create_federation(PARTNER, ca.source());
    create_token(&stage, "ci", |_| {});
    let replica = start(&stage, PeerAddress::Connection);
    let client = ready(&stage, &replica).await;
    // The watches bring them a moment later than the API server has them.
    let start = Instant::now();
    while let Err(status) = client.join(&Attempt::new(&ca, "/ci/probe")).await {
        assert!(start.elapsed() < PATIENCE, "{status}: {:?}", stage.records().last());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    (stage, ca, replica, client)
}

fn verify(certs: &Certs, bundle: &Bundle, id: &str) {
    let chain: Vec<_> = certs.x509_svid.iter().map(|it| CertificateDer::from(&**it)).collect();
    let id = SpiffeId::parse(id).unwrap();
    assert_eq!(svid::verify(&chain, &id, bundle, chrono::Utc::now()), Ok(None));
    assert_eq!(certs.spiffe_id, id.to_string());
}

#[tokio::test]
async fn an_svid_of_a_federated_trust_domain_gets_one_of_ours_and_nothing_more() {
    let (stage, ca, replica, client) = scene().await;
    let mut attempt = Attempt::new(&ca, "/ci/deploy");
    let mut wishes: CertificateParams = ca_params("admin");
    wishes.subject_alt_names =
        vec![SanType::URI(format!("spiffe://{OWN}/admin").as_str().try_into().unwrap())];
    attempt.request.csr = csr(&wishes);
    attempt.request.node_name = "node-7".to_owned();
    let certs = client.join(&attempt).await.unwrap();
    // Verifying includes: one URI SAN, no CA, no right to sign.
    verify(&certs, &stage.published().unwrap(), &format!("spiffe://{OWN}/bot/deployer"));
    let chain = [CertificateDer::from(&*certs.x509_svid[0])];
    let summary = PresentedSvid::read(&chain).unwrap().summary();
    assert_eq!((&*summary.subject, summary.names.len()), ("O=trustplane", 1));
    let life = certs.expires - chrono::Utc::now().timestamp();
    assert!((3500..=3600).contains(&life), "{life} s");
    assert!(used_by(&stage).contains(&format!("spiffe://{PARTNER}/ci/deploy")));

    let audited = stage.records();
    let record = audited.iter().find(|it| it["nodeName"] == "node-7").unwrap();
    assert_eq!((&record["event"], &record["success"]), (&json!("bot.join"), &json!(true)));
    assert_eq!(record["issued"]["serial"], json!(summary.serial));
    assert_eq!(record["svid"]["sans"], json!([format!("spiffe://{PARTNER}/ci/deploy")]));
    assert_eq!((&record["token"], &record["address"]), (&json!("ci"), &json!("127.0.0.1")));
    let has_event = || {
        let events = stage.get("/apis/events.k8s.io/v1/events");
        let mut notes = events["items"].as_array().unwrap().iter().map(|it| it["note"].to_string());
        notes.any(|it| it.contains("/ci/deploy joined as"))
    };
    eventually("an Event tells of it", has_event).await;

    attempt.request.role = Role::Agent.into();
    let agent = client.join(&attempt).await.unwrap().spiffe_id;
    assert!(agent.starts_with(&format!("spiffe://{OWN}/agent/")), "{agent}");
    assert_eq!(client.join(&attempt).await.unwrap().spiffe_id, agent, "it keeps its name");
    replica.stop().await;
}

#[tokio::test]
async fn a_follower_sees_rotation_a_new_federation_and_a_deleted_one() {
    let (stage, ca, replica, client) = scene().await;
    let mut attempt = Attempt::new(&ca, "/ci/deploy");
    attempt.request.follow = true;
    let (_, mut follower) = client.follow(&attempt).await.unwrap();
    let first = follower.bundles().await.bundles;
    assert_eq!(first.keys().collect::<Vec<_>>(), [OWN, PARTNER]);
    assert_eq!(first[OWN], stage.document().into_bytes());

    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    let own = loop {
        let bundle = Bundle::parse(&follower.bundles().await.bundles[OWN]).unwrap();
        if bundle.x509.len() == 2 {
            break bundle;
        }
    };
    assert_eq!(own.sequence, Some(2));

    let other = PartnerCa::new("other.test");
    stage.create_federation("other.test", other.source());
    while !follower.bundles().await.bundles.contains_key("other.test") {}
    stage.delete(&format!("{FEDERATIONS}/{PARTNER}"));
    while follower.bundles().await.bundles.contains_key(PARTNER) {}
    let refused = client.join(&attempt).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    replica.stop().await;
    let mut end = follower.next().await;
    while matches!(end, Ok(Some(_))) {
        end = follower.next().await;
    }
    assert_eq!(end.unwrap_err().code(), Code::Unavailable, "it is sent elsewhere");
}

pub fn with_token(ca: &PartnerCa, path: &str, token: &str) -> Attempt {
    let mut attempt = Attempt::new(ca, path);
    attempt.request.token = token.to_owned();
    attempt
}

/// Joins with a hundred SVIDs at once, all with a token for one of them, at replicas that know it.
pub async fn one_of_a_hundred_joins(ca: &PartnerCa, token: &str, clients: &mut impl Joins) {
    let attempts: Vec<_> =
        (0..100).map(|number| with_token(ca, &format!("/ci/w{number}"), token)).collect();
    let results = clients.join_all(&attempts.iter().collect::<Vec<_>>()).await;
    let (joined, refused): (Vec<_>, Vec<_>) =
        attempts.iter().zip(results).partition(|(_, result)| result.is_ok());
    assert_eq!(joined.len(), 1);
    for (_, result) in refused {
        assert_eq!(result.unwrap_err().code(), Code::PermissionDenied);
    }
    let winner = joined[0].0;
    for renewed in clients.join_all(&[winner, winner]).await {
        renewed.expect("the winner renews, at both replicas");
    }
}

#[tokio::test]
async fn of_a_hundred_that_join_two_replicas_at_once_one_may_use_a_token_for_one() {
    let (stage, ca, one, client) = scene().await;
    create_token(&stage, "once", |spec| spec["maxUses"] = json!(1));
    let two = start(&stage, PeerAddress::Connection);
    let mut clients = vec![client, ready(&stage, &two).await];
    // Both know it as soon as they refuse for another reason than its absence.
    for client in &clients {
        loop {
            client.join(&with_token(&ca, "/other", "once")).await.unwrap_err();
            let last = stage.records().into_iter().rfind(|it| it["token"] == "once");
            if last.unwrap()["check"] == "rules" {
                break;
            }
        }
    }
    one_of_a_hundred_joins(&ca, "once", &mut clients).await;
    let used_by = stage.get(&format!("{TOKENS}/once"))["status"]["usedBy"].clone();
    assert_eq!(used_by.as_array().unwrap().len(), 1);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn behind_a_router_the_address_is_that_of_the_proxy_header() {
    let (stage, ca) = (Stage::new(), PartnerCa::new(PARTNER));
    stage.create_federation(PARTNER, ca.source());
    create_token(&stage, "ci", |_| {});
    let replica = start(&stage, PeerAddress::ProxyHeader);
    eventually("it listens", || replica.authority.join_address().is_some()).await;
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    let address = replica.authority.join_address().unwrap();
    assert!(tls(address, b"").await.is_err(), "a connection without a header");

    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x30\x39\x01\xbb";
    while tls(address, header).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let client = JoinClient::dial_with(address, header).await;
    let stranger = Attempt::new(&ca, "/other");
    // The watches take a moment, and until then nothing is judged.
    while client.join(&stranger).await.unwrap_err().code() != Code::PermissionDenied {}
    let records = stage.records();
    let join = records.iter().rfind(|it| it["event"] == "bot.join").unwrap();
    assert_eq!(join["address"], "192.0.2.7");
    replica.stop().await;
}

#[tokio::test]
async fn messages_that_are_no_join_have_codes_of_their_own() {
    let (stage, ca, replica, client) = scene().await;
    let unknown = client.open_at("/trustplane.join.v1.JoinService/Other").await;
    assert_eq!(unknown.err().unwrap().code(), Code::Unimplemented);
    let mut empty = client.open().await.unwrap();
    empty.send_any(Default::default()).await;
    assert_eq!(empty.next().await.unwrap_err().code(), Code::InvalidArgument);
    refusals::have_codes_of_their_own(&stage, &ca, &mut vec![client]).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_replica_whose_join_service_hears_first_of_the_stop_ends_well() {
    let stage = Stage::new();
    // What a select without an order takes first is left to chance.
    for _ in 0..20 {
        let (authority, _) = stage.authority(|options| {
            options.join = Some(join_options(&stage, PeerAddress::Connection));
        });
        let stop = CancellationToken::new();
        let mut running = authority.clone().run(stop.clone()).boxed();
        let address = loop {
            assert!(futures::poll!(&mut running).is_pending());
            if let Some(address) = authority.join_address() {
                break address;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        stop.cancel();
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        running.await.unwrap();
    }
}
