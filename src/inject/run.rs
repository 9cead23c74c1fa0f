//! The controller: watches fill the index and the queue, workers reconcile the Routes.

mod watch_tasks;

use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use watch_tasks::hint;

use crate::{
    inject::{
        act::{
            apply::Writer,
            capability::{self, StatusField},
            reconcile::{Action, Failure, Reconciler},
        },
        cache::{
            index::{Index, Scope},
            refusals::Retry,
            secret_reads::{self, Judge, SharedReads},
            watch_health::WatchHealth,
        },
        decide::{
            apply_error::ApplyError,
            plan::{Policy, StatusScope},
        },
        metrics::{Caches, Metrics},
    },
    k8s::{
        api_error::ApiError,
        backoff::Backoff,
        events::Publisher,
        gate::Gate,
        object_ref::ObjectRef,
        queue::{Priority, Queue},
        retry_after::RetryAfter,
    },
    names::INJECT_REPORTER,
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
        lock::lock,
    },
};

/// How often old entries of the caches are dropped.
const TIDY: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub struct Options {
    /// Empty for all.
    pub namespaces: Vec<String>,
    pub policy: Policy,
    pub concurrency: usize,
    /// How often every Route is decided again although nothing changed.
    pub resync: Duration,
    pub watch_timeout: Duration,
    /// Whether plans are only logged.
    pub dry_run: bool,
    /// How often each Secret is read and compared with its Routes although nothing changed.
    pub compare_every: Duration,
    /// Whether pairs are judged on the workers' own threads: the simulator has no others.
    pub judges_in_place: bool,
    /// `reportingInstance` of our Events.
    pub instance: String,
}

/// A page is up to 16 MiB.
const PAGES_AT_ONCE: usize = 2;
/// `Options::compare_every`, unless a test is in a hurry.
pub const COMPARE_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// The Secrets are compared in so many parts, one after the other.
const COMPARED_PARTS: u64 = 144;

pub struct Injector {
    reconciler: Reconciler,
    queue: Arc<Queue<ObjectRef>>,
    gate: Gate,
    options: Options,
    watch_health: Arc<Mutex<WatchHealth>>,
    watch_health_changed: Notify,
    relisted: Notify,
    status_field_known: watch::Sender<bool>,
    failures: Mutex<HashMap<ObjectRef, u32>>,
    pause: RetryAfter,
    /// So many pages are held at once, however many namespaces are served.
    lists: Arc<Semaphore>,
    /// So many conditions, and so many Events, about failures are written at once: an API that takes
    /// none must leave workers for pairs.
    failed_conditions: Semaphore,
    failed_events: Semaphore,
}

impl Injector {
    pub fn new(
        client: Client,
        gate: Gate,
        clock: Clock,
        options: Options,
        registry: &mut Registry,
    ) -> Arc<Self> {
        let index = Arc::new(Mutex::new(Index::default()));
        let queue = Arc::new(Queue::for_workers(options.concurrency));
        let caches = Caches {
            index: index.clone(),
            queue: queue.clone(),
            gate: gate.clone(),
            clock: clock.clone(),
        };
        let instance = options.instance.clone();
        let publisher = Publisher::new(client.clone(), clock.clone(), INJECT_REPORTER, instance);
        let watch_health = Arc::new(Mutex::new(WatchHealth::of(&scopes(&options.namespaces))));
        let reconciler = Reconciler {
            index,
            watch_health: watch_health.clone(),
            writer: Writer::new(client.clone()),
            client,
            publisher,
            clock,
            metrics: Metrics::register(registry, caches),
            policy: options.policy.clone(),
            dry_run: options.dry_run,
            keeps_status: false.into(),
            reads: SharedReads::default(),
            judge: if options.judges_in_place { Judge::in_place() } else { Judge::on_threads() },
        };
        Arc::new(Self {
            reconciler,
            queue,
            gate,
            watch_health,
            watch_health_changed: Notify::new(),
            relisted: Notify::new(),
            status_field_known: watch::Sender::new(options.policy.status == StatusScope::Off),
            failures: Mutex::default(),
            pause: RetryAfter::default(),
            lists: Arc::new(Semaphore::new(PAGES_AT_ONCE)),
            failed_conditions: Semaphore::new((options.concurrency / 4).max(1)),
            failed_events: Semaphore::new((options.concurrency / 4).max(1)),
            options,
        })
    }

    /// What readiness waits for.
    pub fn waiting_for(&self) -> Vec<String> {
        self.watch_health().waiting_for(Instant::now())
    }

    /// Runs until asked to stop; writes that are under way are finished.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), RunError> {
        let mut tasks = JoinSet::new();
        for scope in scopes(&self.options.namespaces) {
            tasks.spawn(self.clone().watch_routes(scope.clone()));
            tasks.spawn(self.clone().watch_secrets(scope));
        }
        if self.options.policy.status != StatusScope::Off {
            tasks.spawn(self.clone().learn_status_field());
        }
        tasks.spawn(self.clone().resync());
        tasks.spawn(self.clone().compare());
        tasks.spawn(self.clone().tidy());
        tasks.spawn(self.clone().log_when_ready());

        let mut workers = JoinSet::new();
        for _ in 0..self.options.concurrency {
            workers.spawn(self.clone().work(stop.clone()));
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(_) = tasks.join_next() => return Err(RunError::WatchEnded),
            Some(_) = workers.join_next(), if !stop.is_cancelled() => {
                if !stop.is_cancelled() {
                    return Err(RunError::WorkerEnded);
                }
            }
        }
        while workers.join_next().await.is_some() {}
        Ok(())
    }

    fn route_gone(&self, at: &ObjectRef) {
        self.index().route_gone(at);
        self.forget(at);
    }

    fn forget(&self, at: &ObjectRef) {
        self.queue.forget(at);
        self.failures().remove(at);
    }

    /// Deciding from half a list would ask the API server for every Secret. A watch that can't be
    /// opened holds nobody up: then the API server is asked.
    async fn ready_to_decide(&self) {
        self.until(WatchHealth::all_tried).await;
        // The sender lives as long as we do, so this can't fail.
        let _ = self.status_field_known.subscribe().wait_for(|known| *known).await;
    }

    async fn until(&self, holds: impl Fn(&WatchHealth) -> bool) {
        loop {
            let changed = self.watch_health_changed.notified();
            if holds(&self.watch_health()) {
                return;
            }
            changed.await;
        }
    }

    async fn learn_status_field(self: Arc<Self>) {
        loop {
            self.relisted.notified().await;
            let mut failures = 0;
            let field = loop {
                match capability::status_field(&self.reconciler.client).await {
                    Ok(field) => break field,
                    Err(error) => {
                        failures += 1;
                        self.status_field_known.send_replace(true);
                        tracing::warn!(%error, "reading the OpenAPI document failed: unknown whether .status.certificate is kept");
                        tokio::time::sleep(Backoff::WATCH.after(failures)).await;
                    }
                }
            };
            let keeps = field == StatusField::Kept;
            if self.reconciler.keeps_status.swap(keeps, Ordering::Relaxed) != keeps {
                self.add_all();
            }
            self.status_field_known.send_replace(true);
        }
    }

    async fn resync(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(self.options.resync);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.add_all();
        }
    }

    /// Compares every Secret with its Routes once a day, a part at a time: the annotation that saves
    /// the read is not proof against everything, an etcd that was restored for one.
    async fn compare(self: Arc<Self>) {
        let parts = u32::try_from(COMPARED_PARTS).unwrap_or(u32::MAX);
        let part_lasts = (self.options.compare_every / parts).max(Duration::from_secs(1));
        let seconds = i64::try_from(part_lasts.as_secs()).unwrap_or(i64::MAX);
        let current = || self.reconciler.clock.now().timestamp().div_euclid(seconds);
        let mut compared = current();
        loop {
            tokio::time::sleep(part_lasts).await;
            let (first, last) = (compared + 1, current());
            compared = last;
            // A standby compares nothing: all that it doubted would be read when it takes over.
            if !self.gate.is_open() {
                continue;
            }
            for part in (first..=last).rev().take(parts as usize) {
                let part = part.unsigned_abs() % COMPARED_PARTS;
                let concerned = self.index().mark_unverified(part, COMPARED_PARTS);
                for route in concerned {
                    self.queue.add_later(route);
                }
            }
        }
    }

    async fn log_when_ready(self: Arc<Self>) {
        self.ready_to_decide().await;
        let (routes, secrets) = self.index().sizes();
        tracing::info!(routes, tls_secrets = secrets, "watches ready");
        // The others of its set are there for good, and one that ends ends the process.
        std::future::pending().await
    }

    async fn tidy(self: Arc<Self>) {
        let mut tidied = Instant::now();
        loop {
            tokio::time::sleep(secret_reads::SHARED).await;
            self.reconciler.reads.tidy();
            if tidied.elapsed() >= TIDY {
                tidied = Instant::now();
                self.reconciler.tidy();
            }
        }
    }

    fn add_all(&self) {
        let all = self.index().all();
        for at in all {
            self.queue.add(at);
        }
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) {
        let mut gate = self.gate.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.ready_to_decide() => {}
        }
        loop {
            let (at, priority) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                next = async {
                    gate.opened().await;
                    let next = self.queue.next().await;
                    self.pause.wait().await;
                    next
                } => next,
            };
            if self.gate.is_open() {
                let report_is_left = self.reconcile(&at, priority).await;
                if report_is_left && stop.is_cancelled() {
                    // A reconcile under way is finished, its report included.
                    self.reconcile(&at, Priority::Low).await;
                }
            } else {
                self.queue.put(at.clone(), Instant::now(), priority);
            }
            self.queue.done(&at);
        }
    }

    /// Answers whether a report is still to be made.
    async fn reconcile(&self, at: &ObjectRef, priority: Priority) -> bool {
        let start = Instant::now();
        // A bug that one Route brings out must not stop the others.
        let outcome =
            AssertUnwindSafe(self.reconciler.reconcile(at, priority)).catch_unwind().await;
        self.reconciler.metrics.reconciled(start.elapsed());
        match outcome {
            // Half-way: the report may still fail, as it may have before.
            Ok(Ok(Action::ReportLater)) => {
                self.queue.add_later(at.clone());
                return true;
            }
            Ok(Ok(next)) => {
                self.failures().remove(at);
                self.index().clear_refusals(at);
                // The next resync finds everything that is due after it: thousands of Routes wait
                // for the end of their certificates, and take no room in the queue.
                if let Action::RequeueAt(again) = next
                    && again <= Instant::now() + self.options.resync
                {
                    self.queue.add_at(at.clone(), again);
                }
            }
            Ok(Err(error)) => self.failed(at, &error).await,
            Err(_panic) => {
                self.reconciler.metrics.failed("panic");
                tracing::error!(route = %at, "reconcile panicked");
                self.back_off(at, Duration::ZERO);
            }
        }
        false
    }

    async fn failed(&self, at: &ObjectRef, error: &ApplyError) {
        self.reconciler.metrics.failed(error.category());
        let at_least = match error.cause() {
            // It holds for all Routes; otherwise each would have to ask for itself.
            Some(ApiError::TooManyRequests { retry_after }) => {
                self.pause.extend(*retry_after);
                *retry_after
            }
            _ => Duration::ZERO,
        };
        let hint = error.cause().map_or("", hint);
        let (failure, retry) = self.reconciler.count_failure(at, error);
        let is_reported = match &failure {
            Some(failure) => self.report_failure(failure).await,
            None => true,
        };
        let again = match retry {
            Retry::AtResync if is_reported => self.options.resync,
            Retry::At(time) if is_reported => {
                self.queue.add_at(at.clone(), time);
                time.duration_since(Instant::now())
            }
            _ => self.back_off(at, at_least),
        };
        tracing::warn!(route = %at, %error, again_in = ?again, "reconcile failed{hint}");
    }

    /// The condition first: it must not wait for Events. Answers whether both were written.
    async fn report_failure(&self, failure: &Failure) -> bool {
        let is_in_status = match self.failed_conditions.try_acquire() {
            Ok(_permit) => self.reconciler.write_failure(failure).await,
            Err(_) => false,
        };
        let is_published = match self.failed_events.try_acquire() {
            Ok(_permit) => self.reconciler.publish_failure(failure).await,
            Err(_) => {
                self.reconciler.postpone_failure(failure);
                false
            }
        };
        is_in_status && is_published
    }

    fn back_off(&self, at: &ObjectRef, at_least: Duration) -> Duration {
        let mut all = self.failures();
        let failures = all.entry(at.clone()).or_default();
        *failures = failures.saturating_add(1);
        let mut wait = Backoff::OBJECT.after(*failures).max(at_least);
        drop(all);
        if failpoints::has(Bug::HammersOnFailure) {
            wait = Duration::from_millis(1);
        }
        self.queue.add_at(at.clone(), Instant::now() + wait);
        wait
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.reconciler.index)
    }

    fn watch_health(&self) -> MutexGuard<'_, WatchHealth> {
        lock(&self.watch_health)
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<ObjectRef, u32>> {
        lock(&self.failures)
    }
}

fn scopes(namespaces: &[String]) -> Vec<Scope> {
    if namespaces.is_empty() {
        vec![None]
    } else {
        let unique: BTreeSet<&String> = namespaces.iter().collect();
        unique.into_iter().map(|namespace| Some(namespace.as_str().into())).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    #[error("a watch ended unexpectedly")]
    WatchEnded,
    #[error("a worker ended unexpectedly")]
    WorkerEnded,
}

#[cfg(test)]
mod tests;
