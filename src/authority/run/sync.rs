//! Syncs one federation, and what only the leader does around it.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::{Authority, FederationKey};
use crate::{
    api::spiffe_federation::{SpiffeFederation, SpiffeFederationStatus},
    authority::decide::{
        audit::{self, Audited, Record},
        eligibility,
        endpoint::{self, KnownBundles},
        problem::Problem,
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
    spiffe::{
        bundle::Bundle,
        id::{SpiffeId, TrustDomain},
    },
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
        let synced = known.get(name).and_then(|it| it.condition(SYNCED));
        match synced.is_some_and(|it| it.status == "False") {
            true => Priority::Low,
            false => Priority::High,
        }
    }

    pub(super) async fn reconcile(&self, name: &str) -> Progress {
        if !self.may_sync() || !*lock(&self.is_listed) || lock(&self.audited).is_none() {
            return Progress::NotReady;
        }
        let federation = lock(&self.federations).get(name).cloned();
        if let Err(progress) = self.audit_deletion(name, federation.as_deref()).await {
            return progress;
        }
        match federation {
            Some(federation) => self.sync(&federation).await.unwrap_or_else(|progress| progress),
            None => Progress::Until(None),
        }
    }

    async fn sync(&self, federation: &SpiffeFederation) -> Result<Progress, Progress> {
        let eligible = self.trust_domain_of(federation);
        self.note_again(federation).await?;
        match sync::due(federation, eligible.is_ok(), &self.options.sync, self.clock.now()) {
            Due::Now(reason) => tracing::debug!(federation = federation.name(), ?reason, "syncing"),
            due => return self.wait(federation, due).await,
        }
        self.audit_change(federation).await?;
        let received = match eligible {
            Ok(trust_domain) => self.receive(federation, &trust_domain).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = &received {
            tracing::warn!(
                federation = federation.name(),
                reason = problem.reason(),
                "sync failed: {}",
                problem.detail()
            );
        }
        let (random, now) = (fastrand::f64(), self.clock.now());
        let Outcome { mut status, event, rotation, result } =
            sync::conclude(federation, received, &self.options.sync, random, now);
        status.audited_generation = Some(federation.generation());
        if let Some(rotation) = &rotation {
            self.record_or_stop(&audit::rotation(
                federation,
                rotation,
                status.sequence.as_deref(),
                now,
            ))?;
        }
        let next = status.next_sync_at;
        let reported = self.reported(federation, &status);
        self.write_status(federation, &status).await?;
        self.metrics.synced(result);
        if let Some(event) = event {
            self.publish(federation, event, reported).await;
        }
        // A next sync that is due already is not forgotten.
        let ends = sync::expires_at(&status).filter(|at| *at > now);
        Ok(Progress::Until(next.into_iter().chain(ends).min()))
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
        let at = match due {
            Due::At(at) => Some(at),
            _ => None,
        };
        let ends = sync::expires_at(&federation.status).filter(|at| *at > now);
        Ok(Progress::Until(at.into_iter().chain(ends).min()))
    }

    async fn write_status(
        &self,
        federation: &SpiffeFederation,
        status: &SpiffeFederationStatus,
    ) -> Result<(), Progress> {
        if *status == federation.status {
            return Ok(());
        }
        let federation = &match failpoints::has(Bug::NoPrecondition) {
            true => without_version(federation),
            false => federation.clone(),
        };
        match self.writer.write_status(federation, status).await {
            Ok(written) => {
                self.written(written);
                Ok(())
            }
            // It was deleted meanwhile; the watch says so, too.
            Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the condition already said this, so that an Event was published.
    fn reported(&self, federation: &SpiffeFederation, status: &SpiffeFederationStatus) -> Reported {
        let reason = |conditions: &[crate::api::condition::Condition]| {
            conditions.iter().find(|it| it.r#type == SYNCED).map(|it| it.reason.clone())
        };
        match reason(&federation.status.conditions) == reason(&status.conditions) {
            true => Reported::InStatus,
            false => Reported::NotYet,
        }
    }

    fn trust_domain_of(&self, federation: &SpiffeFederation) -> Result<TrustDomain, Problem> {
        if federation.metadata.deletion_timestamp.is_some() {
            return Err(Problem::Deleting);
        }
        let known = lock(&self.federations);
        let all =
            known.values().map(|it| &**it).filter(|it| it.metadata.deletion_timestamp.is_none());
        eligibility::trust_domain(federation, all, &self.options.trust_domain)
    }

    async fn receive(
        &self,
        federation: &SpiffeFederation,
        trust_domain: &TrustDomain,
    ) -> Result<Received, Problem> {
        let source = {
            let known = lock(&self.federations);
            let known =
                Known { federations: &known, own: (&self.options.trust_domain, self.own_bundle()) };
            endpoint::source(federation, trust_domain, &known)?
        };
        self.fetcher.receive(source, self.clock.now()).await
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
        now_there: Option<&SpiffeFederation>,
    ) -> Result<(), Progress> {
        // It is there, though nobody can read it.
        if lock(&self.unreadable).contains(name) {
            return Ok(());
        }
        let known = lock(&self.audited).as_ref().and_then(|it| it.get(name).cloned());
        let Some(known) = known.filter(|it| now_there.is_none_or(|there| there.uid() != it.uid))
        else {
            return Ok(());
        };
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

/// For a seeded bug.
fn without_version(federation: &SpiffeFederation) -> SpiffeFederation {
    let mut federation = federation.clone();
    federation.metadata.resource_version = None;
    federation
}

/// The bundles that count now.
struct Known<'a> {
    federations: &'a BTreeMap<String, Arc<SpiffeFederation>>,
    own: (&'a TrustDomain, Option<Arc<Bundle>>),
}

impl Known<'_> {
    fn find(&self, trust_domain: &TrustDomain) -> Option<&SpiffeFederation> {
        let all = || {
            self.federations
                .values()
                .map(|it| &**it)
                .filter(|it| it.metadata.deletion_timestamp.is_none())
        };
        let is_it = |it: &&SpiffeFederation| {
            eligibility::trust_domain(it, all(), self.own.0)
                .is_ok_and(|found| found == *trust_domain)
        };
        all().filter(|it| it.trust_domain().eq_ignore_ascii_case(trust_domain.as_str())).find(is_it)
    }
}

impl KnownBundles for Known<'_> {
    fn bundle(&self, trust_domain: &TrustDomain) -> Option<Arc<Bundle>> {
        if trust_domain == self.own.0 {
            return self.own.1.clone();
        }
        let federation = self.find(trust_domain)?;
        let is_trusted = federation.condition(TRUSTED).is_some_and(|it| it.status == "True");
        let document = federation.status.current_bundle.as_ref().filter(|_| is_trusted)?;
        Bundle::parse(document.as_bytes()).ok().map(Arc::new)
    }

    fn endpoint_of(&self, trust_domain: &TrustDomain) -> Option<TrustDomain> {
        let spiffe = self.find(trust_domain)?.spec.bundle_source.https_spiffe.as_ref()?;
        let id = SpiffeId::parse(&spiffe.endpoint_spiffe_id).ok()?;
        Some(id.trust_domain().clone()).filter(|it| it != trust_domain)
    }
}
