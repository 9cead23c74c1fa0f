//! The part of a simulation that every job has: an API server, replicas that die and come back, faults
//! by plan, and a journal of everything. One thread, no socket, and a clock that only advances while
//! every task waits.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use apiserver::api::ApiServer;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use trustplane::{demo::api_server, runtime::clock::Clock};

use crate::{
    faults::{Fault, FaultKind, Faults, Watched},
    journal::{Actor, Call, Commit, Journal, Target},
};

const RESTART: Duration = Duration::from_secs(1);
/// More changes than any simulation makes; plans that need a shorter history compact it.
const HISTORY: usize = 100_000;

pub struct Cluster {
    pub api: ApiServer,
    /// Number of calls before the quiet period at the end.
    pub calls_until_quiet: AtomicU32,
    busy_calls: AtomicU32,
    lagging: Mutex<Option<ApiServer>>,
    journal: Mutex<Journal>,
    faults: Mutex<Faults>,
    random: Mutex<fastrand::Rng>,
    replicas: Vec<Replica>,
    undecodable: Mutex<Vec<(Watched, Value)>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    start: Instant,
    refuses_lost_versions: bool,
}

#[derive(Default)]
pub struct Replica {
    /// Number of its process; odd while it runs.
    life: AtomicU32,
    calls: AtomicU32,
    crash: Notify,
    /// It does not come back before then.
    down_until: Mutex<Option<Instant>>,
    lease: Mutex<Option<watch::Receiver<Option<Instant>>>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with the lock")
}

/// Noon of a day on which every certificate of the pool is valid.
pub fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_366_400, 0).expect("a time of day")
}

fn clock(start: Instant, skew: TimeDelta) -> Clock {
    Clock::from_fn(move || {
        let passed = TimeDelta::from_std(start.elapsed()).expect("a simulation is short");
        noon() + passed + skew
    })
}

impl Cluster {
    pub fn new(seed: u64, replicas: usize, faults: &[Fault], namespaces: &[&str]) -> Arc<Self> {
        let start = Instant::now();
        let store = api_server::store(HISTORY, seed);
        let cluster = Self {
            api: api_server::server(store, clock(start, TimeDelta::zero())),
            calls_until_quiet: AtomicU32::new(u32::MAX),
            busy_calls: AtomicU32::new(0),
            lagging: Mutex::default(),
            journal: Mutex::default(),
            faults: Mutex::new(Faults::new(faults)),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            replicas: (0..replicas).map(|_| Replica::default()).collect(),
            undecodable: Mutex::default(),
            background: Mutex::default(),
            start,
            refuses_lost_versions: seed % 2 == 1,
        };
        for name in namespaces {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            });
            let path = "/api/v1/namespaces";
            let (code, _) = cluster.act(Actor::User, Method::POST, path, &namespace);
            assert_eq!(code, 201, "namespace {name}");
        }
        Arc::new(cluster)
    }

    /// The clock of a replica. Nothing may depend on synchronised clocks.
    pub fn clock(&self, skew: TimeDelta) -> Clock {
        clock(self.start, skew)
    }

    pub fn time(&self, at: Instant) -> DateTime<Utc> {
        noon() + TimeDelta::from_std(at - self.start).expect("a simulation is short")
    }

    pub fn elects(&self) -> bool {
        self.replicas.len() > 1
    }

    /// Has the lease of a replica watched.
    pub fn set_lease(&self, replica: usize, lease: Option<watch::Receiver<Option<Instant>>>) {
        *lock(&self.replicas[replica].lease) = lease;
    }

    pub fn begin_faults(self: &Arc<Self>, step: usize) {
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
                let clock = self.clock(TimeDelta::zero());
                *lock(&self.lagging) = Some(api_server::server(frozen, clock));
                self.crash(0);
            }
            FaultKind::Compact => self.forget_history(),
            FaultKind::Gap(_) => {
                let (cluster, until) = (self.clone(), now + fault.lasts);
                self.background(async move {
                    sleep_until(until).await;
                    cluster.forget_history();
                });
            }
            _ => {}
        }
        self.faults().begin(fault, now, version);
    }

    fn forget_history(&self) {
        self.api.with(|store| store.compact(store.version()));
    }

    /// Runs one replica, and restarts it when it dies.
    pub async fn keep_alive<F: Future<Output = ()> + Send + 'static>(
        self: Arc<Self>,
        replica: usize,
        process: impl Fn(u32) -> F,
    ) {
        loop {
            let place = &self.replicas[replica];
            let life = place.life.fetch_add(1, Ordering::Relaxed) + 1;
            let process = tokio::spawn(process(life));
            let kill = Kill(process.abort_handle());
            tokio::select! {
                biased;
                () = place.crash.notified() => {}
                _ = process => self.violation("a controller ended by itself".to_owned()),
            }
            drop(kill);
            sleep(RESTART).await;
            // It may be stopped again while it is down.
            loop {
                let Some(until) = lock(&place.down_until).take() else { break };
                sleep_until(until).await;
            }
        }
    }

    /// Kills the process, and starts it again no earlier than then.
    pub fn stop_until(&self, replica: usize, until: Instant) {
        *lock(&self.replicas[replica].down_until) = Some(until);
        self.crash(replica);
    }

    /// The number of its process, if it runs.
    pub fn life(&self, replica: usize) -> Option<u32> {
        Some(self.replicas[replica].life.load(Ordering::Relaxed)).filter(|life| life % 2 == 1)
    }

    /// Waits for the last fault and for background work, and a moment longer.
    pub async fn rest(&self, rest: Duration, end: Option<Instant>) {
        if let Some(end) = end {
            sleep_until(end).await;
        }
        let background = std::mem::take(&mut *lock(&self.background));
        for task in background {
            task.await.expect("no background work panics");
        }
        sleep(rest).await;
        let busy = self.replicas[0].calls.load(Ordering::Relaxed);
        self.busy_calls.store(busy, Ordering::Relaxed);
    }

    /// From now on nothing should be written.
    pub fn begin_quiet(&self) {
        let calls = u32::try_from(self.journal().calls.len()).expect("a simulation is short");
        self.calls_until_quiet.store(calls, Ordering::Relaxed);
    }

    /// The objects whose events could not be decoded.
    pub fn take_undecodable(&self) -> Vec<(Watched, Value)> {
        std::mem::take(&mut *lock(&self.undecodable))
    }

    /// Kills the process: it sends nothing more.
    pub fn crash(&self, replica: usize) {
        if self.life(replica).is_none() {
            return;
        }
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

    /// Records a request when it is sent.
    pub fn record_sent(&self, by: Actor, method: &Method, path: &str, target: &Target) -> usize {
        let call = Call {
            by,
            method: method.clone(),
            path: path.to_owned(),
            target: target.clone(),
            sent: Instant::now(),
            answered: None,
        };
        let mut journal = self.journal();
        journal.calls.push(call);
        journal.calls.len() - 1
    }

    /// Checks that the sender of a write holds the lease.
    pub fn check_lease(&self, number: usize) {
        let call = self.journal().calls[number].clone();
        let Actor::Ours { replica, .. } = call.by else { return };
        if !call.is_write() || call.target.is_about("leases") {
            return;
        }
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
