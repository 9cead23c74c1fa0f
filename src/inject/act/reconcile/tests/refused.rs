//! Routes that can't be changed: the report, and the next attempt.

use super::*;
use crate::names::SECRET_NAME_ANNOTATION;

/// As `failed` of the controller: the reconcile, and the report of its failure.
async fn failing_reconcile(stage: &Stage) -> Retry {
    let error = stage.reconcile().await.unwrap_err();
    stage.report(&error).await
}

#[tokio::test(start_paused = true)]
async fn the_third_refused_write_of_a_renewal_is_told_in_the_condition_an_event_and_a_metric() {
    let (old, renewed) = (pair(0), pair(0));
    let stage = holding(&old);
    stage.reconcile().await.unwrap();
    let well = stage.condition();
    stage.world().pair_code = Some(500);
    stage.secret(Some(tls_secret(&renewed)));
    for _ in 0..2 {
        assert_eq!(failing_reconcile(&stage).await, Retry::BackOff);
        assert_eq!(stage.condition(), well, "a single failure is no news");
    }

    failing_reconcile(&stage).await;

    let condition = stage.condition();
    assert!(condition.contains("the API server answered HTTP 500"), "{condition}");
    let metrics = stage.metrics();
    assert!(metrics.contains("state=\"Managed\",reason=\"InjectionFailed\""), "{metrics}");
    let told = |stage: &Stage| {
        let world = stage.world();
        world.events.values().filter(|event| event["reason"] == "InjectionFailed").count()
    };
    assert_eq!(told(&stage), 1);
    let writes = stage.world().writes.len();
    failing_reconcile(&stage).await;
    let tried = stage.world().writes.len() - writes;
    assert_eq!(tried, 1, "the pair is tried, nothing else is written");
    assert_eq!(told(&stage), 1);

    stage.world().pair_code = None;
    stage.reconcile().await.unwrap();
    stage.reconcile().await.unwrap();
    assert_eq!(stage.condition(), well);
}

#[tokio::test(start_paused = true)]
async fn the_third_refused_clearing_is_told_too_and_the_state_is_what_the_route_has() {
    let stage = holding(&pair(0));
    stage.reconcile().await.unwrap();
    stage.foreign(&json!({"metadata": {"annotations": {SECRET_NAME_ANNOTATION: null}}}));
    stage.world().pair_code = Some(503);
    for _ in 0..3 {
        failing_reconcile(&stage).await;
    }
    let metrics = stage.metrics();
    assert!(metrics.contains("state=\"Managed\",reason=\"InjectionFailed\""), "{metrics}");
    assert!(stage.condition().contains("the Route keeps what it has"), "{}", stage.condition());
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_to_be_stored_is_told_at_once_and_sent_again_after_an_hour_or_a_change() {
    let stage = annotated(&pair(0));
    stage.world().pair_code = Some(413);
    let pairs = |stage: &Stage| stage.world().writes.iter().filter(|kind| *kind == "pair").count();
    assert!(matches!(failing_reconcile(&stage).await, Retry::At(_)));
    assert!(stage.condition().contains("shorten the certificate chain"), "{}", stage.condition());
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(600)).await;
        failing_reconcile(&stage).await;
    }
    assert_eq!(pairs(&stage), 1, "not within the hour");
    tokio::time::sleep(Duration::from_secs(601)).await;
    failing_reconcile(&stage).await;
    assert_eq!(pairs(&stage), 2, "after an hour");
    stage.secret(Some(tls_secret(&pair(0))));
    failing_reconcile(&stage).await;
    assert_eq!(pairs(&stage), 3, "another pair");
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_counted_and_nobody_is_told() {
    let stage = annotated(&pair(0));
    stage.world().pair_code = Some(429);
    for _ in 0..5 {
        failing_reconcile(&stage).await;
    }
    assert!(stage.world().events.is_empty());
    assert!(!stage.metrics().contains("InjectionFailed"));
}
