//! One simulation of the authority: two replicas, peers, and a Lease that the world itself keeps.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use apiserver::faults::FaultyTransport;
use chrono::TimeDelta;
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trustplane::{
    authority::{
        decide::{ca, sync},
        join::server::{JoinOptions, JoinService},
        metrics::{Metrics, Source},
        run::{Authority, Options},
    },
    k8s::{client, gate::Gate},
    names::NAMESPACE,
    runtime::{
        audit_log::AuditLog,
        failpoints::{self, Bug},
        tls_listener::PeerAddress,
    },
    spiffe::id::TrustDomain,
};

use super::{
    Case,
    clients::{Attempt, Join},
    ops::{TOKENS, federation_path, token_path},
    peers::{Fetch, PEERS, Peer, SimulatedFetcher},
    tamper::AuthorityTamper,
};
use crate::{
    cluster::{Cluster, lock},
    election::{self, Election},
    faults::Watched,
    wire::{Sender, Wire},
};

pub const REPLICAS: usize = election::REPLICAS;
pub const OWN: &str = "own.test";
pub const POLL: Duration = Duration::from_secs(20);
pub const SVID_TTL: TimeDelta = TimeDelta::minutes(3);
pub const SHORTEST_INTERVAL: TimeDelta = TimeDelta::seconds(60);
/// The second replica's clock is ahead by this much.
pub const SKEW: TimeDelta = TimeDelta::seconds(2);
const CA_TTL: TimeDelta = TimeDelta::minutes(90);
/// Long enough to settle after the last step without faults.
const REST: Duration = Duration::from_secs(60);
/// Longer than any back-off and every interval.
const SETTLE: Duration = Duration::from_secs(480);
pub const QUIET: Duration = Duration::from_secs(240);
/// What is served is looked at no less often than this.
const LOOK: Duration = Duration::from_secs(60);

/// Of SVIDs where clients join: so long that an hour and the end of the CA bound them.
const JOIN_SVID_TTL: TimeDelta = TimeDelta::minutes(70);

/// What a replica serves.
#[derive(Clone)]
pub struct Served {
    pub document: Arc<str>,
    pub chain: Arc<[CertificateDer<'static>]>,
}

/// What the replicas served at a moment.
#[derive(Clone)]
pub struct Snapshot {
    pub at: Instant,
    pub served: [Option<Served>; REPLICAS],
}

pub struct World {
    pub cluster: Arc<Cluster>,
    peers: Mutex<Vec<Peer>>,
    fetches: Mutex<Vec<Fetch>>,
    audit: Arc<Mutex<Vec<(Instant, Value)>>>,
    snapshots: Mutex<Vec<Snapshot>>,
    /// What replicas said of a state that is lost or outdated.
    alarms: Mutex<BTreeSet<String>>,
    authorities: Mutex<[Option<Arc<Authority>>; REPLICAS]>,
    pub election: Election,
    /// `--refresh-hint` in seconds, of processes that start.
    pub hint: AtomicI64,
    /// `--new-authority`, of processes that start.
    pub new_authority: AtomicBool,
    /// When that flag was set.
    pub allowed_new: Mutex<Vec<(Instant, Option<Instant>)>>,
    pub quiet_from: Mutex<Option<Instant>>,
    /// Whether clients may join.
    serves_joins: bool,
    attempts: Mutex<Vec<Attempt>>,
    /// When nothing was wrong any more.
    settled_at: Mutex<Option<Instant>>,
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
        let world = Arc::new(Self {
            cluster: Cluster::new(case.seed, REPLICAS, &case.faults, &[NAMESPACE]),
            peers: Mutex::new((0..PEERS).map(Peer::new).collect()),
            fetches: Mutex::default(),
            audit: Arc::default(),
            snapshots: Mutex::default(),
            alarms: Mutex::default(),
            authorities: Mutex::default(),
            election: Election::default(),
            hint: AtomicI64::new(30),
            new_authority: AtomicBool::new(false),
            allowed_new: Mutex::default(),
            quiet_from: Mutex::default(),
            serves_joins: case.serves_joins,
            attempts: Mutex::default(),
            settled_at: Mutex::default(),
        });
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
            world.cluster.begin_faults(number);
            sleep(step.wait).await;
            world.perform(&step.op);
        }
        world.cluster.begin_faults(case.steps.len());
        let end = world.faults().end();
        world.rest(REST, end).await;
        world.faults().heal();
        while (0..REPLICAS).any(|replica| world.life(replica).is_none()) {
            sleep(REST).await;
        }
        for (watched, object) in world.take_undecodable() {
            world.touch(watched, &object);
        }
        world.repair().await;
        sleep(SETTLE).await;
        if case.serves_joins {
            *lock(&world.settled_at) = Some(Instant::now());
            world.probe().await;
        }
        world.begin_quiet();
        *lock(&world.quiet_from) = Some(Instant::now());
        sleep(QUIET).await;
        world.look();
        for task in tasks {
            task.abort();
        }
        // They hold the world.
        *lock(&world.authorities) = Default::default();
        world
    }

    /// Like `trustplane authority`, without flags, signals and listeners.
    async fn process(self: Arc<Self>, replica: usize, life: u32) {
        let gate = self.election.enter(&self.cluster, replica, life);
        let wire = |sender| {
            let tamper = AuthorityTamper { world: self.clone(), replica };
            FaultyTransport(Wire { cluster: self.cluster.clone(), replica, life, sender, tamper })
        };
        let client = client::over(wire(Sender::Leader), gate.clone());
        let join = self.serves_joins.then(|| JoinOptions {
            listen: None,
            client: client::over(wire(Sender::JoinService), Gate::open()),
            certificate: None,
            peers: PeerAddress::Connection,
        });
        let clock = self.clock(SKEW * i32::try_from(replica).expect("two replicas"));
        let metrics = Metrics::register(&mut Registry::default(), Source::new(clock.clone()));
        let audit = AuditOutput { world: self.clone(), replica, life, text: Vec::new() };
        let audit = AuditLog::to(Box::new(audit));
        let fetcher = Box::new(SimulatedFetcher { world: self.clone(), replica });
        let options = Options { join, ..self.options(replica) };
        let authority = Authority::new(client, gate, clock, options, audit, fetcher, metrics);
        lock(&self.authorities)[replica] = Some(authority.clone());
        let _ = authority.run(CancellationToken::new()).await;
    }

    fn options(&self, replica: usize) -> Options {
        let is_asked = self.new_authority.load(Ordering::Relaxed);
        Options {
            trust_domain: TrustDomain::parse(OWN).expect("a trust domain"),
            namespace: NAMESPACE.to_owned(),
            ca: ca::Policy {
                refresh_hint: TimeDelta::seconds(self.hint.load(Ordering::Relaxed)),
                ca_ttl: CA_TTL,
                svid_ttl: self.svid_ttl(),
            },
            sync: sync::Policy { shortest_interval: SHORTEST_INTERVAL },
            new_authority: is_asked || failpoints::has(Bug::SilentNewCa),
            join: None,
            spiffe_listen: None,
            web: None,
            poll: POLL,
            watch_timeout: Duration::from_secs(60),
            instance: format!("replica-{replica}"),
        }
    }

    pub fn svid_ttl(&self) -> TimeDelta {
        if self.serves_joins { JOIN_SVID_TTL } else { SVID_TTL }
    }

    /// An administrator mends what the authority must not mend by itself.
    async fn repair(&self) {
        if self.is_own_healthy() {
            return;
        }
        self.set_new_authority(true);
        self.restart_all();
        sleep(Duration::from_secs(60)).await;
        self.set_new_authority(false);
        self.restart_all();
    }

    pub fn set_new_authority(&self, is_set: bool) {
        self.new_authority.store(is_set, Ordering::Relaxed);
        let mut allowed = lock(&self.allowed_new);
        match (is_set, allowed.last_mut()) {
            (true, _) => allowed.push((Instant::now(), None)),
            // Its processes live a moment longer, and so do their requests.
            (false, Some(last)) => last.1 = Some(Instant::now() + REST),
            (false, None) => {}
        }
    }

    pub fn restart_all(&self) {
        (0..REPLICAS).for_each(|replica| self.crash(replica));
    }

    pub fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        lock(&self.peers)
    }

    pub fn fetches(&self) -> MutexGuard<'_, Vec<Fetch>> {
        lock(&self.fetches)
    }

    pub fn record_fetch(&self, fetch: Fetch) {
        self.fetches().push(fetch);
    }

    pub fn audit(&self) -> MutexGuard<'_, Vec<(Instant, Value)>> {
        lock(&self.audit)
    }

    pub fn snapshots(&self) -> MutexGuard<'_, Vec<Snapshot>> {
        lock(&self.snapshots)
    }

    pub fn alarms(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.alarms)
    }

    pub fn attempts(&self) -> MutexGuard<'_, Vec<Attempt>> {
        lock(&self.attempts)
    }

    pub fn settled_at(&self) -> Option<Instant> {
        *lock(&self.settled_at)
    }

    pub fn join_service(&self, replica: usize) -> Option<Arc<JoinService>> {
        lock(&self.authorities)[replica].as_ref()?.joins()
    }

    /// The document of our own bundle that a replica serves.
    pub fn document(&self, replica: usize) -> Option<Arc<str>> {
        lock(&self.authorities)[replica].as_ref()?.served().map(|(document, _)| document)
    }

    /// In the end each replica is asked to judge by each token.
    async fn probe(&self) {
        for replica in 0..REPLICAS {
            for token in 0..TOKENS {
                let attempt = self.attempt(Join::new(0, token, replica).of(token), replica).await;
                self.attempts().push(attempt);
            }
        }
    }

    /// How long a peer takes to answer.
    pub fn fetch_takes(&self) -> Duration {
        Duration::from_millis(10 + 10 * self.roll(20) as u64)
    }

    /// Notes what the replicas serve, if that is new.
    pub fn look(&self) {
        let authorities = lock(&self.authorities);
        let waiting = authorities.iter().flatten().flat_map(|it| it.waiting_for());
        self.alarms().extend(waiting.filter(|it| it.contains("Restore")));
        let served = std::array::from_fn(|replica| {
            self.life(replica)?;
            let (document, chain) = authorities[replica].as_ref()?.served()?;
            Some(Served { document, chain })
        });
        let mut snapshots = lock(&self.snapshots);
        let at = Instant::now();
        let is_same = |one: &Option<Served>, two: &Option<Served>| match (one, two) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(&one.chain, &two.chain),
            _ => false,
        };
        let is_known = snapshots.last().is_some_and(|last| {
            at - last.at < LOOK && last.served.iter().zip(&served).all(|(a, b)| is_same(a, b))
        });
        if !is_known {
            snapshots.push(Snapshot { at, served });
        }
    }

    fn touch(&self, watched: Watched, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or("-");
        let path = match watched {
            Watched::Tokens => token_path(name),
            _ => federation_path(name),
        };
        self.annotate(&path, json!({ "touched": "yes" }));
    }
}

/// The audit log of one process.
struct AuditOutput {
    world: Arc<World>,
    replica: usize,
    life: u32,
    text: Vec<u8>,
}

impl Write for AuditOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.world.is_alive(self.replica, self.life) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        let record: Value = serde_json::from_slice(&text).expect("a record is a line of JSON");
        if failpoints::has(Bug::RefusalsForgotten) && !record["count"].is_null() {
            return Ok(());
        }
        let is_late = match record["event"].as_str() {
            Some("bot.join" | "agent.join") => failpoints::has(Bug::CertificateBeforeRecord),
            _ => failpoints::has(Bug::AuditBuffered),
        };
        let (world, replica, life) = (self.world.clone(), self.replica, self.life);
        if !is_late {
            world.audit().push((Instant::now(), record));
            return Ok(());
        }
        tokio::spawn(async move {
            sleep(Duration::from_secs(5)).await;
            if world.is_alive(replica, life) {
                world.audit().push((Instant::now(), record));
            }
        });
        Ok(())
    }
}
