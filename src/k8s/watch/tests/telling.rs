//! What a watch tells of what a server says, in whatever manner it says it.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::json;
use tower::{BoxError, service_fn};

use super::super::*;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn answer(code: u16, body: serde_json::Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// A watch over which nothing ever comes.
fn silence() -> Answer {
    let nothing = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
    Response::new(StreamBody::new(nothing).boxed_unsync())
}

/// Follows what this server says for so long; answers what it was asked and what was told.
async fn followed(
    lasting: Duration,
    server: impl Fn(&str) -> Answer + Send + 'static,
) -> (Vec<String>, Vec<Change<ConfigMap>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let answer = server(&query);
        log.lock().unwrap().push(query);
        async move { Ok::<_, BoxError>(answer) }
    });
    let follow = Watch {
        api: Api::namespaced(Client::new(service, "web"), "web"),
        fields: Some("type=kubernetes.io/tls"),
        timeout: Duration::from_secs(3),
        lists: Arc::new(Semaphore::new(1)),
    };
    let mut told = Vec::new();
    let _ = tokio::time::timeout(lasting, follow.run(|change| told.push(change))).await;
    let asked = asked.lock().unwrap().clone();
    (asked, told)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_refused_is_asked_for_ever_more_rarely() {
    let refused = |_: &str| {
        let status =
            json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403 });
        answer(403, status)
    };
    let (asked, told) = followed(Duration::from_secs(600), refused).await;
    let failures: Vec<u32> = told
        .iter()
        .filter_map(|change| match change {
            Change::Listing => None,
            Change::Failing(ApiError::Forbidden, failures) => Some(*failures),
            other => panic!("{other:?}"),
        })
        .collect();
    let counted: Vec<u32> = (1..).take(failures.len()).collect();
    assert_eq!(failures, counted, "a try to list is no sign of success");
    assert!((20..60).contains(&asked.len()), "{} tries in ten minutes", asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_watch_over_which_nothing_comes_is_opened_anew_a_little_after_its_time() {
    let (asked, told) = followed(Duration::from_secs(60), |query| {
        if query.contains("watch=true") {
            return silence();
        }
        answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": [] }))
    })
    .await;
    assert!(
        matches!(&told[..], [Change::Listing, Change::Listed(none)] if none.is_empty()),
        "{told:?}"
    );
    let watches: Vec<&String> = asked.iter().filter(|query| query.contains("watch=true")).collect();
    assert!(watches.len() >= 6, "{} watches in a minute", watches.len());
    assert!(
        watches.iter().all(|query| query.contains("timeoutSeconds=3")
            && query.contains("fieldSelector=type%3Dkubernetes.io%2Ftls")),
        "{watches:?}"
    );
}

#[test]
fn what_was_known_and_is_not_listed_any_more_is_left_over_in_order_and_only_once() {
    let mut unlisted = Unlisted::default();
    unlisted.seen(&"new");
    assert!(unlisted.finish().is_empty(), "at a start nothing is known");
    unlisted.expect(["d", "b", "a", "c"]);
    unlisted.seen(&"b");
    unlisted.seen(&"new");
    assert_eq!(unlisted.finish(), ["a", "c", "d"]);
    assert!(unlisted.finish().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_in_a_list_that_cannot_be_decoded_hides_none_of_the_others() {
    let (_, told) = followed(Duration::from_secs(1), |query| {
        if query.contains("watch=true") {
            return silence();
        }
        let good = |name: &str| json!({ "metadata": { "name": name, "namespace": "web" } });
        let bad = json!({ "metadata": { "name": "b", "namespace": "web" }, "data": "a text" });
        let items = [good("a"), bad, good("c")];
        answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }))
    })
    .await;
    let place = |name: &str| ObjectRef::new("web", name);
    let [
        Change::Listing,
        Change::Applied(a),
        Change::Undecodable(b),
        Change::Applied(c),
        Change::Listed(all),
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!([ObjectRef::of(&a.metadata), ObjectRef::of(&c.metadata)], [place("a"), place("c")]);
    assert_eq!(*b, place("b"));
    assert_eq!(*all, HashSet::from([place("a"), place("b"), place("c")]), "it is there");
}

fn object(name: &str, version: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name, "namespace": "web", "resourceVersion": version } })
}

/// A watch that brings these events, each a type and an object, and ends.
fn events(events: &[(&str, serde_json::Value)]) -> Answer {
    // The type comes first, as from every API server.
    let line = |(kind, object): &(&str, serde_json::Value)| {
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
    };
    let lines: String = events.iter().map(line).collect();
    Response::new(Full::new(Bytes::from(lines)).boxed_unsync())
}

fn gone() -> serde_json::Value {
    json!({ "kind": "Status", "status": "Failure", "reason": "Expired", "code": 410 })
}

fn names(told: &[Change<ConfigMap>]) -> Vec<String> {
    let name = |change: &Change<ConfigMap>| match change {
        Change::Applied(object) => object.metadata.name.clone().unwrap_or_default(),
        Change::Deleted(place) => format!("{} deleted", place.name),
        Change::Undecodable(place) => format!("{} undecodable", place.name),
        Change::Listing => "listing".to_owned(),
        Change::Listed(all) => format!("listed {}", all.len()),
        Change::Failing(error, failures) => format!("{} {failures}", error.category()),
    };
    told.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_continue_token_expires_begins_anew() {
    let continued = AtomicUsize::new(0);
    let (_, told) = followed(Duration::from_secs(2), move |query| {
        if query.contains("watch=true") {
            return silence();
        }
        if !query.contains("continue=") {
            let page = json!({ "resourceVersion": "7", "continue": "next" });
            return answer(200, json!({ "metadata": page, "items": [object("a", "5")] }));
        }
        if continued.fetch_add(1, Ordering::SeqCst) == 0 {
            return answer(410, gone());
        }
        let items = [object("b", "6")];
        answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }))
    })
    .await;
    assert_eq!(
        names(&told),
        ["listing", "a", "gone 1", "listing", "a", "b", "listed 2"],
        "what came before the token expired may be gone: the caller starts over"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_its_last_event_or_bookmark() {
    let watches = AtomicUsize::new(0);
    let (asked, told) = followed(Duration::from_secs(1), move |query| {
        if !query.contains("watch=true") {
            let items = [object("a", "5")];
            return answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }));
        }
        let bookmark = json!({ "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": { "resourceVersion": "20" } });
        match watches.fetch_add(1, Ordering::SeqCst) {
            0 => events(&[("ADDED", object("b", "8")), ("DELETED", object("a", "9"))]),
            1 => events(&[("BOOKMARK", bookmark)]),
            _ => silence(),
        }
    })
    .await;
    assert_eq!(names(&told), ["listing", "a", "listed 1", "b", "a deleted"]);
    let from = |query: &String| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == "resourceVersion").map(|(_, value)| value.into_owned())
    };
    let versions: Vec<String> = asked.iter().filter_map(from).collect();
    assert_eq!(versions, ["7", "9", "20"]);
    assert!(asked[1].contains("allowWatchBookmarks=true"), "{}", asked[1]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_says_gone_leads_to_a_list_and_other_errors_do_not() {
    let watches = AtomicUsize::new(0);
    let (_, told) = followed(Duration::from_secs(10), move |query| {
        if !query.contains("watch=true") {
            let items: [serde_json::Value; 0] = [];
            return answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }));
        }
        let failure = json!({ "kind": "Status", "status": "Failure", "code": 500 });
        match watches.fetch_add(1, Ordering::SeqCst) {
            0 => events(&[("ERROR", failure)]),
            1 => events(&[("ERROR", gone())]),
            _ => silence(),
        }
    })
    .await;
    let expected = ["listing", "listed 0", "server-error 1", "gone 2", "listing", "listed 0"];
    assert_eq!(names(&told), expected);
}

/// The seconds after which a watch of these answers shows that everything is known.
async fn pulses(server: impl Fn(usize) -> Answer + Send + 'static) -> Vec<u64> {
    let watches = AtomicUsize::new(0);
    let service = service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let answer = match is_watch {
            true => server(watches.fetch_add(1, Ordering::SeqCst)),
            false => answer(200, json!({ "metadata": { "resourceVersion": "7" }, "items": [] })),
        };
        async move { Ok::<_, BoxError>(answer) }
    });
    let watch = Watch::<ConfigMap> {
        api: Api::namespaced(Client::new(service, "web"), "web"),
        fields: None,
        timeout: Duration::from_secs(3),
        lists: Arc::new(Semaphore::new(1)),
    };
    let (start, mut seen) = (Instant::now(), Vec::new());
    let running = watch.run_with_pulse(|_| {}, || seen.push(start.elapsed().as_secs()));
    let _ = tokio::time::timeout(Duration::from_secs(20), running).await;
    seen
}

/// Such events after a second, and the end of the watch at its time-out.
fn healthy(events: &'static [(&'static str, &'static str)]) -> Answer {
    let chunks = futures::stream::unfold(Some(events), |rest| async move {
        let wait = if rest.is_some() { 1 } else { 2 };
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let lines = rest?.iter().map(|(kind, name)| {
            format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(name, "8"))
        });
        let chunk = Frame::data(Bytes::from(lines.collect::<String>()));
        Some((Ok::<_, Infallible>(chunk), None))
    });
    Response::new(StreamBody::new(chunks).boxed_unsync())
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_watch_shows_that_everything_until_then_is_known() {
    let quiet = pulses(|_| healthy(&[])).await;
    assert_eq!(quiet, [0, 3, 6, 9, 12, 15, 18], "the list, and the end of each watch");
    let busy = pulses(|_| healthy(&[("ADDED", "a"), ("DELETED", "a")])).await;
    assert_eq!(busy, quiet, "behind an event there may be others");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_can_be_opened_and_brings_nothing_shows_nothing() {
    assert_eq!(pulses(|_| silence()).await, [0]);
    let refused = |_| answer(500, json!({ "kind": "Status", "status": "Failure", "code": 500 }));
    assert_eq!(pulses(refused).await, [0]);
}
