//! The agent's loop: join, follow, renew; and serve what is known meanwhile.
//!
//! A renewal runs beside the stream that it replaces, so bundles keep coming while it fails. Without a stream
//! and without a renewal the agent serves what it has until its SVID ends.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    metrics::Metrics,
    service::WorkloadApi,
    socket::{self, Reach},
};
use crate::{
    authority::{
        decide::agent::{RenewalCause, Snapshot, TrustedBundles, renewal},
        join::client::{Client, FollowError, Following, JoinError, Joined, ServerTrust},
    },
    k8s::backoff::Backoff,
    runtime::clock::Clock,
};

/// After a join that failed, and after a stream that broke.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
/// The clock is looked at this often, which may be set while we wait.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// Answers under way at the end get this long.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct Options {
    pub client: Client,
    /// For the first join. Later ones know the newest bundle.
    pub trust: ServerTrust,
    pub socket: PathBuf,
    /// Users that may ask; the agent's own if empty.
    pub allowed: BTreeSet<u32>,
}

pub struct Agent {
    options: Options,
    clock: Clock,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    metrics: Arc<Metrics>,
}

type Attempt<'a> = BoxFuture<'a, Result<Joined, JoinError>>;

/// Where the loop stands.
struct Progress<'a> {
    attempt: Option<Attempt<'a>>,
    following: Option<Following>,
    failures: u32,
    /// When the next attempt begins.
    due: DateTime<Utc>,
    joined_at: DateTime<Utc>,
    /// How this SVID's renewal is moved.
    chance: f64,
}

impl Agent {
    pub fn new(options: Options, metrics: Arc<Metrics>) -> Arc<Self> {
        let clock = options.client.clock.clone();
        Arc::new(Self { options, clock, snapshots: watch::Sender::new(None), metrics })
    }

    /// The reasons why workloads get nothing.
    pub fn waiting_for(&self) -> Vec<String> {
        match &*self.snapshots.borrow() {
            None => vec!["the first join".to_owned()],
            Some(snapshot) if !snapshot.is_served_at(self.clock.now()) => {
                vec!["a renewal: the SVID has ended".to_owned()]
            }
            Some(_) => Vec::new(),
        }
    }

    /// Runs until asked to stop. Fails if the socket can't be bound.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
        let reach = match self.options.allowed.is_empty() {
            true => Reach::OwnUser,
            false => Reach::EveryUser,
        };
        let (listener, bound) = socket::bind(&self.options.socket, reach).await?;
        let mut allowed = self.options.allowed.clone();
        if allowed.is_empty() {
            allowed.insert(bound.owner);
        }
        tracing::info!(socket = %self.options.socket.display(), ?allowed, "serving the Workload API");
        let service = WorkloadApi {
            snapshots: self.snapshots.subscribe(),
            allowed: Arc::new(allowed),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            refusals: Arc::default(),
            stop: stop.clone(),
        };
        let mut serving = service.serve(listener).boxed();
        tokio::select! {
            biased;
            () = self.stay_joined(&stop) => {}
            served = &mut serving => {
                served?;
                anyhow::bail!("the Workload API ended");
            }
        }
        let _ = timeout(LAST_ANSWERS, serving).await;
        drop(bound);
        Ok(())
    }

    /// Ends only when asked to.
    async fn stay_joined(&self, stop: &CancellationToken) {
        let now = self.clock.now();
        let mut progress = Progress {
            attempt: None,
            following: None,
            failures: 0,
            due: now,
            joined_at: now,
            chance: 0.5,
        };
        loop {
            let wait = self.clock.until(progress.due).min(CLOCK_CHECK);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                joined = finished(&mut progress.attempt) => {
                    progress.attempt = None;
                    match joined {
                        Ok(joined) => self.install(joined, &mut progress),
                        Err(error) => self.failed(&error, &mut progress),
                    }
                }
                change = changed(&mut progress.following) => self.follow(change, &mut progress),
                () = tokio::time::sleep(wait), if progress.attempt.is_none() => {
                    if self.clock.now() >= progress.due {
                        progress.attempt = Some(self.join().boxed());
                    }
                }
            }
        }
    }

    async fn join(&self) -> Result<Joined, JoinError> {
        self.options.client.join(&self.trust()).await
    }

    /// The newest bundle of the server's trust domain, for as long as what we have counts.
    fn trust(&self) -> ServerTrust {
        let snapshot = self.snapshots.borrow().clone();
        let snapshot = snapshot.filter(|it| it.is_served_at(self.clock.now()));
        let newest = snapshot.and_then(|it| it.bundles.own().1.cloned());
        match (&self.options.trust, newest) {
            (ServerTrust::Spiffe { id, .. }, Some(bundle)) => {
                ServerTrust::Spiffe { id: id.clone(), bundle: Arc::new(bundle) }
            }
            (configured, _) => configured.clone(),
        }
    }

    fn install(&self, joined: Joined, progress: &mut Progress<'_>) {
        let Joined { svid, bundles, following } = joined;
        tracing::info!(id = %svid.id, until = %svid.not_after, "joined");
        self.metrics.joined("joined");
        self.metrics.set_svid_expiry(svid.not_after);
        self.metrics.following.set(1);
        progress.following = Some(following);
        progress.failures = 0;
        progress.joined_at = self.clock.now();
        progress.chance = fastrand::f64();
        self.publish(Snapshot { svid: Arc::new(svid), bundles: Arc::new(bundles) }, progress);
    }

    fn failed(&self, error: &JoinError, progress: &mut Progress<'_>) {
        self.metrics.joined(error.category());
        progress.failures = progress.failures.saturating_add(1);
        let wait = BACKOFF.after(progress.failures);
        progress.due = self.clock.now() + wait;
        tracing::warn!(%error, next_try_in = ?wait, "join failed");
    }

    fn follow(&self, change: Result<TrustedBundles, FollowError>, progress: &mut Progress<'_>) {
        let bundles = match change {
            Ok(bundles) => bundles,
            Err(error @ FollowError::Bundles(_)) => {
                tracing::warn!(%error, "bundles refused, the ones before count");
                return;
            }
            Err(error) => {
                progress.following = None;
                self.metrics.following.set(0);
                // All agents of a server that ended must not come back at the same moment.
                let wait = BACKOFF.after(progress.failures.saturating_add(1));
                progress.due = progress.due.min(self.clock.now() + wait);
                tracing::warn!(%error, "cut off from the server, joining again");
                return;
            }
        };
        let held = self.snapshots.borrow().as_ref().map(|it| it.svid.clone());
        if let Some(svid) = held {
            self.publish(Snapshot { svid, bundles: Arc::new(bundles) }, progress);
        }
    }

    fn publish(&self, snapshot: Snapshot, progress: &mut Progress<'_>) {
        for (trust_domain, why) in &snapshot.bundles.unusable {
            tracing::warn!(trust_domain, why, "bundle can't be used, so nobody of it is trusted");
        }
        let renewal = renewal(&snapshot, progress.joined_at, progress.chance, self.clock.now());
        if let RenewalCause::NotInBundle(error) = &renewal.cause {
            tracing::warn!(%error, "our SVID counts no more, renewing it");
        }
        // An attempt that failed has its own time.
        if progress.failures == 0 {
            progress.due = renewal.at;
        }
        let bundles = snapshot.bundles.iter().count();
        self.metrics.bundles.set(i64::try_from(bundles).unwrap_or(i64::MAX));
        tracing::info!(bundles, renewal_at = %renewal.at, "serving new identities");
        self.snapshots.send_if_modified(|current| {
            let is_new = current.as_deref() != Some(&snapshot);
            if is_new {
                *current = Some(Arc::new(snapshot));
            }
            is_new
        });
    }
}

async fn finished(attempt: &mut Option<Attempt<'_>>) -> Result<Joined, JoinError> {
    match attempt {
        Some(attempt) => attempt.await,
        None => std::future::pending().await,
    }
}

async fn changed(following: &mut Option<Following>) -> Result<TrustedBundles, FollowError> {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}
