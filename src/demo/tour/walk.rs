//! Walks the steps of a scenario: acts, and then polls until the expected result is seen.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::printer::heading;

/// Interval between two observations.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// What a tour shows: its steps, how they are carried out, and what can be observed then.
pub trait Scenario {
    type Act: Copy;
    type Expected;
    type Seen: Serialize;
    type Error: std::error::Error + Send + Sync + 'static;

    fn steps(&self) -> Vec<Step<Self::Act, Self::Expected>>;

    fn carry_out(&self, act: Self::Act) -> impl Future<Output = Result<(), Self::Error>>;

    fn observe(&self) -> impl Future<Output = Self::Seen>;

    /// Differences from the expectation; empty if it is met.
    fn differences(expected: &Self::Expected, seen: &Self::Seen) -> Vec<String>;
}

pub struct Step<A, E> {
    pub title: &'static str,
    /// The commands of an administrator. Comment lines describe what happens by itself.
    pub commands: Vec<String>,
    pub act: A,
    pub expected: E,
}

impl<A, E> Step<A, E> {
    /// The text at the start of a step.
    pub fn heading(&self, number: usize, width: usize) -> String {
        heading(number, self.title, self.commands.iter().map(String::as_str), width)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Timeout for a step's expected result.
    pub patience: Duration,
    /// Time to read before the next step.
    pub pause: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("step {number} could not be done")]
pub struct WalkError<E> {
    pub number: usize,
    pub source: E,
}

#[derive(Clone, Debug, Serialize)]
pub struct WalkedStep<Seen> {
    pub number: usize,
    pub title: &'static str,
    pub commands: Vec<String>,
    #[serde(flatten)]
    pub seen: Seen,
    /// Time until the expected result was seen.
    pub seconds: f64,
    /// Differences from the expectation; empty if it was met.
    pub differences: Vec<String>,
}

impl<Seen> WalkedStep<Seen> {
    pub fn holds(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Progress of a walk.
pub enum Progress<'a, S: Scenario> {
    Begins(usize, &'a Step<S::Act, S::Expected>),
    Ends(&'a WalkedStep<S::Seen>),
}

/// Runs all steps and reports each.
pub async fn walk<S: Scenario, E: From<WalkError<S::Error>>>(
    scenario: &S,
    pace: Pace,
    mut tell: impl FnMut(Progress<'_, S>) -> Result<(), E>,
) -> Result<Vec<WalkedStep<S::Seen>>, E> {
    let mut walked = Vec::new();
    for (number, step) in (1..).zip(scenario.steps()) {
        if number > 1 {
            sleep(pace.pause).await;
        }
        tell(Progress::Begins(number, &step))?;
        let start = Instant::now();
        let acted = scenario.carry_out(step.act).await;
        acted.map_err(|source| WalkError { number, source })?;
        let ended = observe_until(scenario, number, step, start, pace.patience).await;
        tell(Progress::Ends(&ended))?;
        walked.push(ended);
    }
    Ok(walked)
}

async fn observe_until<S: Scenario>(
    scenario: &S,
    number: usize,
    step: Step<S::Act, S::Expected>,
    start: Instant,
    patience: Duration,
) -> WalkedStep<S::Seen> {
    loop {
        let seen = scenario.observe().await;
        let seconds = start.elapsed().as_secs_f64();
        let differences = S::differences(&step.expected, &seen);
        if differences.is_empty() || start.elapsed() > patience {
            let Step { title, commands, .. } = step;
            return WalkedStep { number, title, commands, seen, seconds, differences };
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
pub mod testing {
    use anstream::adapter::strip_str;

    use super::WalkedStep;
    use crate::runtime::{
        printable::{HOSTILE, is_harmless},
        terminal::fits,
    };

    /// A step of half a second.
    pub fn walked<Seen>(seen: Seen, differences: &[&str]) -> WalkedStep<Seen> {
        WalkedStep {
            number: 1,
            title: "Something happens",
            commands: Vec::new(),
            seen,
            seconds: 0.5,
            differences: differences.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    /// The block of a hostile observation is harmless, and breaks no word at any width.
    pub fn check_hostile_block<Seen: Clone>(
        seen: &Seen,
        ends: impl Fn(&WalkedStep<Seen>, usize) -> String,
    ) {
        for width in [50, 80, 100] {
            let shown = ends(&walked(seen.clone(), &[HOSTILE]), width);
            let shown = strip_str(&shown).to_string();
            assert!(is_harmless(&shown) && fits(&shown, width), "{width}:\n{shown}");
            assert!(shown.starts_with("   ✗ 0.50 s"), "{shown}");
        }
    }
}
