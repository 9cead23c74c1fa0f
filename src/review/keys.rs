//! The keys of every cluster, fetched from its own API server and kept through its outages.
//!
//! Each cluster has a task of its own, so that none waits for another. All together send a bounded number of
//! requests, however many tokens name keys that nobody has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::{Client, client::Body};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use super::decide::{
    config::ClusterConfig,
    directory::{Cluster, Directory, KeysError, PublishedKey, Thumbprint, published},
};
use crate::{
    k8s::api_error::ApiError,
    runtime::{
        failpoints::{self, Bug},
        lock::lock,
    },
};

/// Of the API server itself. Discovery may name another host, and tokens decide by these keys where they go.
const PATH: &str = "/openid/v1/jwks";
/// In bytes.
const LONGEST: usize = 512 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two fetches of one cluster's keys.
const SPACING: Duration = Duration::from_secs(1);
/// Between any two fetches: 50 a second.
const SPACING_OF_ALL: Duration = Duration::from_millis(20);
/// After a failure, until the keys are fetched again without being asked for.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Call(#[from] ApiError),
    #[error("the API server answered HTTP {0} to {PATH}")]
    Status(u16),
    #[error("the keys have more than {LONGEST} bytes")]
    Long,
    #[error("the answer broke off")]
    Broken,
    #[error("not a list of keys: {0}")]
    Keys(#[from] KeysError),
}

/// How it stands with one cluster's keys.
#[derive(Clone, Debug, Default)]
pub struct KeysState {
    pub keys: Vec<PublishedKey>,
    /// Keys that sign no token that we take.
    pub skipped: usize,
    pub fetched_at: Option<Instant>,
    /// Of the last fetch, if it failed.
    pub error: Option<String>,
}

/// Fetches are numbered in the order in which they are sent.
#[derive(Clone, Copy, Debug, Default)]
struct Fetches {
    sent: u64,
    ended: u64,
}

struct Member {
    config: ClusterConfig,
    client: Client,
    state: Mutex<KeysState>,
    fetches: watch::Sender<Fetches>,
    wanted: Notify,
}

pub struct KeyStore {
    members: BTreeMap<Arc<str>, Member>,
    directory: Mutex<Arc<Directory>>,
    /// Whose each key was first, as our Secret has it.
    noted: Mutex<BTreeMap<Thumbprint, Arc<str>>>,
    /// Until then, a copied key could be taken for its thief's.
    awaits_notes: AtomicBool,
    next_slot: Mutex<Option<Instant>>,
    refresh: Duration,
}

impl KeyStore {
    pub fn new(
        clusters: impl IntoIterator<Item = (Arc<str>, ClusterConfig, Client)>,
        refresh: Duration,
    ) -> Arc<Self> {
        let member = |(name, config, client)| {
            let (state, fetches, wanted) = Default::default();
            (name, Member { config, client, state, fetches, wanted })
        };
        let store = Self {
            members: clusters.into_iter().map(member).collect(),
            directory: Mutex::default(),
            noted: Mutex::default(),
            awaits_notes: AtomicBool::new(false),
            next_slot: Mutex::default(),
            refresh,
        };
        // Their issuers are known before their keys: a token of one that is away is not nobody's.
        store.rebuild();
        Arc::new(store)
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    pub fn directory(&self) -> Arc<Directory> {
        lock(&self.directory).clone()
    }

    pub fn state(&self, cluster: &str) -> Option<KeysState> {
        self.members.get(cluster).map(|it| lock(&it.state).clone())
    }

    /// Has everybody wait for the first [`Self::note`].
    pub fn await_notes(&self) {
        self.awaits_notes.store(true, Ordering::Relaxed);
    }

    pub fn awaits_notes(&self) -> bool {
        self.awaits_notes.load(Ordering::Relaxed)
    }

    /// Whose keys were first, as our Secret has it now.
    pub fn note(&self, noted: BTreeMap<Thumbprint, Arc<str>>) {
        self.awaits_notes.store(false, Ordering::Relaxed);
        {
            let mut before = lock(&self.noted);
            if *before == noted {
                return;
            }
            *before = noted;
        }
        self.rebuild();
    }

    /// Returns once the keys of these clusters were fetched again, or `deadline` has
    /// come. A fetch that was sent before does not count: it may have missed the key.
    pub async fn refresh(&self, clusters: &[Arc<str>], deadline: Instant) -> Refreshed {
        let members = clusters.iter().filter_map(|name| self.members.get(name));
        let ended = members.map(|member| async {
            let mut fetches = member.fetches.subscribe();
            let next = if failpoints::has(Bug::OldFetchCounts) { 0 } else { 1 };
            let number = fetches.borrow_and_update().sent + next;
            member.wanted.notify_one();
            let ended = fetches.wait_for(|it| it.ended >= number).await;
            ended.is_ok() && lock(&member.state).error.is_none()
        });
        match tokio::time::timeout_at(deadline, futures::future::join_all(ended)).await {
            Ok(all) if all.iter().all(|succeeded| *succeeded) => Refreshed::All,
            _ => Refreshed::NotAll,
        }
    }

    /// Fetches a cluster's keys now and then, and when they are asked for. Never ends.
    pub async fn keep(self: Arc<Self>, cluster: Arc<str>) {
        let Some(member) = self.members.get(&cluster) else { return };
        // What an older store fetched is not fetched again at once: all clusters together would keep those waiting
        // whose keys are needed.
        let known = lock(&member.state).fetched_at;
        if let Some(fetched) = known {
            self.rest(member, fetched).await;
        }
        loop {
            let sent = self.slot().await;
            member.fetches.send_modify(|it| it.sent += 1);
            let fetched = fetch(&member.client).await;
            self.take(member, fetched, &cluster);
            member.fetches.send_modify(|it| it.ended = it.sent);
            self.rest(member, sent).await;
        }
    }

    /// Until the next fetch after one that was sent then.
    async fn rest(&self, member: &Member, sent: Instant) {
        let failed = lock(&member.state).error.is_some();
        let pause = if failed { AFTER_FAILURE.min(self.refresh) } else { self.refresh };
        // Replicas that started together do not ask together for ever.
        let due = sent + pause.mul_f64(0.9 + fastrand::f64() / 5.0);
        tokio::select! {
            () = member.wanted.notified() => {}
            () = sleep_until(due) => {}
        }
        sleep_until(sent + SPACING).await;
    }

    /// Waits until one more request may be sent.
    async fn slot(&self) -> Instant {
        let at = {
            let mut next = lock(&self.next_slot);
            let at = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
            *next = Some(at + SPACING_OF_ALL);
            at
        };
        sleep_until(at).await;
        at
    }

    fn take(
        &self,
        member: &Member,
        fetched: Result<(Vec<PublishedKey>, usize), FetchError>,
        cluster: &str,
    ) {
        let mut state = lock(&member.state);
        match fetched {
            Ok((keys, skipped)) => {
                let is_new = state.keys != keys || state.fetched_at.is_none();
                let fetched_at = Some(Instant::now());
                *state = KeysState { keys, skipped, fetched_at, error: None };
                drop(state);
                if is_new {
                    tracing::info!(cluster, "keys changed");
                    self.rebuild();
                }
            }
            // The last good ones stay.
            Err(error) => {
                tracing::warn!(cluster, %error, "fetching keys failed");
                state.error = Some(error.to_string());
                if failpoints::has(Bug::KeysDroppedByOutage) {
                    state.keys.clear();
                    drop(state);
                    self.rebuild();
                }
            }
        }
    }

    fn rebuild(&self) {
        // Held until the new one is in place, so that an older one never replaces it.
        let mut directory = lock(&self.directory);
        let clusters = self.members.iter().map(|(name, member)| Cluster {
            name: name.clone(),
            issuers: member.config.issuers.clone(),
            claimed: member.config.kids.clone(),
            keys: lock(&member.state).keys.clone(),
        });
        let clusters: Vec<_> = clusters.collect();
        *directory = Arc::new(Directory::new(&clusters, &lock(&self.noted)));
    }

    /// Takes over what an older store knows of clusters that are asked as before.
    pub fn adopt(&self, older: &Self, is_same: impl Fn(&Arc<str>) -> bool) {
        for (name, member) in self.members.iter().filter(|(name, _)| is_same(name)) {
            if let Some(state) = older.state(name) {
                *lock(&member.state) = state;
            }
        }
        self.awaits_notes.store(older.awaits_notes(), Ordering::Relaxed);
        *lock(&self.noted) = lock(&older.noted).clone();
        self.rebuild();
    }

    /// The clusters whose keys were not asked for yet, or have not answered.
    pub fn pending(&self) -> BTreeSet<Arc<str>> {
        let is_pending = |member: &Member| {
            let state = lock(&member.state);
            state.fetched_at.is_none() && state.error.is_none()
        };
        let pending = self.members.iter().filter(|(_, member)| is_pending(member));
        pending.map(|(name, _)| name.clone()).collect()
    }

    /// The clusters of which no keys are known yet.
    pub fn missing(&self) -> BTreeSet<Arc<str>> {
        let is_missing = |member: &Member| lock(&member.state).fetched_at.is_none();
        let missing = self.members.iter().filter(|(_, member)| is_missing(member));
        missing.map(|(name, _)| name.clone()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    All,
    /// One of them did not answer in time, or not well.
    NotAll,
}

pub(super) async fn fetch(client: &Client) -> Result<(Vec<PublishedKey>, usize), FetchError> {
    let request = Request::get(PATH)
        .header(http::header::ACCEPT, "application/jwk-set+json, application/json")
        .body(Body::empty())
        .map_err(|_| FetchError::Broken)?;
    let answer = async {
        let response = client.send(request).await.map_err(ApiError::from)?;
        if !response.status().is_success() {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => FetchError::Long,
            false => FetchError::Broken,
        })?;
        Ok(published(&body.to_bytes())?)
    };
    timeout(PATIENCE, answer).await.unwrap_or(Err(ApiError::Timeout(PATIENCE).into()))
}

#[cfg(test)]
mod tests;
