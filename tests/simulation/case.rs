//! A simulation's inputs, and how it runs.

use std::{
    fmt::Debug,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use trustplane::runtime::failpoints::{self, Bug};

use crate::{faults::Fault, ops::Op, oracle, pool::Content, tamper, world::World};

/// A simulation of some job: inputs that can be made smaller and run.
pub trait Scenario: Clone + Send + Sync {
    type Op: Debug;

    fn name(&self) -> &str;
    fn steps(&mut self) -> &mut Vec<Step<Self::Op>>;
    fn faults(&mut self) -> &mut Vec<Fault>;
    /// Runs it, with a bug switched on if given.
    fn run(&self, bug: Option<Bug>) -> RunResult;
}

impl Scenario for Case {
    type Op = Op;

    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.steps
    }

    fn faults(&mut self) -> &mut Vec<Fault> {
        &mut self.faults
    }

    fn run(&self, bug: Option<Bug>) -> RunResult {
        run(self, bug)
    }
}

/// All inputs of a simulation of the injector.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// For latencies, names and other random choices.
    pub seed: u64,
    pub replicas: usize,
    /// `--on-invalid-secret=keep`.
    pub keep: bool,
    /// Whether the faults end. If not, a resync must suffice.
    pub faults_end: bool,
    /// Whether the quiet period at the end lasts for two resyncs.
    pub sees_resyncs: bool,
    /// How much longer the simulation runs, because lasting problems are reported every hour.
    pub extra_time: Duration,
    /// Whether the log is searched for keys.
    pub logs: bool,
    pub steps: Vec<Step>,
    pub faults: Vec<Fault>,
}

impl Case {
    /// Whether a change may go unnoticed until the daily comparison, as docs/inject.md says:
    /// Secrets of other types are not watched, and a starting process trusts the injected-from
    /// annotation.
    pub fn needs_comparison(&self) -> bool {
        self.steps.iter().any(|step| match step.op {
            Op::PutSecret(_, _, content) | Op::RecreateSecret(_, _, content) => {
                content == Content::Opaque
            }
            Op::FitSource(..) => !self.faults.is_empty(),
            _ => false,
        })
    }
}

/// A wait, then an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<O = Op> {
    pub wait: Duration,
    pub op: O,
}

impl Step {
    /// Replaces Secrets that are not watched by Secrets that the router would refuse.
    pub fn without_opaque_secrets(&mut self) {
        if let Op::PutSecret(_, _, content) | Op::RecreateSecret(_, _, content) = &mut self.op
            && *content == Content::Opaque
        {
            *content = Content::Mismatched;
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub violations: Vec<String>,
    /// Calls of the first replica until shortly after the last step. Later calls only reopen
    /// watches.
    pub busy_calls: u32,
    /// Hash of the history.
    pub digest: u64,
}

fn run(case: &Case, bug: Option<Bug>) -> RunResult {
    failpoints::switch(bug);
    tamper::reset();
    fastrand::seed(case.seed);
    let log = Log::default();
    let _reading = case.logs.then(|| log.read());
    let outcome = paused().block_on(async {
        let world = World::run(case).await;
        if std::env::var_os("TRUSTPLANE_TRACE").is_some() {
            oracle::print(&world);
        }
        let mut violations = oracle::violations(&world, case);
        violations.extend(oracle::leaks(&world, &log.text()));
        RunResult { violations, busy_calls: world.busy_calls(), digest: oracle::digest(&world) }
    });
    failpoints::switch(None);
    outcome
}

/// A runtime whose clock only advances while every task waits.
pub fn paused() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

/// Collects the log lines of one simulation.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects until the guard is dropped.
    pub fn read(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("trustplane=trace")
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics with the lock")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with the lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
