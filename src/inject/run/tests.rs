//! The wiring.

mod failing;

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicU16},
};

use chrono::Utc;
use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::*;
use crate::inject::{
    cache::{
        index::Origin,
        secret_reads::SecretRead,
        watch_health::{Kind, Watched},
    },
    decide::facts::tests::Draft,
    fixtures::{self, failure, issued, respond},
};

fn standby() -> (Arc<Injector>, watch::Sender<Option<Instant>>) {
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
    let (election, deadline) = watch::channel(None);
    let (client, gate) = (Client::new(service, "web"), Gate::until(deadline));
    let (clock, options) = (Clock::system(), options(4, Policy::default()));
    (Injector::new(client, gate, clock, options, &mut Registry::default()), election)
}

fn options(concurrency: usize, policy: Policy) -> Options {
    Options {
        namespaces: Vec::new(),
        policy,
        concurrency,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        compare_every: COMPARE_EVERY,
        judges_in_place: true,
        dry_run: false,
        instance: "test".to_owned(),
    }
}

#[tokio::test]
async fn a_standby_remembers_nothing_of_routes_that_are_gone() {
    let (injector, _election) = standby();
    for number in 0..10_000 {
        // As `watch_routes` does for ADDED and DELETED.
        let facts = Draft::edge().named("ci", &format!("preview-{number}")).facts();
        let at = facts.at.clone();
        let changed = injector.index().route_applied(facts, Origin::Server, Instant::now());
        injector.queue.add(changed.unwrap());
        injector.route_gone(&at);
    }
    assert_eq!(injector.index().all().len(), 0);
    let depth = injector.queue.depth();
    assert_eq!(depth, 0, "names of Routes that are gone pile up for as long as it stands by");
}

/// A server that refuses everything with the code of the moment, and asks for half a minute.
fn refusing(code: Arc<AtomicU16>) -> Client {
    let server = service_fn(move |_: Request<Body>| {
        let code = code.load(Ordering::SeqCst);
        let reason = if code == 404 { "NotFound" } else { "Unknown" };
        let answer = refusal_for(30, code, reason);
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(server, "web")
}

fn refusal_for(seconds: u64, code: u16, reason: &str) -> Response<Body> {
    let (code, mut status) = failure(code, reason);
    status["details"] = json!({ "retryAfterSeconds": seconds });
    respond((code, status))
}

/// A controller that knows nothing yet.
fn starting(client: Client, gate: Gate, clock: Clock) -> Arc<Injector> {
    let policy = Policy { status: StatusScope::Off, ..Policy::default() };
    Injector::new(client, gate, clock, options(1, policy), &mut Registry::default())
}

/// A controller whose caches are complete.
fn injector(client: Client, clock: Clock) -> Arc<Injector> {
    synced(starting(client, Gate::open(), clock))
}

fn synced(injector: Arc<Injector>) -> Arc<Injector> {
    for watched in watches() {
        injector.watch_listed(&watched);
    }
    injector
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

fn watches() -> [Watched; 2] {
    [Kind::Route, Kind::Secret].map(|kind| Watched { kind, scope: None })
}

/// A Route that asks for a Secret, which only the server can tell of.
fn annotated(injector: &Injector) -> ObjectRef {
    let facts = Draft::edge().annotated("shop-tls").facts();
    let at = facts.at.clone();
    injector.index().route_applied(facts, Origin::Server, Instant::now());
    at
}

/// Reconciles the Route; answers after how long the next one is due.
async fn reconcile(injector: &Injector, at: &ObjectRef) -> Duration {
    injector.reconcile(at, Priority::Low).await;
    let start = Instant::now();
    assert_eq!(injector.queue.next().await.0, *at);
    injector.queue.done(at);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_route_that_makes_a_decision_panic_stops_no_other_and_is_tried_again() {
    let harmless = AtomicBool::new(false);
    let clock = Clock::from_fn(move || {
        assert!(harmless.swap(true, Ordering::SeqCst), "a bug, planted on purpose");
        Utc::now()
    });
    let injector = injector(refusing(Arc::new(404.into())), clock);
    for name in ["shop", "blog"] {
        let facts = Draft::edge().named("web", name).facts();
        injector.index().route_applied(facts, Origin::Server, Instant::now());
        injector.queue.add(ObjectRef::new("web", name));
    }
    let worker = tokio::spawn(injector.clone().work(CancellationToken::new()));

    tokio::time::sleep(Backoff::OBJECT.first / 4).await;
    assert!(!worker.is_finished(), "the only worker is gone");
    let settled = || injector.index().states().values().sum::<u64>();
    assert_eq!(settled(), 1, "the other Route got its turn");
    tokio::time::sleep(Backoff::OBJECT.first).await;
    assert_eq!(settled(), 2, "and it after its back-off");
    worker.abort();
}

#[tokio::test(start_paused = true)]
async fn a_routes_waits_grow_while_it_fails_and_start_anew_after_a_success() {
    let code = Arc::new(AtomicU16::new(500));
    let injector = injector(refusing(code.clone()), Clock::system());
    let at = annotated(&injector);
    for failures in 1..=6 {
        let longest = Backoff::OBJECT.ceiling(failures);
        let wait = reconcile(&injector, &at).await;
        // Timers are whole milliseconds.
        let range = longest / 2..=longest + Duration::from_millis(1);
        assert!(range.contains(&wait), "{wait:?} after {failures}");
    }
    code.store(404, Ordering::SeqCst);
    injector.reconcile(&at, Priority::Low).await;
    assert_eq!(injector.index().states().len(), 1, "there is no such Secret, and that is known");

    code.store(500, Ordering::SeqCst);
    injector.secret_gone(&ObjectRef::new("web", "shop-tls"));
    let wait = reconcile(&injector, &at).await;
    assert!(wait <= Backoff::OBJECT.first + Duration::from_millis(1), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_gets_it() {
    let injector = injector(refusing(Arc::new(429.into())), Clock::system());
    let at = annotated(&injector);
    let wait = reconcile(&injector, &at).await;
    assert!(wait >= Duration::from_secs(30), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_is_not_asked_by_all_the_others_meanwhile() {
    let asked = Arc::new(AtomicU16::new(0));
    let counted = asked.clone();
    let server = service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let answer = refusal_for(10, 429, "TooManyRequests");
        async move { Ok::<_, Infallible>(answer) }
    });
    let injector = injector(Client::new(server, "web"), Clock::system());
    for number in 0..100 {
        let facts = Draft::edge().annotated("shop-tls").named("web", &format!("shop-{number}"));
        let changed = injector.index().route_applied(facts.facts(), Origin::Server, Instant::now());
        injector.queue.add(changed.unwrap());
    }
    let worker = tokio::spawn(injector.clone().work(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one worker, and each Route asked for itself");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked = asked.load(Ordering::SeqCst);
    assert!((2..=3).contains(&asked), "{asked} requests in half a minute");
    worker.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_from_half_a_list_but_a_watch_that_fails_holds_nobody_up() {
    let injector = starting(refusing(Arc::new(404.into())), Gate::open(), Clock::system());
    injector.queue.add(annotated(&injector));
    let worker = tokio::spawn(injector.clone().work(CancellationToken::new()));
    let [routes, secrets] = &watches();
    let settled = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        injector.index().states().len()
    };
    assert_eq!(settled().await, 0, "both are being listed");
    injector.watch_listed(routes);
    assert_eq!(settled().await, 0, "one is being listed");
    injector.watch_failing(secrets, ApiError::Forbidden, 1);
    assert_eq!(settled().await, 1);
    worker.abort();
}

#[tokio::test]
async fn a_watch_that_breaks_after_its_list_leaves_the_controller_ready() {
    let injector = starting(refusing(Arc::new(404.into())), Gate::open(), Clock::system());
    let watches = watches();
    injector.watch_failing(&watches[0], ApiError::Gone, 1);
    assert_eq!(injector.waiting_for().len(), 2, "no list came");
    for watched in &watches {
        injector.watch_listed(watched);
    }
    assert_eq!(injector.waiting_for(), Vec::<String>::new());
    injector.watch_failing(&watches[0], ApiError::Gone, 1);
    assert_eq!(injector.waiting_for(), Vec::<String>::new(), "its cache is complete");
}

#[tokio::test(start_paused = true)]
async fn every_route_gets_a_turn_at_every_resync() {
    let injector = injector(refusing(Arc::new(404.into())), Clock::system());
    let at = annotated(&injector);
    let start = Instant::now();
    let resync = tokio::spawn(injector.clone().resync());
    for turn in 1..=3 {
        let next = tokio::time::timeout(Duration::from_secs(601), injector.queue.next()).await;
        assert_eq!(next, Ok((at.clone(), Priority::High)));
        injector.queue.done(&at);
        assert_eq!(start.elapsed().as_secs(), 600 * turn);
    }
    resync.abort();
}

#[tokio::test(start_paused = true)]
async fn a_route_that_can_no_longer_be_decoded_is_not_decided_from_what_it_was() {
    let server = service_fn(async |request: Request<Body>| {
        let shop = |spec| {
            json!({
                "apiVersion": "route.openshift.io/v1", "kind": "Route", "spec": spec,
                "metadata": { "name": "shop", "namespace": "web", "uid": "1", "resourceVersion": "7" },
            })
        };
        let list = json!({
            "metadata": { "resourceVersion": "7" }, "items": [shop(json!({ "host": "a" }))],
        });
        let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}", shop(json!("a text")));
        if is_watch(&request) {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let text = if is_watch(&request) { format!("{event}\n") } else { list.to_string() };
        Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes())))
    });
    let injector = starting(Client::new(server, "web"), Gate::open(), Clock::system());
    let follower = tokio::spawn(injector.clone().watch_routes(None));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(injector.index().all(), [ObjectRef::new("web", "shop")]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(injector.index().all(), []);
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn a_route_whose_turn_comes_after_the_lease_was_lost_waits_until_it_is_held_again() {
    let in_five = Instant::now() + Duration::from_secs(5);
    let (lease, deadline) = watch::channel(Some(in_five));
    let client = refusing(Arc::new(404.into()));
    let injector = synced(starting(client, Gate::until(deadline), Clock::system()));
    let worker = tokio::spawn(injector.clone().work(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(6)).await;
    injector.queue.add(annotated(&injector));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(injector.index().states().len(), 0, "nothing is decided without the lease");

    lease.send_replace(Some(Instant::now() + Duration::from_secs(5)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(injector.index().states().len(), 1);
    worker.abort();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_read_for_many_routes_is_gone_from_memory_seconds_later() {
    let injector = injector(refusing(Arc::new(404.into())), Clock::system());
    let tidy = tokio::spawn(injector.clone().tidy());
    let read = Arc::new(SecretRead::missing(Utc::now()));
    let held = Arc::downgrade(&read);
    let read = async { Ok::<_, Infallible>(Some(read)) };
    let at = ObjectRef::new("web", "shop-tls");
    let shared = injector.reconciler.reads.share(&at, Instant::now(), read).await;
    drop(shared);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(held.upgrade().is_none(), "it is held for as long as nobody else reads a Secret");
    tidy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_went_while_the_watch_was_down_is_cleared_although_it_was_read_just_before() {
    let (certificate, key) = issued("shop.example.com");
    let clears = Arc::new(AtomicU16::new(0));
    let counted = clears.clone();
    // Lists no Secrets; each single one is not there; takes every patch of a Route.
    let server = service_fn(move |request: Request<Body>| {
        let counted = counted.clone();
        async move {
            if is_watch(&request) {
                std::future::pending::<()>().await;
            }
            let answer = if request.method() == http::Method::PATCH {
                counted.fetch_add(1, Ordering::SeqCst);
                (200, Draft::edge().annotated("shop-tls").version("42").0)
            } else if request.uri().path().ends_with("/secrets") {
                (200, json!({ "metadata": { "resourceVersion": "7" }, "items": [] }))
            } else {
                failure(404, "NotFound")
            };
            Ok::<_, Infallible>(respond(answer))
        }
    });
    let injector = starting(Client::new(server, "web"), Gate::open(), Clock::system());
    let managed = Draft::edge().annotated("shop-tls").holding(&certificate, &key).marked();
    let other = Draft::edge()
        .annotated("shop-tls")
        .named("web", "blog")
        .owned_by("networking.k8s.io/v1", "Ingress");
    for draft in [managed, other] {
        injector.index().route_applied(draft.facts(), Origin::Server, Instant::now());
    }
    // One read for both Routes, a moment before the watch broke and the Secret was deleted.
    let secret = serde_json::from_value(fixtures::secret(&certificate, &key)).unwrap();
    let read = async { Ok::<_, Infallible>(Some(Arc::new(SecretRead::judge(&secret)))) };
    let at = ObjectRef::new("web", "shop-tls");
    drop(injector.reconciler.reads.share(&at, Instant::now(), read).await);

    // The watch is back, with a list that lacks the Secret.
    injector.watch_listed(&watches()[0]);
    let follower = tokio::spawn(injector.clone().watch_secrets(None));
    let worker = tokio::spawn(injector.clone().work(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(clears.load(Ordering::SeqCst), 1, "the pair of a Secret that is gone stays");
    worker.abort();
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_not_believed_while_it_is_being_listed_anew_however_long_that_takes() {
    let lists = Arc::new(AtomicU16::new(0));
    let counted = lists.clone();
    // The first list comes at once, its watch is gone, and the second list needs a minute: a
    // hundred and more pages of a server that is busy.
    let server = service_fn(move |request: Request<Body>| {
        let counted = counted.clone();
        async move {
            if is_watch(&request) {
                return Ok::<_, Infallible>(respond(failure(410, "Expired")));
            }
            if counted.fetch_add(1, Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Ok(respond((200, json!({ "metadata": { "resourceVersion": "7" }, "items": [] }))))
        }
    });
    let injector = starting(Client::new(server, "web"), Gate::open(), Clock::system());
    injector.watch_listed(&watches()[0]);
    let follower = tokio::spawn(injector.clone().watch_secrets(None));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lists.load(Ordering::SeqCst), 2, "it is being listed again");
    let current = injector.watch_health().secrets_are_current("web", Instant::now());
    assert!(!current, "what was before the gap is taken for what is");
    follower.abort();
}
