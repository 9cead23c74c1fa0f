//! Simulations of the SPIFFE authority: two replicas, the trust domains that they federate with, and
//! the people around them.
//!
//! - `ops`: what administrators, editors and peers do
//! - `workloads`: stories, plans with faults, and random cases
//! - `peers`: other trust domains, and the way to their endpoints
//! - `world`: one simulation; leadership moves as the Lease would let it
//! - `oracle`: what must hold in every history
//! - `tamper`: seeded bugs

mod ops;
mod oracle;
mod peers;
mod tamper;
mod workloads;
mod world;

use trustplane::runtime::failpoints::{self, Bug};

use crate::{
    Job,
    case::{RunResult, Scenario, Step, paused},
    faults::Fault,
    oracle::{digest, print},
};
use ops::Op;
use world::World;

pub const JOB: Job<Case> = Job {
    name: "authority",
    plans: workloads::plans,
    random: workloads::random,
    seeds: 400,
    bugs: &Bug::AUTHORITY,
    for_bugs: workloads::for_bugs,
};

/// All inputs of a simulation of the authority.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// For latencies, names and other random choices.
    pub seed: u64,
    pub steps: Vec<Step<Op>>,
    pub faults: Vec<Fault>,
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
        tamper::reset();
        fastrand::seed(self.seed);
        let outcome = paused().block_on(async {
            let world = World::run(self).await;
            if std::env::var_os("TRUSTPLANE_TRACE").is_some() {
                print(&world);
            }
            let violations = oracle::violations(&world, self);
            RunResult { violations, busy_calls: world.busy_calls(), digest: digest(&world) }
        });
        failpoints::switch(None);
        outcome
    }
}
