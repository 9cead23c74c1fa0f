//! Real SPIRE on the other side, and go-spiffe as the judge of every SVID.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use testkit::{
    free_port,
    spiffe_verdict::{self, SpiffeVerdict, is_ok},
    spire::{Launch, SpireServer},
};
use trustplane::names::{REVOKE_ANNOTATION, ROTATE_ANNOTATION};

use crate::stage::{CONFIG_MAP, FEDERATIONS, OWN, Replica, Stage, eventually};

const SPIRE: &str = "spire.test";
const ENDPOINT_ID: &str = "spiffe://own.test/trustplane/authority";
/// SPIRE itself does not poll more often than once a minute, so the tests ask it to.
const REFRESH: Duration = Duration::from_millis(300);

fn conf(ours: SocketAddr) -> Value {
    json!({
        "server": {
            "trust_domain": SPIRE,
            "log_level": "DEBUG",
            "federation": {
                "bundle_endpoint": { "refresh_hint": "1s", "profile": { "https_spiffe": {} } },
                "federates_with": { OWN: {
                    "bundle_endpoint_url": format!("https://{ours}/webapi/spiffe/bundle.json"),
                    "bundle_endpoint_profile": { "https_spiffe": { "endpoint_spiffe_id": ENDPOINT_ID } },
                } },
            },
        },
        "plugins": {
            "DataStore": [{ "sql": { "plugin_data": { "database_type": "sqlite3", "connection_string": "" } } }],
            "KeyManager": [{ "disk": { "plugin_data": { "keys_path": "" } } }],
        },
    })
}

struct Both {
    stage: Stage,
    replica: Replica,
    spire: Arc<SpireServer>,
    address: SocketAddr,
}

impl Both {
    /// Federated both ways.
    async fn start(name: &str) -> Self {
        let stage = Stage::new();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let replica = stage.start_with(|options| options.spiffe_listen = Some(address));
        eventually("our bundle is published", || stage.published().is_some()).await;
        let spire = Arc::new(Launch::new(name, conf(address)).start().await);
        spire.bundle_set_text(OWN, &stage.document()).await;
        let source = json!({ "httpsSPIFFE": {
            "bundleEndpointURL": format!("https://{}/", spire.federation_address()),
            "endpointSPIFFEID": format!("spiffe://{SPIRE}/spire/server"),
            "bundleBootstrap": spire.bundle_show().await.to_string(),
        } });
        stage.create_federation(SPIRE, source);
        eventually("SPIRE is trusted", || stage.trusted(SPIRE).is_some()).await;
        Self { stage, replica, spire, address }
    }

    /// The chain of our own endpoint, as a client gets it.
    fn our_svid(&self) -> Vec<CertificateDer<'static>> {
        served_chain(self.address)
    }

    async fn spire_svid(&self) -> Vec<CertificateDer<'static>> {
        let minted = self.spire.mint(&format!("spiffe://{SPIRE}/shop")).await;
        CertificateDer::pem_slice_iter(minted.certificate.as_bytes()).map(Result::unwrap).collect()
    }

    /// What SPIRE verifies our SVIDs with.
    async fn ours_at_spire(&self) -> String {
        let bundle = self.spire.bundle_of(OWN).await;
        bundle.map(|it| it.to_string()).unwrap_or_else(|| r#"{"keys":[]}"#.to_owned())
    }

    fn theirs_here(&self) -> String {
        let federation = self.stage.federation(SPIRE);
        let document = federation["status"]["currentBundle"].as_str();
        let is_trusted = self.stage.condition(SPIRE, "Trusted").0 == "True";
        document.filter(|_| is_trusted).unwrap_or(r#"{"keys":[]}"#).to_owned()
    }
}

/// Connects without verifying: go-spiffe does that.
fn served_chain(address: SocketAddr) -> Vec<CertificateDer<'static>> {
    use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
    let mut builder = SslConnector::builder(SslMethod::tls()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    let stream = std::net::TcpStream::connect(address).unwrap();
    let stream = builder.build().connect("own.test", stream).unwrap();
    let chain = stream.ssl().peer_cert_chain().expect("a chain");
    chain.iter().map(|it| CertificateDer::from(it.to_der().unwrap())).collect()
}

/// Verifies without pause; counts what was accepted, and keeps what was refused.
async fn verify_without_pause(
    both: &Both,
    stop: &AtomicBool,
    accepted: &AtomicUsize,
) -> Vec<String> {
    let mut verdict = SpiffeVerdict::start();
    let mut refused = Vec::new();
    while !stop.load(Relaxed) {
        let (ours, theirs) = (both.our_svid(), both.spire_svid().await);
        let answers = [
            verdict.ask(&spiffe_verdict::verify(OWN, &both.ours_at_spire().await, &ours)),
            verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs)),
        ];
        let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_ok);
        accepted.fetch_add(good.len(), Relaxed);
        refused.extend(bad.iter().map(ToString::to_string));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    refused
}

async fn keep_refreshing(spire: Arc<SpireServer>) {
    loop {
        let _ = spire.refresh(OWN).await;
        tokio::time::sleep(REFRESH).await;
    }
}

/// SPIRE's next authority signs as soon as we know it.
async fn rotate_spire(both: &Both) {
    let prepared = both.spire.ask(&["localauthority", "x509", "prepare", "-output", "json"]).await;
    let prepared: Value = serde_json::from_str(&prepared).unwrap();
    let id = prepared["prepared_authority"]["authority_id"].as_str().unwrap().to_owned();
    let keys = both.spire.bundle_show().await["keys"].as_array().unwrap().len();
    let known = || {
        let document: Value = serde_json::from_str(&both.theirs_here()).unwrap();
        document["keys"].as_array().unwrap().len() == keys
    };
    eventually("SPIRE's next authority is known here", known).await;
    both.spire.ask(&["localauthority", "x509", "activate", "-authorityID", &id]).await;
}

async fn rotate_ours(both: &Both, request: &str) {
    let before = both.stage.state().unwrap().active().unwrap().id.clone();
    both.stage.annotate(CONFIG_MAP, ROTATE_ANNOTATION, request);
    let is_over = || both.stage.state().unwrap().active().unwrap().id != before;
    eventually("our next CA signs", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_rotate_twice_and_go_spiffe_verifies_every_svid_of_both() {
    let both = Both::start("rotation").await;
    let refreshing = tokio::spawn(keep_refreshing(both.spire.clone()));
    let (stop, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rotating = async {
        for round in ["one", "two"] {
            rotate_spire(&both).await;
            rotate_ours(&both, round).await;
        }
        stop.store(true, Relaxed);
    };
    let (refused, ()) = tokio::join!(verify_without_pause(&both, &stop, &accepted), rotating);
    assert_eq!(refused, Vec::<String>::new());
    assert!(accepted.load(Relaxed) > 20, "only {} were verified", accepted.load(Relaxed));
    println!("{} SVIDs verified during four rotations, none refused", accepted.load(Relaxed));
    refreshing.abort();
    both.replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_our_revocation_and_the_end_of_the_federation_nothing_is_verified_any_more() {
    let both = Both::start("ends").await;
    let mut verdict = SpiffeVerdict::start();
    let (old, theirs) = (both.our_svid(), both.spire_svid().await);
    both.spire.refresh(OWN).await.unwrap();
    let before = spiffe_verdict::verify(OWN, &both.ours_at_spire().await, &old);
    assert!(is_ok(&verdict.ask(&before)));

    let stolen = both.stage.state().unwrap().active().unwrap().id.clone();
    both.stage.annotate(CONFIG_MAP, REVOKE_ANNOTATION, &stolen);
    eventually("another CA signs", || both.stage.state().unwrap().active().unwrap().id != stolen)
        .await;
    // The endpoint's SVID is of a CA that SPIRE can't know: an administrator brings the bundle.
    both.spire.bundle_set_text(OWN, &both.stage.document()).await;
    let after = both.ours_at_spire().await;
    let answer = verdict.ask(&spiffe_verdict::verify(OWN, &after, &old));
    assert!(!is_ok(&answer), "{answer}");
    eventually("the endpoint has a new SVID", || both.our_svid() != old).await;
    let answer = verdict.ask(&spiffe_verdict::verify(OWN, &after, &both.our_svid()));
    assert!(is_ok(&answer), "{answer}");
    both.spire.refresh(OWN).await.unwrap();

    assert!(is_ok(&verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs))));
    both.stage.delete(&format!("{FEDERATIONS}/{SPIRE}"));
    let answer = verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs));
    assert!(!is_ok(&answer), "{answer}");
    both.replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn go_spiffe_fetches_our_bundle_and_reads_what_we_read() {
    let both = Both::start("fetched").await;
    let mut verdict = SpiffeVerdict::start();
    let url = format!("https://{}/webapi/spiffe/bundle.json", both.address);
    let question = spiffe_verdict::fetch_spiffe(OWN, &url, ENDPOINT_ID, &both.stage.document());
    let answer = verdict.ask(&question);
    assert!(is_ok(&answer), "{answer}");
    assert_eq!(
        (&answer["x509"], &answer["sequence"], &answer["hint"]),
        (&json!(1), &json!("1"), &json!(1))
    );
    both.replica.stop().await;
}
