//! Renews our credentials for remote clusters.
//!
//! A new token is asked for with the one in use, tried, written to our Secret, and used by all replicas once they
//! read it there. Whatever fails before it was written, the old one stays in use.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    apply::{Stored, Writer},
    failure::{REVIEWS_FORBIDDEN, RenewError, reviews_forbidden},
    token_request::{self, Tried},
};
use crate::{
    k8s::{api_error::ApiError, backoff::Backoff, events::Publisher, gate::Gate},
    names::{REVIEW_REPORTER, REVIEW_SECRET},
    review::{
        credentials::Credentials,
        decide::{
            config::Renewal,
            credential::Credential,
            renewal::{Next, Policy, Source, When, next_step},
            state::Saved,
            status_report::Problem,
        },
        keys::KeyStore,
    },
    runtime::{
        clock::Clock,
        failpoints::{self, Bug},
        lock::lock,
    },
};

/// Between two looks at the Secret, and at what is to be done.
pub const POLL: Duration = Duration::from_secs(10);
/// Renewals at the same time. A cluster that hangs takes its place for 20 s at most.
const AT_ONCE: usize = 16;
/// After a renewal that failed, and after one that did not: a server that grants tokens which have ended must not
/// be asked without end.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const AFTER_SUCCESS: Duration = Duration::from_secs(60);

/// What the leader did for each cluster: `renewed`, or the kind of failure.
#[derive(Clone, Debug, Default)]
pub struct RenewalCounters(pub Family<[(&'static str, String); 2], Counter>);

impl RenewalCounters {
    fn count(&self, cluster: &str, result: &str) {
        let labels = [("cluster", cluster.to_owned()), ("result", result.to_owned())];
        self.0.get_or_create(&labels).inc();
    }
}

pub struct Options {
    /// Of the Secret and the ConfigMap of statuses.
    pub namespace: String,
    pub renewal: Renewal,
    /// Our name in Events.
    pub instance: String,
    /// What Events are about.
    pub regarding: ObjectReference,
}

/// How the last renewal of a cluster went.
struct Attempt {
    failures: u32,
    not_before: Instant,
    /// The fingerprints of the token that was asked with, and of what came of it. Another one is tried at once.
    tokens: Vec<String>,
    problem: Option<Problem>,
}

impl Attempt {
    fn is_about(&self, used: &Credential) -> bool {
        self.tokens.contains(&used.token.fingerprint())
    }

    fn may_follow(&self, used: &Credential) -> bool {
        let waited = self.not_before <= Instant::now() || failpoints::has(Bug::HammersOnFailure);
        waited || !self.is_about(used)
    }
}

/// A token that was tried.
struct Renewed {
    cluster: Arc<str>,
    /// The fingerprint of the token that was asked with.
    asked_with: String,
    /// The entry that it takes the place of.
    before: Option<Saved>,
    new: Saved,
    problem: Option<Problem>,
}

pub struct Renewer {
    pub(super) writer: Writer,
    pub(super) gate: Gate,
    pub(super) credentials: Arc<Credentials>,
    pub(super) keys: Arc<KeyStore>,
    /// To the API server of each remote cluster, with [`Credentials::renewal_bearer`].
    remotes: BTreeMap<Arc<str>, Client>,
    policy: Policy,
    backoff: Backoff,
    pub(super) clock: Clock,
    pub(super) publisher: Publisher,
    pub(super) regarding: ObjectReference,
    counters: RenewalCounters,
    /// Held while the Secret is read or written.
    pub(super) stored: tokio::sync::Mutex<Stored>,
    pub(super) was_read: AtomicBool,
    attempts: Mutex<BTreeMap<Arc<str>, Attempt>>,
    pub(super) started: Instant,
}

impl Renewer {
    /// Writes of `client` pass the gate.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        client: Client,
        gate: Gate,
        credentials: Arc<Credentials>,
        keys: Arc<KeyStore>,
        remotes: BTreeMap<Arc<str>, Client>,
        options: Options,
        counters: RenewalCounters,
        clock: Clock,
    ) -> Arc<Self> {
        let Options { namespace, renewal, instance, regarding } = options;
        // Whole seconds, as in a TokenRequest.
        let time = |time: Duration| {
            TimeDelta::seconds(time.as_secs().try_into().unwrap_or(u32::MAX).into())
        };
        let policy = Policy {
            token_duration: time(renewal.token_duration),
            renew_before: time(renewal.renew_before),
        };
        Arc::new(Self {
            writer: Writer::new(client.clone(), namespace),
            gate,
            credentials,
            keys,
            remotes,
            policy,
            backoff: Backoff { first: FIRST_PAUSE, longest: renewal.interval.max(FIRST_PAUSE) },
            publisher: Publisher::new(client, clock.clone(), REVIEW_REPORTER, instance),
            regarding,
            clock,
            counters,
            stored: tokio::sync::Mutex::default(),
            was_read: AtomicBool::new(false),
            attempts: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// What a replica that just started waits for.
    pub fn waiting_for(&self) -> Option<String> {
        let was_read = self.was_read.load(Ordering::Relaxed);
        (!was_read).then(|| format!("Secret {REVIEW_SECRET}, with the credentials in use"))
    }

    /// Ends when it is asked to. What is under way is given up: each write is whole or not done.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let works = async { tokio::join!(self.follow(), self.lead(), self.report()) };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = works => {}
        }
    }

    async fn lead(&self) {
        loop {
            if self.gate.is_open() {
                tokio::select! {
                    biased;
                    () = self.lease_lost() => {}
                    () = self.renew_due() => {}
                }
            }
            pause().await;
        }
    }

    async fn lease_lost(&self) {
        if failpoints::has(Bug::LeaseUnchecked) {
            return std::future::pending().await;
        }
        self.gate.clone().closed().await;
    }

    /// Clusters to renew now. Those that failed least come first.
    fn due(&self) -> Vec<Arc<str>> {
        let attempts = lock(&self.attempts);
        let is_due = |cluster: &&Arc<str>| {
            let Some(held) = self.credentials.held(cluster) else { return false };
            let Some(next) = next_step(&held, self.policy, self.clock.now()) else { return false };
            let Some(used) = held.of(next.used) else { return false };
            let attempt = attempts.get(*cluster);
            self.is_due(&next, used) && attempt.is_none_or(|it| it.may_follow(used))
        };
        let mut due: Vec<_> = self.remotes.keys().filter(is_due).cloned().collect();
        due.sort_by_key(|cluster| attempts.get(cluster).map_or(0, |it| it.failures));
        due
    }

    fn is_due(&self, next: &Next, used: &Credential) -> bool {
        let left = used.life.expires - self.clock.now();
        let is_early = left < self.policy.renew_before && failpoints::has(Bug::CapIgnored);
        next.renewal == When::Now || is_early
    }

    async fn renew_due(&self) {
        let unproven = stream::iter(self.unproven());
        unproven.for_each_concurrent(AT_ONCE, |cluster| self.try_again(cluster)).await;
        // Another replica may have renewed meanwhile.
        if self.due().is_empty() || self.read_secret().await.is_err() {
            return;
        }
        let renewals = stream::iter(self.due()).map(|cluster| self.renew(cluster));
        let mut renewals = renewals.buffer_unordered(AT_ONCE).ready_chunks(AT_ONCE);
        while let Some(renewed) = renewals.next().await {
            self.save(renewed.into_iter().flatten().collect()).await;
        }
    }

    /// A new token that was tried, if all went well.
    async fn renew(&self, cluster: Arc<str>) -> Option<Renewed> {
        let held = self.credentials.held(&cluster)?;
        let next = next_step(&held, self.policy, self.clock.now())?;
        let used = held.of(next.used)?;
        let origin = match (&held.saved, next) {
            (Some(saved), Next { used: Source::Secret, .. }) => saved.origin.clone(),
            _ => used.token.fingerprint(),
        };
        let got = {
            let _sending = Sending { credentials: &self.credentials, cluster: &cluster };
            self.ask_and_try(&cluster, used).await
        };
        let asked_with = used.token.fingerprint();
        match got {
            Ok((credential, problem)) => {
                let new = Saved { credential, asked: self.policy.token_duration, origin };
                Some(Renewed { cluster, asked_with, before: held.saved, new, problem })
            }
            Err(error) => {
                self.failed(&cluster, asked_with, &error);
                None
            }
        }
    }

    async fn ask_and_try(
        &self,
        cluster: &Arc<str>,
        used: &Credential,
    ) -> Result<(Credential, Option<Problem>), RenewError> {
        let client = self.remotes.get(cluster).ok_or(RenewError::NotServed)?;
        let account = &used.account;
        self.credentials.renew_with(cluster, Some(&used.token));
        let new = token_request::ask(client, account, self.policy.token_duration).await;
        let new = new.map_err(|error| RenewError::of_asking(error, account, cluster))?;
        if failpoints::has(Bug::SavedUntried) {
            return Ok((new, None));
        }
        self.credentials.renew_with(cluster, Some(&new.token));
        match token_request::try_out(client, &new).await.map_err(RenewError::Try)? {
            Tried::Served => Ok((new, None)),
            Tried::WithoutRight => Ok((new, Some(reviews_forbidden(cluster, account)))),
            Tried::Refused => Err(RenewError::NotServed),
        }
    }

    /// Clusters that may let our account create TokenReviews by now.
    fn unproven(&self) -> Vec<Arc<str>> {
        let is_due = |attempt: &Attempt| {
            let reason = attempt.problem.as_ref().map(|it| it.reason);
            reason == Some(REVIEWS_FORBIDDEN) && attempt.not_before <= Instant::now()
        };
        let attempts = lock(&self.attempts);
        let due = attempts.iter().filter(|(_, attempt)| is_due(attempt));
        due.map(|(cluster, _)| cluster.clone()).collect()
    }

    async fn try_again(&self, cluster: Arc<str>) {
        let (Some(client), Some(held)) =
            (self.remotes.get(&cluster), self.credentials.held(&cluster))
        else {
            return;
        };
        let used = held.used(self.clock.now()).and_then(|source| held.of(source));
        let Some(used) = used else { return };
        let tried = {
            let _sending = Sending { credentials: &self.credentials, cluster: &cluster };
            self.credentials.renew_with(&cluster, Some(&used.token));
            token_request::try_out(client, used).await
        };
        let mut attempts = lock(&self.attempts);
        let Some(attempt) = attempts.get_mut(&cluster) else { return };
        match tried {
            Ok(Tried::Served) => attempt.problem = None,
            _ => {
                attempt.failures = attempt.failures.saturating_add(1);
                attempt.not_before = Instant::now() + self.backoff.after(attempt.failures);
            }
        }
    }

    /// Writes the new tokens, over the entries that they take the place of.
    async fn save(&self, renewed: Vec<Renewed>) {
        if renewed.is_empty() {
            return;
        }
        let mut stored = self.stored.lock().await;
        let mut outcome = self.save_once(&mut stored, &renewed).await;
        // Somebody else wrote the Secret: perhaps another entry.
        if let Err(ApiError::Conflict | ApiError::AlreadyExists) = outcome {
            outcome = match self.read_into(&mut stored).await {
                Ok(()) => self.save_once(&mut stored, &renewed).await,
                Err(error) => Err(error),
            };
        }
        let is_there = |it: &Renewed| stored.state.saved.get(&it.cluster) == Some(&it.new);
        let (saved, others): (Vec<_>, Vec<_>) = renewed.into_iter().partition(is_there);
        drop(stored);
        saved.into_iter().for_each(|renewed| self.succeeded(renewed));
        for renewed in others {
            match &outcome {
                // Another replica was faster.
                Ok(()) => {}
                Err(error) => {
                    let error = RenewError::Save(error.clone());
                    self.failed(&renewed.cluster, renewed.asked_with, &error);
                }
            }
        }
    }

    async fn save_once(&self, stored: &mut Stored, renewed: &[Renewed]) -> Result<(), ApiError> {
        let mut state = stored.state.clone();
        for renewed in renewed {
            // Another replica was faster, or somebody removed the entry.
            if state.saved.get(&renewed.cluster) == renewed.before.as_ref() {
                state.saved.insert(renewed.cluster.clone(), renewed.new.clone());
            }
        }
        if failpoints::has(Bug::UsedBeforeSaved) {
            self.credentials.take(&state);
        }
        let saved = self.writer.save(stored, &state).await;
        if saved.is_err() && failpoints::has(Bug::ConflictIsSuccess) {
            self.credentials.take(&state);
            return Ok(());
        }
        *stored = saved?;
        self.use_stored(stored);
        Ok(())
    }

    fn succeeded(&self, renewed: Renewed) {
        let Renewed { cluster, asked_with, new, problem, .. } = renewed;
        let (account, expires) = (&new.credential.account, new.credential.life.expires);
        tracing::info!(%cluster, %account, %expires, "credential renewed");
        self.counters.count(&cluster, "renewed");
        let tokens = vec![asked_with, new.credential.token.fingerprint()];
        let not_before = Instant::now() + AFTER_SUCCESS;
        lock(&self.attempts).insert(cluster, Attempt { failures: 0, not_before, tokens, problem });
    }

    fn failed(&self, cluster: &Arc<str>, token: String, error: &RenewError) {
        tracing::warn!(%cluster, %error, "credential not renewed");
        self.counters.count(cluster, error.category());
        let mut attempts = lock(&self.attempts);
        let before = attempts.get(cluster).filter(|it| it.tokens.contains(&token));
        let failures = before.map_or(0, |it| it.failures).saturating_add(1);
        let not_before = Instant::now() + self.pause_after(failures, cluster);
        let (tokens, problem) = (vec![token], Some(error.problem()));
        let attempt = Attempt { failures, not_before, tokens, problem };
        attempts.insert(cluster.clone(), attempt);
    }

    /// Shorter where the token in use ends soon.
    fn pause_after(&self, failures: u32, cluster: &str) -> Duration {
        let pause = self.backoff.after(failures);
        let left = self.credentials.life(cluster).map(|life| self.clock.until(life.expires));
        let left = left.filter(|left| !left.is_zero());
        left.map_or(pause, |left| pause.min(left / 8)).max(FIRST_PAUSE / 2)
    }

    /// What went wrong with the last renewal of a cluster, unless another replica made up for it.
    pub(super) fn renewal_problem(&self, cluster: &str) -> Option<Problem> {
        let held = self.credentials.held(cluster)?;
        let used = held.used(self.clock.now()).and_then(|source| held.of(source))?;
        let attempts = lock(&self.attempts);
        attempts.get(cluster).filter(|it| it.is_about(used))?.problem.clone()
    }

    pub(super) fn next(&self, cluster: &str) -> Option<Next> {
        next_step(&self.credentials.held(cluster)?, self.policy, self.clock.now())
    }
}

/// Takes the token of a renewal away when it ends, however it ends.
struct Sending<'a> {
    credentials: &'a Credentials,
    cluster: &'a str,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.credentials.renew_with(self.cluster, None);
    }
}

/// Replicas that started together do not ask together for ever.
pub(super) async fn pause() {
    sleep(POLL.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
}

#[cfg(test)]
mod tests;
