//! Everything that an endpoint can answer wrongly.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use testkit::authority::Authority as WebCa;
use trustplane::spiffe::{bundle::Bundle, id::SpiffeId, svid};

use crate::{
    peer::{self, HOST, Identity, Peer, Profile, RawEndpoint, Reply, of_pair, of_svid},
    stage::{Stage, eventually},
};

/// Of the document before anything goes wrong.
const SEEN: u64 = 5;
/// Of the documents that are not to be taken.
const NEWER: u64 = 9;
const LONGEST: usize = 512 * 1024;
/// With bytes that come slowly. An answer of a busy machine must not take as long.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Garbage,
    TooLong,
    SlowBytes,
    RedirectElsewhere,
    RedirectWithoutTls,
    OtherProfile,
    OtherTrustDomain,
    KeyWithoutMembers,
    TwoKeys,
    ExpiredCa,
    LowerSequence,
}

impl Bad {
    const ALL: [Self; 11] = [
        Self::Garbage,
        Self::TooLong,
        Self::SlowBytes,
        Self::RedirectElsewhere,
        Self::RedirectWithoutTls,
        Self::OtherProfile,
        Self::OtherTrustDomain,
        Self::KeyWithoutMembers,
        Self::TwoKeys,
        Self::ExpiredCa,
        Self::LowerSequence,
    ];
}

/// A row of the table: what the endpoint does, and what `Synced` says.
struct Row {
    identity: Identity,
    reply: Reply,
    reason: &'static str,
    message: String,
}

struct Attacker {
    /// A good document with his own keys, and an SVID of his own trust domain.
    document: String,
    svid: Identity,
    /// Where redirects lead.
    endpoint: RawEndpoint,
}

impl Attacker {
    async fn start(profile: Profile) -> Self {
        let (state, signer) = peer::authority("attacker.test", NEWER, Utc::now());
        let svid = of_svid(peer::svid(&signer, "attacker.test", "/server"));
        let document = state.document().unwrap();
        let identity = match profile {
            Profile::Spiffe => svid.clone(),
            Profile::Web => of_pair(&WebCa::new("another").issue(HOST)),
        };
        let endpoint = RawEndpoint::start(identity, Reply::Document(document.clone())).await;
        Self { document, svid, endpoint }
    }
}

fn row(bad: Bad, peer: &Peer, profile: Profile, attacker: &Attacker) -> Row {
    let identity = peer.identity();
    let reason = "EndpointNotVerified";
    let theirs = Reply::Document(attacker.document.clone());
    let other_id = format!(
        "the certificate is for spiffe://attacker.test/server, not for {}",
        peer.endpoint_id()
    );
    match (bad, profile) {
        (Bad::SlowBytes, _) => {
            let message = "no answer within 5 s. Does a firewall or a proxy stand in between?";
            Row { identity, reply: Reply::Slow, reason: "FetchFailed", message: message.to_owned() }
        }
        (Bad::RedirectElsewhere, _) => {
            let to = attacker.endpoint.url();
            let why = if profile == Profile::Spiffe { &*other_id } else { UNKNOWN_CA };
            let message = format!("redirected to {to}: {why}");
            Row { identity, reply: Reply::RedirectTo(to), reason, message }
        }
        (Bad::RedirectWithoutTls, _) => {
            let to = "http://127.0.0.1:1/".to_owned();
            let message = format!("redirected to {to}: the URL is not an https:// one");
            Row { identity, reply: Reply::RedirectTo(to), reason, message }
        }
        (Bad::OtherProfile, _) => {
            let (identity, reply) = (peer.other_profile(), Reply::Document(newer(peer)));
            let message = match profile {
                Profile::Spiffe => NO_URI,
                Profile::Web => UNKNOWN_CA,
            };
            Row { identity, reply, reason, message: message.to_owned() }
        }
        (Bad::OtherTrustDomain, Profile::Spiffe) => {
            Row { identity: attacker.svid.clone(), reply: theirs, reason, message: other_id }
        }
        // There the certificate says nothing of a trust domain, and names the host.
        (Bad::OtherTrustDomain, Profile::Web) => {
            let identity = of_pair(&peer.web_ca().issue("another.test"));
            let message = format!("the certificate is not for {HOST}");
            Row { identity, reply: theirs, reason, message }
        }
        _ => {
            let (document, reason, message) = bad_document(bad, peer);
            Row { identity, reply: Reply::Document(document), reason, message }
        }
    }
}

/// A document from the right server, and the words about it.
fn bad_document(bad: Bad, peer: &Peer) -> (String, &'static str, String) {
    let newer = newer(peer);
    let (document, reason, message) = match bad {
        Bad::Garbage => (
            "<html>no bundle</html>".to_owned(),
            "InvalidBundle",
            "not a bundle document: it is not JSON (line 1, column 1)",
        ),
        Bad::TooLong => (
            format!("{newer}{}", " ".repeat(LONGEST + 1 - newer.len())),
            "InvalidBundle",
            "the answer is longer than 512 KiB",
        ),
        Bad::KeyWithoutMembers => {
            let mut document: Value = serde_json::from_str(&newer).unwrap();
            let key = document["keys"][0].as_object_mut().unwrap();
            key.retain(|member, _| !["crv", "x", "y"].contains(&&**member));
            (document.to_string(), "InvalidBundle", NO_MEMBERS)
        }
        Bad::TwoKeys => (
            format!("{{\"keys\":[],{}", &newer[1..]),
            "InvalidBundle",
            "not a bundle document: it has \"keys\" twice, and it is unclear which counts",
        ),
        Bad::ExpiredCa => {
            let two_days_ago = Utc::now() - TimeDelta::days(2);
            let (state, _) = peer::authority(&peer.trust_domain, NEWER, two_days_ago);
            (state.document().unwrap(), "NoValidAuthority", EXPIRED)
        }
        Bad::LowerSequence => {
            let old = with_sequence(peer, SEEN - 1);
            let fingerprint = Bundle::parse(old.as_bytes()).unwrap().fingerprint();
            let message = format!(
                "the bundle has the sequence 4, and 5 was seen before: an old copy, or a server that was restored. \
                 If it is right, accept it with: trustplane spiffe accept {} --fingerprint {fingerprint}",
                peer.trust_domain
            );
            return (old, "SequenceRefused", message);
        }
        other => unreachable!("{other:?} is no document"),
    };
    (document, reason, message.to_owned())
}

const NO_URI: &str =
    "the certificate contains no URI SAN: is a re-encrypting proxy in front of it?";
const NO_MEMBERS: &str = "not a bundle document: key 1 has a certificate without the members of its key \
                          (crv, x, y or n, e), so that SPIRE refuses the bundle";
const EXPIRED: &str =
    "every CA certificate in the bundle is expired or not yet valid: do the clocks agree?";
const UNKNOWN_CA: &str = "the certificate is signed by no CA that is trusted here. SSL_CERT_FILE names a file with others";

fn with_sequence(peer: &Peer, sequence: u64) -> String {
    let mut state = peer.state.clone();
    state.sequence = sequence;
    state.document().unwrap()
}

/// What would be taken if nobody looked.
fn newer(peer: &Peer) -> String {
    with_sequence(peer, NEWER)
}

/// Waits until its endpoint was asked this often from now on.
async fn until_asked(peer: &Peer, times: usize) {
    let before = peer.asked();
    eventually(&format!("{} is asked", peer.trust_domain), || peer.asked() >= before + times).await;
}

/// The endpoint does what the row says, and afterwards what it did before.
async fn go_through(stage: &Stage, peer: &Peer, row: Row, good: &str) {
    let name = &peer.trust_domain;
    let identity = peer.identity();
    let synced = || stage.condition_with_message(name, "Synced");
    let Row { identity: of_row, reply, reason, message } = row;
    peer.behave(of_row, reply);
    let told = ["False".to_owned(), reason.to_owned(), message.clone()];
    eventually(&format!("{name}: {message}"), || synced() == told).await;
    // Once more from beginning to end.
    until_asked(peer, 2).await;
    assert_eq!(synced(), told, "{name}");
    assert_eq!(stage.current_bundle(name), good, "{name}");
    assert_eq!(stage.federation(name)["status"]["sequence"], SEEN.to_string(), "{name}");
    assert_eq!(stage.condition(name, "Trusted").0, "True", "{name}");
    assert!(is_accepted(stage, peer), "{name}");
    let events = stage.events(name, reason);
    assert_eq!(events.len(), 1, "{name}: {events:?}");
    let event = (&events[0]["type"], &events[0]["note"]);
    assert_eq!(event, (&json!("Warning"), &json!(message)), "{name}");
    assert!(events[0]["series"].is_null(), "{name}: it was published again");

    peer.behave(identity, Reply::Document(good.to_owned()));
    eventually(&format!("{name} recovers"), || synced()[0] == "True").await;
    assert_eq!(stage.current_bundle(name), good, "{name}");
}

fn is_accepted(stage: &Stage, peer: &Peer) -> bool {
    let id = SpiffeId::parse(&format!("spiffe://{}/shop", peer.trust_domain)).unwrap();
    let bundle = stage.trusted(&peer.trust_domain);
    bundle.is_some_and(|bundle| svid::verify(&peer.svid(), &id, &bundle, Utc::now()).is_ok())
}

async fn every_bad_answer(profile: Profile) {
    let (stage, mut hasty) = (Stage::new(), Stage::new());
    hasty.patience = PATIENCE;
    let replicas = [stage.start(), hasty.start()];
    let attacker = Attacker::start(profile).await;
    // All at the same time, each with a federation of its own.
    let rows = Bad::ALL.map(|bad| {
        let stage = if bad == Bad::SlowBytes { &hasty } else { &stage };
        let attacker = &attacker;
        async move {
            let trust_domain = format!("{}.test", format!("{bad:?}").to_lowercase());
            let peer = Peer::start(&trust_domain, profile, SEEN).await;
            // In another spelling than ours, to see that it is kept.
            let good = format!(" {}\n", with_sequence(&peer, SEEN));
            peer.reply(Reply::Document(good.clone()));
            stage.create_federation(&trust_domain, peer.source());
            eventually("it is trusted", || is_accepted(stage, &peer)).await;
            let row = row(bad, &peer, profile, attacker);
            go_through(stage, &peer, row, &good).await;
        }
    });
    futures::future::join_all(rows).await;
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test]
async fn by_https_spiffe_every_bad_answer_leaves_the_last_bundle_and_says_what_is_wrong() {
    every_bad_answer(Profile::Spiffe).await;
}

#[tokio::test]
async fn by_https_web_every_bad_answer_leaves_the_last_bundle_and_says_what_is_wrong() {
    every_bad_answer(Profile::Web).await;
}
