//! Simulations of `trustplane review`.
//!
//! - `remote`, `signing`, `path`: remote clusters, and the way to them
//! - renewals: `world` is one simulation of two replicas, `ops` what administrators and clusters do, `workloads`
//!   the stories, `oracle` what must hold, `tamper` seeded bugs
//! - `asking`: reviews at one replica, while clusters revoke, rotate, copy keys and fail

mod asking;
mod ops;
mod oracle;
mod path;
mod remote;
mod signing;
mod tamper;
mod workloads;
mod world;

use std::{collections::HashMap, sync::Arc};

use trustplane::runtime::failpoints::{self, Bug};

use crate::{
    Job,
    case::{Log, RunResult, Scenario, Step, paused},
    faults::Fault,
    journal::{Actor, Call},
    oracle::{digest, print},
};
pub use asking::JOB as ASKING;
use ops::Op;
use world::World;

pub const RENEWAL: Job<Case> = Job {
    name: "renewal",
    plans: workloads::plans,
    random: workloads::random,
    seeds: 100,
    bugs: &Bug::RENEWAL,
    for_bugs: workloads::for_bugs,
};

/// All inputs of a simulation of renewals.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    /// For latencies, names and other random choices.
    pub seed: u64,
    pub steps: Vec<Step<Op>>,
    pub faults: Vec<Fault>,
    /// Whether the log is searched for tokens.
    pub reads_log: bool,
}

impl Case {
    async fn play(&self) -> Arc<World> {
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
