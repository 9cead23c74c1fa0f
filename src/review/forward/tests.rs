use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use tokio::time::sleep;
use tower::{BoxError, service_fn};

use super::*;
use crate::{
    k8s::{client, gate::Gate},
    review::testing::ApiServer,
};

struct Stage {
    a: Arc<ApiServer>,
    b: Arc<ApiServer>,
    forwarder: Arc<Forwarder>,
}

impl Stage {
    fn new() -> Self {
        let (a, b): (Arc<ApiServer>, Arc<ApiServer>) = Default::default();
        let clients = [("a".into(), a.client()), ("b".into(), b.client())];
        Self { a, b, forwarder: Arc::new(Forwarder::new(clients)) }
    }

    async fn ask(&self, cluster: &str) -> Result<Option<TokenReviewStatus>, ForwardError> {
        ask_within(&self.forwarder, cluster, Duration::from_secs(10)).await
    }
}

async fn ask_within(
    forwarder: &Forwarder,
    cluster: &str,
    time: Duration,
) -> Result<Option<TokenReviewStatus>, ForwardError> {
    let question = Question {
        token: "the token",
        audiences: &["till".to_owned()],
        audit_id: Some(&HeaderValue::from_static("4711")),
        deadline: Instant::now() + time,
    };
    forwarder.forward(&cluster.into(), question).await
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_to_its_own_cluster_alone_with_spec_and_audit_id_and_nothing_else() {
    let stage = Stage::new();
    let status = stage.ask("a").await.unwrap().unwrap();
    assert_eq!(status.error.as_deref(), Some("invalid bearer token"), "it is none");
    let received = stage.a.reviews().pop().unwrap();
    assert_eq!(received.audit_id.as_deref(), Some("4711"));
    assert_eq!(received.body["spec"], json!({ "token": "the token", "audiences": ["till"] }));
    assert!(received.body.get("status").is_none(), "{}", received.body);
    assert_eq!(stage.b.reviews().len(), 0);
    let unknown = stage.ask("c").await;
    assert!(matches!(unknown, Err(ForwardError::Unknown(_))));
}

#[tokio::test(start_paused = true)]
async fn a_review_ends_at_its_deadline_and_a_hanging_cluster_delays_no_other() {
    let stage = Stage::new();
    *lock(&stage.a.delay) = Duration::from_secs(60);
    let begin = Instant::now();
    let hanging = stage.ask("a").await;
    let timed_out = matches!(hanging, Err(ForwardError::Call { source: ApiError::Timeout(_), .. }));
    assert!(timed_out && begin.elapsed() == Duration::from_secs(10));
    let begin = Instant::now();
    assert!(stage.ask("b").await.is_ok());
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn reviews_under_way_at_one_cluster_are_bounded() {
    let stage = Stage::new();
    *lock(&stage.a.delay) = Duration::from_secs(5);
    let under_way: Vec<_> = (0..UNDER_WAY)
        .map(|_| {
            let forwarder = stage.forwarder.clone();
            tokio::spawn(async move { ask_within(&forwarder, "a", Duration::from_secs(10)).await })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(stage.ask("a").await, Err(ForwardError::Busy(_))));
    assert!(stage.ask("b").await.is_ok());
    for review in under_way {
        assert!(review.await.unwrap().is_ok());
    }
    assert!(stage.ask("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_fails_is_left_alone_for_a_while_and_then_tried_by_one_review() {
    let stage = Stage::new();
    *lock(&stage.a.code) = Some(503);
    for _ in 0..FAILURES {
        assert!(matches!(stage.ask("a").await, Err(ForwardError::Call { .. })));
    }
    assert!(matches!(stage.ask("a").await, Err(ForwardError::Broken { .. })));
    assert_eq!(stage.a.reviews().len(), FAILURES as usize);
    sleep(SHORTEST_BREAK).await;
    *lock(&stage.a.delay) = Duration::from_secs(1);
    let (first, second) = tokio::join!(stage.ask("a"), stage.ask("a"));
    assert!(matches!(first, Err(ForwardError::Call { .. })));
    assert!(matches!(second, Err(ForwardError::Broken { .. })));
    // It comes back.
    *lock(&stage.a.code) = None;
    sleep(LONGEST_BREAK).await;
    assert!(stage.ask("a").await.is_ok());
    let (first, second) = tokio::join!(stage.ask("a"), stage.ask("a"));
    assert!(first.is_ok() && second.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_down_cluster_gets_a_bounded_number_of_calls() {
    let stage = Stage::new();
    *lock(&stage.a.code) = Some(500);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(600) {
        let _ = stage.ask("a").await;
        sleep(Duration::from_millis(10)).await;
    }
    assert!(stage.a.reviews().len() < 60, "{} calls in ten minutes", stage.a.reviews().len());
}

#[tokio::test(start_paused = true)]
async fn callers_without_patience_close_no_cluster_to_the_others() {
    let stage = Stage::new();
    *lock(&stage.a.delay) = Duration::from_millis(100);
    for _ in 0..10 * FAILURES {
        let hasty = ask_within(&stage.forwarder, "a", Duration::from_millis(1)).await;
        assert!(matches!(hasty, Err(ForwardError::Call { .. })));
    }
    assert!(stage.ask("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_busy_cluster_is_not_taken_for_a_broken_one() {
    let stage = Stage::new();
    *lock(&stage.a.code) = Some(429);
    for _ in 0..3 * FAILURES {
        let asked = stage.ask("a").await;
        let is_busy = matches!(
            asked,
            Err(ForwardError::Call { source: ApiError::TooManyRequests { .. }, .. })
        );
        assert!(is_busy);
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_without_end_only_the_beginning_is_read() {
    const PIECE: usize = 64 * 1024;
    let sent: Arc<AtomicUsize> = Arc::default();
    let counted = sent.clone();
    let transport = service_fn(move |_: http::Request<Body>| {
        let sent = counted.clone();
        let spaces = stream::iter(0..1024).map(move |_| {
            sent.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; PIECE])))
        });
        async { Ok::<_, BoxError>(Response::new(StreamBody::new(spaces))) }
    });
    let forwarder = Forwarder::new([("a".into(), client::over(transport, Gate::open()))]);
    let asked = ask_within(&forwarder, "a", Duration::from_secs(10)).await;
    let source = ApiError::Undecodable;
    assert!(matches!(asked, Err(ForwardError::Call { source: found, .. }) if found == source));
    assert!(sent.load(Relaxed) <= LONGEST / PIECE + 2, "{}", sent.load(Relaxed));
}
