//! Real SPIRE on the other side, and go-spiffe as the judge of every SVID.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use chrono::TimeDelta;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    authority::Authority as WebCa,
    eventually_equals, free_port,
    spiffe_verdict::{self, SpiffeVerdict, is_ok},
    spire::{Launch, SpireServer},
    suite,
};
use trustplane::{
    authority::join::server::JoinOptions,
    names::{REVOKE_ANNOTATION, ROTATE_ANNOTATION},
    runtime::tls_listener::{CertReloader, PeerAddress},
};

use crate::{
    peer::{HOST, Profile},
    stage::{FEDERATIONS, OWN, PATIENCE, REQUESTS, Replica, Stage, eventually},
};

pub const SPIRE: &str = "spire.test";
pub const ENDPOINT_ID: &str = "spiffe://own.test/trustplane/authority";
const PATH: &str = "webapi/spiffe/bundle.json";

/// Of a SPIRE server that federates with one trust domain, by the same profile in both directions.
pub fn conf(profile: Profile, trust_domain: &str, url: &str, endpoint_id: &str) -> Value {
    let (own, peer) = match profile {
        Profile::Spiffe => (
            json!({ "https_spiffe": {} }),
            json!({ "https_spiffe": { "endpoint_spiffe_id": endpoint_id } }),
        ),
        Profile::Web => (
            json!({ "https_web": { "serving_cert_file": { "file_sync_interval": "1m" } } }),
            json!({ "https_web": {} }),
        ),
    };
    json!({
        "server": {
            "trust_domain": SPIRE,
            "log_level": "DEBUG",
            "federation": {
                "bundle_endpoint": { "refresh_hint": "1s", "profile": own },
                "federates_with": { trust_domain: {
                    "bundle_endpoint_url": url, "bundle_endpoint_profile": peer,
                } },
            },
        },
        "plugins": {
            "DataStore": [{ "sql": { "plugin_data": { "database_type": "sqlite3", "connection_string": "" } } }],
            "KeyManager": [{ "disk": { "plugin_data": { "keys_path": "" } } }],
        },
    })
}

pub struct Both {
    pub stage: Stage,
    pub replica: Replica,
    pub spire: Arc<SpireServer>,
    /// Of https_spiffe, which we serve in any case.
    address: SocketAddr,
    web_address: SocketAddr,
    web: WebCa,
    /// Of our bundle.
    hint: Duration,
    /// With the pair of https_web.
    _files: TempDir,
}

impl Both {
    /// Federated both ways.
    pub async fn start(name: &str, profile: Profile) -> Self {
        Self::start_with(name, profile, Duration::from_secs(1)).await
    }

    pub async fn start_with(name: &str, profile: Profile, hint: Duration) -> Self {
        let stage = Stage::new();
        let loopback = || SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let (address, web_address, web) = (loopback(), loopback(), WebCa::new("web"));
        let files = tempfile::tempdir().unwrap();
        let pair = pair_in(&files, &web);
        let replica = stage.start_with(|options| {
            options.ca.refresh_hint = TimeDelta::from_std(hint).unwrap();
            options.spiffe_listen = Some(address);
            options.web = Some((web_address, pair));
            options.join = Some(join_options(&stage));
        });
        eventually("our bundle is published", || stage.published().is_some()).await;
        let listens_at = if profile == Profile::Spiffe { address } else { web_address };
        let url = format!("https://{listens_at}/{PATH}");
        let spire = Launch::new(name, conf(profile, OWN, &url, ENDPOINT_ID))
            .serving(&web.issue(HOST))
            .trusting(&web.root());
        let spire = Arc::new(spire.start().await);
        let both = Self { stage, replica, spire, address, web_address, web, hint, _files: files };
        both.federate(profile).await;
        both
    }

    async fn federate(&self, profile: Profile) {
        let url = format!("https://{}/", self.spire.federation_address());
        let source = match profile {
            Profile::Spiffe => {
                self.spire.bundle_set_text(OWN, &self.stage.document()).await;
                json!({ "httpsSPIFFE": {
                    "bundleEndpointURL": url,
                    "endpointSPIFFEID": format!("spiffe://{SPIRE}/spire/server"),
                    "bundleBootstrap": self.spire.bundle_show().await.to_string(),
                } })
            }
            Profile::Web => {
                json!({ "httpsWeb": { "bundleEndpointURL": url, "caBundle": self.web.root() } })
            }
        };
        self.stage.create_federation(SPIRE, source);
        self.spire.refresh(OWN).await.unwrap();
        eventually("SPIRE is trusted", || self.stage.trusted(SPIRE).is_some()).await;
    }

    /// The chain of our own https_spiffe endpoint, as a client gets it.
    pub async fn our_svid(&self) -> Vec<CertificateDer<'static>> {
        let address = self.address;
        tokio::task::spawn_blocking(move || served_chain(address)).await.unwrap()
    }

    async fn until_endpoint_has_another(&self, old: &[CertificateDer<'_>]) {
        let is_new = async || self.our_svid().await != old;
        eventually_equals(PATIENCE, "the endpoint has a new SVID", true, is_new).await;
    }

    pub async fn spire_svid(&self) -> Vec<CertificateDer<'static>> {
        let minted = self.spire.mint(&format!("spiffe://{SPIRE}/shop")).await;
        CertificateDer::pem_slice_iter(minted.certificate.as_bytes()).map(Result::unwrap).collect()
    }

    /// What SPIRE verifies our SVIDs with.
    pub async fn ours_at_spire(&self) -> String {
        bundle_at(&self.spire, OWN).await
    }

    pub fn theirs_here(&self) -> String {
        let is_trusted = self.stage.condition(SPIRE, "Trusted").0 == "True";
        if is_trusted { self.stage.current_bundle(SPIRE) } else { NOTHING.to_owned() }
    }

    /// Takes the active CA back, as if its key was stolen.
    pub async fn revoke(&self) {
        let active = || self.stage.state().unwrap().active().unwrap().id.clone();
        let stolen = active();
        self.stage.annotate(REQUESTS, REVOKE_ANNOTATION, &stolen);
        eventually("another CA signs", || active() != stolen).await;
    }
}

/// Every replica serves joins, too.
fn join_options(stage: &Stage) -> JoinOptions {
    let listen = Some(([127, 0, 0, 1], 0).into());
    let client = stage.server.client();
    JoinOptions { listen, client, certificate: None, peers: PeerAddress::Connection }
}

const NOTHING: &str = r#"{"keys":[]}"#;

/// What a SPIRE server verifies SVIDs of another trust domain with.
pub async fn bundle_at(spire: &SpireServer, trust_domain: &str) -> String {
    let bundle = spire.bundle_of(trust_domain).await;
    bundle.map_or(NOTHING.to_owned(), |it| it.to_string())
}

fn pair_in(folder: &TempDir, web: &WebCa) -> Arc<CertReloader> {
    let pair = web.issue(HOST);
    let files = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    suite::write_private(&files[0], &pair.certificate);
    suite::write_private(&files[1], &pair.key);
    CertReloader::read(&files[0], &files[1]).unwrap()
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

/// What go-spiffe said of the SVIDs of both sides.
#[derive(Default)]
pub struct Verified {
    pub accepted: usize,
    pub refused: Vec<String>,
}

/// Verifies until it is told to stop, and counts the rounds.
async fn verify_without_pause(both: &Both, stop: &AtomicBool, rounds: &AtomicUsize) -> Verified {
    let mut verdict = SpiffeVerdict::start();
    let mut verified = Verified::default();
    while !stop.load(Relaxed) {
        let (ours, theirs) = (both.our_svid().await, both.spire_svid().await);
        let answers = [
            verdict.ask(&spiffe_verdict::verify(OWN, &both.ours_at_spire().await, &ours)),
            verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs)),
        ];
        let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_ok);
        verified.accepted += good.len();
        verified.refused.extend(bad.iter().map(ToString::to_string));
        rounds.fetch_add(1, Relaxed);
    }
    verified
}

/// As often as SPIRE does by itself, but for its lower limit of 15 s.
async fn keep_refreshing(spire: Arc<SpireServer>, hint: Duration) {
    loop {
        let _ = spire.refresh(OWN).await;
        tokio::time::sleep(hint / 4).await;
    }
}

/// Rotates both sides twice, while go-spiffe verifies with what each side knows of the other.
pub async fn rotate_both_twice(both: &Both) -> Verified {
    let refreshing = tokio::spawn(keep_refreshing(both.spire.clone(), both.hint));
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    // So that SVIDs of every authority are verified, however slow this machine is.
    let next_round = async || {
        let before = rounds.load(Relaxed);
        eventually("SVIDs are verified", || rounds.load(Relaxed) >= before + 2).await;
    };
    let rotating = async {
        for round in ["one", "two"] {
            rotate_spire(both).await;
            next_round().await;
            rotate_ours(both, round).await;
            next_round().await;
        }
        stop.store(true, Relaxed);
    };
    let (verified, ()) = tokio::join!(verify_without_pause(both, &stop, &rounds), rotating);
    refreshing.abort();
    verified
}

/// SPIRE's next authority signs as soon as we know it.
pub async fn rotate_spire(both: &Both) {
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
    both.stage.annotate(REQUESTS, ROTATE_ANNOTATION, request);
    let is_over = || both.stage.state().unwrap().active().unwrap().id != before;
    eventually("our next CA signs", is_over).await;
}

async fn both_sides_rotate_twice(name: &str, profile: Profile) {
    let both = Both::start(name, profile).await;
    let Verified { accepted, refused } = rotate_both_twice(&both).await;
    assert_eq!(refused, Vec::<String>::new());
    // Two rounds after each of four rotations.
    assert!(accepted >= 16, "only {accepted} were verified");
    println!("{accepted} SVIDs verified during four rotations, none refused");
    both.replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_spiffe_both_sides_rotate_twice_and_go_spiffe_verifies_every_svid_of_both() {
    both_sides_rotate_twice("rotation", Profile::Spiffe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_web_both_sides_rotate_twice_and_go_spiffe_verifies_every_svid_of_both() {
    both_sides_rotate_twice("rotation-web", Profile::Web).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_our_revocation_and_the_end_of_the_federation_nothing_is_verified_any_more() {
    let both = Both::start("ends", Profile::Spiffe).await;
    let mut verdict = SpiffeVerdict::start();
    let (old, theirs) = (both.our_svid().await, both.spire_svid().await);
    let before = spiffe_verdict::verify(OWN, &both.ours_at_spire().await, &old);
    assert!(is_ok(&verdict.ask(&before)));

    both.revoke().await;
    both.until_endpoint_has_another(&old).await;
    // SPIRE can't know the CA of the endpoint's SVID, and does not believe the endpoint.
    let refused = both.spire.refresh(OWN).await.unwrap_err();
    assert!(refused.contains("certificate signed by unknown authority"), "{refused}");
    // An administrator brings the bundle.
    both.spire.bundle_set_text(OWN, &both.stage.document()).await;
    both.spire.refresh(OWN).await.unwrap();
    assert_only_the_new_svid_counts(&both, &old, &mut verdict).await;

    assert!(is_ok(&verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs))));
    both.stage.delete(&format!("{FEDERATIONS}/{SPIRE}"));
    let answer = verdict.ask(&spiffe_verdict::verify(SPIRE, &both.theirs_here(), &theirs));
    assert!(!is_ok(&answer), "{answer}");
    both.replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_web_one_refresh_after_our_revocation_the_stolen_ca_counts_no_more() {
    let both = Both::start("revoked-web", Profile::Web).await;
    let mut verdict = SpiffeVerdict::start();
    let old = both.our_svid().await;
    let before = spiffe_verdict::verify(OWN, &both.ours_at_spire().await, &old);
    assert!(is_ok(&verdict.ask(&before)));

    both.revoke().await;
    both.until_endpoint_has_another(&old).await;
    both.spire.refresh(OWN).await.unwrap();
    assert_only_the_new_svid_counts(&both, &old, &mut verdict).await;
    both.replica.stop().await;
}

/// With the bundle that SPIRE has of us.
async fn assert_only_the_new_svid_counts(
    both: &Both,
    old: &[CertificateDer<'_>],
    verdict: &mut SpiffeVerdict,
) {
    let after = both.ours_at_spire().await;
    let answer = verdict.ask(&spiffe_verdict::verify(OWN, &after, old));
    assert!(!is_ok(&answer), "{answer}");
    let answer = verdict.ask(&spiffe_verdict::verify(OWN, &after, &both.our_svid().await));
    assert!(is_ok(&answer), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn go_spiffe_fetches_our_bundle_by_both_profiles_and_reads_what_we_read() {
    let both = Both::start("fetched", Profile::Spiffe).await;
    let mut verdict = SpiffeVerdict::start();
    let url = |address: SocketAddr| format!("https://{address}/{PATH}");
    let document = both.stage.document();
    for question in [
        spiffe_verdict::fetch_spiffe(OWN, &url(both.address), ENDPOINT_ID, &document),
        spiffe_verdict::fetch_web(OWN, &url(both.web_address), &both.web.root()),
    ] {
        let answer = verdict.ask(&question);
        assert!(is_ok(&answer), "{answer}");
        assert_eq!(
            (&answer["x509"], &answer["sequence"], &answer["hint"]),
            (&json!(1), &json!("1"), &json!(1))
        );
    }
    both.replica.stop().await;
}
