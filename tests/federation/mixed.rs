//! Peers of both profiles side by side, and what is told of those that an administrator got wrong.

use std::{sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    crowd::{Peer, Served, told_of},
    real_spire::brought,
    side::well,
    spire::ControllerManager,
    stage::{self, Stage},
    support::{Pair, eventually, pair, suite},
};

/// All of them were asked, and one name had to be looked for in vain.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// A certificate as a SPIRE server proves its identity with.
pub fn svid(id: &str) -> Pair {
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
    leaf.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
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

#[tokio::test]
async fn peers_of_both_profiles_work_side_by_side_and_each_mistake_is_told_in_its_own_words() {
    let web = pair::issued("localhost");
    let in_use = Served::new(&web);
    let right = Served::new(&svid("spiffe://right.test/spire/server"));
    // Somebody's endpoint, reached by the address of another trust domain.
    let mistaken = Served::new(&svid("spiffe://other.test/spire/server"));
    let mut tasks = JoinSet::new();
    let mut start = async |served: &Arc<Served>| served.start(Peer::Good, &mut tasks).await;
    let (at_web, at_right, at_mistaken) =
        (start(&in_use).await, start(&right).await, start(&mistaken).await);

    let stage = Stage::start("federation-mixed").await;
    let crds = ControllerManager::crds().display().to_string();
    let applied = stage.cluster.kubectl(&["apply", "--server-side", "-f", &crds]).await;
    applied.expect("SPIRE's CRDs");
    let local = |port: u16| format!("localhost:{port}");
    stage.apply(&brought("right.test", &local(at_right), right.bundle())).await;
    stage.apply(&brought("mistaken.test", &local(at_mistaken), mistaken.bundle())).await;
    let mut federation = stage::spiffe();
    federation["federatesWith"] = json!([
        by_web("web.test", &local(at_web)),
        by_spiffe("right.test", at_right),
        by_web("nowhere.test", "nowhere.invalid"),
        by_spiffe("mistaken.test", at_mistaken),
        by_spiffe("unknown.test", at_right),
    ]);
    stage.create(federation).await;
    let trusted = stage.cluster.scratch().join("trusted.pem");
    suite::write_private(&trusted, &web.authority);
    let environment = [
        ("SSL_CERT_FILE".to_owned(), trusted.display().to_string()),
        ("NO_PROXY".to_owned(), "localhost,nowhere.invalid".to_owned()),
    ];
    let _controller = stage.controller_with(&[], &environment).await;

    let peers = eventually(ASKED_WITHIN, "all five peers are told of", async || {
        let peers = told_of(&stage).await;
        if peers.len() == 5 { Ok(peers) } else { Err(format!("{peers:#?}")) }
    })
    .await;
    let of = |name: &str| peers.iter().find(|it| it["trustDomain"] == name).expect("a peer");
    for good in ["web.test", "right.test"] {
        assert!(well(of(good)), "{}", of(good));
    }
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
    assert!(told.starts_with("3 of 5 peers"), "{told}");
    assert_eq!(stage.refused(), Vec::<String>::new());
}
