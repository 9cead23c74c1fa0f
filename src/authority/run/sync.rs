//! Syncs one federation, and what only the leader does around it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::{Authority, FederationKey, source::counting};
use crate::{
    api::spiffe_federation::{SpiffeFederation, SpiffeFederationStatus},
    authority::decide::{
        audit::{self, Audited, Record},
        eligibility,
        endpoint::Source,
        problem::Problem,
        summary::Summary,
        sync::{self, Due, Outcome, Received, SYNCED, SyncEvent, TRUSTED},
    },
    k8s::{
        api_error::ApiError,
        backoff::Backoff,
        events::{Message, Reported},
        queue::Priority,
    },
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
    spiffe::id::TrustDomain,
};

/// How a reconcile ended.
pub(super) enum Progress {
    /// Nothing is to be done before then.
    Until(Option<DateTime<Utc>>),
    Failed(ApiError),
    /// The audit log can't be written, so nothing else is done.
    NotAudited,
    /// This replica leads, and does not know yet what was audited.
    NotReady,
}

/// A sync that is under way. The object itself may be large, and is read again after the fetch.
struct Attempt {
    /// Of the object that the source was decided from.
    outline: SpiffeFederation,
    source: Result<Source, Problem>,
    is_audited: bool,
}

impl From<ApiError> for Progress {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl Authority {
    /// Reads what the audit log knows, and looks at every federation, each time that this replica
    /// becomes the leader.
    pub(super) async fn lead(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            self.gate.clone().opened().await;
            match self.writer.load_audited().await {
                Ok(audited) => {
                    failures = 0;
                    *lock(&self.audited) = Some(audited);
                    let names: Vec<_> = lock(&self.federations).keys().cloned().collect();
                    names.iter().for_each(|name| self.enqueue(name));
                    self.enqueue_audited();
                    self.gate.clone().closed().await;
                    *lock(&self.audited) = None;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "reading the list of audited federations failed");
                    tokio::time::sleep(Backoff::OBJECT.after(failures)).await;
                }
            }
        }
    }

    /// `None` after a panic.
    pub(super) fn requeue(&self, key: &FederationKey, progress: Option<Progress>) {
        let name = &*key.0;
        let (wait, priority) = match progress {
            Some(Progress::Until(None)) => {
                lock(&self.failures).remove(name);
                return;
            }
            Some(Progress::Until(Some(at))) => {
                lock(&self.failures).remove(name);
                (self.clock.until(at), self.priority(name))
            }
            Some(Progress::NotReady) => (std::time::Duration::from_secs(1), Priority::High),
            Some(Progress::Failed(error)) => {
                tracing::warn!(federation = name, %error, "API call failed");
                self.metrics.api_failed(error.category());
                (Backoff::OBJECT.after(self.count_failure(name)), Priority::High)
            }
            Some(Progress::NotAudited) => {
                (Backoff::OBJECT.after(self.count_failure(name)), Priority::High)
            }
            None => {
                tracing::error!(federation = name, "sync crashed; please report it");
                (Backoff::OBJECT.longest, Priority::Low)
            }
        };
        let at = Instant::now().checked_add(wait);
        if let Some(at) = at {
            self.queue.put(key.clone(), at, priority);
        }
    }

    fn count_failure(&self, name: &str) -> u32 {
        let mut failures = lock(&self.failures);
        let count = failures.entry(name.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// One that failed last must not delay those that live.
    fn priority(&self, name: &str) -> Priority {
        let known = lock(&self.federations);
        let synced = known.get(name).and_then(|it| it.outline.condition(SYNCED));
        match synced.is_some_and(|it| it.status == "False") {
            true => Priority::Low,
            false => Priority::High,
        }
    }

    pub(super) async fn reconcile(&self, name: &str) -> Progress {
        if !self.may_sync() || !*lock(&self.is_listed) || lock(&self.audited).is_none() {
            return Progress::NotReady;
        }
        let known = lock(&self.federations).get(name).cloned();
        let uid = known.as_ref().map(|it| it.outline.uid());
        if let Err(progress) = self.audit_deletion(name, uid).await {
            return progress;
        }
        match known {
            Some(known) => self.sync(&known).await.unwrap_or_else(|progress| progress),
            None => Progress::Until(None),
        }
    }

    async fn sync(&self, known: &Summary) -> Result<Progress, Progress> {
        self.note_again(&known.outline).await?;
        let now = self.clock.now();
        let is_eligible = self.trust_domain_of(&known.outline).is_ok();
        let due = sync::due(&known.outline, is_eligible, &self.options.sync, now);
        // Most reconciles follow a write of ours, and need not read what it wrote.
        if !matches!(due, Due::Now(_)) && !known.has_expired(now) {
            return Ok(Progress::Until(known.next_look(due, now)));
        }
        let attempt = self.prepare(&known.outline).await?;
        self.finish(attempt).await
    }

    /// Decides from the object as it is now. Fails with how the reconcile ends, if nothing is to be fetched.
    async fn prepare(&self, known: &SpiffeFederation) -> Result<Attempt, Progress> {
        let _turn = self.whole_objects.acquire().await;
        let (name, federation) = (known.name(), self.load(known.name()).await?);
        if federation.uid() != known.uid() {
            // The watch will tell, and first the deletion of the one that is known is audited.
            return Err(Progress::Until(None));
        }
        let eligible = self.trust_domain_of(&federation);
        match sync::due(&federation, eligible.is_ok(), &self.options.sync, self.clock.now()) {
            Due::Now(reason) => tracing::debug!(federation = name, ?reason, "syncing"),
            due => return Err(self.wait(&federation, due).await?),
        }
        let is_audited = self.has_room_to_audit(&federation);
        if is_audited {
            self.audit_change(&federation).await?;
        }
        let source = match eligible {
            Ok(_) if !is_audited => Err(Problem::TooMany),
            Ok(trust_domain) => self.source(&federation, &trust_domain).await?,
            Err(problem) => Err(problem),
        };
        Ok(Attempt { outline: Summary::of(&federation).outline, source, is_audited })
    }

    async fn finish(&self, attempt: Attempt) -> Result<Progress, Progress> {
        let Attempt { outline, source, is_audited } = attempt;
        let received = match source {
            Ok(source) => self.fetcher.receive(source, self.clock.now()).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = &received {
            tracing::warn!(
                federation = outline.name(),
                reason = problem.reason(),
                "sync failed: {}",
                problem.detail()
            );
        }
        let (progress, event) = self.conclude(&outline, received, is_audited).await?;
        if let Some((event, reported)) = event {
            self.publish(&outline, event, reported).await;
        }
        Ok(progress)
    }

    /// Judges an answer, and writes what it means.
    async fn conclude(
        &self,
        outline: &SpiffeFederation,
        received: Result<Received, Problem>,
        is_audited: bool,
    ) -> Result<(Progress, Option<(SyncEvent, Reported)>), Progress> {
        let _turn = self.whole_objects.acquire().await;
        let federation = self.load(outline.name()).await?;
        // It may have another source now, or ask for a refresh that comes after this answer.
        let is_same = Summary::of(&federation).asks_for_the_same(outline);
        if !is_same && !failpoints::has(Bug::NoPrecondition) {
            return Err(ApiError::Conflict.into());
        }
        let (random, now) = (fastrand::f64(), self.clock.now());
        let Outcome { mut status, event, rotation, result } =
            sync::conclude(&federation, received, &self.options.sync, random, now);
        if is_audited {
            status.audited_generation = Some(federation.generation());
        }
        if let Some(rotation) = &rotation {
            let sequence = status.sequence.as_deref();
            self.record_or_stop(&audit::rotation(&federation, rotation, sequence, now))?;
        }
        self.write_status(&federation, &status).await?;
        self.metrics.synced(result);
        // A next sync that is due already is not forgotten.
        let ends = sync::expires_at(&status).filter(|at| *at > now);
        let progress = Progress::Until(status.next_sync_at.into_iter().chain(ends).min());
        let event = event.map(|event| (event, reported(&federation.status, &status)));
        Ok((progress, event))
    }

    /// The object as it is now.
    async fn load(&self, name: &str) -> Result<SpiffeFederation, Progress> {
        let found = self.writer.load_federation(name).await?;
        // It was deleted; the watch says so, too.
        found.ok_or(Progress::Until(None))
    }

    /// Nothing is due, but the last authority may have expired.
    async fn wait(&self, federation: &SpiffeFederation, due: Due) -> Result<Progress, Progress> {
        let now = self.clock.now();
        if let Some(status) = sync::expired(federation, now) {
            let message = status
                .conditions
                .iter()
                .find(|it| it.r#type == TRUSTED)
                .map(|it| it.message.clone());
            self.write_status(federation, &status).await?;
            let note = message.unwrap_or_default();
            let event = SyncEvent {
                kind: "Warning",
                reason: "TrustEnded",
                note,
                topic: None,
                is_ongoing: false,
            };
            self.publish(federation, event, Reported::NotYet).await;
        }
        Ok(Progress::Until(Summary::of(federation).next_look(due, now)))
    }

    async fn write_status(
        &self,
        federation: &SpiffeFederation,
        status: &SpiffeFederationStatus,
    ) -> Result<(), Progress> {
        if *status == federation.status {
            return Ok(());
        }
        match self.writer.write_status(federation, status).await {
            Ok(written) => {
                self.written(&written);
                Ok(())
            }
            // It was deleted meanwhile; the watch says so, too.
            Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn trust_domain_of(&self, federation: &SpiffeFederation) -> Result<TrustDomain, Problem> {
        if federation.metadata.deletion_timestamp.is_some() {
            return Err(Problem::Deleting);
        }
        let known = lock(&self.federations);
        let others = counting(&known).filter(|it| it.name() != federation.name());
        eligibility::trust_domain(federation, others, &self.options.trust_domain)
    }

    async fn publish(&self, federation: &SpiffeFederation, event: SyncEvent, reported: Reported) {
        let SyncEvent { kind, reason, note, topic, is_ongoing } = event;
        let regarding = federation.reference();
        let message = Message { regarding, kind, reason, action: "Sync", note, topic };
        let published = match is_ongoing {
            true => self.publisher.publish_ongoing(&message, reported).await.map(|_| ()),
            false => self.publisher.publish(&message).await,
        };
        if let Err(error) = published {
            tracing::warn!(federation = federation.name(), %error, "Event not published");
        }
    }

    /// Of a federation that is gone, or that another one of the same name has replaced.
    async fn audit_deletion(
        &self,
        name: &str,
        uid_now_there: Option<&str>,
    ) -> Result<(), Progress> {
        // It is there, though nobody can read it.
        if lock(&self.unreadable).contains(name) {
            return Ok(());
        }
        let known = lock(&self.audited).as_ref().and_then(|it| it.get(name).cloned());
        let Some(known) = known.filter(|it| uid_now_there.is_none_or(|uid| uid != it.uid)) else {
            return Ok(());
        };
        // The watch of a new leader may be behind what the one before it recorded.
        let found = self.writer.load_federation(name).await?;
        if found.is_some_and(|it| it.uid() == known.uid) {
            return Ok(());
        }
        self.record_or_stop(&audit::deletion(name, &known, self.clock.now()))?;
        self.note_audited(name, None).await
    }

    /// Somebody may have emptied the list of audited federations.
    async fn note_again(&self, federation: &SpiffeFederation) -> Result<(), Progress> {
        let (name, noted) = (federation.name(), Audited::of(federation));
        let known = lock(&self.audited).as_ref().and_then(|it| it.get(name).cloned());
        match federation.status.audited_generation.is_some() && known.as_ref() != Some(&noted) {
            true => self.note_audited(name, Some(&noted)).await,
            false => Ok(()),
        }
    }

    fn has_room_to_audit(&self, federation: &SpiffeFederation) -> bool {
        let audited = lock(&self.audited);
        let noted = Audited::of(federation);
        audited.as_ref().is_none_or(|all| audit::has_room(all, federation.name(), &noted))
    }

    async fn audit_change(&self, federation: &SpiffeFederation) -> Result<(), Progress> {
        let known = lock(&self.audited).as_ref().and_then(|it| it.get(federation.name()).cloned());
        let Some(record) = audit::change(federation, self.clock.now()) else {
            return Ok(());
        };
        // First, so that its deletion is audited whatever happens in between.
        let noted = Audited::of(federation);
        if known.as_ref() != Some(&noted) {
            self.note_audited(federation.name(), Some(&noted)).await?;
        }
        self.record_or_stop(&record)
    }

    async fn note_audited(&self, name: &str, audited: Option<&Audited>) -> Result<(), Progress> {
        let _turn = self.noting.lock().await;
        self.writer.note_audited(name, audited).await?;
        if let Some(all) = lock(&self.audited).as_mut() {
            match audited {
                Some(audited) => all.insert(name.to_owned(), audited.clone()),
                None => all.remove(name),
            };
        }
        Ok(())
    }

    fn record_or_stop(&self, record: &Record) -> Result<(), Progress> {
        match self.record(record) {
            true => Ok(()),
            false => Err(Progress::NotAudited),
        }
    }

    /// Whether it was written.
    pub(super) fn record(&self, record: &Record) -> bool {
        let written = self.audit.write(record);
        if let Err(error) = &written {
            tracing::error!(%error, event = record.event, "the audit log can't be written");
        }
        written.is_ok()
    }
}

/// Whether the condition already said this, so that an Event was published.
fn reported(before: &SpiffeFederationStatus, after: &SpiffeFederationStatus) -> Reported {
    let reason = |status: &SpiffeFederationStatus| {
        status.conditions.iter().find(|it| it.r#type == SYNCED).map(|it| it.reason.clone())
    };
    match reason(before) == reason(after) {
        true => Reported::InStatus,
        false => Reported::NotYet,
    }
}
