//! The whole controller while the API server refuses what it writes.

use std::collections::{BTreeMap, BTreeSet};

use apiserver::patch::merge;
use serde_json::Value;

use super::*;
use crate::inject::{cache::index::Arrival, decide::source::Revision};

/// Why every write of one kind is refused.
type Refusal = Option<(u16, &'static str)>;

/// Routes that ask for one Secret.
#[derive(Default)]
struct Server {
    routes: BTreeMap<String, Value>,
    secret: Value,
    pair_refusal: Refusal,
    status_refusal: Refusal,
    events_hang: bool,
    delay: Duration,
    requests: usize,
    pair_writes: usize,
    status_writes: usize,
    /// Routes that have an Event.
    with_event: BTreeSet<String>,
}

impl Server {
    fn write(&mut self, name: &str, is_status: bool, body: &Value) -> (u16, Value) {
        let (writes, refusal) = match is_status {
            true => (&mut self.status_writes, self.status_refusal),
            false => (&mut self.pair_writes, self.pair_refusal),
        };
        *writes += 1;
        if let Some((code, reason)) = refusal {
            return failure(code, reason);
        }
        let route = self.routes.get_mut(name).unwrap();
        merge(route, body);
        route["metadata"]["resourceVersion"] = json!("99");
        (200, route.clone())
    }
}

async fn answer(server: &Mutex<Server>, request: Request<Body>) -> Response<Body> {
    let (method, path, body) = fixtures::read(request).await;
    let is_event = path.contains("/events");
    if is_event && server.lock().unwrap().events_hang {
        std::future::pending::<()>().await;
    }
    let (delay, answer) = {
        let mut server = server.lock().unwrap();
        server.requests += 1;
        let name = path.trim_end_matches("/status").rsplit('/').next().unwrap();
        let answer = match method == "GET" {
            _ if path.contains("/secrets/") => (200, server.secret.clone()),
            true if is_event => failure(404, "NotFound"),
            false if is_event => {
                server.with_event.extend(body["regarding"]["name"].as_str().map(str::to_owned));
                (201, body)
            }
            true => (200, server.routes[name].clone()),
            false => server.write(name, path.ends_with("/status"), &body),
        };
        (server.delay, answer)
    };
    tokio::time::sleep(delay).await;
    respond(answer)
}

fn shop_tls(version: &str) -> Value {
    let (certificate, key) = issued("shop.example.com");
    let mut secret = fixtures::secret(certificate, key);
    secret["metadata"]["resourceVersion"] = json!(version);
    secret
}

/// The watch brings this version of the Secret; answers the Routes that it concerns.
fn secret_event(injector: &Injector, version: &str) -> Vec<ObjectRef> {
    let (name, revision) = (ObjectRef::new("web", "shop-tls"), Revision::of("s", version));
    injector.index().secret_applied(&name, revision, Arrival::Event, Instant::now())
}

/// Starts a controller that knows the Secret and Routes of these names, and its workers.
fn start(
    server: Server,
    names: impl Iterator<Item = String>,
    workers: usize,
) -> (Arc<Mutex<Server>>, Arc<Injector>) {
    let server = Arc::new(Mutex::new(Server { secret: shop_tls("1"), ..server }));
    let served = server.clone();
    let service = service_fn(move |request| {
        let served = served.clone();
        async move { Ok::<_, BoxError>(answer(&served, request).await) }
    });
    let (start, noon) = (Instant::now(), Utc::now());
    let clock =
        Clock::from_fn(move || noon + chrono::TimeDelta::from_std(start.elapsed()).unwrap());
    let (client, options) = (Client::new(service, "web"), options(workers, Policy::default()));
    let registry = &mut Registry::default();
    let injector = synced(Injector::new(client, Gate::open(), clock, options, registry));
    injector.reconciler.keeps_status.store(true, Ordering::Relaxed);
    injector.status_field_known.send_replace(true);
    for name in names {
        let draft = Draft::edge().named("web", &name).annotated("shop-tls");
        let facts = draft.facts();
        injector.queue.add(facts.at.clone());
        injector.index().route_applied(facts, Origin::FirstList, Instant::now());
        server.lock().unwrap().routes.insert(name, draft.0);
    }
    secret_event(&injector, "1");
    for _ in 0..workers {
        tokio::spawn(injector.clone().work(CancellationToken::new()));
    }
    (server, injector)
}

/// A tenant whose Route is a few bytes below etcd's limit.
#[tokio::test(start_paused = true)]
async fn a_status_that_does_not_fit_is_no_hot_loop() {
    let too_large = Some((413, "RequestEntityTooLarge"));
    let (pair_refusal, status_refusal) = (too_large, too_large);
    let delay = Duration::from_millis(5);
    let refusing = Server { pair_refusal, status_refusal, delay, ..Server::default() };
    let (server, injector) = start(refusing, ["shop".to_owned()].into_iter(), 2);

    tokio::time::sleep(Duration::from_secs(60)).await;
    // A renewal that just fits.
    {
        let mut server = server.lock().unwrap();
        (server.secret, server.pair_refusal) = (shop_tls("2"), None);
    }
    for at in secret_event(&injector, "2") {
        injector.queue.add(at);
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let before = server.lock().unwrap().status_writes;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let server = server.lock().unwrap();
    let (in_a_minute, all) = (server.status_writes - before, server.requests);
    assert!(
        in_a_minute <= 5,
        "{in_a_minute} status patches of one Route in a minute ({before} in the hour before, {all} requests)"
    );
}

/// A webhook refuses every Route, and the API may take no Events. The status can be written.
/// Answers how many Routes say so after some minutes, how many have an Event, and how many writes
/// were refused.
async fn refused(routes: usize, events_hang: bool, minutes: u64) -> (usize, usize, usize) {
    let pair_refusal = Some((500, "InternalError"));
    let delay = Duration::from_millis(20);
    let refusing = Server { pair_refusal, events_hang, delay, ..Server::default() };
    let (server, _) = start(refusing, (0..routes).map(|number| format!("shop-{number}")), 8);
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let server = server.lock().unwrap();
    let said = |route: &&Value| route["status"]["certificate"][0]["reason"] == "InjectionFailed";
    (server.routes.values().filter(said).count(), server.with_event.len(), server.pair_writes)
}

#[tokio::test(start_paused = true)]
async fn refused_writes_of_many_routes_are_said_in_time() {
    let (said, _, tries) = refused(500, false, 2).await;
    assert_eq!(said, 500, "of 500 Routes, after two minutes and {tries} refused writes");
}

#[tokio::test(start_paused = true)]
async fn refused_writes_of_many_routes_get_an_event_each_although_few_workers_may_publish() {
    let (_, told, tries) = refused(500, false, 10).await;
    assert_eq!(told, 500, "of 500 Routes, after ten minutes and {tries} refused writes");
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_said_in_the_condition_while_events_hang() {
    let (said, _, tries) = refused(200, true, 5).await;
    assert_eq!(said, 200, "of 200 Routes, after five minutes and {tries} refused writes");
}
