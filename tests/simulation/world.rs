//! One simulation: an API server, the production controller on a connection that fails by plan, and
//! the users and programs around it. One thread, no socket, and a clock that only advances while
//! every task waits.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use apiserver::{api::ApiServer, faults::FaultyTransport};
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use trustplane::{
    demo::api_server,
    inject::{
        decide::plan::{OnInvalid, Policy},
        run::{Injector, Options},
    },
    k8s::{client, gate::Gate},
    names::INJECT_LEASE,
    runtime::{
        clock::Clock,
        lease::{Candidate, Election},
    },
};

use crate::{
    case::Case,
    faults::{Fault, FaultKind, Faults, Watched},
    journal::{Actor, Call, Commit, Journal, Target},
    tamper,
    wire::Wire,
};

pub const RESYNC: Duration = Duration::from_secs(900);
/// Longer than everything else: repairs by the daily comparison alone come only then.
const COMPARE: Duration = Duration::from_secs(4 * 60 * 60);
/// Longer than any back-off and shorter than a resync, so that repairs by a resync alone come too
/// late.
const SETTLE: Duration = Duration::from_secs(660);
/// Long enough to reconcile the last step without faults.
const REST: Duration = Duration::from_secs(10);
const RESTART: Duration = Duration::from_secs(1);
/// More changes than any simulation makes; plans that need a shorter history compact it.
const HISTORY: usize = 100_000;

pub struct World {
    pub api: ApiServer,
    pub policy: Policy,
    /// Number of calls before the quiet period at the end.
    pub calls_until_quiet: AtomicU32,
    busy_calls: AtomicU32,
    lagging: Mutex<Option<ApiServer>>,
    journal: Mutex<Journal>,
    faults: Mutex<Faults>,
    random: Mutex<fastrand::Rng>,
    replicas: Vec<Replica>,
    registries: Mutex<Vec<Registry>>,
    undecodable: Mutex<Vec<(Watched, Value)>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    start: Instant,
    refuses_lost_versions: bool,
}

#[derive(Default)]
struct Replica {
    /// Number of its process; odd while it runs.
    life: AtomicU32,
    calls: AtomicU32,
    crash: Notify,
    lease: Mutex<Option<watch::Receiver<Option<Instant>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with the lock")
}

/// Noon of a day on which every certificate of the pool is valid.
fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_366_400, 0).expect("a time of day")
}

fn clock(start: Instant, skew: TimeDelta) -> Clock {
    Clock::from_fn(move || {
        let passed = TimeDelta::from_std(start.elapsed()).expect("a simulation is short");
        noon() + passed + skew
    })
}

impl World {
    fn new(case: &Case) -> Arc<Self> {
        let start = Instant::now();
        let store = api_server::store(HISTORY, case.seed);
        let on_invalid = if case.keep { OnInvalid::Keep } else { OnInvalid::Default };
        let world = Self {
            api: api_server::server(store, clock(start, TimeDelta::zero())),
            policy: Policy { on_invalid, ..Policy::default() },
            calls_until_quiet: AtomicU32::new(u32::MAX),
            busy_calls: AtomicU32::new(0),
            lagging: Mutex::default(),
            journal: Mutex::default(),
            faults: Mutex::new(Faults::new(&case.faults)),
            random: Mutex::new(fastrand::Rng::with_seed(case.seed)),
            replicas: (0..case.replicas).map(|_| Replica::default()).collect(),
            registries: Mutex::default(),
            undecodable: Mutex::default(),
            background: Mutex::default(),
            start,
            refuses_lost_versions: case.seed % 2 == 1,
        };
        for name in ["web", "ops", "trustplane"] {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            });
            let path = "/api/v1/namespaces";
            let (code, _) = world.act(Actor::User, Method::POST, path, &namespace);
            assert_eq!(code, 201, "namespace {name}");
        }
        Arc::new(world)
    }

    /// Runs the case to its end, and the controllers until they have settled.
    pub async fn run(case: &Case) -> Arc<Self> {
        let world = Self::new(case);
        let supervisors: Vec<_> = (0..case.replicas)
            .map(|replica| tokio::spawn(world.clone().keep_alive(replica)))
            .collect();
        for (number, step) in case.steps.iter().enumerate() {
            world.begin_faults(number);
            sleep(step.wait).await;
            world.perform(&step.op);
        }
        world.begin_faults(case.steps.len());
        let end = world.faults().end().filter(|_| case.faults_end);
        if let Some(end) = end {
            sleep_until(end).await;
        }
        let background = std::mem::take(&mut *lock(&world.background));
        for task in background {
            task.await.expect("no background work panics");
        }
        sleep(REST).await;
        let busy = world.replicas[0].calls.load(Ordering::Relaxed);
        world.busy_calls.store(busy, Ordering::Relaxed);
        if case.faults_end {
            world.faults().heal();
        }
        if !case.faults_end {
            sleep(RESYNC).await;
        }
        if case.needs_comparison() {
            sleep(COMPARE + RESYNC).await;
        }
        let undecodable = std::mem::take(&mut *lock(&world.undecodable));
        for (watched, object) in undecodable {
            world.touch(watched, &object);
        }
        sleep(SETTLE).await;
        let calls = u32::try_from(world.journal().calls.len()).expect("a simulation is short");
        world.calls_until_quiet.store(calls, Ordering::Relaxed);
        if case.sees_resyncs {
            sleep(2 * RESYNC).await;
        }
        sleep(case.extra_time).await;
        for supervisor in supervisors {
            supervisor.abort();
        }
        world
    }

    fn begin_faults(self: &Arc<Self>, step: usize) {
        let due = self.faults().due(step);
        for fault in due {
            self.begin(fault);
        }
    }

    fn begin(self: &Arc<Self>, fault: Fault) {
        let (now, version) = (Instant::now(), self.api.with(|store| store.version()));
        match &fault.kind {
            FaultKind::Lag => {
                let frozen = self.api.with(|store| store.clone());
                *lock(&self.lagging) =
                    Some(api_server::server(frozen, clock(self.start, TimeDelta::zero())));
                self.crash(0);
            }
            FaultKind::Compact => self.forget_history(),
            FaultKind::Gap(_) => {
                let (world, until) = (self.clone(), now + fault.lasts);
                self.background(async move {
                    sleep_until(until).await;
                    world.forget_history();
                });
            }
            _ => {}
        }
        self.faults().begin(fault, now, version);
    }

    fn forget_history(&self) {
        self.api.with(|store| store.compact(store.version()));
    }

    /// Runs one replica and restarts it when it dies.
    async fn keep_alive(self: Arc<Self>, replica: usize) {
        loop {
            let place = &self.replicas[replica];
            let life = place.life.fetch_add(1, Ordering::Relaxed) + 1;
            let process = tokio::spawn(self.clone().process(replica, life));
            let kill = Kill(process.abort_handle());
            tokio::select! {
                biased;
                () = place.crash.notified() => {}
                _ = process => self.violation("a controller ended by itself".to_owned()),
            }
            drop(kill);
            sleep(RESTART).await;
        }
    }

    /// Like `trustplane inject`, without flags, signals and listeners.
    async fn process(self: Arc<Self>, replica: usize, life: u32) {
        let elects = self.replicas.len() > 1;
        let deadline = Arc::new(watch::Sender::new(None));
        let gate = if elects { Gate::until(deadline.subscribe()) } else { Gate::open() };
        *lock(&self.replicas[replica].lease) = elects.then(|| deadline.subscribe());
        let wire = Wire { world: self.clone(), replica, life };
        let client = client::over(FaultyTransport(wire), gate.clone());
        // Nothing may depend on synchronised clocks.
        let skew = TimeDelta::minutes(10) * i32::try_from(replica).expect("a few replicas");
        let clock = clock(self.start, skew);
        let mut registry = Registry::default();
        let injector = Injector::new(
            client.clone(),
            gate,
            clock.clone(),
            self.options(replica),
            &mut registry,
        );
        lock(&self.registries).push(registry);
        let stop = CancellationToken::new();
        let identity = format!("replica-{replica}-{life}");
        let election = async {
            if !elects {
                return std::future::pending().await;
            }
            let candidate =
                Candidate { namespace: "trustplane".into(), name: INJECT_LEASE, identity };
            let election = Election::new(client, candidate, clock, deadline);
            election.run(stop.clone(), CancellationToken::new()).await;
        };
        tokio::select! {
            biased;
            _ = injector.run(stop.clone()) => {}
            () = election => {}
        }
    }

    fn options(&self, replica: usize) -> Options {
        Options {
            namespaces: Vec::new(),
            policy: tamper::policy(&self.policy),
            concurrency: 4,
            resync: RESYNC,
            watch_timeout: Duration::from_secs(60),
            compare_every: COMPARE,
            judges_in_place: true,
            dry_run: false,
            instance: format!("replica-{replica}"),
        }
    }

    /// Kills the process: it sends nothing more.
    pub fn crash(&self, replica: usize) {
        self.replicas[replica].life.fetch_add(1, Ordering::Relaxed);
        self.replicas[replica].crash.notify_one();
    }

    pub fn is_alive(&self, replica: usize, life: u32) -> bool {
        self.replicas[replica].life.load(Ordering::Relaxed) == life
    }

    pub fn count_call(&self, replica: usize) -> u32 {
        self.replicas[replica].calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls of the first replica until shortly after the last step.
    pub fn busy_calls(&self) -> u32 {
        self.busy_calls.load(Ordering::Relaxed)
    }

    /// Travel time to the API server and back.
    pub fn latency(&self) -> (Duration, Duration) {
        let mut random = lock(&self.random);
        let mut some = || Duration::from_millis(random.u64(1..20));
        (some(), some())
    }

    pub fn roll(&self, sides: usize) -> usize {
        lock(&self.random).usize(..sides)
    }

    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }

    pub fn violation(&self, what: String) {
        self.journal().violations.push(what);
    }

    pub fn record_undecodable(&self, watched: Watched, object: &Value) {
        lock(&self.undecodable).push((watched, object.clone()));
    }

    pub fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        lock(&self.background).push(tokio::spawn(work));
    }

    pub fn server_for(&self, lagging: bool) -> ApiServer {
        let behind = lock(&self.lagging).clone();
        behind.filter(|_| lagging).unwrap_or_else(|| self.api.clone())
    }

    /// For a compacted version some servers answer with an error event, others refuse the watch.
    pub fn refuses_lost_version(&self, uri: &http::Uri) -> bool {
        let mut parameters = uri.query().unwrap_or_default().split('&');
        let version = parameters.find_map(|one| one.strip_prefix("resourceVersion="));
        let Some(version) = version.and_then(|text| text.parse().ok()) else { return false };
        self.refuses_lost_versions && self.api.with(|store| store.changes_since(version).is_err())
    }

    /// Metrics of all processes, in the text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        for registry in lock(&self.registries).iter() {
            prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
        }
        text
    }

    /// Records a request when it is sent, and checks that its sender holds the lease.
    pub fn record_sent(&self, by: Actor, method: &Method, path: &str, target: &Target) -> usize {
        let call = Call {
            by,
            method: method.clone(),
            path: path.to_owned(),
            target: target.clone(),
            sent: Instant::now(),
            answered: None,
        };
        if call.is_write() && !target.is_about("leases") {
            self.check_lease(&call);
        }
        let mut journal = self.journal();
        journal.calls.push(call);
        journal.calls.len() - 1
    }

    fn check_lease(&self, call: &Call) {
        let Actor::Ours { replica, .. } = call.by else { return };
        let holds = |replica: &Replica| {
            let lease = lock(&replica.lease).clone();
            lease.map(|lease| lease.borrow().is_some_and(|deadline| call.sent < deadline))
        };
        if holds(&self.replicas[replica]) == Some(false) {
            self.violation(format!("I7: {} {} was sent without the lease", call.method, call.path));
        }
        for (other, place) in self.replicas.iter().enumerate() {
            if other != replica && holds(place) == Some(true) {
                self.violation(format!("I7: {} was sent while two replicas lead", call.path));
            }
        }
    }

    pub fn record_answered(&self, call: usize, code: u16, body: &Bytes) {
        let mut journal = self.journal();
        let call = &mut journal.calls[call];
        let single = call.target.is_about("secrets") && call.target.name.is_some();
        let object = single.then(|| serde_json::from_slice(body).ok().map(Arc::new)).flatten();
        call.answered = Some((Instant::now(), code, object));
    }

    /// Runs `work`, and records its changes of the store.
    pub fn watch_commits<T>(&self, by: Actor, call: usize, work: impl FnOnce() -> T) -> T {
        let before = self.api.with(|store| store.version());
        let outcome = work();
        let at = Instant::now();
        let mut journal = self.journal();
        self.api.with(|store| {
            let changes = store.changes_since(before);
            for change in changes.ok().into_iter().flatten() {
                journal.commits.push(Commit { at, by, call, change: change.clone() });
            }
        });
        outcome
    }

    /// Sends a request of another actor, without faults.
    pub fn act(&self, by: Actor, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let call = self.record_sent(by, &method, path, &Target::of(path, ""));
        self.watch_commits(by, call, || self.api.request(method, path, body))
    }
}

/// Aborts a task when dropped.
struct Kill(tokio::task::AbortHandle);

impl Drop for Kill {
    fn drop(&mut self) {
        self.0.abort();
    }
}
