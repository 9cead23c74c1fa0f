//! The wiring.

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
