//! A simulation of the injector: the production controller on a connection that fails by plan, and the
//! users and programs around it.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use apiserver::faults::FaultyTransport;
use chrono::TimeDelta;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use trustplane::{
    inject::{
        decide::plan::{OnInvalid, Policy},
        run::{Injector, Options},
    },
    k8s::{client, gate::Gate},
    names::INJECT_LEASE,
    runtime::lease::{Candidate, Election},
};

use crate::{
    case::Case,
    cluster::{Cluster, lock},
    tamper::{self, InjectTamper},
    wire::{Sender, Wire},
};

pub const RESYNC: Duration = Duration::from_secs(900);
/// Longer than everything else: repairs by the daily comparison alone come only then.
const COMPARE: Duration = Duration::from_secs(4 * 60 * 60);
/// Longer than any back-off and shorter than a resync, so that repairs by a resync alone come too
/// late.
const SETTLE: Duration = Duration::from_secs(660);
/// Long enough to reconcile the last step without faults.
const REST: Duration = Duration::from_secs(10);

pub struct World {
    cluster: Arc<Cluster>,
    pub policy: Policy,
    registries: Mutex<Vec<Registry>>,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl World {
    fn new(case: &Case) -> Arc<Self> {
        let on_invalid = if case.keep { OnInvalid::Keep } else { OnInvalid::Default };
        let namespaces = ["web", "ops", "trustplane"];
        Arc::new(Self {
            cluster: Cluster::new(case.seed, case.replicas, &case.faults, &namespaces),
            policy: Policy { on_invalid, ..Policy::default() },
            registries: Mutex::default(),
        })
    }

    /// Runs the case to its end, and the controllers until they have settled.
    pub async fn run(case: &Case) -> Arc<Self> {
        let world = Self::new(case);
        let supervisors: Vec<_> = (0..case.replicas)
            .map(|replica| {
                let process = world.clone();
                let process = move |life| process.clone().process(replica, life);
                tokio::spawn(world.cluster.clone().keep_alive(replica, process))
            })
            .collect();
        for (number, step) in case.steps.iter().enumerate() {
            world.cluster.begin_faults(number);
            sleep(step.wait).await;
            world.perform(&step.op);
        }
        world.cluster.begin_faults(case.steps.len());
        let end = world.faults().end().filter(|_| case.faults_end);
        world.rest(REST, end).await;
        if case.faults_end {
            world.faults().heal();
        }
        if !case.faults_end {
            sleep(RESYNC).await;
        }
        if case.needs_comparison() {
            sleep(COMPARE + RESYNC).await;
        }
        for (watched, object) in world.take_undecodable() {
            world.touch(watched, &object);
        }
        sleep(SETTLE).await;
        world.begin_quiet();
        if case.sees_resyncs {
            sleep(2 * RESYNC).await;
        }
        sleep(case.extra_time).await;
        for supervisor in supervisors {
            supervisor.abort();
        }
        world
    }

    /// Like `trustplane inject`, without flags, signals and listeners.
    async fn process(self: Arc<Self>, replica: usize, life: u32) {
        let elects = self.elects();
        let deadline = Arc::new(watch::Sender::new(None));
        let gate = if elects { Gate::until(deadline.subscribe()) } else { Gate::open() };
        self.set_lease(replica, elects.then(|| deadline.subscribe()));
        let (cluster, sender) = (self.cluster.clone(), Sender::Leader);
        let wire = Wire { cluster, replica, life, sender, tamper: InjectTamper };
        let client = client::over(FaultyTransport(wire), gate.clone());
        let skew = TimeDelta::minutes(10) * i32::try_from(replica).expect("a few replicas");
        let clock = self.clock(skew);
        let mut registry = Registry::default();
        let injector = Injector::new(
            client.clone(),
            gate,
            clock.clone(),
            self.options(replica),
            &mut registry,
        );
        lock(&self.registries).push(registry);
        let stop = CancellationToken::new();
        let identity = format!("replica-{replica}-{life}");
        let election = async {
            if !elects {
                return std::future::pending().await;
            }
            let candidate =
                Candidate { namespace: "trustplane".into(), name: INJECT_LEASE, identity };
            let election = Election::new(client, candidate, clock, deadline);
            election.run(stop.clone(), CancellationToken::new()).await;
        };
        tokio::select! {
            biased;
            _ = injector.run(stop.clone()) => {}
            () = election => {}
        }
    }

    fn options(&self, replica: usize) -> Options {
        Options {
            namespaces: Vec::new(),
            policy: tamper::policy(&self.policy),
            concurrency: 4,
            resync: RESYNC,
            watch_timeout: Duration::from_secs(60),
            compare_every: COMPARE,
            judges_in_place: true,
            dry_run: false,
            instance: format!("replica-{replica}"),
        }
    }

    /// Metrics of all processes, in the text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        for registry in lock(&self.registries).iter() {
            prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
        }
        text
    }
}
