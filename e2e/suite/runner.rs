//! Runs cases, some at a time, and tells how each ended.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde::Serialize;

use super::capabilities::{Capabilities, Need};
use super::namespace::CaseNamespace;
use super::observation::{Observation, Observations};
use super::world::World;

/// They mostly wait for each other's router and grace: this is what two cores bear.
const TOGETHER: usize = 8;
/// Longest that a case may take, long ones included.
const LIMIT: Duration = Duration::from_secs(900);

/// A case: actions of a user, and what must be seen after them.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise.
    pub name: &'static str,
    /// Needs of the case.
    pub needs: &'static [Need],
    pub pace: Pace,
    run: fn(Scene) -> LocalBoxFuture<'static, Result<(), Skip>>,
}

/// Whether others may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Seconds, with others.
    Quick,
    /// Many objects or namespaces, with others.
    Heavy,
    /// It disturbs others, or measures.
    Alone,
}

/// The cluster can't show this.
pub struct Skip(pub String);

/// The cluster and namespaces of a case.
#[derive(Clone)]
pub struct Scene {
    pub world: Arc<World>,
    sights: Observations,
    notes: Notes,
    used: Notes,
}

type Notes = Arc<Mutex<Vec<String>>>;

impl Scene {
    /// A fresh namespace, which goes with the case.
    pub async fn place(&self) -> CaseNamespace {
        let place = CaseNamespace::new(self.world.clone(), self.sights.clone()).await;
        push(&self.used, place.name.clone());
        place
    }

    /// Adds a line below the table.
    pub fn note(&self, line: String) {
        push(&self.notes, line);
    }
}

/// How a case ended.
#[derive(Serialize)]
pub struct CaseResult {
    pub case: &'static str,
    pub result: CaseVerdict,
    pub seconds: f64,
    pub saw: Vec<Observation>,
    pub notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseVerdict {
    Passed,
    /// The expectation, and what was seen instead.
    Failed(String),
    Skipped(String),
}

impl Case {
    pub const fn new(
        name: &'static str,
        run: fn(Scene) -> LocalBoxFuture<'static, Result<(), Skip>>,
    ) -> Self {
        Self { name, needs: &[], pace: Pace::Quick, run }
    }

    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    pub const fn pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    async fn outcome(self, world: Arc<World>, survey: &Capabilities) -> CaseResult {
        let start = Instant::now();
        let scene = Scene {
            world,
            sights: Observations::default(),
            notes: Notes::default(),
            used: Notes::default(),
        };
        let result = match survey.why_not(&self) {
            Some(verdict) => verdict,
            None => self.verdict(scene.clone()).await,
        };
        let seconds = start.elapsed().as_secs_f64();
        for namespace in taken(&scene.used) {
            scene.world.remove_namespace(&namespace).await;
        }
        let outcome = CaseResult {
            case: self.name,
            result,
            seconds,
            saw: scene.sights.all(),
            notes: taken(&scene.notes),
        };
        outcome.report();
        outcome
    }

    async fn verdict(self, scene: Scene) -> CaseVerdict {
        let failure = Failure::default();
        let case = FAILURE.scope(failure.clone(), (self.run)(scene));
        // A failed assertion ends the case alone.
        let case = AssertUnwindSafe(case).catch_unwind();
        match tokio::time::timeout(LIMIT, case).await {
            Ok(Ok(Ok(()))) => CaseVerdict::Passed,
            Ok(Ok(Err(Skip(why)))) => CaseVerdict::Skipped(why),
            Ok(Err(_)) => CaseVerdict::Failed(failure.words()),
            Err(_) => CaseVerdict::Failed(format!("not through after {LIMIT:?}")),
        }
    }
}

impl CaseResult {
    fn report(&self) {
        let seconds = self.seconds;
        match &self.result {
            CaseVerdict::Passed => println!("  ok       {seconds:6.1} s  {}", self.case),
            CaseVerdict::Skipped(why) => println!("  skipped            {}: {why}", self.case),
            CaseVerdict::Failed(_) => println!("  FAILED   {seconds:6.1} s  {}", self.case),
        }
        for note in &self.notes {
            println!("                     {note}");
        }
    }
}

/// Runs all: first those that bear company, then the others one by one, in their order.
pub async fn run(cases: &[Case], world: &Arc<World>, survey: &Capabilities) -> Vec<CaseResult> {
    keep_failures();
    let (alone, together): (Vec<Case>, Vec<Case>) =
        cases.iter().copied().partition(|case| case.pace == Pace::Alone);
    let start = |case: Case| case.outcome(world.clone(), survey);
    let mut outcomes: Vec<CaseResult> =
        stream::iter(together).map(start).buffer_unordered(TOGETHER).collect().await;
    for case in alone {
        outcomes.push(start(case).await);
    }
    let place = |outcome: &CaseResult| cases.iter().position(|case| case.name == outcome.case);
    outcomes.sort_by_key(place);
    outcomes
}

tokio::task_local! {
    static FAILURE: Failure;
}

/// Where the words of a failed assertion are kept, with its place in the code.
#[derive(Clone, Default)]
struct Failure(Arc<Mutex<String>>);

impl Failure {
    fn words(&self) -> String {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn keep(&self, info: &PanicHookInfo<'_>) {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let fixed = payload.downcast_ref::<&str>().copied();
        let words = fixed.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let words = words.unwrap_or("panicked");
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            format!("{words}\n(at {place})");
    }
}

/// Cases run side by side, so that a panic must be told with its case and not where it happens.
fn keep_failures() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if FAILURE.try_with(|failure| failure.keep(info)).is_err() {
            usual(info);
        }
    }));
}

fn push(notes: &Notes, line: String) {
    notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(line);
}

fn taken(notes: &Notes) -> Vec<String> {
    std::mem::take(&mut notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}
