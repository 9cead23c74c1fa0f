//! Leader election with a Lease: which replica may write, and until when.
//!
//! `decide` is pure and takes its clock as an argument. Two rules keep two holders apart:
//! a foreign lease counts as expired only after we observed it unchanged for its whole duration on
//! our own clock, and every write of the Lease carries the resourceVersion that it was decided
//! from, so that of two replicas that take it at once one gets a conflict.
//!
//! The holder stops writing `MARGIN` before anybody else may take over. The deadline counts from
//! the moment *before* the renewal was sent: however late the answer came, others count from later.

pub mod holder;

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    k8s::api_error::{self, ApiError},
    runtime::clock::Clock,
};

/// After this long without a renewal, another replica may take over.
pub const DURATION: Duration = Duration::from_secs(15);
/// The holder stops writing this long before that.
pub const MARGIN: Duration = Duration::from_secs(5);
/// How often the holder renews the Lease, and the others read it.
pub const PERIOD: Duration = Duration::from_secs(2);

/// Short enough that a renewal can be tried again before the deadline.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The Lease, and the replica that competes for it.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub namespace: String,
    pub name: &'static str,
    /// Unique per process.
    pub identity: String,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn hint(error: &ApiError) -> &'static str {
    match error {
        ApiError::Forbidden => ". Grant it with the Role in deploy/base/lease-role.yaml",
        ApiError::NotFound => ". Is there such a namespace? Set it with --leader-elect-namespace",
        _ => "",
    }
}

/// The Lease as last read, and since when by our own clock it is unchanged.
#[derive(Clone, Debug)]
struct Observed {
    lease: Lease,
    unchanged_since: Instant,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Renew,
    /// The holder released it, or let it expire.
    Take,
    Create,
    /// Another replica holds it.
    Wait,
}

fn decide(observed: Option<&Observed>, identity: &str, now: Instant) -> Step {
    let Some(observed) = observed else { return Step::Create };
    let spec = observed.lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let duration = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(DURATION, Duration::from_secs);
    match holder {
        "" => Step::Take,
        holder if holder == identity => Step::Renew,
        _ if now.duration_since(observed.unchanged_since) >= duration => Step::Take,
        _ => Step::Wait,
    }
}

/// Competes for the Lease until asked to stop, then gives it up.
///
/// Sends the deadline until which writes may be sent; `None` while another replica leads.
pub struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    clock: Clock,
    deadline: Arc<watch::Sender<Option<Instant>>>,
    observed: Option<Observed>,
    is_standby: bool,
}

impl Election {
    pub fn new(
        client: Client,
        candidate: Candidate,
        clock: Clock,
        deadline: Arc<watch::Sender<Option<Instant>>>,
    ) -> Self {
        let api = Api::namespaced(client, &candidate.namespace);
        Self { api, candidate, clock, deadline, observed: None, is_standby: false }
    }

    /// Runs until cancelled. If it ends by itself, the caller must stop the process.
    pub async fn run(mut self, stop: CancellationToken, stopped_writing: CancellationToken) {
        loop {
            self.round().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        // Writes under way still need the lease.
        while !stopped_writing.is_cancelled() {
            self.round().await;
            tokio::select! {
                biased;
                () = stopped_writing.cancelled() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        self.release().await;
    }

    async fn round(&mut self) {
        if self.observed.is_none() || !self.leads() {
            self.observe().await;
        }
        let before = Instant::now();
        let step = decide(self.observed.as_ref(), &self.candidate.identity, before);
        let written = match step {
            Step::Wait => {
                if !std::mem::replace(&mut self.is_standby, true) {
                    tracing::info!(lease = %self.candidate, leader = self.holder(), "standing by");
                }
                return self.lead_until(None);
            }
            Step::Create => self.create().await,
            Step::Take | Step::Renew => self.replace(&step).await,
        };
        match written {
            Ok(lease) => {
                self.is_standby = false;
                if !self.leads() {
                    tracing::info!(lease = %self.candidate, "leading");
                }
                self.observed = Some(Observed { lease, unchanged_since: before });
                self.lead_until(Some(before + DURATION - MARGIN));
            }
            Err(error) => {
                if matches!(error, ApiError::Conflict | ApiError::AlreadyExists) {
                    tracing::debug!(lease = %self.candidate, "another replica was first");
                } else {
                    let hint = hint(&error);
                    tracing::warn!(%error, lease = %self.candidate, "writing the lease failed{hint}");
                }
                // Read it again: if another replica holds it, we stop leading. If the read fails
                // too, the deadline stays as it is and passes by itself.
                self.observe().await;
                if !self.holds() {
                    self.lead_until(None);
                }
            }
        }
    }

    fn holder(&self) -> Option<&str> {
        self.observed.as_ref()?.lease.spec.as_ref()?.holder_identity.as_deref()
    }

    fn holds(&self) -> bool {
        self.holder() == Some(self.candidate.identity.as_str())
    }

    fn leads(&self) -> bool {
        self.deadline.borrow().is_some_and(|deadline| Instant::now() < deadline)
    }

    fn lead_until(&self, deadline: Option<Instant>) {
        if deadline.is_none() && self.deadline.borrow().is_some() {
            tracing::warn!(lease = %self.candidate, "another replica leads now");
        }
        self.deadline.send_replace(deadline);
    }

    async fn observe(&mut self) {
        match api_error::with_timeout_of(CALL_TIMEOUT, self.api.get_opt(self.candidate.name)).await
        {
            // Deleted by hand: the first replica to create it leads.
            Ok(None) => self.observed = None,
            Ok(Some(lease)) => {
                let version = |lease: &Lease| lease.metadata.resource_version.clone();
                let known = self
                    .observed
                    .as_ref()
                    .is_some_and(|observed| version(&observed.lease) == version(&lease));
                if !known {
                    self.observed = Some(Observed { lease, unchanged_since: Instant::now() });
                }
            }
            Err(error) => {
                tracing::warn!(%error, lease = %self.candidate, "reading the lease failed");
            }
        }
    }

    async fn create(&self) -> Result<Lease, ApiError> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.candidate.name.into()), ..Default::default() },
            spec: Some(self.spec(&LeaseSpec::default(), &Step::Create)),
        };
        let params = PostParams::default();
        api_error::with_timeout_of(CALL_TIMEOUT, self.api.create(&params, &lease)).await
    }

    async fn replace(&self, step: &Step) -> Result<Lease, ApiError> {
        let Some(observed) = &self.observed else { return Err(ApiError::NotFound) };
        let mut lease = observed.lease.clone();
        lease.spec = Some(self.spec(&lease.spec.unwrap_or_default(), step));
        self.write(&lease).await
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let params = PostParams::default();
        let call = self.api.replace(self.candidate.name, &params, lease);
        api_error::with_timeout_of(CALL_TIMEOUT, call).await
    }

    fn spec(&self, before: &LeaseSpec, step: &Step) -> LeaseSpec {
        let now = self.wall_clock();
        let mut spec = before.clone();
        spec.holder_identity = Some(self.candidate.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = now.clone();
        if *step != Step::Renew {
            spec.acquire_time = now;
            let changes_hands = i32::from(*step == Step::Take);
            let transitions = before.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(transitions.saturating_add(changes_hands));
        }
        spec
    }

    fn wall_clock(&self) -> Option<MicroTime> {
        let now = self.clock.now();
        let time = k8s_openapi::jiff::Timestamp::from_microsecond(now.timestamp_micros()).ok()?;
        Some(MicroTime(time))
    }

    /// Lets the next replica take over at once.
    async fn release(&mut self) {
        let led = self.leads();
        self.deadline.send_replace(None);
        if let (true, Some(observed)) = (led, &self.observed) {
            let mut lease = observed.lease.clone();
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.renew_time = self.wall_clock();
            match self.write(&lease).await {
                Ok(_) => tracing::info!(lease = %self.candidate, "lease released"),
                Err(error) => {
                    tracing::warn!(%error, lease = %self.candidate, "releasing the lease failed")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
