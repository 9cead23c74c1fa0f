//! How a process ends.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tower::{BoxError, service_fn};

use super::*;

/// An API server that knows one Lease, until it answers nothing any more.
fn server(hangs: Arc<AtomicBool>) -> kube::Client {
    let service = service_fn(move |request: Request<Body>| {
        let hangs = hangs.clone();
        async move {
            if hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let method = request.method().clone();
            let body = request.into_body().collect().await?.to_bytes();
            let (code, answer) = match method {
                Method::GET => (
                    404,
                    br#"{"kind":"Status","status":"Failure","code":404,"reason":"NotFound"}"#
                        .to_vec(),
                ),
                _ => (200, body.to_vec()),
            };
            Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(answer))?)
        }
    });
    kube::Client::new(service, "trustplane")
}

#[tokio::test(start_paused = true)]
async fn a_leader_exits_within_ten_seconds_of_sigterm_when_the_api_server_hangs() {
    let mut longest = Duration::ZERO;
    for tenths in 0..20 {
        let hangs = Arc::new(AtomicBool::new(false));
        let candidate = Candidate {
            namespace: "trustplane".into(),
            name: crate::names::INJECT_LEASE,
            identity: "first".into(),
        };
        let deadline = Arc::new(watch::Sender::new(None));
        let client = server(hangs.clone());
        let election = Election::new(client, candidate, Clock::system(), deadline);
        let (stop, stopped_writing) = (CancellationToken::new(), CancellationToken::new());
        let election = tokio::spawn(election.run(stop.clone(), stopped_writing.clone()));
        let injector = {
            let stop = stop.clone();
            // A write under way: its call gives up after `call::TIMEOUT`.
            tokio::spawn(async move {
                stop.cancelled().await;
                sleep(crate::k8s::api_error::TIMEOUT).await;
                Ok(())
            })
        };
        let server = tokio::spawn(std::future::pending());
        sleep(Duration::from_secs(20)).await;

        hangs.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(100 * tenths)).await;
        let asked = Instant::now();
        stop.cancel();
        supervise(injector, Some(election), server, &stop, stopped_writing).await.unwrap();
        longest = longest.max(asked.elapsed());
    }
    assert!(longest <= Duration::from_secs(10), "it took {longest:?}");
}

#[tokio::test]
async fn sigterm_ends_with_exit_code_zero_and_a_released_lease_however_fast_the_workers_stop() {
    for run in 0..100 {
        let (stop, stopped_writing) = (CancellationToken::new(), CancellationToken::new());
        let injector = {
            let stop = stop.clone();
            tokio::spawn(async move {
                stop.cancelled().await;
                Ok(())
            })
        };
        let server = tokio::spawn(std::future::pending());
        tokio::task::yield_now().await;
        stop.cancel();
        // The idle workers are through before this task has its turn, as on a busy machine.
        tokio::task::yield_now().await;
        let outcome = supervise(injector, None, server, &stop, stopped_writing.clone()).await;
        assert!(outcome.is_ok(), "run {run}: {outcome:?}");
        assert!(stopped_writing.is_cancelled(), "so the lease is released");
    }
}

#[test]
fn a_controller_has_two_threads_at_most_unless_it_answers_requests() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(Threads::Two.count(), cores.min(2));
    assert_eq!(Threads::AllCores.count(), cores);
}
