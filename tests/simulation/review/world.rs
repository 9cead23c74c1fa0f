//! One simulation: two replicas that renew our credentials for the remote clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Deref,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use apiserver::faults::FaultyTransport;
use chrono::TimeDelta;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trustplane::{
    k8s::client,
    names::NAMESPACE,
    review::{
        act::renew::{Options, RenewalCounters, Renewer},
        credentials::Credentials,
        decide::config::{ClusterConfig, Renewal},
        keys::KeyStore,
    },
};

use super::{
    Case,
    path::Path,
    remote::{ISSUER, OWN_ACCOUNT, Remote},
    tamper::ReviewTamper,
};
use crate::{
    cluster::{Cluster, lock},
    election::{Election, REPLICAS},
    faults::FaultKind,
    wire::{Sender, Wire},
};

pub const CLUSTERS: [&str; 2] = ["a", "b"];
pub const TOKEN_DURATION: Duration = Duration::from_secs(600);
pub const RENEW_BEFORE: Duration = Duration::from_secs(150);
const INTERVAL: Duration = Duration::from_secs(90);
/// Keys are fetched again after this long, with the token in use.
const REFRESH: Duration = Duration::from_secs(60);
/// Files are read this often.
pub const READ_FILES: Duration = Duration::from_secs(5);
/// The second replica sees a new file so much later.
const FILE_LAG: Duration = Duration::from_secs(40);
const YEAR: TimeDelta = TimeDelta::days(365);
const SKEW: TimeDelta = TimeDelta::seconds(2);
/// Long enough to settle after the last step without faults.
const REST: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(240);
const QUIET: Duration = Duration::from_secs(240);

/// What the file at `token_path` of a cluster held from then on.
#[derive(Clone)]
pub struct FileChange {
    /// By replica.
    pub seen_from: [Instant; REPLICAS],
    pub text: Option<String>,
}

/// A process of the product.
#[derive(Clone)]
pub struct Process {
    pub life: u32,
    pub born: Instant,
    pub credentials: Arc<Credentials>,
    pub keys: Arc<KeyStore>,
}

/// A time in which renewals may fail: at one cluster, or everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub at: Option<usize>,
    pub from: Instant,
    pub until: Option<Instant>,
    what: &'static str,
}

pub struct World {
    pub cluster: Arc<Cluster>,
    pub remotes: Vec<Arc<Remote>>,
    pub election: Election,
    files: Mutex<Vec<Vec<FileChange>>>,
    /// All that ever ran, by replica.
    processes: Mutex<[Vec<Process>; REPLICAS]>,
    troubles: Mutex<Vec<Trouble>>,
    /// Keys that another cluster copied, and their owner.
    pub copies: Mutex<Vec<(usize, Vec<usize>)>>,
    pub quiet_from: Mutex<Option<Instant>>,
    registry: Mutex<Vec<Registry>>,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl World {
    /// Runs the case to its end, and the replicas until they have settled.
    pub async fn run(case: &Case) -> Arc<Self> {
        let remotes = CLUSTERS.iter().zip(0..).map(|(name, number)| Remote::new(name, number));
        let world = Arc::new(Self {
            cluster: Cluster::new(case.seed, REPLICAS, &case.faults, &[NAMESPACE]),
            remotes: remotes.map(Arc::new).collect(),
            election: Election::default(),
            files: Mutex::new(vec![Vec::new(); CLUSTERS.len()]),
            processes: Mutex::default(),
            troubles: Mutex::default(),
            copies: Mutex::default(),
            quiet_from: Mutex::default(),
            registry: Mutex::default(),
        });
        for cluster in 0..CLUSTERS.len() {
            let token = world.make_token(cluster, YEAR);
            let seen_from = [Instant::now(); REPLICAS];
            lock(&world.files)[cluster].push(FileChange { seen_from, text: Some(token) });
        }
        let mut tasks: Vec<_> = (0..REPLICAS)
            .map(|replica| {
                let process = world.clone();
                let process = move |life| process.clone().process(replica, life);
                tokio::spawn(world.cluster.clone().keep_alive(replica, process))
            })
            .collect();
        let elected = world.clone();
        tasks.push(tokio::spawn(async move { elected.election.keep(&elected.cluster).await }));
        for (number, step) in case.steps.iter().enumerate() {
            world.begin_faults_of(case, number);
            sleep(step.wait).await;
            world.perform(&step.op);
        }
        world.begin_faults_of(case, case.steps.len());
        let end = world.faults().end();
        world.rest(REST, end).await;
        world.faults().heal();
        while (0..REPLICAS).any(|replica| world.life(replica).is_none()) {
            sleep(REST).await;
        }
        world.repair();
        sleep(SETTLE).await;
        world.begin_quiet();
        *lock(&world.quiet_from) = Some(Instant::now());
        sleep(QUIET).await;
        for task in tasks {
            task.abort();
        }
        world
    }

    fn begin_faults_of(&self, case: &Case, step: usize) {
        let now = Instant::now();
        for fault in case.faults.iter().filter(|fault| fault.at == step) {
            if !matches!(fault.kind, FaultKind::Crash { .. }) {
                self.note_trouble(None, now, fault.lasts);
            }
        }
        self.cluster.begin_faults(step);
    }

    /// Like `trustplane review`, without flags, signals and listeners.
    async fn process(self: Arc<Self>, replica: usize, life: u32) {
        let gate = self.election.enter(&self.cluster, replica, life);
        let (cluster, sender) = (self.cluster.clone(), Sender::Leader);
        let wire = Wire { cluster, replica, life, sender, tamper: ReviewTamper };
        let client = client::over(FaultyTransport(wire), gate.clone());
        let clock = self.clock(SKEW * i32::try_from(replica).expect("two replicas"));
        let names: Vec<Arc<str>> = CLUSTERS.iter().map(|name| Arc::from(*name)).collect();
        let paths = names.iter().map(|name| (name.clone(), PathBuf::from("/token")));
        let credentials = Credentials::new(paths, clock.clone());
        self.read_files(replica, &credentials);
        let path = |number: usize| {
            let (cluster, remote) = (self.cluster.clone(), self.remotes[number].clone());
            Path { cluster, remote, replica, life }
        };
        let members = names.iter().enumerate().map(|(number, name)| {
            (name.clone(), config(), path(number).client(credentials.bearer(name)))
        });
        let keys = KeyStore::new(members, REFRESH);
        let clients = names.iter().enumerate().map(|(number, name)| {
            (name.clone(), path(number).client(credentials.renewal_bearer(name)))
        });
        let counters = RenewalCounters::default();
        let mut registry = Registry::default();
        registry.register("renewals", "Renewals", counters.0.clone());
        lock(&self.registry).push(registry);
        let renewer = Renewer::new(
            client,
            gate,
            credentials.clone(),
            keys.clone(),
            clients.collect::<BTreeMap<_, _>>(),
            options(replica),
            counters,
            clock,
        );
        let born = Instant::now();
        let process = Process { life, born, credentials: credentials.clone(), keys: keys.clone() };
        lock(&self.processes)[replica].push(process);
        let keeping = join_all(names.into_iter().map(|name| keys.clone().keep(name)));
        let reading = async {
            loop {
                sleep(READ_FILES).await;
                self.read_files(replica, &credentials);
            }
        };
        tokio::select! {
            biased;
            () = renewer.run(CancellationToken::new()) => {}
            _ = keeping => {}
            () = reading => {}
        }
    }

    fn read_files(&self, replica: usize, credentials: &Credentials) {
        for (number, name) in CLUSTERS.iter().enumerate() {
            let text = self.file(number, replica, Instant::now());
            credentials.take_file(name, text.ok_or_else(|| io::ErrorKind::NotFound.into()));
        }
    }

    /// What a replica reads in the file of a cluster at a moment.
    pub fn file(&self, cluster: usize, replica: usize, at: Instant) -> Option<String> {
        let files = lock(&self.files);
        let seen = files[cluster].iter().rfind(|change| change.seen_from[replica] <= at);
        seen.and_then(|change| change.text.clone())
    }

    pub fn file_changes(&self, cluster: usize) -> Vec<FileChange> {
        lock(&self.files)[cluster].clone()
    }

    pub fn write_file(&self, cluster: usize, text: Option<String>) {
        let now = Instant::now();
        let change = FileChange { seen_from: [now, now + FILE_LAG], text };
        lock(&self.files)[cluster].push(change);
    }

    pub fn make_token(&self, cluster: usize, life: TimeDelta) -> String {
        self.remotes[cluster].make(OWN_ACCOUNT, life, self.time(Instant::now()))
    }

    /// All processes of a replica that ever ran.
    pub fn processes(&self, replica: usize) -> Vec<Process> {
        lock(&self.processes)[replica].clone()
    }

    /// Those that run now.
    pub fn running(&self) -> Vec<(usize, Process)> {
        let runs = |replica: usize| {
            let life = self.life(replica)?;
            let process = self.processes(replica).into_iter().find(|it| it.life == life)?;
            Some((replica, process))
        };
        (0..REPLICAS).filter_map(runs).collect()
    }

    fn note_trouble(&self, at: Option<usize>, from: Instant, lasts: Duration) {
        let until = Some(from + lasts);
        lock(&self.troubles).push(Trouble { at, from, until, what: "" });
    }

    /// Something everywhere for so long.
    pub fn trouble_for(&self, lasts: Duration) {
        self.note_trouble(None, Instant::now(), lasts);
    }

    /// Something at this cluster that lasts until it is mended.
    pub fn break_something(&self, at: usize, what: &'static str) {
        let from = Instant::now();
        lock(&self.troubles).push(Trouble { at: Some(at), from, until: None, what });
    }

    pub fn mend(&self, at: usize, what: &'static str) {
        let mut troubles = lock(&self.troubles);
        let open = troubles.iter_mut().filter(|it| it.at == Some(at) && it.what == what);
        open.filter(|it| it.until.is_none()).for_each(|it| it.until = Some(Instant::now()));
    }

    pub fn open_troubles(&self, at: usize) -> BTreeSet<&'static str> {
        let troubles = lock(&self.troubles);
        let open = troubles.iter().filter(|it| it.at == Some(at) && it.until.is_none());
        open.map(|it| it.what).collect()
    }

    /// Whether anything was wrong between the two moments.
    pub fn had_trouble(&self, cluster: Option<usize>, from: Instant, until: Instant) -> bool {
        let concerns = |it: &&Trouble| it.at.is_none() || (cluster.is_some() && it.at == cluster);
        let troubles = lock(&self.troubles);
        let mut own = troubles.iter().filter(concerns);
        own.any(|it| it.from <= until && it.until.is_none_or(|end| end >= from))
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        for registry in lock(&self.registry).iter() {
            prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
        }
        text
    }
}

/// Of any cluster.
pub fn config() -> ClusterConfig {
    ClusterConfig {
        issuers: BTreeSet::from([ISSUER.to_owned()]),
        kids: BTreeSet::new(),
        prefixes: None,
        remote: None,
    }
}

fn options(replica: usize) -> Options {
    Options {
        namespace: NAMESPACE.to_owned(),
        renewal: Renewal {
            interval: INTERVAL,
            token_duration: TOKEN_DURATION,
            renew_before: RENEW_BEFORE,
        },
        instance: format!("replica-{replica}"),
        regarding: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some("trustplane-review-config".to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectReference::default()
        },
    }
}
