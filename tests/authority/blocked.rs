//! What is refused to us, and what a crash interrupts: it is told, and made up for.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use trustplane::authority::run::Options;
use trustplane::names::{REVOKE_ANNOTATION, ROTATE_ANNOTATION};

use crate::stage::{AUDITED, CONFIG_MAP, REQUESTS, SECRET, Stage, eventually};

const ROTATION: &str = "spiffe.authority.rotation";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/trustplane/events";

fn warnings(stage: &Stage, reason: &str) -> Vec<String> {
    let events = stage.get(EVENTS)["items"].as_array().cloned().unwrap_or_default();
    let ours = events.iter().filter(|it| it["type"] == "Warning" && it["reason"] == reason);
    ours.map(|it| it["note"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The records about our own CAs.
fn own_records(stage: &Stage) -> Vec<Value> {
    let is_own = |it: &Value| it["event"].as_str().unwrap().starts_with("spiffe.authority.");
    stage.records().into_iter().filter(is_own).collect()
}

fn noted(stage: &Stage) -> Value {
    stage.get(AUDITED)["data"]["_own"].clone()
}

async fn rotating(stage: &Stage) {
    eventually("the bundle is published", || stage.published().is_some()).await;
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
}

#[tokio::test]
async fn a_bundle_that_cannot_be_published_is_told_while_the_endpoint_goes_on() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    assert!(replica.metrics().contains("spiffe_authority_failing 0"), "{}", replica.metrics());
    stage.refuse(CONFIG_MAP);
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("an Event says so", || !warnings(&stage, "AuthorityBlocked").is_empty()).await;
    let note = &warnings(&stage, "AuthorityBlocked")[0];
    assert_eq!(note, "ConfigMap trustplane-bundle could not be written: forbidden (HTTP 403)");
    eventually("a metric, too", || replica.metrics().contains("spiffe_authority_failing 1")).await;
    eventually("it serves as before", || replica.authority.waiting_for().is_empty()).await;
    // Nobody can know it yet, so it does not sign.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let state = stage.state().unwrap();
    assert_eq!((state.sequence, stage.published().unwrap().sequence), (2, Some(1)));
    assert!(state.active().unwrap().id == state.cas[0].id, "{state:?}");

    stage.allow();
    eventually("it is published", || stage.published().unwrap().sequence == Some(2)).await;
    eventually("all is well", || replica.metrics().contains("spiffe_authority_failing 0")).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_first_ca_that_cannot_be_stored_is_told_in_readyz_and_in_an_event() {
    let stage = Stage::new();
    stage.refuse("/api/v1/namespaces/trustplane/secrets");
    let replica = stage.start();
    let why = "Secret trustplane-authority could not be written: forbidden (HTTP 403)";
    let is_told = || replica.authority.waiting_for().contains(&why.to_owned());
    eventually("why it is not ready", is_told).await;
    eventually("an Event says so", || !warnings(&stage, "AuthorityBlocked").is_empty()).await;
    stage.allow();
    eventually("it begins", || replica.authority.waiting_for().is_empty()).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_step_that_a_crash_kept_from_the_audit_log_is_recorded_at_the_next_start() {
    let stage = Stage::new();
    // So long that the next step does not come in between.
    let hint = |options: &mut Options| options.ca.refresh_hint = TimeDelta::hours(1);
    let replica = stage.start_with(hint);
    eventually("the first CA is noted", || noted(&stage).is_string()).await;
    let before = noted(&stage);
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("preparing one is noted", || own_records(&stage).len() == 2).await;
    replica.stop().await;
    let recorded = own_records(&stage);
    assert_eq!(recorded[1]["event"], ROTATION);
    assert_eq!((&recorded[1]["oldSequence"], &recorded[1]["sequence"]), (&"1".into(), &"2".into()));

    // As if it had crashed right after the write to the Secret.
    stage.ask(http::Method::PATCH, AUDITED, json!({ "data": { "_own": before } }));
    let replica = stage.start_with(hint);
    eventually("it is recorded again", || own_records(&stage).len() > 2).await;
    assert_eq!(own_records(&stage)[2]["id"], recorded[1]["id"], "the same change, the same id");
    replica.stop().await;
}

#[tokio::test]
async fn a_record_that_could_not_be_noted_holds_the_next_step_back_and_keeps_its_id() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the first CA is noted", || noted(&stage).is_string()).await;
    stage.refuse(AUDITED);
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("an Event says so", || !warnings(&stage, "AuthorityBlocked").is_empty()).await;
    eventually("it is published", || stage.published().unwrap().sequence == Some(2)).await;
    let first = stage.state().unwrap().active().unwrap().id.clone();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(stage.state().unwrap().active().unwrap().id, first, "a step that is not recorded");
    eventually("it is recorded again", || own_records(&stage).len() > 2).await;
    let ids: Vec<_> = own_records(&stage)[1..].iter().map(|it| it["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    stage.allow();
    eventually("it goes on", || stage.state().unwrap().active().unwrap().id != first).await;
    replica.stop().await;
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_written_holds_the_next_step_back() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the first CA is noted", || noted(&stage).is_string()).await;
    stage.break_audit_log(true);
    rotating(&stage).await;
    eventually("an Event says so", || !warnings(&stage, "NotAudited").is_empty()).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let state = stage.state().unwrap();
    assert_eq!(state.active().unwrap().id, state.cas[0].id, "{state:?}");
    stage.break_audit_log(false);
    eventually("both steps are recorded", || own_records(&stage).len() == 3).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_new_authority_over_an_old_secret_is_recorded_with_the_cas_that_it_replaced() {
    let stage = Stage::new();
    let replica = stage.start();
    rotating(&stage).await;
    eventually("the next CA signs", || {
        stage.state().unwrap().cas.iter().any(|ca| ca.retired_at.is_some())
    })
    .await;
    eventually("that is recorded", || own_records(&stage).len() == 3).await;
    let backup = stage.secret();
    let last = stage.state().unwrap().active().unwrap().id.clone();
    stage.annotate(REQUESTS, REVOKE_ANNOTATION, &last);
    eventually("a revocation", || stage.published().unwrap().sequence == Some(3)).await;
    replica.stop().await;
    let newest = stage.state().unwrap().active().unwrap().id.clone();
    stage.delete(SECRET);
    stage.restore_secret(backup);

    let replica = stage.start_with(|options| options.new_authority = true);
    eventually("a new one counts on", || stage.published().unwrap().sequence == Some(4)).await;
    let is_recorded = || own_records(&stage).iter().any(|it| it["sequence"] == "4");
    eventually("it is recorded", is_recorded).await;
    let record = own_records(&stage).pop().unwrap();
    let active = stage.state().unwrap().active().unwrap().id.clone();
    assert_eq!((&record["newKeys"], &record["oldSequence"]), (&json!([active]), &json!("2")));
    assert!(!record["oldKeys"].as_array().unwrap().contains(&newest.into()), "{record}");
    replica.stop().await;
}

#[tokio::test]
async fn who_may_ask_for_rotations_cannot_freeze_the_authority() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let huge = r#"{"keys":[],"spiffe_sequence":18446744073709551615}"#;
    let patch = json!({ "data": { "bundle.json": huge, "authority.json": "{}" } });
    stage.ask(http::Method::PATCH, REQUESTS, patch);
    stage.annotate(REQUESTS, ROTATE_ANNOTATION, "now");
    eventually("it rotates", || stage.published().unwrap().sequence == Some(2)).await;
    // An old way to ask, which needs more rights.
    stage.annotate(CONFIG_MAP, ROTATE_ANNOTATION, "again");
    stage.delete(REQUESTS);
    eventually("it can be asked on again", || stage.get(REQUESTS)["kind"] == "ConfigMap").await;
    assert_eq!(stage.state().unwrap().handled.rotate.as_deref(), Some("now"));
    replica.stop().await;
}

#[tokio::test]
async fn an_altered_sequence_is_told_with_the_way_back() {
    let stage = Stage::new();
    let replica = stage.start();
    eventually("the bundle is published", || stage.published().is_some()).await;
    let huge = r#"{"keys":[],"spiffe_sequence":18446744073709551615}"#;
    stage.ask(http::Method::PATCH, CONFIG_MAP, json!({ "data": { "bundle.json": huge } }));
    let is_told = || {
        let told = replica.authority.waiting_for();
        told.iter().any(|it| it.contains("delete the ConfigMap"))
    };
    eventually("it says what to do", is_told).await;
    stage.delete(CONFIG_MAP);
    eventually("it is published again", || {
        stage.published().is_some_and(|it| it.sequence == Some(1))
    })
    .await;
    eventually("it is ready", || replica.authority.waiting_for().is_empty()).await;
    replica.stop().await;
}
