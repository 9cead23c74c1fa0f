//! Reconciles one Route: decides from the caches and, where they do not suffice or the pair is to be
//! written, again from a fresh read; then writes.
//!
//! A reconcile writes the pair, or reports: Events, warnings, the condition. Reports wait while pairs
//! do: the served certificate matters more.

mod read;
mod report;

pub use report::Failure;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Api, Client};
use tokio::time::Instant;

use read::Knowledge;

use crate::{
    api::route::{CertificateCondition, Route},
    inject::{
        act::apply::Writer,
        cache::{
            index::{Index, Origin, PendingEvent},
            secret_reads::{Judge, ReadPair, SharedReads},
            watch_health::WatchHealth,
            write_backoffs::{LIMITS, WriteBackoffs},
        },
        decide::{
            apply_error::ApplyError,
            facts::{HeldCertificate, RouteFacts, WriteAccess},
            messages,
            plan::{self, Plan, Policy},
            secret_state::SecretState,
            write::Write,
        },
        metrics::Metrics,
    },
    k8s::{
        api_error::{self, ApiError},
        events::Publisher,
        object_ref::ObjectRef,
        queue::Priority,
        revert_backoff::{self, Announcement, Decision},
    },
    names::FIELD_MANAGER,
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
        lock::lock,
    },
};

/// After so many conflicts in a row a Route waits for its back-off.
const CONFLICTS: usize = 3;
/// A Route that is gone, although the watch still has it, is checked again after this long.
const RECHECK: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Reconciler {
    pub index: Arc<Mutex<Index>>,
    pub watch_health: Arc<Mutex<WatchHealth>>,
    pub client: Client,
    pub writer: Writer,
    pub publisher: Publisher,
    pub clock: Clock,
    pub metrics: Metrics,
    pub policy: Policy,
    pub dry_run: bool,
    /// Whether the API server keeps `.status.certificate`.
    pub keeps_status: AtomicBool,
    pub reads: SharedReads,
    pub judge: Judge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    AwaitChange,
    RequeueAt(Instant),
    /// Publish Events and the condition with low priority: Routes that wait for their pairs go first.
    ReportLater,
}

impl From<Option<Instant>> for Action {
    fn from(again: Option<Instant>) -> Self {
        again.map_or(Self::AwaitChange, Self::RequeueAt)
    }
}

impl Reconciler {
    pub async fn reconcile(
        &self,
        at: &ObjectRef,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        let Some(mut route) = self.index().route(at) else { return Ok(Action::AwaitChange) };
        let mut conflicts = 0;
        loop {
            match self.attempt(&route, priority).await {
                Err(error) if error.is_conflict() && conflicts < CONFLICTS => {
                    // Decided again from the new object, never repeated blindly.
                    conflicts += 1;
                    match self.reread(at).await? {
                        Some(new) if failpoints::has(Bug::BlindRetry) => {
                            route.version = RouteFacts::read(&new).version;
                        }
                        Some(reread) => route = RouteFacts::read(&reread),
                        None => return Ok(self.gone(&route)),
                    }
                }
                Err(error) if error.is_not_found() => return self.not_there(&route, error).await,
                done => return done,
            }
        }
    }

    /// A write was answered with 404. A deleted Route's watch event comes, or has come. But a server
    /// that is about to know the Route API again answers 404 too, and no event follows.
    async fn not_there(&self, route: &RouteFacts, error: ApplyError) -> Result<Action, ApplyError> {
        if !self.index().knows(&route.at, &route.uid) {
            return Ok(Action::AwaitChange);
        }
        match self.reread(&route.at).await? {
            // The Route exists; its status subresource, for one, does not.
            Some(there) if there.metadata.uid.as_deref() == Some(&*route.uid) => Err(error),
            _ => Ok(self.gone(route)),
        }
    }

    /// The API server says that there is no such Route.
    fn gone(&self, route: &RouteFacts) -> Action {
        match self.index().knows(&route.at, &route.uid) {
            true => Action::RequeueAt(Instant::now() + RECHECK),
            false => Action::AwaitChange,
        }
    }

    async fn attempt(&self, route: &RouteFacts, priority: Priority) -> Result<Action, ApplyError> {
        match self.knowledge(route) {
            Knowledge::Secret(secret) => self.decide_from_memory(route, &secret, priority).await,
            Knowledge::CaUnchecked => {
                let Some(facts) = self.check_ca(route).await? else { return Ok(self.gone(route)) };
                match self.knowledge(&facts) {
                    Knowledge::Secret(secret) => {
                        self.decide_from_memory(&facts, &secret, priority).await
                    }
                    _ => self.read_and_do(&facts, priority).await,
                }
            }
            Knowledge::SecretUnreadByOurRules if priority == Priority::High => {
                Ok(Action::ReportLater)
            }
            Knowledge::SecretUnreadByOurRules | Knowledge::SecretUnread => {
                self.read_and_do(route, priority).await
            }
        }
    }

    /// Nothing is written from memory: the cache may be older than it seems.
    async fn decide_from_memory(
        &self,
        route: &RouteFacts,
        secret: &SecretState,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        let plan = self.plan(route, secret);
        match plan.write {
            None => self.report_in_full(route, secret, &plan, priority).await,
            Some(_) => self.read_and_do(route, priority).await,
        }
    }

    /// Decides from a read of the Secret, and of the Route where its own `caCertificate` matters.
    async fn read_and_do(
        &self,
        route: &RouteFacts,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        if route.deciding_secret().is_none() || route.ca_certificate().is_none() {
            let read = self.read_secret(route).await?;
            return self.decide_and_do(route, &read.state, read.pair.as_ref(), priority).await;
        }
        let Some(reread) = self.reread(&route.at).await? else { return Ok(self.gone(route)) };
        let mut facts = RouteFacts::read(&reread);
        facts.keep_reading_of(route);
        let read = self.read_secret(&facts).await?;
        match self.ca_problems(&facts, &read, reread.spec.tls).await {
            Some(problems) if !problems.is_empty() => {
                self.decide_and_do(&facts, &SecretState::CaMismatch(problems), None, priority).await
            }
            _ => self.decide_and_do(&facts, &read.state, read.pair.as_ref(), priority).await,
        }
    }

    async fn decide_and_do(
        &self,
        route: &RouteFacts,
        secret: &SecretState,
        pair: Option<&ReadPair>,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        let plan = self.plan(route, secret);
        match plan.write {
            Some(write) => self.write(route, &plan, write, pair).await,
            None => self.report_in_full(route, secret, &plan, priority).await,
        }
    }

    /// As `report`, after a read of the Route where its chain was too long for the watch.
    async fn report_in_full(
        &self,
        route: &RouteFacts,
        secret: &SecretState,
        plan: &Plan,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        if route.certificate != HeldCertificate::Unread {
            return self.report(route, secret, plan, priority).await;
        }
        let Some((facts, _)) = self.examine(route).await? else { return Ok(self.gone(route)) };
        let plan = self.plan(&facts, secret);
        if plan.write.is_some() {
            // It changed meanwhile.
            return Ok(Action::RequeueAt(Instant::now()));
        }
        self.report(&facts, secret, &plan, priority).await
    }

    fn plan(&self, route: &RouteFacts, secret: &SecretState) -> Plan {
        let mut plan = plan::plan(route, secret, self.clock.now(), &self.policy);
        if !self.keeps_status() {
            plan.conditions = None;
        }
        plan
    }

    fn keeps_status(&self) -> bool {
        self.keeps_status.load(Ordering::Relaxed)
    }

    async fn write(
        &self,
        route: &RouteFacts,
        plan: &Plan,
        write: Write,
        pair: Option<&ReadPair>,
    ) -> Result<Action, ApplyError> {
        if self.dry_run {
            return Ok(self.log_plan(route, plan));
        }
        if let (true, Some(early)) = (failpoints::has(Bug::StatusFirst), &plan.conditions) {
            self.writer.write_status(route, early).await?;
        }
        if let Some(wait) = self.reverted(route, write).await {
            self.write_interim_status(route, messages::contested_interim()).await?;
            return Ok(Action::RequeueAt(wait));
        }
        if self.index().is_too_large(&route.at, digest_of(write), Instant::now()) {
            let cause = ApiError::RequestTooLarge;
            return Err(ApplyError::Pair { route: route.at.clone(), cause });
        }
        let now_is = self.write_pair(route, plan, write, pair).await?;
        if !write.is_done_in(&now_is) {
            // Something between us and the store changed our write, so the planned report is wrong;
            // the next reconcile counts it as undone.
            return Ok(Action::RequeueAt(Instant::now()));
        }
        self.record_state(route, plan);
        Ok(Action::ReportLater)
    }

    /// Reports on a Route whose pair is as it should be.
    async fn report(
        &self,
        route: &RouteFacts,
        secret: &SecretState,
        plan: &Plan,
        priority: Priority,
    ) -> Result<Action, ApplyError> {
        if self.dry_run {
            return Ok(self.log_plan(route, plan));
        }
        // The verdict is about the pair, so it holds whether or not it can be published.
        self.record_state(route, plan);
        // Nothing is certain before the grace of a missing Secret ends, and that does not wait.
        let grace = plan.requeue_at.filter(|_| plan.verdict.is_none());
        if priority == Priority::High && self.has_something_to_report(route, plan) {
            return Ok(grace.map_or(Action::ReportLater, |_| self.requeue_at(grace).into()));
        }
        let retry = match grace {
            Some(_) => None,
            None => self.publish_pending(route, secret).await,
        };
        let renewal = earlier(retry, self.warn(route, plan).await);
        if let Some(conditions) = &plan.conditions
            && let Some(wait) = self.write_status(route, plan, conditions).await?
        {
            return Ok(earlier(renewal, Some(wait)).into());
        }
        Ok(earlier(renewal, self.requeue_at(plan.requeue_at)).into())
    }

    fn has_something_to_report(&self, route: &RouteFacts, plan: &Plan) -> bool {
        plan.conditions.is_some()
            || !plan.warnings.is_empty()
            || self.index().has_pending(&route.at)
    }

    fn log_plan(&self, route: &RouteFacts, plan: &Plan) -> Action {
        if plan.is_nothing() {
            self.record_state(route, plan);
        } else {
            let result = plan.verdict.as_ref().map(|verdict| &verdict.message);
            tracing::info!(route = %route.at, result, "would {}", messages::doing(plan.write));
            tracing::debug!(route = %route.at, row = plan.row, ?plan, "full plan");
        }
        self.requeue_at(plan.requeue_at).into()
    }

    async fn write_pair(
        &self,
        route: &RouteFacts,
        plan: &Plan,
        write: Write,
        pair: Option<&ReadPair>,
    ) -> Result<RouteFacts, ApplyError> {
        // Asked first: the watch may bring our own write before its answer comes.
        let changed = self.index().caused_by_secret(route);
        let written = self.writer.write(route, write, pair).await;
        self.metrics.wrote("pair", written.as_ref().map_or_else(ApplyError::category, |_| "ok"));
        let cause = written.as_ref().err().and_then(ApplyError::cause);
        if cause == Some(&ApiError::RequestTooLarge) {
            self.with_backoffs(route, |backoffs| {
                let refusals = backoffs.refusals.get_or_insert_default();
                refusals.too_large(digest_of(write), Instant::now());
            });
        }
        // Where the answer is lost, the Event is published if the Route turns out to hold the pair.
        if written.is_ok() || cause.is_some_and(ApiError::may_be_done) {
            let event = plan.event.filter(|_| !failpoints::has(Bug::HappenedNeverTold));
            if let Some(write) = event {
                let event = PendingEvent { write, since: Instant::now() };
                self.index().keep_pending(&route.at, &route.uid, event);
            }
        }
        let written = written?;
        log_write(&written, plan, write);
        if let (Write::Inject(_), Some(changed)) = (write, changed) {
            self.metrics.reached_route(changed);
        }
        let origin = if write.is_done_in(&written) { Origin::OwnPair } else { Origin::OwnStatus };
        self.index().route_written(written.clone(), origin, Instant::now());
        self.with_backoffs(route, |backoffs| {
            backoffs.pair.written(&LIMITS, Instant::now());
            backoffs.refusals = None;
        });
        Ok(written)
    }

    /// Answers when to try again where something else keeps dropping the condition.
    async fn write_status(
        &self,
        route: &RouteFacts,
        plan: &Plan,
        conditions: &[CertificateCondition],
    ) -> Result<Option<Instant>, ApplyError> {
        let verdict = plan.verdict.as_ref().map(revert_backoff::digest);
        let decision = self.with_backoffs(route, |backoffs| {
            backoffs.status.decide(&LIMITS, verdict, Instant::now())
        });
        if let Decision::Wait(until, _) = decision {
            return Ok(Some(until));
        }
        let written = self.writer.write_status(route, conditions).await;
        self.metrics.wrote("status", written.as_ref().map_or_else(ApplyError::category, |_| "ok"));
        self.index().route_written(written?, Origin::OwnStatus, Instant::now());
        self.with_backoffs(route, |backoffs| backoffs.status.written(&LIMITS, Instant::now()));
        Ok(None)
    }

    /// Answers when to try again where something else keeps undoing this write.
    async fn reverted(&self, route: &RouteFacts, write: Write) -> Option<Instant> {
        let decision = self.with_backoffs(route, |backoffs| {
            backoffs.pair.decide(&LIMITS, digest_of(write), Instant::now())
        });
        let Decision::Wait(until, announcement) = decision else { return None };
        if announcement == Announcement::Due {
            let manager = self.newest_other_manager(&route.at).await;
            tracing::warn!(route = %route.at, manager, "injected certificate reverted repeatedly");
            if !self.publish(route, &messages::contested(manager.as_deref())).await {
                self.with_backoffs(route, |backoffs| backoffs.pair.not_announced());
            }
        }
        Some(until)
    }

    async fn newest_other_manager(&self, at: &ObjectRef) -> Option<String> {
        let api: Api<Route> = Api::namespaced(self.client.clone(), &at.namespace);
        let read = api_error::with_timeout(api.get_metadata_opt(&at.name)).await.ok()??;
        let managers = read.metadata.managed_fields.unwrap_or_default();
        managers
            .into_iter()
            .filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER))
            .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
            // Times are whole seconds: of two in the same one, the owner of the pair is meant.
            .max_by_key(|entry| (entry.time.clone(), owns_pair(entry)))
            .and_then(|entry| entry.manager)
    }

    fn record_state(&self, route: &RouteFacts, plan: &Plan) {
        match &plan.verdict {
            Some(verdict) => self.index().set_last_state(&route.at, verdict.state, verdict.reason),
            None if route.write_access != WriteAccess::Free => {
                self.index().clear_last_state(&route.at)
            }
            // The grace of a missing Secret: it is still what it was.
            None => {}
        }
    }

    fn requeue_at(&self, at: Option<DateTime<Utc>>) -> Option<Instant> {
        // Timers have a range, certificates of a hundred years do not care.
        at.map(|at| Instant::now() + self.clock.until(at).min(LONGEST_WAIT))
    }

    /// Forgets finished back-offs and old Events.
    pub fn tidy(&self) {
        self.index().tidy(Instant::now());
        self.judge.tidy();
        self.publisher.forget_old();
    }

    fn with_backoffs<T>(&self, route: &RouteFacts, ask: impl FnOnce(&mut WriteBackoffs) -> T) -> T {
        match self.index().backoffs(&route.at, &route.uid) {
            Some(backoffs) => ask(backoffs),
            None => ask(&mut WriteBackoffs::default()),
        }
    }

    fn watch_health(&self) -> MutexGuard<'_, WatchHealth> {
        lock(&self.watch_health)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }
}

/// A pair that is removed because of a problem is logged as a warning.
fn log_write(route: &RouteFacts, plan: &Plan, write: Write) {
    let secret = route.secret().map(|secret| secret.name).unwrap_or_default();
    let secret = &*secret;
    let result = match plan.event {
        Some(write) => messages::completed(write, route).note,
        None => plan.verdict.as_ref().map(|verdict| verdict.message.clone()).unwrap_or_default(),
    };
    let change = messages::doing(Some(write));
    match write.target() {
        None if !plan.warnings.is_empty() => {
            tracing::warn!(route = %route.at, secret, change, result, "route patched");
        }
        _ => tracing::info!(route = %route.at, secret, change, result, "route patched"),
    }
}

/// Stands for the pair that is written; none where one is taken out.
fn digest_of(write: Write) -> Option<u64> {
    write.target().as_ref().map(revert_backoff::digest)
}

fn owns_pair(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:spec"]["f:tls"]);
    fields.is_some_and(|tls| tls.get("f:certificate").is_some() || tls.get("f:key").is_some())
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
