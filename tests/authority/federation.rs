//! Bundles of other trust domains.

use std::time::Duration;

use http::Method;
use serde_json::json;
use trustplane::names::{ACCEPT_ANNOTATION, REFRESH_ANNOTATION};

use crate::stage::{AUDITED, FEDERATIONS, Partner, Stage, eventually};

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/trustplane/configmaps";

fn has_event(stage: &Stage, event: &str, name: &str) -> bool {
    stage.audited().contains(&is(event, name))
}

#[tokio::test]
async fn a_partner_is_followed_through_rotation_replay_revocation_and_the_end() {
    let stage = Stage::new();
    let mut partner = Partner::start("b.test").await;
    let replica = stage.start();
    stage.create_federation("b.test", partner.source());
    eventually("it is trusted", || partner.is_accepted_by(stage.trusted("b.test"))).await;
    assert!(has_event(&stage, "spiffe.federation.create", "b.test"));

    let first = partner.document();
    partner.prepare();
    let sequence = || stage.federation("b.test")["status"]["sequence"].clone();
    eventually("its rotation is followed", || sequence() == "2").await;
    assert!(has_event(&stage, "spiffe.federation.rotation", "b.test"));

    partner.answer(&first);
    let synced = || stage.condition("b.test", "Synced");
    eventually("an old copy is refused", || synced() == is("False", "SequenceRefused")).await;
    assert_eq!(sequence(), "2");
    assert!(partner.is_accepted_by(stage.trusted("b.test")));
    let refused =
        stage.federation("b.test")["status"]["refusedFingerprint"].as_str().unwrap().to_owned();
    let path = format!("{FEDERATIONS}/b.test");
    stage.annotate(&path, ACCEPT_ANNOTATION, &format!("{refused} now"));
    eventually("it is accepted on request", || sequence() == "1").await;

    partner.answer(r#"{"keys":[],"spiffe_sequence":9,"spiffe_refresh_hint":1}"#);
    let trusted = || stage.condition("b.test", "Trusted");
    eventually("an empty bundle ends trust", || trusted() == is("False", "BundleEmpty")).await;
    assert!(!partner.is_accepted_by(stage.trusted("b.test")));

    stage.delete(&path);
    let is_told = || has_event(&stage, "spiffe.federation.delete", "b.test");
    eventually("its deletion is recorded", is_told).await;
    replica.stop().await;
}

#[tokio::test]
async fn one_that_does_not_count_is_told_and_counts_as_soon_as_it_may() {
    let stage = Stage::new();
    let partner = Partner::start("b.test").await;
    let replica = stage.start();
    stage.create_federation("own.test", partner.source());
    stage.create_federation("b.test", partner.source());
    let second = json!({
        "apiVersion": "trustplane.dev/v1", "kind": "SPIFFEFederation", "metadata": { "name": "c" },
        "spec": { "trustDomain": "b.test", "bundleSource": partner.source() },
    });
    stage.ask(http::Method::POST, FEDERATIONS, second);
    eventually("our own", || {
        stage.condition("own.test", "Synced") == is("False", "OwnTrustDomain")
    })
    .await;
    eventually("the second", || {
        stage.condition("c", "Synced") == is("False", "DuplicateTrustDomain")
    })
    .await;
    eventually("the first", || partner.is_accepted_by(stage.trusted("b.test"))).await;
    assert!(stage.trusted("c").is_none());
    stage.delete(&format!("{FEDERATIONS}/b.test"));
    eventually("the second counts now", || partner.is_accepted_by(stage.trusted("c"))).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_new_leader_goes_on_from_the_status_and_writes_only_when_it_is_due() {
    let stage = Stage::new();
    let document = Partner::start("b.test").await.document();
    stage.create_federation("b.test", json!({ "static": { "bundle": document } }));
    let replica = stage.start();
    eventually("it is trusted", || stage.trusted("b.test").is_some()).await;
    replica.stop().await;
    let path = format!("{FEDERATIONS}/b.test");
    let before = stage.resource_version(&path);
    let records = stage.audited().len();
    let replica = stage.start();
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.resource_version(&path), before);
    assert_eq!(stage.audited().len(), records);
    stage.annotate(&path, REFRESH_ANNOTATION, "now");
    let observed = || stage.federation("b.test")["status"]["observedRefresh"] == "now";
    eventually("a request is carried out", observed).await;
    replica.stop().await;
}

#[tokio::test]
async fn an_endpoint_in_another_trust_domain_is_verified_while_that_one_is_trusted() {
    let stage = Stage::new();
    let host = Partner::start("host.test").await;
    let replica = stage.start();
    let mut hosted = host.source();
    hosted["httpsSPIFFE"].as_object_mut().unwrap().remove("bundleBootstrap");
    stage.create_federation("guest.test", hosted);
    let synced = || stage.condition("guest.test", "Synced");
    let unknown = is("False", "EndpointNotTrusted");
    eventually("nobody vouches for it", || synced() == unknown).await;
    stage.create_federation("host.test", host.source());
    eventually("its host does", || synced().0 == "True").await;
    stage.delete(&format!("{FEDERATIONS}/host.test"));
    eventually("that ends with trust in its host", || synced() == unknown).await;
    assert!(stage.trusted("guest.test").is_some(), "the last bundle stays");
    replica.stop().await;
}

#[tokio::test]
async fn a_deletion_that_nobody_saw_is_recorded_at_the_next_start() {
    let stage = Stage::new();
    let document = Partner::start("b.test").await.document();
    stage.create_federation("b.test", json!({ "static": { "bundle": document } }));
    let replica = stage.start();
    eventually("it is trusted", || stage.trusted("b.test").is_some()).await;
    replica.kill();
    stage.delete(&format!("{FEDERATIONS}/b.test"));
    let replica = stage.start();
    let is_told = || has_event(&stage, "spiffe.federation.delete", "b.test");
    eventually("its deletion is recorded", is_told).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let deletions = stage.audited().iter().filter(|it| it.0 == "spiffe.federation.delete").count();
    assert_eq!(deletions, 1);
    replica.stop().await;
}

/// A replica has audited a static federation, and has stopped.
async fn audited_by_another(stage: &Stage) {
    let document = Partner::start("b.test").await.document();
    let replica = stage.start();
    stage.create_federation("b.test", json!({ "static": { "bundle": document } }));
    eventually("it is trusted", || stage.trusted("b.test").is_some()).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_new_leader_whose_watch_is_behind_records_no_deletion_that_never_was() {
    let stage = Stage::new();
    audited_by_another(&stage).await;
    let noted = stage.get(AUDITED)["data"]["b.test"].clone();
    assert!(noted.is_string(), "{noted}");
    // As it was before the federation was created.
    stage.pretend(&[json!([])]);
    let replica = stage.start();
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    // Longer than a new leader needs to look at all that was audited.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!has_event(&stage, "spiffe.federation.delete", "b.test"));
    assert_eq!(stage.get(AUDITED)["data"]["b.test"], noted);
    replica.stop().await;
}

#[tokio::test]
async fn a_deletion_between_two_lists_is_recorded_of_one_that_nobody_could_read_too() {
    let stage = Stage::new();
    audited_by_another(&stage).await;
    stage.delete(&format!("{FEDERATIONS}/b.test"));
    let metadata = json!({ "name": "b.test", "uid": "other", "resourceVersion": "1" });
    stage.pretend(&[json!([{ "metadata": metadata, "spec": 7 }]), json!([])]);
    let replica = stage.start();
    let is_told = || has_event(&stage, "spiffe.federation.delete", "b.test");
    eventually("its deletion is recorded", is_told).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_dead_partner_delays_no_other() {
    let stage = Stage::new();
    let partner = Partner::start("b.test").await;
    // Accepts connections, and never says anything.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            held.push(stream);
        }
    });
    for n in 0..40 {
        let mut source = partner.source();
        source["httpsSPIFFE"]["bundleEndpointURL"] = format!("https://{address}/").into();
        source["httpsSPIFFE"]["endpointSPIFFEID"] = format!("spiffe://dead-{n}.test/server").into();
        stage.create_federation(&format!("dead-{n}.test"), source);
    }
    let replica = stage.start();
    eventually("all that may be asked are", || replica.authority.waiting_for().is_empty()).await;
    stage.create_federation("b.test", partner.source());
    eventually("the living one is trusted", || partner.is_accepted_by(stage.trusted("b.test")))
        .await;
    replica.stop().await;
}

#[tokio::test]
async fn somebody_who_touches_labels_does_not_keep_a_slow_endpoint_from_being_synced() {
    use crate::peer::{Peer, Profile};
    let stage = Stage::new();
    let replica = stage.start();
    let peer = Peer::start("b.test", Profile::Spiffe, 1).await;
    // Half a second for each answer, which is nothing to wait for.
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = slow.local_addr().unwrap();
    let to = peer.url().trim_start_matches("https://").trim_end_matches('/').to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = slow.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let mut source = peer.source();
    source["httpsSPIFFE"]["bundleEndpointURL"] = format!("https://{address}/").into();
    stage.create_federation("b.test", source);
    let path = format!("{}/b.test", crate::stage::FEDERATIONS);
    for number in 0..25 {
        stage.annotate(&path, "example.org/seen", &number.to_string());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let synced = stage.condition("b.test", "Synced");
    assert_eq!(synced.0, "True", "not once in 5 s, asked {} times", peer.asked());
    replica.stop().await;
}

#[tokio::test]
async fn one_that_the_audit_log_has_no_room_for_is_told_so_and_does_not_count() {
    let stage = Stage::new();
    // Of one that is gone, and whose note can't be removed for now.
    let note = format!("0 {}", "x".repeat(1_000_000));
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "gone.test": note },
        "metadata": { "name": "trustplane-spiffe-federations" },
    });
    let created = stage.ask(Method::POST, CONFIG_MAPS, config_map);
    assert_eq!(created["kind"], "ConfigMap", "{created}");
    stage.refuse(AUDITED);
    let partner = Partner::start("b.test").await;
    let replica = stage.start_with(|options| options.poll = Duration::from_secs(5));
    stage.create_federation("b.test", partner.source());
    let synced = || stage.condition("b.test", "Synced");
    eventually("it is told", || synced() == is("False", "TooManyFederations")).await;
    assert!(stage.trusted("b.test").is_none());
    assert!(!has_event(&stage, "spiffe.federation.create", "b.test"));
    stage.allow();
    eventually("it counts", || partner.is_accepted_by(stage.trusted("b.test"))).await;
    assert!(has_event(&stage, "spiffe.federation.create", "b.test"));
    replica.stop().await;
}
