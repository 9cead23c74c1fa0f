//! Leader election: decisions, and their execution.

use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;

/// An API server that knows one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Value>>>);

impl Server {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut lease = self.0.lock().unwrap();
        let status = |code: u16| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": ""}))
        };
        let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
        let (code, answer) = match (method, lease.as_ref()) {
            (Method::GET, Some(lease)) => (200, lease.clone()),
            (Method::POST, None) => {
                let mut sent: Value = serde_json::from_slice(&body).unwrap();
                // No version is ever given twice.
                sent["metadata"]["resourceVersion"] = json!(fastrand::u32(1..).to_string());
                *lease = Some(sent.clone());
                (201, sent)
            }
            (Method::PUT, Some(stored)) => {
                let mut sent: Value = serde_json::from_slice(&body).unwrap();
                if version(&sent) == version(stored) {
                    let next = version(stored).as_str().unwrap().parse::<u64>().unwrap() + 1;
                    sent["metadata"]["resourceVersion"] = json!(next.to_string());
                    *lease = Some(sent.clone());
                    (200, sent)
                } else {
                    status(409)
                }
            }
            (Method::POST, _) => status(409),
            _ => status(404),
        };
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    fn election(&self, identity: &str) -> (Election, watch::Receiver<Option<Instant>>) {
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, BoxError>(server.answer(request).await) }
        });
        let deadline = Arc::new(watch::Sender::new(None));
        let receiver = deadline.subscribe();
        let candidate = Candidate {
            namespace: "trustplane".into(),
            name: "trustplane-inject",
            identity: identity.into(),
        };
        let client = Client::new(service, "trustplane");
        (Election::new(client, candidate, Clock::system(), deadline), receiver)
    }
}

fn open(deadline: &watch::Receiver<Option<Instant>>) -> bool {
    deadline.borrow().is_some_and(|deadline| Instant::now() < deadline)
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_sees_another_in_the_lease_stops_at_once() {
    let server = Server::default();
    let (mut first, first_until) = server.election("first");
    let (mut second, second_until) = server.election("second");
    first.round().await;
    assert!(open(&first_until));
    // kubectl delete lease: an experiment of every chaos suite.
    *server.0.lock().unwrap() = None;
    second.round().await;
    assert!(open(&second_until));
    // The first one's renewal is refused, and it reads whose lease it is.
    first.round().await;
    assert!(
        !(open(&first_until) && open(&second_until)),
        "two replicas lead, and both know who holds the lease"
    );
}

const US: &str = "trustplane-a";
const THEM: &str = "trustplane-b";

fn held_by(holder: &str, unchanged_since: Instant) -> Observed {
    let spec = LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    };
    Observed { lease: Lease { spec: Some(spec), ..Lease::default() }, unchanged_since }
}

#[test]
fn a_lease_that_is_not_there_is_created_and_a_released_one_taken() {
    let now = Instant::now();
    assert_eq!(decide(None, US, now), Step::Create);
    assert_eq!(decide(Some(&held_by("", now)), US, now), Step::Take);
}

#[test]
fn our_own_lease_is_renewed_however_old_it_is() {
    let long_ago = Instant::now();
    let now = long_ago + 100 * DURATION;
    assert_eq!(decide(Some(&held_by(US, long_ago)), US, now), Step::Renew);
}

#[test]
fn a_foreign_lease_is_taken_only_after_its_whole_duration_on_our_own_clock() {
    let seen_at = Instant::now();
    let lease = held_by(THEM, seen_at);
    let almost = seen_at + DURATION - Duration::from_millis(1);
    assert_eq!(decide(Some(&lease), US, almost), Step::Wait);
    assert_eq!(decide(Some(&lease), US, seen_at + DURATION), Step::Take);
}

#[test]
fn the_holder_stops_before_anybody_else_may_start() {
    // It counts from before its renewal was sent, the others from after they saw it.
    let renewed = Instant::now();
    let holder_stops = renewed + DURATION - MARGIN;
    let earliest_taker = held_by(THEM, renewed);
    assert_eq!(decide(Some(&earliest_taker), US, holder_stops), Step::Wait);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_lease_was_written_however_late_the_answer_came() {
    let slow = service_fn(async |request: Request<Body>| {
        let (code, body) = match *request.method() {
            Method::GET => {
                let status = json!({ "kind": "Status", "code": 404, "reason": "NotFound" });
                (404, status)
            }
            _ => {
                tokio::time::sleep(Duration::from_secs(2)).await;
                (201, json!({ "metadata": { "name": "lease", "resourceVersion": "1" } }))
            }
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
    });
    let deadline = Arc::new(watch::Sender::new(None));
    let candidate = Candidate { namespace: "web".into(), name: "lease", identity: US.to_owned() };
    let client = Client::new(slow, "web");
    let mut election = Election::new(client, candidate, Clock::system(), deadline.clone());
    let start = Instant::now();
    election.round().await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(*deadline.borrow(), Some(start + DURATION - MARGIN));
}
