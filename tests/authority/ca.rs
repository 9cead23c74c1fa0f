//! Our own CA.

use std::{net::SocketAddr, time::Duration};

use trustplane::{
    authority::decide::ca::Phase,
    names::{REVOKE_ANNOTATION, ROTATE_ANNOTATION},
    spiffe::bundle::Bundle,
};

use crate::stage::{AUDITED, CONFIG_MAP, OWN, REQUESTS, Stage, eventually, fetched};

fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn the_first_start_makes_a_ca_publishes_it_and_serves_it() {
    let stage = Stage::new();
    let address = free_port();
    let replica = stage.start_with(|options| options.spiffe_listen = Some(address));
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    eventually("the bundle is published", || stage.published().is_some()).await;
    let bundle = stage.published().unwrap();
    assert_eq!((bundle.sequence, bundle.x509.len()), (Some(1), 1));

    let url = format!("https://{address}/webapi/spiffe/bundle.json");
    let id = format!("spiffe://{OWN}/trustplane/authority");
    let mut served = fetched(&url, &id, bundle.clone()).await;
    for _ in 0..100 {
        if served.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        served = fetched(&url, &id, bundle.clone()).await;
    }
    assert!(served.unwrap().bundle.same_keys(&bundle));
    replica.stop().await;
}

#[tokio::test]
async fn two_replicas_that_start_at_once_make_one_ca() {
    let stage = Stage::new();
    let replicas = [stage.start(), stage.start(), stage.start()];
    for replica in &replicas {
        eventually("all are ready", || replica.authority.waiting_for().is_empty()).await;
    }
    let state = stage.state().unwrap();
    assert_eq!((state.cas.len(), state.sequence), (1, 1));
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test]
async fn a_restart_with_everything_in_place_writes_nothing() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("our CA is audited", || stage.get(AUDITED)["data"]["_own"].is_string()).await;
    replica.stop().await;
    let versions = || [CONFIG_MAP, REQUESTS, AUDITED].map(|path| stage.resource_version(path));
    let before = (stage.secret(), versions());
    assert!(before.1.iter().all(|it| !it.is_empty()), "{:?}", before.1);
    let replica = stage.start();
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((stage.secret(), versions()), before);
    replica.stop().await;
}

#[tokio::test]
async fn a_rotation_on_request_publishes_then_activates_and_the_endpoint_never_lies() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let first = stage.state().unwrap().cas[0].id.clone();
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("the next one is published", || stage.published().unwrap().x509.len() == 2).await;
    let state = stage.state().unwrap();
    assert_eq!(state.active().unwrap().id, first, "it does not sign yet");
    assert_eq!(stage.published().unwrap().sequence, Some(2));
    eventually("it signs", || stage.state().unwrap().active().unwrap().id != first).await;
    let state = stage.state().unwrap();
    let phases: Vec<_> = state.cas.iter().map(|ca| ca.phase).collect();
    assert_eq!(phases, [Phase::Retiring, Phase::Active]);
    let next = state.active().unwrap();
    assert!(next.activated_at.unwrap() >= next.usable_at);
    replica.stop().await;
}

#[tokio::test]
async fn a_revoked_ca_is_gone_at_once_and_its_key_too() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let stolen = stage.state().unwrap().cas[0].id.clone();
    stage.annotate(REQUESTS, REVOKE_ANNOTATION, &stolen);
    eventually("another one signs", || stage.state().unwrap().active().unwrap().id != stolen).await;
    eventually("it is published", || stage.published().unwrap().sequence == Some(2)).await;
    let secret = stage.secret();
    assert!(secret["data"].get(format!("{stolen}.key")).is_none(), "the stolen key is still there");
    assert_eq!(stage.published().unwrap().x509.len(), 1);
    let is_recorded = || stage.audited().iter().any(|it| it.0 == "spiffe.authority.revocation");
    eventually("it is recorded", is_recorded).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_stolen_key_signs_no_more_though_events_are_answered_late() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let stolen = stage.state().unwrap().cas[0].id.clone();
    stage.delay("/apis/events.k8s.io", Duration::from_secs(5));
    stage.annotate(REQUESTS, REVOKE_ANNOTATION, &stolen);
    eventually("another one signs", || stage.state().unwrap().active().unwrap().id != stolen).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (served, _) = replica.authority.served().unwrap();
    let served = Bundle::parse(served.as_bytes()).unwrap();
    assert_eq!((served.sequence, stage.published().unwrap().sequence), (Some(2), Some(2)));
    replica.stop().await;
}

#[tokio::test]
async fn a_lost_secret_makes_no_new_ca_but_a_reason_not_to_be_ready() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    replica.stop().await;
    let before = stage.published().unwrap();
    stage.delete_secret();

    let replica = stage.start();
    let is_told =
        || replica.authority.waiting_for().iter().any(|it| it.contains("--new-authority"));
    eventually("it says what to do", is_told).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.state().is_none());
    assert_eq!(stage.published().unwrap(), before);
    replica.stop().await;

    let replica = stage.start_with(|options| options.new_authority = true);
    eventually("a new one counts on", || stage.published().unwrap().sequence == Some(2)).await;
    assert!(!stage.published().unwrap().same_keys(&before));
    replica.stop().await;
}

#[tokio::test]
async fn a_secret_from_an_old_backup_does_not_take_the_sequence_back() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let backup = stage.secret();
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("it goes on", || stage.published().unwrap().sequence == Some(2)).await;
    replica.stop().await;
    stage.delete_secret();
    stage.restore_secret(backup);

    let replica = stage.start();
    let is_told = || replica.authority.waiting_for().iter().any(|it| it.contains("old copy"));
    eventually("it is told", is_told).await;
    assert_eq!(stage.published().unwrap().sequence, Some(2));
    replica.stop().await;
}

#[tokio::test]
async fn a_leader_that_served_a_newer_bundle_goes_back_to_no_older_one() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let backup = stage.secret();
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("it goes on", || stage.published().unwrap().sequence == Some(2)).await;
    let newest = stage.secret();
    // As where a backup of the whole namespace is restored: nothing in it is newer than the Secret.
    stage.delete_secret();
    stage.restore_secret(backup);
    stage.delete(CONFIG_MAP);
    let is_told = || replica.authority.waiting_for().iter().any(|it| it.contains("old copy"));
    eventually("it is told", is_told).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(is_told(), "{:?}", replica.authority.waiting_for());
    assert_eq!(stage.published().map(|it| it.sequence), None, "an older bundle was published");
    assert_eq!(stage.state().unwrap().sequence, 1, "a step was taken from an older state");

    stage.delete_secret();
    stage.restore_secret(newest);
    eventually("the newest is published again", || {
        stage.published().is_some_and(|it| it.sequence >= Some(2))
    })
    .await;
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_published_bundle_that_somebody_changes_is_put_back() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let before = stage.published().unwrap();
    let patch = serde_json::json!({ "data": { "bundle.json": "{\"keys\":[]}" } });
    stage.ask(http::Method::PATCH, CONFIG_MAP, patch);
    eventually("it is put back", || stage.published().as_ref() == Some(&before)).await;
    stage.delete(CONFIG_MAP);
    eventually("it is made again", || stage.published().as_ref() == Some(&before)).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_prepared_ca_takes_over_from_an_expired_one_though_the_config_map_has_to_be_written_first()
 {
    let stage = Stage::new();
    let slow = |options: &mut trustplane::authority::run::Options| {
        options.ca.refresh_hint = chrono::TimeDelta::minutes(5);
    };
    let replica = stage.start_with(slow);
    eventually("the bundle is published", || stage.published().is_some()).await;
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("the next one is published", || stage.published().unwrap().x509.len() == 2).await;
    replica.stop().await;
    // A long time passes in which nobody leads, and somebody deletes the ConfigMap.
    let mut state = stage.state().unwrap();
    let (first, next) = (state.cas[0].id.clone(), state.cas[1].id.clone());
    let past = chrono::Utc::now() - chrono::TimeDelta::minutes(5);
    state.cas[0].not_after = past;
    state.cas[1].usable_at = past;
    stage.replace_state(&state);
    stage.delete(CONFIG_MAP);

    let replica = stage.start_with(slow);
    eventually("the bundle is published again", || stage.published().is_some()).await;
    eventually("the next one signs", || {
        stage.state().unwrap().active().is_some_and(|ca| ca.id == next && ca.id != first)
    })
    .await;
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_ca_that_was_never_published_while_nobody_ran_signs_three_hints_after_its_publication() {
    let stage = Stage::new();
    let slow = |options: &mut trustplane::authority::run::Options| {
        options.ca.refresh_hint = chrono::TimeDelta::minutes(5);
    };
    let replica = stage.start_with(slow);
    eventually("the bundle is published", || stage.published().is_some()).await;
    let before = stage.get(CONFIG_MAP)["data"].clone();
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("the next one is published", || stage.published().unwrap().x509.len() == 2).await;
    replica.stop().await;
    // As if the leader had died between the Secret and the ConfigMap, and nobody had come for hours.
    stage.ask(http::Method::PATCH, CONFIG_MAP, serde_json::json!({ "data": before }));
    let mut state = stage.state().unwrap();
    let first = state.cas[0].id.clone();
    state.cas[1].usable_at = chrono::Utc::now() - chrono::TimeDelta::hours(1);
    stage.replace_state(&state);

    let replica = stage.start_with(slow);
    eventually("it is published now", || stage.published().unwrap().x509.len() == 2).await;
    let published = chrono::Utc::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let state = stage.state().unwrap();
    assert_eq!(state.active().unwrap().id, first, "nobody can know the next one yet");
    assert!(state.cas[1].usable_at >= published + chrono::TimeDelta::minutes(15), "{state:?}");
    replica.stop().await;
}
