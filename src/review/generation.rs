//! Everything that follows from one configuration: whom to ask, with which keys, and who may ask us.
//!
//! A new configuration makes a new generation. What is known of clusters that stay as they were counts on:
//! their keys and our credentials. Requests under way end with the generation that they began with.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Config as ClientConfig};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    act::renew::{self, RenewalCounters, Renewer},
    callers::{Anybody, KnownCallers},
    clients::{ClientError, Clients},
    config_file::{Loaded, Roots},
    credentials::Credentials,
    decide::{config::Config, directory::Directory},
    forward::Forwarder,
    keys::KeyStore,
    metrics::ClusterFigures,
    reviewer::Reviewer,
    serve::{Audit, Callers, Limits, Service},
};
use crate::{k8s::gate::Gate, names::REVIEW_CONFIG_MAP, runtime::clock::Clock};

/// `--caller-auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerAuth {
    Required,
    None,
}

/// What stays the same while configurations change.
pub struct Surroundings {
    pub caller_auth: CallerAuth,
    pub jwks_refresh: Duration,
    /// How our own cluster is asked.
    pub local: ClientConfig,
    /// Of the Secret with our credentials.
    pub namespace: String,
    /// Writes pass the gate.
    pub client: Client,
    /// Asks about the rights of callers, which every replica does.
    pub ungated: Client,
    pub gate: Gate,
    pub audit: Arc<dyn Audit>,
    pub limits: Arc<Limits>,
    pub renewals: RenewalCounters,
    /// Our name in Events.
    pub instance: String,
    pub clock: Clock,
}

pub struct Generation {
    pub config: Config,
    pub keys: Arc<KeyStore>,
    pub credentials: Arc<Credentials>,
    pub renewer: Arc<Renewer>,
    pub forwarder: Arc<Forwarder>,
    pub service: Arc<Service>,
    roots: std::collections::BTreeMap<String, Roots>,
    digest: [u8; 32],
    /// Renewals end with the generation.
    _renewing: DropGuard,
}

impl Generation {
    /// Reads the files with tokens, so it blocks for as long as the file system takes.
    pub fn start(
        loaded: Loaded,
        around: &Surroundings,
        before: Option<&Self>,
    ) -> Result<Self, ClientError> {
        let credentials = Credentials::new(loaded.config.token_paths(), around.clock.clone());
        credentials.read_files();
        let clients = Clients::of(&loaded, &around.local, &credentials)?;
        let keys = keys(&loaded.config, &clients, around.jwks_refresh);
        keys.await_notes();
        if let Some(before) = before {
            credentials.adopt(&before.credentials);
            keys.adopt(&before.keys, |name| before.asks_as(name, &loaded));
        }
        let forwarder = Arc::new(Forwarder::new(clients.all.clone()));
        let mut tasks = JoinSet::new();
        for name in clients.all.into_keys() {
            tasks.spawn(keys.clone().keep(name));
        }
        let service = service(&loaded.config, around, keys.clone(), forwarder.clone());
        let service = service.fetching(tasks);
        let renewer = Renewer::new(
            around.client.clone(),
            around.gate.clone(),
            credentials.clone(),
            keys.clone(),
            clients.renewals,
            around.renewal_options(&loaded.config),
            around.renewals.clone(),
            around.clock.clone(),
        );
        let ended = CancellationToken::new();
        tokio::spawn(renewer.clone().run(ended.clone()));
        Ok(Self {
            config: loaded.config,
            keys,
            credentials,
            renewer,
            forwarder,
            service: Arc::new(service),
            roots: loaded.roots,
            digest: loaded.digest,
            _renewing: ended.drop_guard(),
        })
    }

    pub fn is_of(&self, loaded: &Loaded) -> bool {
        self.digest == loaded.digest
    }

    /// Whether this cluster is asked under the new configuration as it is now.
    fn asks_as(&self, cluster: &str, loaded: &Loaded) -> bool {
        let remote = |config: &Config| config.clusters.get(cluster).map(|it| it.remote.clone());
        remote(&self.config) == remote(&loaded.config)
            && self.roots.get(cluster) == loaded.roots.get(cluster)
    }

    /// What this replica waits for before it is ready. A cluster that does not answer keeps nobody waiting.
    pub fn waiting_for(&self) -> Vec<String> {
        let pending = self.keys.pending();
        let keys = pending.iter().map(|name| format!("the keys of cluster {name}"));
        keys.chain(self.renewer.waiting_for()).collect()
    }

    /// How it stands with each cluster.
    pub fn figures(&self) -> Vec<ClusterFigures> {
        let directory = self.keys.directory();
        let names = self.config.clusters.keys();
        names.map(|name| self.figures_of(name, &directory)).collect()
    }

    fn figures_of(&self, name: &str, directory: &Directory) -> ClusterFigures {
        let state = self.keys.state(name).unwrap_or_default();
        let has_keys = state.error.is_none() && state.fetched_at.is_some();
        ClusterFigures {
            cluster: name.into(),
            is_reachable: has_keys && self.forwarder.is_answering(name),
            keys_age: state.fetched_at.map(|at| Instant::now() - at),
            keys: state.keys.len(),
            contested: contested(directory, name),
            credential_expires: self.credentials.life(name).map(|it| it.expires.timestamp()),
        }
    }
}

impl Surroundings {
    fn renewal_options(&self, config: &Config) -> renew::Options {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some(REVIEW_CONFIG_MAP.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        renew::Options {
            namespace: self.namespace.clone(),
            renewal: config.renewal,
            instance: self.instance.clone(),
            regarding,
        }
    }
}

fn keys(config: &Config, clients: &Clients, refresh: Duration) -> Arc<KeyStore> {
    let clusters = clients.all.iter().filter_map(|(name, client)| {
        let cluster = config.clusters.get(&**name)?.clone();
        Some((name.clone(), cluster, client.clone()))
    });
    KeyStore::new(clusters, refresh)
}

fn service(
    config: &Config,
    around: &Surroundings,
    keys: Arc<KeyStore>,
    forwarder: Arc<Forwarder>,
) -> Service {
    let reviewer = Reviewer::new(keys, forwarder, around.clock.clone());
    let reviewer = Arc::new(reviewer.remembering(config.cache_ttl));
    let callers: Box<dyn Callers> = match around.caller_auth {
        CallerAuth::None => Box::new(Anybody),
        CallerAuth::Required => {
            let (client, clock) = (around.ungated.clone(), around.clock.clone());
            Box::new(KnownCallers::new(reviewer.clone(), config, client, clock))
        }
    };
    Service::new(reviewer, callers, around.audit.clone(), config.prefixes(), around.limits.clone())
}

/// How many of its keys another cluster publishes, too.
fn contested(directory: &Directory, cluster: &str) -> usize {
    let publishes = |by: &[Arc<str>]| by.iter().any(|name| **name == *cluster);
    directory.shared.iter().filter(|it| publishes(&it.published_by)).count()
}
