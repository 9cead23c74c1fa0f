//! The controller: keeps our own CA in rotation, serves its bundle, and syncs the bundles of others.
//!
//! Every replica reads our state and serves it. Only the leader changes it, and syncs.

mod join;
mod own;
mod source;
mod sync;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    authority::{
        act::{apply::Writer, fetch::Fetcher},
        decide::{audit::Audited, ca, summary::Summary, sync as sync_decisions},
        join::{
            server::{JoinOptions, JoinService},
            view::View,
        },
        metrics::Metrics,
    },
    bundle::serve::{Endpoint, SvidResolver},
    k8s::{
        events::Publisher,
        gate::Gate,
        queue::{Key, Queue},
    },
    names::AUTHORITY_REPORTER,
    runtime::{
        audit_log::AuditLog, clock::Clock, http_listener, lock::lock, tls_listener::CertReloader,
    },
    spiffe::id::{SpiffeId, TrustDomain},
};
use own::Own;

/// Where both profiles serve the bundle.
pub const PATH: &str = "/webapi/spiffe/bundle.json";
/// Of the SPIFFE ID of our https_spiffe endpoint.
pub const ENDPOINT_PATH: &str = "/trustplane/authority";
/// Syncs at the same time, each with an answer of at most 512 KiB. Low priority, which are federations that
/// failed last, gets half of them: a hundred dead ones delay no other, even before they are known as dead.
const WORKERS: usize = 128;
/// Federations in memory as a whole at the same time: one may have a megabyte, and is there several times
/// while it is decoded, decided and written. None is held while its endpoint is waited for.
const WHOLE_OBJECTS: usize = 8;
/// Writes under way at the end get this long.
const LAST_SYNCS: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct Options {
    pub trust_domain: TrustDomain,
    pub namespace: String,
    pub ca: ca::Policy,
    pub sync: sync_decisions::Policy,
    /// Makes a new CA although one was published before.
    pub new_authority: bool,
    /// None for a replica without this profile.
    pub spiffe_listen: Option<SocketAddr>,
    pub web: Option<(SocketAddr, Arc<CertReloader>)>,
    /// None for a replica that nobody joins at.
    pub join: Option<JoinOptions>,
    /// How often our state is read.
    pub poll: Duration,
    pub watch_timeout: Duration,
    /// Our name in Events.
    pub instance: String,
}

/// The name of a SPIFFEFederation. Each is a group of its own: none delays another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FederationKey(Arc<str>);

impl Key for FederationKey {
    type Group = Self;

    fn group(&self) -> Self {
        self.clone()
    }
}

pub struct Authority {
    client: Client,
    clock: Clock,
    gate: Gate,
    writer: Writer,
    publisher: Publisher,
    audit: Arc<AuditLog>,
    fetcher: Box<dyn Fetcher>,
    options: Options,
    metrics: Arc<Metrics>,
    own: Mutex<Own>,
    own_changed: Notify,
    spiffe_address: OnceLock<SocketAddr>,
    join_address: OnceLock<SocketAddr>,
    joins: OnceLock<Arc<JoinService>>,
    /// What joins are judged by.
    view: Arc<View>,
    /// Held while it is found out which bundles count.
    refreshing: Mutex<()>,
    federations_changed: Notify,
    /// Our SVID, for the join service.
    svid: Arc<SvidResolver>,
    federations: Mutex<BTreeMap<String, Arc<Summary>>>,
    whole_objects: Semaphore,
    is_listed: Mutex<bool>,
    /// The federations that the audit log knows; none until the leader has read them.
    audited: Mutex<Option<BTreeMap<String, Audited>>>,
    /// All of them are in one ConfigMap, whose writers would only disturb each other.
    noting: tokio::sync::Mutex<()>,
    /// Federations that are there and can't be decoded.
    unreadable: Mutex<BTreeSet<String>>,
    /// API calls that failed in a row, by federation.
    failures: Mutex<HashMap<String, u32>>,
    queue: Queue<FederationKey>,
}

impl Authority {
    pub fn new(
        client: Client,
        gate: Gate,
        clock: Clock,
        options: Options,
        audit: AuditLog,
        fetcher: Box<dyn Fetcher>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let instance = options.instance.clone();
        Arc::new(Self {
            writer: Writer::new(client.clone(), options.namespace.clone()),
            publisher: Publisher::new(client.clone(), clock.clone(), AUTHORITY_REPORTER, instance),
            client,
            clock,
            gate,
            audit: Arc::new(audit),
            fetcher,
            options,
            metrics,
            own: Mutex::default(),
            own_changed: Notify::new(),
            spiffe_address: OnceLock::new(),
            join_address: OnceLock::new(),
            joins: OnceLock::new(),
            view: Arc::default(),
            refreshing: Mutex::default(),
            federations_changed: Notify::new(),
            svid: Arc::default(),
            federations: Mutex::default(),
            whole_objects: Semaphore::new(WHOLE_OBJECTS),
            is_listed: Mutex::default(),
            audited: Mutex::default(),
            noting: tokio::sync::Mutex::default(),
            unreadable: Mutex::default(),
            failures: Mutex::default(),
            queue: Queue::for_workers(WORKERS),
        })
    }

    /// The reasons why this replica is not ready.
    pub fn waiting_for(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !*lock(&self.is_listed) {
            reasons.push("the list of SPIFFEFederations".to_owned());
        }
        reasons.extend(lock(&self.own).waiting_for(&self.options, tokio::time::Instant::now()));
        reasons
    }

    /// The SPIFFE ID of our own endpoint.
    pub fn endpoint_id(trust_domain: &TrustDomain) -> Option<SpiffeId> {
        SpiffeId::parse(&format!("spiffe://{trust_domain}{ENDPOINT_PATH}")).ok()
    }

    /// Where https_spiffe is served, with the port that was chosen for port 0; none until it is bound.
    pub fn spiffe_address(&self) -> Option<SocketAddr> {
        self.spiffe_address.get().copied()
    }

    /// Where the join service listens; none until it is bound.
    pub fn join_address(&self) -> Option<SocketAddr> {
        self.join_address.get().copied()
    }

    /// The join service; none before it is started.
    pub fn joins(&self) -> Option<Arc<JoinService>> {
        self.joins.get().cloned()
    }

    /// Runs until asked to stop. Fails if a listener can't be bound, or a part ends.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
        let mut parts = JoinSet::new();
        parts.spawn(self.clone().keep_own());
        parts.spawn(self.clone().watch_federations());
        parts.spawn(self.clone().lead());
        for _ in 0..WORKERS {
            parts.spawn(self.clone().work(stop.clone()));
        }
        let endpoints = self.start_endpoints(&mut parts).await?;
        let mut joins = self.start_joins(&mut parts, &stop).await?;
        tokio::select! {
            // In this order, because the join service ends when it is asked to stop.
            biased;
            () = stop.cancelled() => {}
            // They never end; a replica without one of them must not look healthy.
            Some(ended) = parts.join_next() => {
                ended?;
                anyhow::bail!("a part of the authority ended");
            }
            Some(ended) = joins.join_next() => {
                ended?;
                anyhow::bail!("the join service ended");
            }
        }
        let last = async {
            while joins.join_next().await.is_some() {}
            self.idle().await;
        };
        let _ = tokio::time::timeout(LAST_SYNCS, last).await;
        parts.shutdown().await;
        for endpoint in lock(&endpoints).drain(..) {
            drop(endpoint);
        }
        Ok(())
    }

    /// Waits until no sync is under way.
    async fn idle(&self) {
        while self.metrics.under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Binds at once, and serves as soon as there is something to serve.
    async fn start_endpoints(
        self: &Arc<Self>,
        parts: &mut JoinSet<()>,
    ) -> anyhow::Result<Arc<Mutex<Vec<Endpoint>>>> {
        let endpoints = Arc::new(Mutex::new(Vec::new()));
        let spiffe = match self.options.spiffe_listen {
            Some(address) => Some(bind(address, "--spiffe-listen").await?),
            None => None,
        };
        if let Some(address) = spiffe.as_ref().and_then(|it| it.local_addr().ok()) {
            // A replica binds once.
            let _ = self.spiffe_address.set(address);
        }
        let web = match &self.options.web {
            Some((address, pair)) => Some((bind(*address, "--web-listen").await?, pair.clone())),
            None => None,
        };
        parts.spawn(self.clone().serve(spiffe, web, endpoints.clone()));
        Ok(endpoints)
    }

    async fn start_joins(
        self: &Arc<Self>,
        parts: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinSet<()>> {
        let mut joins = JoinSet::new();
        if let Some(options) = &self.options.join {
            let (service, listener) = self.join_service(options, stop.clone()).await?;
            // A replica starts once.
            let _ = self.joins.set(service.clone());
            parts.spawn(self.clone().watch_tokens());
            parts.spawn(self.clone().keep_trusted());
            joins.spawn(service.run(listener));
        }
        Ok(joins)
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let (key, _) = tokio::select! {
                biased;
                () = stop.cancelled() => return std::future::pending().await,
                next = self.queue.next() => next,
            };
            let mut gate = self.gate.clone();
            gate.opened().await;
            self.metrics.began();
            // A bug in a parser must not take the other federations down.
            let synced = std::panic::AssertUnwindSafe(self.reconcile(&key.0)).catch_unwind().await;
            self.metrics.ended();
            self.requeue(&key, synced.ok());
            self.queue.done(&key);
        }
    }

    pub fn known_federations(&self) -> Vec<Arc<Summary>> {
        lock(&self.federations).values().cloned().collect()
    }

    fn enqueue(&self, name: &str) {
        self.queue.add(FederationKey(name.into()));
    }
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    let bound = http_listener::bind(address).await;
    let (listener, address) = bound.map_err(|error| {
        anyhow::anyhow!("cannot listen on {address} ({error}). Choose another address with {flag}")
    })?;
    tracing::info!(%address, flag, "listening");
    Ok(listener)
}
