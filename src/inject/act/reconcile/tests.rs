//! Reconciles of one Route against an API server that can be told to fail.

mod burst;
mod interrupted;
mod refused;
mod report;

use std::collections::BTreeMap;

use apiserver::patch::merge;
use chrono::TimeDelta;
use http::{Method, Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;
use crate::{
    inject::{
        cache::{
            index::{Arrival, Origin},
            refusals::Retry,
        },
        decide::{facts::tests::Draft, plan::OnInvalid, source::Revision},
        fixtures::{self, failure, respond, secret},
        metrics::Caches,
    },
    k8s::{gate::Gate, queue::Queue},
};

/// One Route, one Secret, Events; faults to set.
#[derive(Default)]
struct World {
    route: Value,
    secret: Option<Value>,
    secret_reads: usize,
    secret_version: u64,
    /// What the answer to a GET of the Secret needs on its way back.
    secret_delay: Duration,
    secret_code: Option<u16>,
    pair_code: Option<u16>,
    status_code: Option<u16>,
    /// So many status writes are answered with 409, then they are taken.
    status_conflicts: usize,
    pair_message: Option<&'static str>,
    route_read_code: Option<u16>,
    refused_events: usize,
    /// What the answer to a write of the Route needs on its way back.
    write_delay: Duration,
    /// So many writes are done, and answered with 504.
    lost_answers: usize,
    /// An admission webhook that takes certificate and key out of every Route.
    strips: bool,
    events: BTreeMap<String, Value>,
    writes: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

impl World {
    /// The reasons of the Events.
    fn reasons(&self) -> Vec<Value> {
        self.events.values().map(|event| event["reason"].clone()).collect()
    }

    /// Changes the Route, with a new version.
    fn change_route(&mut self, change: &Value) {
        merge(&mut self.route, change);
        let version = &mut self.route["metadata"]["resourceVersion"];
        *version = json!((version.as_str().unwrap().parse::<u64>().unwrap() + 1).to_string());
    }
}

fn status(code: u16) -> (u16, Value) {
    failure(code, if code == 404 { "NotFound" } else { "any" })
}

async fn answer(world: &Shared, request: Request<Body>) -> Response<Body> {
    let (method, path, body) = fixtures::read(request).await;
    let mut delay = Duration::ZERO;
    let answer = {
        let mut world = world.lock().unwrap();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        if path.contains("/secrets/") {
            delay = world.secret_delay;
            world.secret_reads += 1;
            match (world.secret_code, &world.secret) {
                (Some(code), _) => status(code),
                (None, Some(secret)) => (200, secret.clone()),
                (None, None) => status(404),
            }
        } else if path.contains("/events") {
            if method != Method::GET && world.refused_events > 0 {
                world.refused_events -= 1;
                status(500)
            } else if method == Method::GET {
                world.events.get(&name).map_or(status(404), |event| (200, event.clone()))
            } else {
                let name = body["metadata"]["name"].as_str().unwrap_or(&name).to_owned();
                let event = world.events.entry(name).or_insert(json!({}));
                merge(event, &body);
                (200, event.clone())
            }
        } else if let Some(code) = world.route_read_code.filter(|_| method == Method::GET) {
            status(code)
        } else if method == Method::GET {
            if world.route.is_null() { status(404) } else { (200, world.route.clone()) }
        } else {
            let kind = if name == "status" { "status" } else { "pair" };
            delay = world.write_delay;
            world.writes.push(kind.to_owned());
            let refusal = match kind {
                "pair" => world.pair_code,
                _ if world.status_conflicts > 0 => {
                    world.status_conflicts -= 1;
                    Some(409)
                }
                _ => world.status_code,
            };
            match refusal {
                Some(code) => {
                    let (code, mut answer) = status(code);
                    let message = world.pair_message.filter(|_| kind == "pair");
                    answer["message"] = json!(message.unwrap_or_default());
                    (code, answer)
                }
                None if body["metadata"]["resourceVersion"]
                    != world.route["metadata"]["resourceVersion"] =>
                {
                    status(409)
                }
                None => {
                    world.change_route(&body);
                    if world.strips {
                        let tls = world.route["spec"]["tls"].as_object_mut().unwrap();
                        tls.retain(|name, _| name == "termination");
                    }
                    if world.lost_answers > 0 {
                        world.lost_answers -= 1;
                        status(504)
                    } else {
                        (200, world.route.clone())
                    }
                }
            }
        }
    };
    tokio::time::sleep(delay).await;
    respond(answer)
}

struct Stage {
    world: Shared,
    reconciler: Reconciler,
    registry: Registry,
    at: ObjectRef,
}

impl Stage {
    fn new(route: Draft, secret: Option<Value>, policy: Policy) -> Self {
        let facts = route.facts();
        let at = facts.at.clone();
        let world = Arc::new(Mutex::new(World { route: route.0, secret, ..World::default() }));
        let served = world.clone();
        let service = service_fn(move |request| {
            let served = served.clone();
            async move { Ok::<_, BoxError>(answer(&served, request).await) }
        });
        let client = Client::new(service, "web");
        let start = Instant::now();
        let noon: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
        let clock = Clock::from_fn(move || noon + TimeDelta::from_std(start.elapsed()).unwrap());
        let mut registry = Registry::default();
        let index = Arc::new(Mutex::new(Index::default()));
        index.lock().unwrap().route_applied(facts, Origin::FirstList, Instant::now());
        let caches = Caches {
            index: index.clone(),
            queue: Arc::new(Queue::default()),
            gate: Gate::open(),
            clock: clock.clone(),
        };
        let reporter = "trustplane.dev/test";
        let publisher = Publisher::new(client.clone(), clock.clone(), reporter, "a".into());
        let reconciler = Reconciler {
            index,
            watch_health: Arc::default(),
            writer: Writer::new(client.clone()),
            publisher,
            client,
            clock,
            metrics: Metrics::register(&mut registry, caches),
            policy,
            dry_run: false,
            keeps_status: true.into(),
            reads: SharedReads::default(),
            judge: Judge::in_place(),
        };
        Self { world, reconciler, registry, at }
    }

    /// As the controller does it after a failed reconcile. Answers when it is tried again.
    async fn report(&self, error: &ApplyError) -> Retry {
        let (failure, retry) = self.reconciler.count_failure(&self.at, error);
        let Some(failure) = failure else { return retry };
        let is_in_status = self.reconciler.write_failure(&failure).await;
        let is_published = self.reconciler.publish_failure(&failure).await;
        if is_in_status && is_published { retry } else { Retry::BackOff }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// The API server has this Secret; answers which Routes the watch makes us look at.
    fn secret(&self, mut secret: Option<Value>) -> Vec<ObjectRef> {
        let name = ObjectRef::new("web", "shop-tls");
        let (mut world, mut index, now) = (self.world(), self.reconciler.index(), Instant::now());
        let concerned = match &mut secret {
            None => index.secret_gone(&name, now),
            Some(secret) => {
                world.secret_version += 1;
                let version = world.secret_version.to_string();
                secret["metadata"]["resourceVersion"] = json!(version);
                index.secret_applied(&name, Revision::of("s", &version), Arrival::Event, now)
            }
        };
        world.secret = secret;
        concerned
    }

    /// Reconciles the Route, and once more for a report that is left.
    async fn reconcile(&self) -> Result<Action, ApplyError> {
        match self.reconciler.reconcile(&self.at, Priority::High).await? {
            Action::ReportLater => self.reconciler.reconcile(&self.at, Priority::Low).await,
            next => Ok(next),
        }
    }

    /// Somebody else writes the Route, and the watch brings it.
    fn foreign(&self, change: &Value) {
        self.world().change_route(change);
        let facts = Draft(self.world().route.clone()).facts();
        self.reconciler.index().route_applied(facts, Origin::Server, Instant::now());
    }

    fn taken_over_by_ingress(&self) {
        let owner = Draft::edge().owned_by("networking.k8s.io/v1", "Ingress").0;
        let owners = &owner["metadata"]["ownerReferences"];
        self.foreign(&json!({"metadata": {"ownerReferences": owners}}));
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    fn condition(&self) -> String {
        let world = self.world();
        let conditions = world.route["status"]["certificate"].as_array().unwrap();
        let holds = conditions.iter().find(|it| it["status"] == "True").unwrap();
        holds["message"].as_str().unwrap().to_owned()
    }
}

fn pair(days: i64) -> (String, String) {
    let mut parameters = rcgen::CertificateParams::new(vec!["shop.example.com".into()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2026 + i32::try_from(days / 365).unwrap(), 6, 1);
    fixtures::signed(&parameters)
}

fn tls_secret((certificate, key): &(String, String)) -> Value {
    secret(certificate, key)
}

fn managed((certificate, key): &(String, String)) -> Draft {
    Draft::edge().annotated("shop-tls").holding(certificate, key).marked()
}

/// A Route that asks for a Secret which does not exist.
fn without_secret() -> Stage {
    Stage::new(Draft::edge().annotated("shop-tls"), None, Policy::default())
}

/// A Route that asks for a good Secret which the watch has brought.
fn annotated(issued: &(String, String)) -> Stage {
    let stage = without_secret();
    stage.secret(Some(tls_secret(issued)));
    stage
}

/// A Route that holds the pair of its Secret, which the watch has brought.
fn holding(issued: &(String, String)) -> Stage {
    let stage = Stage::new(managed(issued), None, Policy::default());
    stage.secret(Some(tls_secret(issued)));
    stage
}

/// As `holding`, where an unusable Secret leaves the last good pair in place.
fn keeping(issued: &(String, String)) -> Stage {
    let policy = Policy { on_invalid: OnInvalid::Keep, ..Policy::default() };
    Stage::new(managed(issued), Some(tls_secret(issued)), policy)
}

#[tokio::test(start_paused = true)]
async fn a_secret_deleted_and_created_anew_within_the_grace_flaps_no_site_however_slow_a_read_is() {
    let issued = pair(0);
    let stage = holding(&issued);
    // Deleted, and one second later there again; the API server's 404 needs six seconds to us.
    stage.secret(None);
    stage.world().secret_delay = Duration::from_secs(6);
    let recreated = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.secret(Some(tls_secret(&issued)));
    };
    let (outcome, ()) = tokio::join!(stage.reconcile(), recreated);
    outcome.unwrap();
    let writes = stage.world().writes.clone();
    assert!(!writes.contains(&"pair".to_owned()), "cleared on the first 404, with no grace at all");
}

#[tokio::test(start_paused = true)]
async fn a_revert_inside_a_relist_gap_reaches_the_route() {
    let (first, second) = (pair(0), pair(0));
    let stage = without_secret();
    stage.secret(Some(tls_secret(&first)));
    // The watch of Secrets is broken; the Route's is not, so its reconcile reads the second pair.
    stage.world().secret = Some(tls_secret(&second));
    stage.reconcile().await.unwrap();
    assert!(stage.world().route["spec"]["tls"]["certificate"] == json!(second.0));
    // The Secret goes back to the first pair, and a relist brings it.
    let concerned = stage.secret(Some(tls_secret(&first)));
    assert_eq!(concerned, [stage.at], "nobody looks at the Route until the next resync");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_comes_back_inside_a_relist_gap_is_injected() {
    let issued = pair(0);
    let stage = annotated(&issued);
    // The watch of Secrets is broken. The Secret is away while the new Route is reconciled.
    stage.world().secret = None;
    stage.reconcile().await.unwrap();
    assert!(stage.condition().contains("was not found"));
    // It is there again, the same as before, and a relist brings it.
    let concerned = stage.secret(Some(tls_secret(&issued)));
    assert_eq!(concerned, [stage.at], "the default certificate is served until the resync");
}

#[tokio::test(start_paused = true)]
async fn the_condition_follows_a_user_who_mends_a_secret_step_by_step() {
    let stage = without_secret();
    let mut said = String::new();
    let values: [&[u8]; 3] = [b"", b"\xff\xfe", b"-----BEGIN"];
    for (step, (certificate, key)) in
        values.iter().flat_map(|one| values.iter().map(move |other| (one, other))).enumerate()
    {
        stage.secret(Some(secret(certificate, key)));
        stage.reconcile().await.unwrap();
        let now = stage.condition();
        assert_ne!(now, said, "step {step}: taken for a fight, it tells of the step before");
        said = now;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_that_the_api_server_refused_once_is_still_given() {
    let stage = without_secret();
    stage.world().refused_events = 1;
    for _ in 0..5 {
        stage.reconcile().await.unwrap();
        // The resync.
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    let told = stage.world().events.len();
    assert_eq!(told, 1, "one lost Event silences the Warning for more than an hour");
}

#[tokio::test(start_paused = true)]
async fn the_expiry_metric_tells_of_the_certificate_in_the_route() {
    let (old, renewed) = (pair(0), pair(730));
    let stage = holding(&old);
    stage.reconcile().await.unwrap();
    let of = |metrics: &str| {
        let lines = metrics.lines().filter(|line| line.contains("not_after_seconds{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = of(&stage.metrics());
    assert_eq!(before.len(), 1);
    // Renewed, but an admission rule refuses the Route: the old certificate is served to its end.
    stage.world().pair_code = Some(403);
    stage.secret(Some(tls_secret(&renewed)));
    stage.reconcile().await.unwrap_err();
    assert_eq!(of(&stage.metrics()), before, "the alert on expiry never fires");
}

#[tokio::test(start_paused = true)]
async fn a_managed_route_that_keeps_its_last_good_pair_has_an_expiry_metric() {
    let issued = pair(0);
    let stage = keeping(&issued);
    stage.secret(Some(tls_secret(&issued)));
    stage.reconcile().await.unwrap();
    assert!(stage.metrics().contains("not_after_seconds{"));
    stage.secret(Some(secret(b"", b"")));
    stage.reconcile().await.unwrap();
    let metrics = stage.metrics();
    assert!(metrics.contains("state=\"Managed\",reason=\"SecretInvalidKeepingLast\""), "{metrics}");
    assert!(metrics.contains("not_after_seconds{"), "the one that nobody renews is not watched");
}

#[tokio::test(start_paused = true)]
async fn a_kept_pair_that_runs_out_is_warned_of() {
    let issued = pair(0);
    let stage = keeping(&issued);
    stage.secret(Some(secret(b"", b"")));
    // Valid until 1 June 2026; now it is March. Looked at every hour until August.
    for _ in 0..24 * 150 {
        stage.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let world = stage.world();
    let reasons = world.reasons();
    assert!(
        reasons.iter().any(|reason| *reason == "CertificateExpired"),
        "only {reasons:?} was said of a Route that serves an expired certificate"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_secret_that_may_not_be_read_says_so() {
    let stage = without_secret();
    stage.world().secret_code = Some(403);
    let error = stage.reconcile().await.unwrap_err();
    stage.report(&error).await;
    let world = stage.world();
    let note = world.events.values().next().unwrap()["note"].as_str().unwrap();
    assert!(note.contains("Secret") && !note.contains("write this Route"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_did_not_keep_is_not_called_managed() {
    let issued = pair(0);
    let stage = annotated(&issued);
    stage.world().strips = true;
    // The answer to the patch shows that the Route has nothing.
    let _ = stage.reconcile().await;
    assert!(stage.world().route["spec"]["tls"]["certificate"].is_null());
    let conditions = stage.world().route["status"]["certificate"].to_string();
    assert!(
        !conditions.contains("has the certificate"),
        "the status says of a Route without a certificate: {conditions}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_event_that_was_written_is_counted() {
    let stage = without_secret();
    stage.reconcile().await.unwrap();
    assert_eq!(stage.world().events.len(), 1, "SecretNotFound was told");
    let metrics = stage.metrics();
    let counted = "trustplane_writes_total{kind=\"event\",outcome=\"ok\"} 1";
    assert!(metrics.contains(counted), "Warnings that last are written but never counted");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_an_ingress_takes_over_is_no_longer_counted_as_managed() {
    let issued = pair(0);
    let stage = holding(&issued);
    stage.reconcile().await.unwrap();
    stage.taken_over_by_ingress();
    stage.reconcile().await.unwrap();
    let metrics = stage.metrics();
    assert!(!metrics.contains("state=\"Managed\""), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_fight_is_told_of_although_the_first_event_was_refused() {
    let stage = annotated(&pair(0));
    let revert = json!({"spec": {"tls": {"certificate": null, "key": null}}});
    for second in 0..3_600 {
        if second == 6 {
            // Six writes were undone by now; the API server is busy for one request.
            stage.world().refused_events = 1;
        }
        stage.reconcile().await.unwrap();
        if !stage.world().route["spec"]["tls"]["key"].is_null() {
            stage.foreign(&revert);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let world = stage.world();
    let told = world.events.values().filter(|event| event["reason"] == "CertificateContested");
    assert_eq!(world.refused_events, 0);
    assert_eq!(told.count(), 1, "the fight has gone on for an hour and nobody was told");
}

#[tokio::test(start_paused = true)]
async fn while_a_fight_is_waited_out_the_condition_does_not_claim_what_is_not_so() {
    let theirs = pair(0);
    let stage = annotated(&pair(0));
    let revert = json!({"spec": {"tls": {"certificate": theirs.0, "key": theirs.1}}});
    for _ in 0..30 {
        stage.reconcile().await.unwrap();
        if stage.world().route["spec"]["tls"]["key"] != json!(theirs.1) {
            stage.foreign(&revert);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(stage.world().route["spec"]["tls"]["certificate"] == json!(theirs.0));
    let condition = stage.condition();
    assert_ne!(condition, "The Route has the certificate of Secret shop-tls.");
}

#[tokio::test(start_paused = true)]
async fn a_route_whose_new_pair_is_refused_is_not_said_to_hold_it() {
    let (old, renewed) = (pair(0), pair(0));
    let stage = holding(&old);
    stage.reconcile().await.unwrap();
    assert_eq!(stage.condition(), "The Route has the certificate of Secret shop-tls.");

    stage.world().pair_code = Some(403);
    stage.secret(Some(tls_secret(&renewed)));
    let error = stage.reconcile().await.unwrap_err();
    stage.report(&error).await;

    assert!(stage.condition().starts_with("trustplane is not allowed to write this Route"));
    let metrics = stage.metrics();
    assert!(metrics.contains("state=\"Managed\",reason=\"InjectionFailed\""), "{metrics}");

    stage.world().pair_code = None;
    stage.reconcile().await.unwrap();
    assert_eq!(stage.condition(), "The Route has the certificate of Secret shop-tls.");
}
