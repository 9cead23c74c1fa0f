//! What is told of a Route that can't be changed, and when it is tried again.

use super::*;

/// As `reconcile` and `failed` of the controller, refusals cleared where it clears them.
async fn controller_reconcile(stage: &Stage) -> Option<Retry> {
    match stage.reconcile().await {
        Ok(Action::ReportLater) => None,
        Ok(_) => {
            stage.reconciler.index().clear_refusals(&stage.at);
            None
        }
        Err(error) => Some(stage.report(&error).await),
    }
}

fn events(stage: &Stage, reason: &str) -> Vec<String> {
    let world = stage.world();
    let told = world.events.values().filter(|event| event["reason"] == reason);
    told.map(|event| event["note"].as_str().unwrap().to_owned()).collect()
}

fn count(stage: &Stage, kind: &str) -> usize {
    stage.world().writes.iter().filter(|it| *it == kind).count()
}

async fn reconciled() -> Stage {
    let stage = holding(&pair(0));
    stage.reconcile().await.unwrap();
    stage
}

/// A status that is too large, after a pair that was: the time of the next attempt is in the past.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_too_large_is_never_due_in_the_past() {
    let stage = annotated(&pair(0));
    stage.world().pair_code = Some(413);
    controller_reconcile(&stage).await;
    // The tenant shortens the Secret by a few bytes: now the pair fits, and the condition does not.
    stage.world().pair_code = None;
    stage.world().status_code = Some(413);
    stage.secret(Some(tls_secret(&pair(0))));
    controller_reconcile(&stage).await;
    tokio::time::sleep(Duration::from_secs(3_601)).await;
    let retry = controller_reconcile(&stage).await;
    let Some(Retry::At(time)) = retry else { return };
    assert!(time > Instant::now(), "due {:?} ago: a hot loop", Instant::now() - time);
}

/// A denied write, and the condition could not be written at that moment.
#[tokio::test(start_paused = true)]
async fn a_denial_whose_condition_met_a_conflict_is_said_within_a_minute() {
    let stage = reconciled().await;
    let well = stage.condition();
    stage.world().pair_code = Some(422);
    // A label, or the router's own status: a version that the watch has not brought yet.
    stage.world().status_conflicts = 1;
    stage.secret(Some(tls_secret(&pair(0))));
    let retry = controller_reconcile(&stage).await;
    assert!(
        stage.condition() != well || retry != Some(Retry::AtResync),
        "claims {well:?} about another certificate until the next resync (10 minutes)"
    );
}

/// The same of the Event where the API server keeps no condition (OpenShift).
#[tokio::test(start_paused = true)]
async fn a_denial_whose_event_could_not_be_written_is_told_soon() {
    let stage = reconciled().await;
    stage.reconciler.keeps_status.store(false, Ordering::Relaxed);
    stage.world().pair_code = Some(422);
    stage.world().refused_events = 1;
    stage.secret(Some(tls_secret(&pair(0))));
    let retry = controller_reconcile(&stage).await;
    assert!(
        !events(&stage, "InjectionFailed").is_empty() || retry != Some(Retry::AtResync),
        "told to nobody until the next resync"
    );
}

/// 413: the same for an hour.
#[tokio::test(start_paused = true)]
async fn what_is_too_large_and_could_not_be_told_is_told_before_the_hour_is_over() {
    let stage = reconciled().await;
    let well = stage.condition();
    stage.world().pair_code = Some(413);
    stage.world().status_conflicts = 1;
    stage.world().refused_events = 1;
    stage.secret(Some(tls_secret(&pair(0))));
    let retry = controller_reconcile(&stage).await;
    let Some(Retry::At(time)) = retry else { return };
    assert!(
        stage.condition() != well || !events(&stage, "InjectionFailed").is_empty(),
        "nobody is told, next attempt in {:?}",
        time - Instant::now()
    );
}

/// A webhook's own error is `admission.Errored(500, err)` in controller-runtime: allowed=false with
/// code 500. That is no verdict about the Route.
#[tokio::test(start_paused = true)]
async fn an_error_inside_a_webhook_is_tried_again_soon() {
    for code in [500, 503, 504, 429, 409] {
        let stage = reconciled().await;
        stage.world().pair_code = Some(code);
        stage.world().pair_message = Some(
            "admission webhook \"validation.gatekeeper.sh\" denied the request: failed to get API \
             group resources: the server is currently unable to handle the request",
        );
        stage.secret(Some(tls_secret(&pair(0))));
        let retry = controller_reconcile(&stage).await;
        let waits = retry == Some(Retry::AtResync);
        assert!(!waits, "HTTP {code}: a renewal waits 10 minutes for one hiccup");
    }
}

/// A webhook with the default timeout of 10 s, and our own of 10 s: now one is first, now the other.
#[tokio::test(start_paused = true)]
async fn causes_that_alternate_make_no_status_write_at_each_attempt() {
    let stage = reconciled().await;
    stage.secret(Some(tls_secret(&pair(0))));
    let before = count(&stage, "status");
    for attempt in 0..200 {
        stage.world().pair_code = Some(if attempt % 2 == 0 { 500 } else { 503 });
        controller_reconcile(&stage).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
    }
    let written = count(&stage, "status") - before;
    assert!(written <= 20, "{written} status writes in 200 attempts at the same write");
}

/// Nobody hears that the condition can't be written, and it goes on to claim what was.
#[tokio::test(start_paused = true)]
async fn a_condition_that_is_refused_for_hours_is_told() {
    for code in [500, 413, 409] {
        let stage = reconciled().await;
        let well = stage.condition();
        stage.world().status_code = Some(code);
        stage.secret(Some(secret(b"junk", b"junk")));
        for _ in 0..60 {
            controller_reconcile(&stage).await;
            tokio::time::sleep(Duration::from_secs(120)).await;
        }
        assert!(stage.world().route["spec"]["tls"]["key"].is_null(), "it was cleared");
        assert_eq!(stage.condition(), well);
        let told = events(&stage, "StatusNotWritten").len();
        assert_eq!(told, 1, "HTTP {code}: for two hours it says {well:?}, and nobody is told");
    }
}

/// Failures of something else count as failures of the pair.
#[tokio::test(start_paused = true)]
async fn one_refused_write_is_no_news_although_the_status_was_refused_before() {
    let stage = reconciled().await;
    stage.world().status_code = Some(500);
    stage.foreign(&json!({ "spec": { "host": "other.example.com" } }));
    for _ in 0..3 {
        controller_reconcile(&stage).await;
    }
    stage.world().status_code = None;
    // The write is done, its answer is lost: a single failure.
    stage.world().lost_answers = 1;
    stage.secret(Some(tls_secret(&pair(0))));
    controller_reconcile(&stage).await;
    let told = events(&stage, "InjectionFailed");
    assert!(told.is_empty(), "after one failure, and the write was done: {told:?}");
}

/// A process that ends and comes back.
#[tokio::test(start_paused = true)]
async fn a_restart_says_nothing_where_the_condition_says_that_writes_are_refused() {
    let stage = reconciled().await;
    stage.world().pair_code = Some(422);
    let renewed = tls_secret(&pair(0));
    stage.secret(Some(renewed.clone()));
    controller_reconcile(&stage).await;
    assert_eq!(events(&stage, "InjectionFailed").len(), 1);
    // Events live an hour. The condition stays.
    stage.world().events.clear();
    let route = Draft(stage.world().route.clone());
    let next = Stage::new(route, Some(renewed.clone()), Policy::default());
    next.secret(Some(renewed));
    next.world().pair_code = Some(422);
    controller_reconcile(&next).await;
    assert_eq!(count(&next, "status"), 0, "the condition says it already");
    assert!(events(&next, "InjectionFailed").is_empty(), "a restart repeats the condition");
}

/// A Route that holds the pair of its Secret, and the certificate of it as `caCertificate`.
fn with_its_own_ca() -> Stage {
    let held = pair(0);
    let route = managed(&held).with("/spec/tls", "caCertificate", json!(held.0));
    let stage = Stage::new(route, None, Policy::default());
    stage.secret(Some(tls_secret(&held)));
    stage
}

/// A Route that could not be read, where nothing is to be changed.
#[tokio::test(start_paused = true)]
async fn a_route_that_can_not_be_read_is_not_said_to_be_refused_a_change() {
    let stage = with_its_own_ca();
    stage.world().route_read_code = Some(403);
    controller_reconcile(&stage).await;
    let told = events(&stage, "InjectionFailed");
    assert!(!told[0].contains("not allowed to write"), "it may write, and may not read: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_as_it_should_be_is_not_said_to_be_unchangeable() {
    let stage = with_its_own_ca();
    stage.world().route_read_code = Some(500);
    for _ in 0..3 {
        controller_reconcile(&stage).await;
    }
    let told = events(&stage, "InjectionFailed");
    assert_eq!(count(&stage, "pair"), 0);
    let blames = told.iter().any(|it| it.contains("could not be changed"));
    assert!(!blames, "no change was tried: {told:?}");
}

/// The way out that a user takes: make the Route smaller.
#[tokio::test(start_paused = true)]
async fn a_route_that_was_made_smaller_is_tried_again() {
    let stage = reconciled().await;
    stage.foreign(&json!({ "metadata": { "annotations": { "example.com/large": "x" } } }));
    stage.world().pair_code = Some(413);
    stage.secret(Some(tls_secret(&pair(0))));
    controller_reconcile(&stage).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // "tried again when Route or Secret change"
    stage.world().pair_code = None;
    stage.foreign(&json!({ "metadata": { "annotations": { "example.com/large": null } } }));
    let sent = count(&stage, "pair");
    controller_reconcile(&stage).await; // a resync
    assert_eq!(count(&stage, "pair"), sent + 1, "the Route changed, and is not tried for an hour");
}

/// A denial, and a label that would satisfy the policy.
#[tokio::test(start_paused = true)]
async fn a_denied_route_is_looked_at_when_its_labels_change() {
    let stage = reconciled().await;
    stage.world().pair_code = Some(422);
    stage.secret(Some(tls_secret(&pair(0))));
    assert_eq!(controller_reconcile(&stage).await, Some(Retry::AtResync));
    let mut changed = stage.world().route.clone();
    changed["metadata"]["labels"] = json!({ "team": "shop" });
    changed["metadata"]["resourceVersion"] = json!("900");
    let facts = RouteFacts::read(&serde_json::from_value(changed).unwrap());
    let queued = stage.reconciler.index().route_applied(facts, Origin::Server, Instant::now());
    assert!(queued.is_some(), "docs: tried again when Route or Secret change");
}

/// An Ingress takes the Route over while a write is under way.
#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_a_route_that_an_ingress_took_over() {
    let stage = reconciled().await;
    stage.world().pair_code = Some(422);
    stage.secret(Some(tls_secret(&pair(0))));
    let error = stage.reconcile().await.unwrap_err();
    stage.taken_over_by_ingress();
    stage.report(&error).await;
    assert!(events(&stage, "InjectionFailed").is_empty(), "row 1: nothing");
}
