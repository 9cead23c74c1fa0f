//! The controller: any change of the SpireServer or of an object that it owns triggers a reconcile.
//!
//! There is one SpireServer and about a dozen objects, so each reconcile reads all of them. Nothing
//! is decided from a cache.

mod report;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use kube::{Api, Client};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        federated_trust_domain::FederatedTrustDomain,
        spire_server::{self, SpireServer},
    },
    federate::{
        act::{
            apply::{Comparison, Mode, Writer},
            apps_domain,
            effective::{self, Effective},
            own_endpoint::OwnEndpoint,
            peers::Peers,
            references,
            server_metrics::ServerMetrics,
        },
        cache::bundle_cache,
        decide::{
            conditions::{ApplyResult, ConditionValue, Findings, Operation},
            render::{self, Component, RenderContext, Rendered},
            trust::Federated,
        },
        metrics::Metrics,
    },
    k8s::{
        api_error::{self, ApiError},
        backoff::Backoff,
        events::Publisher,
        gate::Gate,
        revert_backoff::{Limits, RevertBackoff},
    },
    names::FEDERATE_REPORTER,
    runtime::{clock::Clock, lock::lock},
};

#[derive(Clone, Debug)]
pub struct Options {
    pub setting: RenderContext,
    pub mode: Mode,
    /// How often everything is reconciled although nothing changed.
    pub resync: Duration,
    pub watch_timeout: Duration,
    /// Our name in Events.
    pub instance: String,
    /// The most trust domains to federate with.
    pub max_peers: usize,
    /// None if the SPIRE server's metrics are not to be read.
    pub server_metrics: Option<Uri>,
}

/// Changes come in groups: one reconcile handles them all.
const GATHER: Duration = Duration::from_millis(100);
/// After six reverts in a row, each within three minutes, somebody keeps changing our fields.
const REVERTS: Limits = Limits {
    at_once: 6,
    window: Duration::MAX,
    quiet: Duration::from_secs(180),
    waits: Backoff::OBJECT,
};
/// Problems outside of what we watch, such as a Secret, are looked at again after this long.
const REQUEUE_SOON: Duration = Duration::from_secs(30);

const SERVERS: &str = "SpireServers";
const TRUST_DOMAINS: &str = "ClusterFederatedTrustDomains";

pub struct Federator {
    client: Client,
    clock: Clock,
    gate: Gate,
    writer: Writer,
    publisher: Publisher,
    options: Options,
    metrics: Metrics,
    peers: Arc<Peers>,
    own_endpoint: Arc<OwnEndpoint>,
    server_metrics: Arc<ServerMetrics>,
    server: Mutex<Option<SpireServer>>,
    trust_domains: Mutex<BTreeMap<String, FederatedTrustDomain>>,
    /// The trust domains that SPIRE federates with through them.
    federated: Mutex<Federated>,
    /// The SpireServer of the last reconcile.
    reconciled: Mutex<Option<Version>>,
    /// The conditions that were logged last.
    logged: Mutex<Vec<ConditionValue>>,
    unlisted: Mutex<BTreeSet<&'static str>>,
    changed: Notify,
}

/// Uid and generation.
type Version = (Option<String>, Option<i64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Everything is as the spec says.
    Settled,
    /// Something is wrong that no watch will report as fixed.
    RequeueSoon,
    /// A call to the API server failed.
    Failed,
}

impl Federator {
    pub fn new(
        client: Client,
        gate: Gate,
        clock: Clock,
        options: Options,
        peers: Arc<Peers>,
        metrics: Metrics,
    ) -> Arc<Self> {
        let setting = Arc::new(options.setting.clone());
        let instance = options.instance.clone();
        Arc::new(Self {
            writer: Writer::new(client.clone(), setting, options.mode),
            publisher: Publisher::new(client.clone(), clock.clone(), FEDERATE_REPORTER, instance),
            own_endpoint: OwnEndpoint::new(clock.clone(), gate.clone(), peers.roots()),
            server_metrics: ServerMetrics::new(
                clock.clone(),
                gate.clone(),
                options.server_metrics.clone(),
            ),
            client,
            clock,
            gate,
            options,
            metrics,
            peers,
            server: Mutex::default(),
            trust_domains: Mutex::default(),
            federated: Mutex::default(),
            reconciled: Mutex::default(),
            logged: Mutex::default(),
            unlisted: Mutex::new(BTreeSet::from([SERVERS, TRUST_DOMAINS])),
            changed: Notify::new(),
        })
    }

    /// The reasons why this replica is not ready.
    pub fn waiting_for(&self) -> Vec<String> {
        lock(&self.unlisted).iter().map(|kind| format!("the list of {kind}")).collect()
    }

    fn listed(&self, kind: &'static str) {
        // Only the first list was waited for.
        if lock(&self.unlisted).remove(kind) {
            self.changed.notify_one();
        }
    }

    /// Runs until asked to stop; a running reconcile is finished.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut others = JoinSet::new();
        others.spawn(self.clone().watch_server());
        others.spawn(self.clone().watch_trust_domains());
        others.spawn(self.peers.clone().run());
        others.spawn(self.own_endpoint.clone().run());
        others.spawn(self.server_metrics.clone().run());
        self.clone().watch_owned(&mut others);
        let (mut failures, mut next) = (0, Instant::now());
        let mut revert_backoff = RevertBackoff::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // They never end; a replica without one of them must not look healthy.
                Some(_) = others.join_next() => return,
                () = self.changed.notified() => {}
                () = self.peers.news.notified() => {}
                () = self.own_endpoint.news.notified() => {}
                () = self.server_metrics.news.notified() => {}
                () = self.gate.clone().closed() => {}
                () = sleep_until(next) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.gate.clone().closed() => {}
                () = self.wait_out(revert_backoff.wait(&REVERTS, Instant::now())) => {}
            }
            if !self.gate.is_open() {
                // What was known goes stale while another replica leads.
                self.peers.forget();
                self.own_endpoint.forget();
                self.server_metrics.forget();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = async { self.gate.clone().opened().await } => {}
            }
            let (progress, reverted) = self.reconcile().await;
            if reverted {
                revert_backoff.written(&REVERTS, Instant::now());
            }
            failures = if progress == Progress::Failed { failures + 1 } else { 0 };
            let wait = match progress {
                Progress::Settled => self.options.resync,
                Progress::RequeueSoon => REQUEUE_SOON.min(self.options.resync),
                Progress::Failed => Backoff::OBJECT.after(failures),
            };
            next = Instant::now() + wait;
        }
    }

    /// Waits this long, or until the spec changes.
    async fn wait_out(&self, pause: Duration) {
        if pause >= Duration::from_secs(1) && !self.has_new_spec() {
            tracing::warn!(
                seconds = pause.as_secs(),
                "somebody keeps reverting our changes; backing off"
            );
        }
        let end = Instant::now() + pause;
        tokio::time::sleep(GATHER).await;
        while !self.has_new_spec() {
            tokio::select! {
                () = sleep_until(end) => return,
                () = self.changed.notified() => {}
            }
        }
    }

    fn has_new_spec(&self) -> bool {
        lock(&self.server).as_ref().map(version_of) != *lock(&self.reconciled)
    }

    /// Returns how it went, and whether somebody's change had to be reverted.
    async fn reconcile(&self) -> (Progress, bool) {
        if !self.waiting_for().is_empty() {
            return (Progress::Settled, false);
        }
        // Read again: the watched object may be older than our own last write.
        let api: Api<SpireServer> = Api::all(self.client.clone());
        let server = match api_error::with_timeout(api.get_opt(spire_server::NAME)).await {
            Ok(server) => server,
            Err(error) => return (self.failed("SpireServer", &error), false),
        };
        let server = match server {
            Some(server) if server.metadata.deletion_timestamp.is_none() => server,
            gone => return (self.let_go(gone).await, false),
        };
        let Options { setting, max_peers, .. } = &self.options;
        let federated = lock(&self.federated).clone();
        let effective =
            effective::effective(&self.client, &setting.namespace, server, &federated, *max_peers)
                .await;
        let mut effective = match effective {
            Ok(effective) => effective,
            Err(error) => return (self.failed("the last valid spec", &error), false),
        };
        match self.announce(&mut effective).await {
            // The SpireServer changed meanwhile, and the newer one will be reconciled.
            Err(error @ ApiError::Conflict) => return (self.failed("status", &error), false),
            Err(error) => {
                self.failed("status", &error);
            }
            Ok(()) => {}
        }
        let server = &effective.server;
        let federation = server.spec.federation.as_ref();
        let setting = match apps_domain::completed(setting, federation, &self.client).await {
            Ok(setting) => setting,
            Err(error) => return (self.failed("the kind of cluster", &error), false),
        };
        let asked = lock(&self.reconciled).replace(version_of(server));
        let findings = self.apply_all(&effective, &setting).await;
        let kept = self.update_peers(server).await;
        let reported = self.report(server, &findings).await;
        if let Err(error) = &reported {
            self.failed("status or Event", error);
        }
        let any = |is: fn(&ApplyResult) -> bool| findings.outcomes.iter().any(|(_, it)| is(it));
        // An update that follows a change of the SpireServer reverts nothing.
        let reverted =
            asked == Some(version_of(server)) && any(|it| matches!(it, ApplyResult::Updated(..)));
        let failed = reported.is_err() || kept.is_err() || findings.unread.is_some();
        let progress = if failed || any(|it| matches!(it, ApplyResult::Failed(..))) {
            Progress::Failed
        } else if any(|it| matches!(it, ApplyResult::Taken(_) | ApplyResult::NoNamespace(_)))
            || !findings.references.is_empty()
        {
            Progress::RequeueSoon
        } else {
            Progress::Settled
        };
        (progress, reverted)
    }

    /// Stops looking after a SpireServer that is deleted, or about to be.
    async fn let_go(&self, going: Option<SpireServer>) -> Progress {
        self.peers.set_peers(&[]);
        self.own_endpoint.forget();
        self.server_metrics.set_peers(Vec::new(), Vec::new());
        let Some(server) = going else { return Progress::Settled };
        match self.report_deletion(&server).await {
            // It went in the meantime.
            Ok(()) | Err(ApiError::NotFound) => Progress::Settled,
            Err(error) => self.failed("status or Event", &error),
        }
    }

    /// Updates the peers that are polled, and stores the bundles that the next leader needs.
    async fn update_peers(&self, server: &SpireServer) -> Result<(), ApiError> {
        let Options { setting, mode, .. } = &self.options;
        let peers = server.spec.peers();
        let cached = bundle_cache::load(&self.client, &setting.namespace, peers).await;
        let cached = cached.inspect_err(|error| {
            self.failed("peers' bundles", error);
        })?;
        let before = bundle_cache::data(&cached);
        // Before peers are polled: a peer may be verifiable by these alone.
        self.peers.set_cached(cached);
        let changed = self.peers.set_peers(peers);
        let names = peers.iter().map(|it| it.trust_domain.clone()).collect();
        let fetched = lock(&self.federated).keys().cloned().collect();
        self.server_metrics.set_peers(names, fetched);
        changed.iter().for_each(|peer| self.server_metrics.endpoint_changed(peer));
        let after = bundle_cache::data(&self.peers.to_cache());
        if before == after || *mode != Mode::Full {
            return Ok(());
        }
        let owner = server.metadata.uid.as_deref().unwrap_or_default();
        match self.writer.put(&render::peers_config_map(server, setting, after), owner).await {
            ApplyResult::Failed(_, error) => {
                self.failed("peers' bundles", &error);
                Err(error)
            }
            ApplyResult::Taken(owner) => {
                tracing::warn!(name = render::PEERS, owner, "ConfigMap is owned by somebody else");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, what: &'static str, error: &ApiError) -> Progress {
        tracing::warn!(what, %error, "API call failed");
        self.metrics.failed(error.category());
        Progress::Failed
    }

    async fn apply_all(&self, effective: &Effective, setting: &RenderContext) -> Findings {
        let Effective { server, problems, unlisted, can_render } = effective;
        let federation = server.spec.federation.as_ref();
        let mut findings = Findings {
            problems: problems.clone(),
            unlisted: unlisted.clone(),
            create_only: self.options.mode == Mode::CreateOnly,
            host: federation.and_then(|federation| render::host(federation, setting)),
            ..Findings::default()
        };
        if !can_render {
            return findings;
        }
        match references::problems(&self.client, &setting.namespace, federation).await {
            Ok(problems) => findings.references = problems,
            Err(unread) => {
                self.failed("the Route's Secret", &unread.error);
                findings.unread = Some(unread);
            }
        }
        let owner = server.metadata.uid.as_deref().unwrap_or_default();
        for mut rendered in render::render(server, setting) {
            // A Pod that starts with an old configuration would not be replaced for the new one.
            let result = if rendered.part == Component::StatefulSet && !findings.configured() {
                render::forget_configuration(&mut rendered.object);
                self.writer.put_missing(&rendered, owner).await
            } else {
                self.writer.put(&rendered, owner).await
            };
            self.metrics.put(&result);
            if let ApplyResult::Failed(_, error) = &result {
                tracing::warn!(part = ?rendered.part, %error, "apply failed");
            }
            if let ApplyResult::Failed(Operation::Update, error) = &result
                && matches!(error, ApiError::Invalid { .. } | ApiError::Denied { .. })
                && rendered.part == Component::StatefulSet
            {
                self.put_without_placement(&rendered, owner).await;
            }
            findings.outcomes.push((rendered.part, result));
        }
        findings
    }

    /// Only the API server and its policies fully judge affinity, tolerations and resources. If they refuse
    /// those, a peer that was removed must still disappear from the server's configuration.
    async fn put_without_placement(&self, refused: &Rendered, owner: &str) {
        let Ok(Comparison::Differs { live, .. }) = self.writer.compare(refused, owner).await else {
            return;
        };
        let mut rendered = refused.clone();
        render::keep_placement(&mut rendered.object, &live);
        if rendered == *refused {
            return;
        }
        let outcome = self.writer.put(&rendered, owner).await;
        self.metrics.put(&outcome);
        if let ApplyResult::Failed(_, error) = &outcome {
            tracing::warn!(%error, "the StatefulSet could not be put in place without its placement");
        }
    }
}

fn version_of(server: &SpireServer) -> Version {
    (server.metadata.uid.clone(), server.metadata.generation)
}

#[cfg(test)]
mod tests;
