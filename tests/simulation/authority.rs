//! Simulations of the SPIFFE authority: two replicas, the trust domains that they federate with, and
//! the people around them.
//!
//! - `clients`: workloads of the peers, who join
//! - `ops`: what administrators, editors and peers do
//! - `workloads`: stories, plans with faults, and random cases; `join_workloads` those of clients that join
//! - `peers`: other trust domains, and the way to their endpoints
//! - `world`: one simulation; leadership moves as the Lease would let it
//! - `oracle`: what must hold in every history
//! - `tamper`: seeded bugs

mod clients;
mod join_workloads;
mod ops;
mod oracle;
mod peers;
mod tamper;
mod workloads;
mod world;

use std::{collections::HashMap, sync::Arc, time::Duration};

use trustplane::runtime::failpoints::{self, Bug};

use crate::{
    Job,
    case::{Log, RunResult, Scenario, Step, paused},
    faults::Fault,
    journal::{Actor, Call},
    oracle::{digest, print},
};
use ops::Op;
use world::World;

pub const JOB: Job<Case> = Job {
    name: "authority",
    plans: workloads::plans,
    random: workloads::random,
    seeds: 100,
    bugs: &Bug::AUTHORITY,
    for_bugs: workloads::for_bugs,
};

/// Simulations of the same replicas, with clients that join at both.
pub const JOINS: Job<Case> = Job {
    name: "join",
    plans: join_workloads::plans,
    random: join_workloads::random,
    seeds: 150,
    bugs: &Bug::JOIN,
    for_bugs: join_workloads::for_bugs,
};

/// All inputs of a simulation of the authority.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    /// For latencies, names and other random choices.
    pub seed: u64,
    pub steps: Vec<Step<Op>>,
    pub faults: Vec<Fault>,
    /// Whether clients may join.
    pub serves_joins: bool,
    /// Whether the log is searched for keys.
    pub reads_log: bool,
}

impl Case {
    /// It takes minutes, not hours.
    fn is_short(&self) -> bool {
        self.steps.iter().map(|step| step.wait).sum::<Duration>() < Duration::from_secs(20 * 60)
    }

    async fn play(&self) -> Arc<World> {
        clients::prepare();
        tamper::reset();
        fastrand::seed(self.seed);
        World::run(self).await
    }

    /// The calls of the first replica at which a crash can make a difference: writes, and reads after
    /// something changed.
    fn crash_points(&self) -> Vec<u32> {
        paused().block_on(async {
            let world = self.play().await;
            let journal = world.journal();
            let is_first = |call: &&Call| matches!(call.by, Actor::Ours { replica: 0, .. });
            let mut seen: HashMap<&str, u64> = HashMap::new();
            let calls = journal.calls.iter().filter(is_first);
            let numbered = (0..world.busy_calls()).zip(calls);
            let points = numbered.filter(|(_, call)| {
                let changes = journal.commits.iter().take_while(|commit| commit.at < call.sent);
                let version = changes.last().map_or(0, |commit| commit.change.version);
                seen.insert(&call.path, version) != Some(version) || call.is_write()
            });
            points.map(|(number, _)| number).collect()
        })
    }
}

impl Scenario for Case {
    type Op = Op;

    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&mut self) -> &mut Vec<Step<Op>> {
        &mut self.steps
    }

    fn faults(&mut self) -> &mut Vec<Fault> {
        &mut self.faults
    }

    fn run(&self, bug: Option<Bug>) -> RunResult {
        failpoints::switch(bug);
        let log = Log::default();
        let _reading = self.reads_log.then(|| log.read());
        let outcome = paused().block_on(async {
            let world = self.play().await;
            if std::env::var_os("TRUSTPLANE_TRACE").is_some() {
                print(&world);
            }
            let mut violations = oracle::violations(&world, self);
            if self.reads_log {
                violations.extend(oracle::leaks(&world, &log.text()));
            }
            RunResult { violations, busy_calls: world.busy_calls(), digest: digest(&world) }
        });
        failpoints::switch(None);
        outcome
    }
}
