//! Others act between a pair and its report, and between one read and the next.

use super::*;
use crate::names::SECRET_NAME_ANNOTATION;

/// A user annotates the Route.
fn annotation() -> Value {
    json!({"metadata": {"annotations": {SECRET_NAME_ANNOTATION: "shop-tls"}}})
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_took_is_not_told_once_it_is_no_longer_so() {
    let stage = annotated(&pair(0));
    stage.world().refused_events = 1;
    stage.reconcile().await.unwrap();
    // Somebody takes both annotations away: the pair in the Route is the user's own now.
    stage.foreign(&json!({"metadata": {"annotations": null}}));
    for _ in 0..5 {
        stage.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    let world = stage.world();
    assert_eq!(world.refused_events, 0);
    assert_eq!(world.events.len(), 0, "it was told of a Route that names no Secret");
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_went_in_is_told_of_although_the_answer_to_its_write_was_lost() {
    let stage = annotated(&pair(0));
    stage.world().lost_answers = 1;
    stage.reconcile().await.unwrap_err();
    // The watch brings what we wrote.
    stage.foreign(&json!({}));
    stage.reconcile().await.unwrap();
    let world = stage.world();
    assert_eq!(world.writes, ["pair", "status"]);
    assert_eq!(world.reasons(), ["CertificateInjected"]);
}

#[tokio::test(start_paused = true)]
async fn who_replaces_a_secret_and_then_annotates_a_route_never_sees_the_old_pair_in_it() {
    let (old, new) = (pair(0), pair(0));
    let stage = Stage::new(Draft::edge(), Some(tls_secret(&old)), Policy::default());
    stage.secret(Some(tls_secret(&old)));
    // Others ask for the Secret too, and one of them has read it.
    let other = |name| Draft::edge().annotated("shop-tls").named("web", name).facts();
    for name in ["blog", "wiki"] {
        stage.reconciler.index().route_applied(other(name), Origin::Server, Instant::now());
    }
    stage.reconciler.read_secret(&other("blog")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Its owner replaces it and then annotates the Route. The watch of Secrets is behind.
    stage.world().secret = Some(tls_secret(&new));
    stage.foreign(&annotation());
    stage.reconcile().await.unwrap();
    let world = stage.world();
    let held = &world.route["spec"]["tls"]["certificate"];
    assert!(*held != json!(old.0), "a pair that was replaced before went into the Route");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_asks_for_a_secret_that_was_mended_gets_it_although_the_watch_is_behind() {
    for keeps_status in [true, false] {
        mended_and_then_asked_for(keeps_status).await;
    }
}

async fn mended_and_then_asked_for(keeps_status: bool) {
    let issued = pair(0);
    let stage = Stage::new(Draft::edge(), None, Policy::default());
    stage.reconciler.keeps_status.store(keeps_status, Ordering::Relaxed);
    stage.secret(Some(secret(b"", b"")));
    // The Secret is fixed, then the Route annotated. The watch of Secrets is silent.
    stage.world().secret = Some(tls_secret(&issued));
    stage.foreign(&annotation());
    stage.reconcile().await.unwrap();
    let world = stage.world();
    let told = world.reasons();
    assert!(told.iter().all(|reason| *reason != "SecretInvalid"), "{told:?} of a good Secret");
    assert!(world.route["spec"]["tls"]["certificate"] == json!(issued.0));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_stays_bad_is_read_once_for_a_route_and_not_at_every_resync() {
    for keeps_status in [true, false] {
        let stage = without_secret();
        stage.reconciler.keeps_status.store(keeps_status, Ordering::Relaxed);
        stage.secret(Some(secret(b"", b"")));
        stage.reconcile().await.unwrap();
        let reads = stage.world().secret_reads;
        assert!((1..=2).contains(&reads), "{reads} reads before it was called bad");
        assert_eq!(stage.world().events.len(), 1, "it is told of");
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(600)).await;
            stage.reconcile().await.unwrap();
        }
        assert_eq!(stage.world().secret_reads, reads, "status kept: {keeps_status}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_route_that_went_while_it_was_written() {
    let stage = annotated(&pair(0));
    stage.world().write_delay = Duration::from_secs(2);
    // As `route_gone` of the controller.
    let gone = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.reconciler.index().route_gone(&stage.at);
    };
    let (outcome, ()) = tokio::join!(stage.reconcile(), gone);
    outcome.unwrap();
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    stage.reconcile().await.unwrap();
    stage.reconciler.tidy();
    let remembered = stage.reconciler.index().sizes();
    assert_eq!(remembered, (0, 0), "it is remembered for as long as the process lives");
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_a_secret_that_is_gone_does_not_wait_for_words() {
    let stage = annotated(&pair(0));
    let next = stage.reconciler.reconcile(&stage.at, Priority::High).await.unwrap();
    assert_eq!(next, Action::ReportLater, "the pair is in, and its report waits behind thousands");
    stage.secret(None);
    let next = stage.reconciler.reconcile(&stage.at, Priority::High).await.unwrap();
    let grace = Instant::now() + Duration::from_secs(5);
    assert!(matches!(next, Action::RequeueAt(at) if at <= grace), "{next:?}: not when it is over");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_passes_tls_through_by_now_is_not_said_to_serve_a_default_certificate() {
    let issued = pair(0);
    let mut route = managed(&issued);
    let annotations = route.0["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove(SECRET_NAME_ANNOTATION);
    let stage = Stage::new(route, None, Policy::default());
    let next = stage.reconciler.reconcile(&stage.at, Priority::High).await.unwrap();
    let writes = stage.world().writes.len();
    assert_eq!((next, writes), (Action::ReportLater, 1), "cleared, and not yet told");
    stage.foreign(&json!({"spec": {"tls": {"termination": "passthrough"}}}));
    stage.reconcile().await.unwrap();
    let world = stage.world();
    let notes: Vec<_> = world.events.values().map(|event| event["note"].to_string()).collect();
    assert!(notes.iter().all(|note| !note.contains("serves its default")), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_injection_is_told_of_although_the_note_was_stripped_and_put_back_before() {
    let stage = annotated(&pair(0));
    stage.reconciler.reconcile(&stage.at, Priority::High).await.unwrap();
    stage.foreign(&json!({"metadata": {"annotations": {"trustplane.dev/injected": null}}}));
    stage.reconcile().await.unwrap();
    let world = stage.world();
    assert_eq!(world.writes, ["pair", "pair", "status"]);
    assert_eq!(world.reasons(), ["CertificateInjected"]);
}

#[tokio::test(start_paused = true)]
async fn an_injection_is_told_of_although_its_secret_was_away_for_a_moment_before() {
    let issued = pair(0);
    let stage = annotated(&issued);
    stage.reconciler.reconcile(&stage.at, Priority::High).await.unwrap();
    stage.secret(None);
    stage.reconcile().await.unwrap();
    assert_eq!(stage.world().events.len(), 0, "nothing is certain within the grace");
    stage.secret(Some(tls_secret(&issued)));
    stage.reconcile().await.unwrap();
    let world = stage.world();
    assert_eq!(world.reasons(), ["CertificateInjected"]);
}

#[tokio::test(start_paused = true)]
async fn what_another_replica_did_is_not_told_days_later_as_if_we_had_done_it() {
    let issued = pair(0);
    let stage = annotated(&issued);
    // Not done, but it might have been; then the lease was lost.
    stage.world().pair_code = Some(503);
    stage.reconcile().await.unwrap_err();
    stage.world().pair_code = None;
    // The new leader writes the pair, tells of it, and the Event expires.
    let there = managed(&issued).0;
    stage.foreign(&json!({"metadata": {"annotations": there["metadata"]["annotations"]}, "spec": there["spec"]}));
    for _ in 0..3 * 24 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stage.reconciler.tidy();
    }
    stage.reconcile().await.unwrap();
    let world = stage.world();
    assert_eq!(world.reasons(), Vec::<Value>::new(), "three days after it happened");
}

#[tokio::test(start_paused = true)]
async fn a_route_whose_status_may_not_be_written_is_counted_as_what_it_is() {
    let stage = annotated(&pair(0));
    stage.world().status_code = Some(403);
    let error = stage.reconcile().await.unwrap_err();
    stage.report(&error).await;
    let world = stage.world();
    assert_eq!(world.writes, ["pair", "status"], "the status is not tried again at once");
    let mut told = world.reasons();
    told.sort_by_key(Value::to_string);
    assert_eq!(told, ["CertificateInjected", "StatusNotWritten"]);
    drop(world);
    let metrics = stage.metrics();
    assert!(metrics.contains("state=\"Managed\",reason=\"SecretInjected\""), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_gone_before_its_watch_says_so_is_looked_at_again_soon() {
    let stage = annotated(&pair(0));
    let there = std::mem::take(&mut stage.world().route);
    stage.world().pair_code = Some(404);
    let next = stage.reconcile().await.unwrap();
    let soon = Instant::now() + Duration::from_secs(10);
    assert!(matches!(next, Action::RequeueAt(at) if at <= soon), "{next:?}: not before the resync");
    stage.reconciler.index().route_gone(&stage.at);
    assert_eq!(stage.reconcile().await.unwrap(), Action::AwaitChange, "now the watch has said so");

    // Somebody else wrote it, and it is not there to be read again.
    let stage = annotated(&pair(0));
    stage.world().pair_code = Some(409);
    stage.world().route = Value::Null;
    let next = stage.reconcile().await.unwrap();
    assert!(matches!(next, Action::RequeueAt(_)), "{next:?}: not before the resync");

    // Not the Route is missing, but what it was written to.
    let stage = annotated(&pair(0));
    assert_eq!(stage.world().route, there);
    stage.world().pair_code = Some(404);
    stage.reconcile().await.unwrap_err();
}
