//! Peers of both profiles side by side, and what is told of those that an administrator got wrong.

use std::{sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use serde_json::{Value, json};
use testkit::{
    Pair, eventually, pair,
    spire::ControllerManager,
    stage::{self, Stage},
    suite,
};
use tokio::task::JoinSet;
use trustplane::spiffe::bundle::write;

use crate::{
    many_peers::{Peer, Served, peers_of},
    real_spire::brought,
    side::well,
};

/// All of them were asked, and one name had to be looked for in vain.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// A certificate as a SPIRE server proves its identity with.
pub fn svid(id: &str) -> Pair {
    svid_for(id, vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
}

fn svid_for(id: &str, usages: Vec<ExtendedKeyUsagePurpose>) -> Pair {
    let key = || {
        let key = KeyPair::generate().expect("a key");
        suite::register_key(&key.serialize_pem());
        key
    };
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let root = CertifiedIssuer::self_signed(root, key()).expect("an authority");
    let mut leaf = CertificateParams::default();
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = usages;
    leaf.subject_alt_names = vec![SanType::URI(id.try_into().expect("a URI"))];
    let key = key();
    let certificate = leaf.signed_by(&key, &root).expect("a certificate").pem();
    Pair { certificate, key: key.serialize_pem(), authority: root.pem() }
}

pub fn by_spiffe(trust_domain: &str, port: u16) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": format!("https://localhost:{port}"),
        "bundleEndpointProfile": "https_spiffe",
        "endpointSpiffeId": format!("spiffe://{trust_domain}/spire/server"),
    })
}

fn by_web(trust_domain: &str, host: &str) -> Value {
    json!({
        "trustDomain": trust_domain,
        "bundleEndpointUrl": format!("https://{host}"),
        "bundleEndpointProfile": "https_web",
    })
}

/// The bundle of an authority whose time has not come.
fn early_bundle() -> Value {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (root.not_before, root.not_after) = (date_time_ymd(2080, 1, 1), date_time_ymd(2090, 1, 1));
    let key = KeyPair::generate().expect("a key");
    suite::register_key(&key.serialize_pem());
    let root = root.self_signed(&key).expect("an authority");
    let document = write::document(&[root.der().clone()], 1, Duration::from_secs(60));
    serde_json::from_str(&document.expect("a document")).expect("JSON")
}

/// The reasons of the Events of a peer.
async fn events(stage: &Stage, peer: &str) -> Vec<String> {
    let columns = "-o=jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}";
    let events = stage.cluster.kubectl(&["get", "events", "-n", "default", columns]).await;
    let events = events.expect("the administrator may");
    let of_it = events.lines().filter_map(|it| it.split_once(' '));
    let of_it = of_it.filter(|(_, text)| text.starts_with(&format!("{peer}: ")));
    of_it.map(|(reason, text)| format!("{reason} {text}")).collect()
}

#[tokio::test]
async fn peers_of_both_profiles_work_side_by_side_and_each_mistake_is_told_in_its_own_words() {
    let web = pair::issued("localhost");
    let in_use = Served::new(&web);
    let right = Served::new(&svid("spiffe://right.test/spire/server"));
    // Somebody's endpoint, reached by the address of another trust domain.
    let mistaken = Served::new(&svid("spiffe://other.test/spire/server"));
    // Nobody but SPIRE, and so we, takes such a certificate.
    let usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let alone = Served::new(&svid_for("spiffe://alone.test/spire/server", usages));
    let early = Served::new(&web);
    early.serve(&early_bundle());
    let mut tasks = JoinSet::new();
    let mut start = async |served: &Arc<Served>| served.start(Peer::Good, &mut tasks).await;
    let (at_web, at_right, at_mistaken) =
        (start(&in_use).await, start(&right).await, start(&mistaken).await);
    let (at_alone, at_early) = (start(&alone).await, start(&early).await);

    let stage = Stage::start("federation-mixed").await;
    let crds = ControllerManager::crds().display().to_string();
    let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
    applied.expect("SPIRE's CRDs");
    let local = |port: u16| format!("localhost:{port}");
    stage.apply(&brought("right.test", &local(at_right), right.bundle())).await;
    stage.apply(&brought("mistaken.test", &local(at_mistaken), mistaken.bundle())).await;
    stage.apply(&brought("alone.test", &local(at_alone), alone.bundle())).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([
        by_web("web.test", &local(at_web)),
        by_spiffe("right.test", at_right),
        by_web("nowhere.test", "nowhere.invalid"),
        by_spiffe("mistaken.test", at_mistaken),
        by_spiffe("unknown.test", at_right),
        by_spiffe("alone.test", at_alone),
        by_web("early.test", &local(at_early)),
    ]);
    stage.create(federation).await;
    let trusted = stage.cluster.scratch().join("trusted.pem");
    suite::write_private(&trusted, &web.authority);
    let environment = [
        ("SSL_CERT_FILE".to_owned(), trusted.display().to_string()),
        ("NO_PROXY".to_owned(), "localhost,nowhere.invalid".to_owned()),
    ];
    let mut controller = stage.controller_with(&["--peer-error-detail=all"], &environment).await;

    let peers = eventually(ASKED_WITHIN, "all seven peers are told of", async || {
        let peers = peers_of(&stage).await;
        if peers.len() == 7 { Ok(peers) } else { Err(format!("{peers:#?}")) }
    })
    .await;
    let of = |name: &str| peers.iter().find(|it| it["trustDomain"] == name).expect("a peer");
    for good in ["web.test", "right.test", "alone.test"] {
        assert!(well(of(good)), "{}", of(good));
    }
    let odd = of("alone.test")["warnings"][0].as_str().unwrap_or_default();
    assert!(odd.starts_with("its certificate is for TLS servers alone."), "{}", of("alone.test"));
    assert!(of("right.test")["warnings"].is_null(), "{}", of("right.test"));
    let error = of("early.test")["lastError"].as_str().unwrap_or_default();
    assert!(error.starts_with("no authority for X.509 in its bundle is valid yet"), "{error}");
    for (bad, words) in [
        ("nowhere.test", "no such host: nowhere.invalid"),
        (
            "mistaken.test",
            "for spiffe://other.test/spire/server, not for spiffe://mistaken.test/spire/server",
        ),
        ("unknown.test", "trustplane federation bootstrap"),
    ] {
        let error = of(bad)["lastError"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{bad}: {error}");
        assert_eq!(of(bad)["profileVerified"], false, "{bad}");
    }
    let told = stage.until_condition("PeersReachable", "False", "PeersUnreachable").await;
    assert!(told.starts_with("4 of 7 peers"), "{told}");

    // The next controller makes a secret of what listens on this machine; and a peer serves an old bundle.
    controller.terminate().await;
    let mut older: Value = serde_json::from_str(right.bundle()).expect("JSON");
    older["spiffe_sequence"] = json!(5);
    right.serve(&older);
    let controller = stage.controller_with(&[], &environment).await;
    let peers = eventually(ASKED_WITHIN, "what is wrong is a secret now", async || {
        let peers = peers_of(&stage).await;
        let of = |name: &str| peers.iter().find(|it| it["trustDomain"] == name).cloned();
        let secret = |name: &str| {
            let error = of(name).and_then(|it| Some(it["lastError"].as_str()?.to_owned()));
            error.is_some_and(|it| it.starts_with("unreachable. "))
        };
        let back = of("right.test").is_some_and(|it| it["sequenceWentBackFrom"] == 7);
        let all = back && secret("nowhere.test") && secret("mistaken.test");
        if all { Ok(peers.clone()) } else { Err(format!("{peers:#?}")) }
    })
    .await;
    let of = |name: &str| peers.iter().find(|it| it["trustDomain"] == name).expect("a peer");
    assert_eq!(of("mistaken.test")["lastError"], of("nowhere.test")["lastError"]);
    assert_eq!(of("mistaken.test")["reachable"], false, "an open port does not show either");
    let log = controller.log();
    assert!(log.contains("not for spiffe://mistaken.test/spire/server"), "the log says more");
    assert!(well(of("right.test")), "SPIRE takes it, and so do we: {}", of("right.test"));
    let odd = of("right.test")["warnings"][0].as_str().unwrap_or_default();
    assert!(odd.starts_with("the sequence of its bundle went back from 7 to 5"), "{odd}");
    for (peer, reason) in [
        ("right.test", "PeerSequenceWentBack "),
        ("alone.test", "PeerCertificateForServersAlone "),
        ("early.test", "PeersUnreachable early.test: no authority for X.509"),
        ("mistaken.test", "PeersUnreachable mistaken.test: unreachable. "),
    ] {
        let events = eventually(ASKED_WITHIN, "an Event tells it", async || {
            let events = events(&stage, peer).await;
            let told = events.iter().any(|it| it.starts_with(reason));
            if told { Ok(events) } else { Err(events) }
        })
        .await;
        println!("{peer}: {events:#?}");
    }
    assert_eq!(stage.refused(), Vec::<String>::new());
}
