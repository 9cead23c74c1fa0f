//! What a simulation consists of, and how it is run on a thread of its own.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use trustplane::runtime::failpoints::{self, Bug};

use crate::{faults::Fault, ops::Op, oracle, pool::Content, tamper, world::World};

/// Everything that a simulation depends on.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// Latencies, names and whatever else is left to chance.
    pub seed: u64,
    pub replicas: usize,
    /// `--on-invalid-secret=keep`.
    pub keep: bool,
    /// Whether the faults end; where they do not, a resync must do.
    pub mended: bool,
    /// Whether the quiet at the end lasts for two resyncs.
    pub sees_resyncs: bool,
    /// How much longer it is watched: problems that last are said again every hour.
    pub afterwards: Duration,
    /// Whether what is logged is read.
    pub logs: bool,
    pub steps: Vec<Step>,
    pub faults: Vec<Fault>,
}

impl Case {
    /// Whether something happens that may be noticed at the daily comparison alone, as
    /// docs/inject.md says: Secrets of other types are not watched, and where a pair came from is
    /// believed by a process that starts.
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

/// A wait, and then something that somebody does.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub wait: Duration,
    pub op: Op,
}

impl Step {
    /// Puts a Secret that the router would refuse in the place of one that nobody watches.
    pub fn without_opaque_secrets(&mut self) {
        if let Op::PutSecret(_, _, content) | Op::RecreateSecret(_, _, content) = &mut self.op
            && *content == Content::Opaque
        {
            *content = Content::Mismatched;
        }
    }
}

/// What became of a simulation.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub violations: Vec<String>,
    /// How many calls the first replica made until the last step and a little longer. What comes
    /// after is watches that are opened anew, all alike.
    pub busy_calls: u32,
    /// What happened, in one number.
    pub digest: u64,
}

/// Runs a case with a bug switched on, or none.
pub fn run(case: &Case, bug: Option<Bug>) -> RunResult {
    failpoints::switch(bug);
    tamper::reset();
    fastrand::seed(case.seed);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("trustplane=trace")
        .with_ansi(false)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let _reading = case.logs.then(|| tracing::subscriber::set_default(subscriber));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
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

/// Where the log lines of one simulation go.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
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
