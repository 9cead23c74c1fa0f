//! A bundle without keys, which revokes all that its trust domain ever signed.

use serde_json::json;
use testkit::{
    authority::Authority as WebCa,
    spiffe_verdict::{self, SpiffeVerdict, is_ok},
    spire::Launch,
};

use super::spire::{bundle_at, conf};
use crate::{
    peer::{HOST, Peer, Profile, Reply},
    stage::{Stage, eventually},
};

const PEER: &str = "peer.test";
const EMPTY: &str = r#"{"keys":[],"spiffe_sequence":9,"spiffe_refresh_hint":1}"#;

async fn one_refresh_ends_trust_here(profile: Profile) {
    let stage = Stage::new();
    let peer = Peer::start(PEER, profile, 1).await;
    let replica = stage.start();
    stage.create_federation(PEER, peer.source());
    eventually("it is trusted", || stage.trusted(PEER).is_some()).await;
    let mut verdict = SpiffeVerdict::start();
    let mut verify =
        || verdict.ask(&spiffe_verdict::verify(PEER, &stage.current_bundle(PEER), &peer.svid()));
    assert!(is_ok(&verify()), "{}", verify());

    peer.reply(Reply::Document(EMPTY.to_owned()));
    let before = peer.asked();
    // The first of the two is over.
    eventually("it is asked again", || peer.asked() >= before + 2).await;
    assert!(!is_ok(&verify()), "{}", verify());
    assert_eq!(stage.current_bundle(PEER), EMPTY);
    let [status, reason, _] = stage.condition_with_message(PEER, "Trusted");
    assert_eq!((&*status, &*reason), ("False", "BundleEmpty"));
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_spiffe_one_refresh_after_a_partners_empty_bundle_go_spiffe_verifies_nothing() {
    one_refresh_ends_trust_here(Profile::Spiffe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_web_one_refresh_after_a_partners_empty_bundle_go_spiffe_verifies_nothing() {
    one_refresh_ends_trust_here(Profile::Web).await;
}

/// What SPIRE would do if we published such a bundle.
#[tokio::test(flavor = "multi_thread")]
async fn one_refresh_after_an_empty_bundle_spire_trusts_nobody_either() {
    let peer = Peer::start(PEER, Profile::Web, 1).await;
    let spire_conf = conf(Profile::Web, PEER, &peer.url(), &peer.endpoint_id());
    let launch = Launch::new("empty", spire_conf).serving(&WebCa::new("unused").issue(HOST));
    let spire = launch.trusting(&peer.web_ca().root()).start().await;
    let mut verdict = SpiffeVerdict::start();
    spire.refresh(PEER).await.unwrap();
    let known = bundle_at(&spire, PEER).await;
    let answer = verdict.ask(&spiffe_verdict::verify(PEER, &known, &peer.svid()));
    assert!(is_ok(&answer), "{answer}");

    peer.reply(Reply::Document(EMPTY.to_owned()));
    spire.refresh(PEER).await.unwrap();
    let kept = &spire.bundle_list().await[PEER];
    assert_eq!((&kept["x509_authorities"], &kept["jwt_authorities"]), (&json!([]), &json!([])));
    let known = bundle_at(&spire, PEER).await;
    let answer = verdict.ask(&spiffe_verdict::verify(PEER, &known, &peer.svid()));
    assert!(!is_ok(&answer), "{answer}");
}
