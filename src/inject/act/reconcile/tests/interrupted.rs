//! Reads of one reconcile, while the watch is interrupted or others change the Route.

use super::*;

/// A good pair that is too long for a watch: 33 KiB of blanks before it.
fn long((certificate, key): (String, String)) -> (String, String) {
    (format!("{}\n{certificate}", " ".repeat(33 << 10)), key)
}

fn with_ca(pair: &(String, String), ca_certificate: &str) -> Draft {
    managed(pair).with("/spec/tls", "caCertificate", json!(ca_certificate))
}

/// One reconcile, of which every read takes a second, comes to an end and writes no pair.
async fn reads_a_few_times(stage: &Stage) {
    stage.world().secret_delay = Duration::from_secs(1);
    // Not longer: reads in a circle go a level deeper each time, and some dozens overflow the stack.
    let ended = tokio::time::timeout(Duration::from_secs(8), stage.reconcile()).await;
    let world = stage.world();
    assert!(world.writes.iter().all(|kind| kind != "pair"));
    assert!(ended.is_ok() && world.secret_reads <= 3, "{} reads in one turn", world.secret_reads);
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_is_interrupted_a_route_with_a_ca_and_a_long_chain_is_read_a_few_times() {
    let issued = pair(0);
    let held = long(issued.clone());
    let route = with_ca(&held, &issued.0);
    let mut stage = Stage::new(route, Some(tls_secret(&held)), Policy::default());
    stage.secret(Some(tls_secret(&held)));
    // A relist, or a watch that broke.
    stage.reconciler.watch_health = Arc::new(Mutex::new(WatchHealth::of(&[None])));
    reads_a_few_times(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_long_chain_beside_a_secret_that_the_ca_did_not_issue_is_read_a_few_times() {
    let issued = pair(0);
    let held = long(issued.clone());
    let policy = Policy { on_invalid: OnInvalid::Keep, ..Policy::default() };
    let other = pair(0);
    let stage = Stage::new(with_ca(&held, &issued.0), Some(tls_secret(&other)), policy);
    stage.secret(Some(tls_secret(&other)));
    reads_a_few_times(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_write_of_ours_does_not_make_a_forged_source_believed() {
    let (issued, theirs) = (pair(0), pair(0));
    let route = managed(&issued).from("s", "1");
    let stage = Stage::new(route, None, Policy::default());
    stage.secret(Some(tls_secret(&issued)));
    stage.reconcile().await.unwrap();
    assert_eq!(stage.world().secret_reads, 0, "its source is believed");
    // Somebody fits pair, note and source to each other, and the Secret can't be read for a while.
    let forged = managed(&theirs).from("s", "1").version("99");
    let concerned =
        stage.reconciler.index().route_applied(forged.facts(), Origin::Server, Instant::now());
    assert_eq!(concerned.as_ref(), Some(&stage.at));
    stage.world().route = forged.0;
    stage.world().secret_code = Some(403);
    let error = stage.reconcile().await.unwrap_err();
    stage.report(&error).await;
    stage.world().secret_code = None;
    stage.reconcile().await.unwrap();
    let world = stage.world();
    assert!(
        world.route["spec"]["tls"]["certificate"] == json!(issued.0),
        "the forged pair stays until the daily comparison; writes: {:?}",
        world.writes
    );
}
