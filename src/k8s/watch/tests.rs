//! Watches against a server that ends or refuses them.

mod telling;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::{BoxError, Layer, service_fn};

use super::*;
use crate::{api::secret::Secret, k8s::watch_throttle::WatchThrottleLayer};

/// Code and body of an answer to a watch.
type Answer = (u16, &'static str);

const GONE: Answer = (
    410,
    r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#,
);

/// A server whose lists succeed, and whose answer to a watch depends on how many came before;
/// counts both.
fn follow(answer: fn(usize) -> Answer) -> (Watch<Secret>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (lists, watches) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (lists.clone(), watches.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (lists, watches) = counts.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let (code, text) = if is_watch {
                let (code, text) = answer(watches.fetch_add(1, Ordering::SeqCst));
                (code, text.to_owned())
            } else {
                lists.fetch_add(1, Ordering::SeqCst);
                let list: Value = json!({
                    "kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
                    "items": [{
                        "metadata": {"name": "a", "namespace": "web", "uid": "1", "resourceVersion": "5"},
                        "type": "kubernetes.io/tls",
                    }],
                });
                (200, list.to_string())
            };
            Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(text.into_bytes()))?)
        }
    });
    let service = WatchThrottleLayer::default().layer(service);
    let api = Api::all(Client::new(service, "web"));
    let (timeout, permits) = (Duration::from_secs(60), Arc::new(Semaphore::new(1)));
    let follow = Watch { api, fields: None, timeout, lists: permits };
    (follow, lists, watches)
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_at_once_is_not_opened_in_a_hot_loop() {
    let (follow, _, watches) = follow(|_| (200, ""));
    let _ = tokio::time::timeout(MINUTE, follow.run(|_| {})).await;
    let watches = watches.load(Ordering::SeqCst);
    assert!(watches <= 60, "{watches} watches were opened within a minute");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_gone_after_every_list_backs_off_instead_of_listing_in_a_loop() {
    let (follow, lists, _) = follow(|_| GONE);
    let _ = tokio::time::timeout(5 * MINUTE, follow.run(|_| {})).await;
    let lists = lists.load(Ordering::SeqCst);
    // 0.5 s doubling up to 30 s: about 16 in five minutes, and twice that with jitter.
    assert!(lists <= 40, "everything was listed {lists} times within five minutes");
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_while_the_server_was_away_is_listed_as_soon_as_it_says_so() {
    // Eight failures are a back-off of half a minute.
    let (follow, lists, watches) = follow(|earlier| match earlier {
        0..8 => (503, r#"{"kind":"Status","status":"Failure","code":503}"#),
        8 => GONE,
        _ => (200, ""),
    });
    let running = tokio::spawn(follow.run(|_| {}));
    while watches.load(Ordering::SeqCst) < 9 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = lists.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lists.load(Ordering::SeqCst), before + 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_read_at_all_is_made_good_by_a_list() {
    let (follow, lists, watches) = follow(|earlier| match earlier {
        0 => (200, "{\"type\":\"MODIFIED\",\"object\":nonsense}\n"),
        _ => (200, ""),
    });
    let running = tokio::spawn(follow.run(|_| {}));
    while watches.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lists.load(Ordering::SeqCst), 2);
    running.abort();
}
