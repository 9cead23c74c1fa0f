//! The wiring.

use std::{convert::Infallible, sync::atomic::AtomicBool};

use chrono::Utc;
use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::*;
use crate::inject::facts::tests::Draft;

fn standby() -> (Arc<Injector>, watch::Sender<Option<Instant>>) {
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
    let (election, deadline) = watch::channel(None);
    let options = Options {
        namespaces: Vec::new(),
        policy: Policy::default(),
        concurrency: 4,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        dry_run: false,
        instance: "standby".into(),
    };
    let client = Client::new(service, "web");
    let gate = Gate::until(deadline);
    let clock = Clock::system();
    (Injector::new(client, gate, clock, options, &mut Registry::default()), election)
}

#[tokio::test]
async fn a_standby_remembers_nothing_of_routes_that_are_gone() {
    let (injector, _election) = standby();
    for number in 0..10_000 {
        // As `follow_routes` does for ADDED and DELETED.
        let facts = Draft::edge().named("ci", &format!("preview-{number}")).facts();
        let at = facts.at.clone();
        if injector.index().route_applied(facts, Instant::now()) {
            injector.queue.add(at.clone());
        }
        injector.route_gone(&at);
    }
    assert_eq!(injector.index().all().len(), 0);
    let depth = injector.queue.depth();
    assert_eq!(depth, 0, "names of Routes that are gone pile up for as long as it stands by");
}

/// One worker whose caches are complete, and no API server worth asking.
fn injector(clock: Clock) -> Arc<Injector> {
    let nothing = service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::builder().status(404).body(Body::empty()).unwrap())
    });
    let options = Options {
        namespaces: vec![],
        policy: Policy { status: StatusScope::Off, ..Policy::default() },
        concurrency: 1,
        resync: Duration::from_secs(600),
        watch_timeout: Duration::from_secs(60),
        dry_run: false,
        instance: "test".to_owned(),
    };
    let client = Client::new(nothing, "web");
    let injector = Injector::new(client, Gate::open(), clock, options, &mut Registry::default());
    for kind in [Kind::Route, Kind::Secret] {
        injector.watch_listed(&Watched { kind, scope: None });
    }
    injector
}

#[tokio::test(start_paused = true)]
async fn a_route_that_makes_a_decision_panic_stops_no_other_and_is_tried_again() {
    let harmless = AtomicBool::new(false);
    let injector = injector(Clock::from_fn(move || {
        assert!(harmless.swap(true, Ordering::SeqCst), "a bug, planted on purpose");
        Utc::now()
    }));
    for name in ["shop", "blog"] {
        let facts = Draft::edge().named("web", name).facts();
        injector.index().route_applied(facts, Instant::now());
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
