//! The fault proxy fails as it is told, and is otherwise not noticed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt};
use http::Method;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use testkit::{
    Cluster, Namespace, RouteFixture, eventually,
    proxy::{Fault, Gate, Proxy, SeenRequest, WatchFault},
};

const SOON: Duration = Duration::from_secs(10);

/// Routes of a namespace, as our account sees them through a proxy with this script.
async fn through(
    ns: &Namespace,
    script: impl Fn(&SeenRequest) -> Fault + Send + Sync + 'static,
) -> (Proxy, Api<DynamicObject>) {
    let proxy = Proxy::start(ns.cluster(), script).await;
    let client = ns.cluster().account().through(proxy.url()).client_without_retries().await;
    let resource = kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
        "route.openshift.io",
        "v1",
        "Route",
    ));
    let routes = Api::namespaced_with(client, ns.name(), &resource);
    (proxy, routes)
}

async fn namespace_with_shop() -> Namespace {
    let ns = Cluster::get().await.namespace("proxy").await;
    RouteFixture::edge("shop").create(&ns).await;
    ns
}

fn labelled(value: &str) -> Patch<serde_json::Value> {
    Patch::Merge(json!({ "metadata": { "labels": { "is": value } } }))
}

async fn watched(
    routes: &Api<DynamicObject>,
) -> impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<> {
    routes
        .watch(&WatchParams::default().timeout(60).disable_bookmarks(), "0")
        .await
        .expect("the watch starts")
}

#[tokio::test]
async fn requests_and_watches_pass_under_the_callers_own_name() {
    let ns = namespace_with_shop().await;
    let (proxy, routes) = through(&ns, |_| Fault::Forward).await;
    let mut events = pin!(watched(&routes).await);
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));

    routes
        .patch("shop", &PatchParams::default(), &labelled("open"))
        .await
        .expect("our account may patch Routes");

    let seen = tokio::time::timeout(SOON, events.next()).await.expect("the watch is not held up");
    assert!(matches!(seen, Some(Ok(WatchEvent::Modified(_)))), "{seen:?}");
    assert_eq!(ns.quiet(Duration::from_millis(100)).await, ["patch routes/shop"]);
    assert_eq!(
        (
            proxy.count(|asked| asked.is_watch_of("routes")),
            proxy.count(|asked| asked.is_write_to("routes/shop"))
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn it_answers_in_the_servers_place() {
    let ns = namespace_with_shop().await;
    let (proxy, routes) = through(&ns, |asked| {
        if asked.is_watch() { Fault::answer(410, "too old") } else { Fault::answer(403, "no") }
    })
    .await;
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("{other}"),
    };
    let refused =
        code(routes.list(&ListParams::default()).await.expect_err("it is told to refuse"));
    assert_eq!(refused, (403, "Forbidden".to_owned(), "no".to_owned()));
    let gone =
        code(routes.watch(&WatchParams::default(), "1").await.err().expect("it is told to refuse"));
    assert_eq!(gone, (410, "Expired".to_owned(), "too old".to_owned()));

    proxy.follow(|_| Fault::Forward);
    assert_eq!(routes.list(&ListParams::default()).await.expect("it forwards now").items.len(), 1);
}

#[tokio::test]
async fn a_gate_holds_requests_until_it_opens() {
    let ns = namespace_with_shop().await;
    let gate = Gate::closed();
    let held = gate.clone();
    let (_proxy, routes) = through(&ns, move |_| Fault::HoldBeforeForward(held.clone())).await;
    let patch = tokio::spawn(async move {
        routes.patch("shop", &PatchParams::default(), &labelled("held")).await
    });
    gate.reached_by(1).await;
    assert!(ns.writes().is_empty());

    gate.open();

    patch.await.expect("it does not panic").expect("the patch is accepted");
    assert_eq!(ns.quiet(Duration::from_millis(100)).await, ["patch routes/shop"]);
}

#[tokio::test]
async fn what_a_gate_holds_arrives_even_when_its_sender_is_gone() {
    let ns = namespace_with_shop().await;
    let gate = Gate::closed();
    let held = gate.clone();
    let (_proxy, routes) = through(&ns, move |_| Fault::HoldBeforeForward(held.clone())).await;
    let patch = tokio::spawn(async move {
        let _ = routes.patch("shop", &PatchParams::default(), &labelled("late")).await;
    });
    gate.reached_by(1).await;
    patch.abort();
    let _ = patch.await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    gate.open();

    eventually(SOON, "the late write arrives", async || match ns.writes() {
        writes if writes.is_empty() => Err("not yet"),
        _ => Ok(()),
    })
    .await;
    assert_eq!(ns.route("shop").await["metadata"]["labels"]["is"], "late");
}

#[tokio::test]
async fn a_write_can_be_committed_without_its_caller_knowing() {
    let ns = namespace_with_shop().await;
    let answered = Arc::new(AtomicBool::new(false));
    let told = answered.clone();
    let script = move |_: &SeenRequest| {
        let told = told.clone();
        Fault::ForwardThenDropResponse(Box::new(move || told.store(true, Ordering::SeqCst)))
    };
    let (_proxy, routes) = through(&ns, script).await;

    routes
        .patch("shop", &PatchParams::default(), &labelled("committed"))
        .await
        .expect_err("no answer comes");

    assert!(answered.load(Ordering::SeqCst));
    assert_eq!(ns.route("shop").await["metadata"]["labels"]["is"], "committed");
}

#[tokio::test]
async fn a_write_can_be_lost_before_the_server_sees_it() {
    let ns = namespace_with_shop().await;
    let (_proxy, routes) = through(&ns, |asked| {
        if asked.method == Method::PATCH { Fault::DropRequest } else { Fault::Forward }
    })
    .await;
    routes
        .patch("shop", &PatchParams::default(), &labelled("lost"))
        .await
        .expect_err("no answer comes");
    assert!(ns.quiet(Duration::from_millis(100)).await.is_empty());
    routes.get("shop").await.expect("other requests pass");
}

#[tokio::test]
async fn callbacks_run_before_the_server_and_before_the_caller_hear() {
    let ns = namespace_with_shop().await;
    let (order, noted) = std::sync::mpsc::channel();
    let script = move |asked: &SeenRequest| {
        let (order, method) = (order.clone(), asked.method.clone());
        let note: Box<dyn FnOnce() + Send> =
            Box::new(move || order.send(method).expect("the test listens"));
        if asked.method == Method::GET {
            Fault::BeforeForward(note)
        } else {
            Fault::BeforeAnswer(note)
        }
    };
    let (_proxy, routes) = through(&ns, script).await;
    routes.get("shop").await.expect("it is forwarded");
    routes
        .patch("shop", &PatchParams::default(), &labelled("answered"))
        .await
        .expect("it is forwarded");
    assert_eq!(noted.try_iter().collect::<Vec<_>>(), [Method::GET, Method::PATCH]);
}

#[tokio::test]
async fn an_answer_can_arrive_cut_short() {
    let ns = namespace_with_shop().await;
    let (_proxy, routes) =
        through(&ns, |_| Fault::MangleBody(Box::new(|bytes| bytes.slice(..bytes.len() / 2)))).await;
    let error = routes.get("shop").await.expect_err("half a Route is none");
    assert!(matches!(error, kube::Error::SerdeError(_)), "{error}");
}

#[tokio::test]
async fn a_watch_can_go_silent_break_or_say_something_else() {
    let ns = namespace_with_shop().await;
    RouteFixture::edge("second").create(&ns).await;
    let first = |events: &[kube::Result<WatchEvent<DynamicObject>>]| {
        matches!(events.first(), Some(Ok(WatchEvent::Added(_))))
    };

    let (_stalled, routes) = through(&ns, |_| Fault::Watch(WatchFault::StallAfter(1))).await;
    let mut events = pin!(watched(&routes).await);
    assert!(first(&[events.next().await.expect("one event comes")]));
    tokio::time::timeout(Duration::from_millis(500), events.next())
        .await
        .expect_err("then none, and no end");

    let (_cut, routes) = through(&ns, |_| Fault::Watch(WatchFault::CutAfter(1))).await;
    let events: Vec<_> = tokio::time::timeout(SOON, watched(&routes).await.take(2).collect())
        .await
        .expect("it ends");
    assert!(first(&events) && !matches!(events.get(1), Some(Ok(_))), "{events:?}");

    let line = json!({ "type": "ERROR", "object": { "kind": "Status", "apiVersion": "v1", "code": 410, "message": "too old" } }).to_string();
    let (_injected, routes) =
        through(&ns, move |_| Fault::Watch(WatchFault::Inject { after: 1, line: line.clone() }))
            .await;
    let events: Vec<_> = tokio::time::timeout(SOON, watched(&routes).await.take(3).collect())
        .await
        .expect("it goes on");
    assert!(
        first(&events)
            && matches!(events.get(1), Some(Ok(WatchEvent::Error(status))) if status.code == 410),
        "{events:?}"
    );
    assert!(matches!(events.get(2), Some(Ok(WatchEvent::Added(_)))), "{events:?}");
}

#[tokio::test]
async fn all_connections_can_break_at_once() {
    let ns = namespace_with_shop().await;
    let (proxy, routes) = through(&ns, |_| Fault::Forward).await;
    let mut events = pin!(watched(&routes).await);
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));

    proxy.break_connections();

    let end = tokio::time::timeout(SOON, events.next()).await.expect("the watch ends");
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    routes.get("shop").await.expect("a new connection is welcome");
}
