//! Clients that never stop coming: new TLS connections at a steady rate, each of them judged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::client::Fingerprint;
use super::world::World;

/// New connections a second.
pub const RATE: u32 = 50;
/// How many failures are kept in words.
const TOLD: usize = 5;

/// Clients at work. They stop when this is dropped.
pub struct Load {
    tally: Arc<Mutex<Tally>>,
    tasks: JoinSet<()>,
    end: CancellationToken,
    start: Instant,
}

/// Answers and failures that the clients met.
#[derive(Clone, Default)]
pub struct Tally {
    pub made: usize,
    /// No handshake, or one with a certificate that the root did not sign for that host.
    pub failed: usize,
    pub default_seen: usize,
    /// The handshake was right, but the page was not; on our own stack alone.
    pub unanswered: usize,
    /// When each certificate was seen first.
    pub first_seen: HashMap<Fingerprint, Instant>,
    words: Vec<String>,
    elapsed: Duration,
}

impl Load {
    /// Clients who trust `root` alone and visit these hosts in turn.
    pub fn on(world: &Arc<World>, hosts: Vec<String>, root: &str) -> Self {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let end = CancellationToken::new();
        let (world, root) = (world.clone(), root.to_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(visitors(world, hosts, root, tally.clone(), end.clone()));
        Self { tally, tasks, end, start: Instant::now() }
    }

    /// Answers and failures so far.
    pub fn so_far(&self) -> Tally {
        self.tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Lets nobody in any more, and waits for those who are.
    pub async fn stop(mut self) -> Tally {
        let elapsed = self.start.elapsed();
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
        Tally { elapsed, ..self.so_far() }
    }
}

async fn visitors(
    world: Arc<World>,
    hosts: Vec<String>,
    root: String,
    tally: Arc<Mutex<Tally>>,
    end: CancellationToken,
) {
    let root: Arc<str> = root.into();
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    // A busy machine must not make it less.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut visits = JoinSet::new();
    for host in hosts.iter().cycle() {
        ticks.tick().await;
        if end.is_cancelled() {
            break;
        }
        visits.spawn(visit(world.clone(), host.clone(), root.clone(), tally.clone()));
        while visits.try_join_next().is_some() {}
    }
    while visits.join_next().await.is_some() {}
}

async fn visit(world: Arc<World>, host: String, root: Arc<str>, tally: Arc<Mutex<Tally>>) {
    let visit = world.visit(&host).await;
    let now = Instant::now();
    let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    tally.made += 1;
    let served = match visit {
        Ok(served) => served,
        // TLS stood already when the request failed.
        Err(why) if why.contains("request: ") => {
            tally.unanswered += 1;
            return tally.report(why);
        }
        Err(why) => {
            tally.failed += 1;
            return tally.report(why);
        }
    };
    if served.fingerprint() == world.default() {
        tally.default_seen += 1;
    } else if let Err(why) = served.judged_with(&root, &host) {
        tally.failed += 1;
        tally.report(why);
    }
    if served.answer.is_some_and(|status| status != 200) {
        tally.unanswered += 1;
        tally.report(format!("{host}: HTTP {:?}", served.answer));
    }
    tally.first_seen.entry(served.fingerprint()).or_insert(now);
}

impl Tally {
    fn report(&mut self, why: String) {
        if self.words.len() < TOLD {
            self.words.push(why);
        }
    }

    /// N handshakes, and nothing went wrong with any of them.
    pub fn is_flawless(&self) {
        let faults = (self.failed, self.default_seen, self.unanswered);
        assert_eq!(faults, (0, 0, 0), "{self}: {:#?}", self.words);
        let least = self.elapsed.as_secs_f64() * f64::from(RATE) * 0.9;
        assert!(self.made as f64 > least, "{self}, not {RATE} a second");
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "handshakes made {}, failed {}, default seen {}; pages not answered {}; in {:.1} s",
            self.made,
            self.failed,
            self.default_seen,
            self.unanswered,
            self.elapsed.as_secs_f64()
        )
    }
}
