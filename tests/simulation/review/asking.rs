//! Simulations of reviews: callers ask one replica about tokens, while clusters revoke them, rotate and copy keys,
//! and fail.

mod oracle;
mod workloads;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::TimeDelta;
use futures::future::join_all;
use tokio::time::{Instant, sleep};
use trustplane::{
    review::{
        credentials::Credentials,
        decide::request::Answer,
        forward::Forwarder,
        keys::KeyStore,
        reviewer::{Asked, Purpose, Reviewer},
    },
    runtime::failpoints::{self, Bug},
};

use super::{
    path::Path,
    remote::{Down, ISSUER, OWN_ACCOUNT, Remote, WORKLOAD},
    signing::key,
    world::{CLUSTERS, config},
};
use crate::{
    Job,
    case::{RunResult, Scenario, Step, paused},
    cluster::{Cluster, lock},
    faults::Fault,
    oracle::{digest, print},
};

pub const JOB: Job<Case> = Job {
    name: "review",
    plans: workloads::plans,
    random: workloads::random,
    seeds: 200,
    bugs: &Bug::REVIEW,
    for_bugs: workloads::for_bugs,
};

const REFRESH: Duration = Duration::from_secs(300);
/// Of a review.
const DEADLINE: Duration = Duration::from_secs(10);
/// Of verdicts that are remembered.
const TTL: Duration = Duration::from_secs(3);
const YEAR: TimeDelta = TimeDelta::days(365);
const HOUR: TimeDelta = TimeDelta::hours(1);
/// A key that no cluster has.
const NOBODYS: usize = 11;

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// So many callers ask about the newest token of a cluster's workload, for an audience.
    Ask(usize, usize, &'static str),
    /// About the first one, which may have been revoked.
    AskOld(usize),
    /// About one that nobody's key signed.
    AskForged,
    /// The workload gets a new token.
    NewToken(usize),
    /// The workload is deleted and made again.
    Revoke(usize),
    /// The cluster publishes a new key, and signs with it from then on.
    RotateKeys(usize),
    /// The first publishes the keys of the second, too.
    CopyKeys(usize, usize),
    Break(usize),
    Hang(usize),
    /// Its keys can't be fetched, but it reviews.
    HideKeys(usize),
    /// Reviews take so many seconds there.
    SlowReviews(usize, u64),
    Mend(usize),
    Nothing,
}

/// All inputs of a simulation of reviews.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub name: String,
    pub seed: u64,
    /// Whether verdicts are remembered.
    pub caches: bool,
    pub steps: Vec<Step<Op>>,
    pub faults: Vec<Fault>,
}

impl Case {
    fn cache(&self) -> Option<Duration> {
        self.caches.then_some(TTL)
    }
}

/// A review, and what came of it.
#[derive(Clone, Debug)]
struct Attempt {
    token: String,
    audience: &'static str,
    asked: Instant,
    answered: Instant,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// Of the cluster of this name, as the answer says.
    Good(String),
    NotGood,
    /// With this code.
    Failed(u16),
}

struct World {
    cluster: Arc<Cluster>,
    remotes: Vec<Arc<Remote>>,
    reviewer: Reviewer,
    keys: Arc<KeyStore>,
    /// The tokens of each cluster's workload, oldest first.
    tokens: Mutex<Vec<Vec<String>>>,
    attempts: Mutex<Vec<Attempt>>,
    /// When each key was first published.
    published: Mutex<BTreeMap<usize, Instant>>,
    /// When something was wrong at a cluster, and until when.
    troubles: Mutex<Vec<Trouble>>,
    /// When the keys of a cluster could not be fetched.
    hidden: Mutex<Vec<Trouble>>,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    at: usize,
    from: Instant,
    until: Option<Instant>,
}

/// Notes that something is wrong from now on.
fn begin(troubles: &Mutex<Vec<Trouble>>, at: usize) {
    lock(troubles).push(Trouble { at, from: Instant::now(), until: None });
}

fn end(troubles: &Mutex<Vec<Trouble>>, at: usize) {
    let mut troubles = lock(troubles);
    let open = troubles.iter_mut().filter(|it| it.at == at && it.until.is_none());
    open.for_each(|it| it.until = Some(Instant::now()));
}

impl World {
    fn new(case: &Case) -> Arc<Self> {
        let cluster = Cluster::new(case.seed, 1, &case.faults, &[]);
        let remotes = CLUSTERS.iter().zip(0..).map(|(name, number)| Remote::new(name, number));
        let remotes: Vec<_> = remotes.map(Arc::new).collect();
        let clock = cluster.clock(TimeDelta::zero());
        let names: Vec<Arc<str>> = CLUSTERS.iter().map(|name| Arc::from(*name)).collect();
        let paths = names.iter().map(|name| (name.clone(), PathBuf::from("/token")));
        let credentials = Credentials::new(paths, clock.clone());
        let now = cluster.time(Instant::now());
        let client = |number: usize| {
            let (cluster, remote) = (cluster.clone(), remotes[number].clone());
            let path = Path { cluster, remote, replica: 0, life: 0 };
            path.client(credentials.bearer(&names[number]))
        };
        for (remote, name) in remotes.iter().zip(&names) {
            credentials.take_file(name, Ok(remote.make(OWN_ACCOUNT, YEAR, now)));
        }
        let numbered = || names.iter().cloned().enumerate();
        let members = numbered().map(|(number, name)| (name, config(), client(number)));
        let keys = KeyStore::new(members, REFRESH);
        let forwarder = Forwarder::new(numbered().map(|(number, name)| (name, client(number))));
        let reviewer = Reviewer::new(keys.clone(), Arc::new(forwarder), clock);
        let shares = failpoints::has(Bug::SharedFlight).then_some(Duration::from_millis(1));
        let reviewer = reviewer.remembering(case.cache().or(shares));
        let tokens = remotes.iter().map(|it| vec![it.make(WORKLOAD, HOUR, now)]).collect();
        let published = (0..CLUSTERS.len()).map(|number| (number, Instant::now())).collect();
        Arc::new(Self {
            cluster,
            remotes,
            reviewer,
            keys,
            tokens: Mutex::new(tokens),
            attempts: Mutex::default(),
            published: Mutex::new(published),
            troubles: Mutex::default(),
            hidden: Mutex::default(),
        })
    }

    async fn run(case: &Case) -> Arc<Self> {
        let world = Self::new(case);
        let names = CLUSTERS.iter().map(|name| Arc::from(*name));
        let keeping = join_all(names.map(|name| world.keys.clone().keep(name)));
        let playing = async {
            while !world.keys.missing().is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
            for step in &case.steps {
                sleep(step.wait).await;
                world.perform(&step.op);
            }
            world.cluster.rest(2 * DEADLINE, None).await;
        };
        tokio::select! {
            // A history repeats itself only if this has an order.
            biased;
            () = playing => {}
            _ = keeping => {}
        }
        world
    }

    fn perform(self: &Arc<Self>, op: &Op) {
        match *op {
            Op::Nothing => {}
            Op::Ask(at, callers, audience) => {
                let token = lock(&self.tokens)[at].last().cloned().unwrap_or_default();
                (0..callers).for_each(|_| self.ask(token.clone(), audience));
            }
            Op::AskOld(at) => {
                let token = lock(&self.tokens)[at][0].clone();
                self.ask(token, ISSUER);
            }
            Op::AskForged => self.ask(self.forged(), ISSUER),
            Op::NewToken(at) => {
                let token =
                    self.remotes[at].make(WORKLOAD, HOUR, self.cluster.time(Instant::now()));
                lock(&self.tokens)[at].push(token);
            }
            Op::Revoke(at) => self.remotes[at].state().revoke(WORKLOAD),
            Op::RotateKeys(at) => {
                {
                    let mut state = self.remotes[at].state();
                    let own = state.keys.iter().filter(|it| **it % CLUSTERS.len() == at);
                    let next = own.max().map_or(at, |it| it + CLUSTERS.len());
                    if next == NOBODYS {
                        return;
                    }
                    state.keys.insert(0, next);
                    lock(&self.published).insert(next, Instant::now());
                }
                self.perform(&Op::NewToken(at));
            }
            Op::CopyKeys(thief, of) => {
                // What was seen at its owner first. Nothing is noted here, so it is nobody's from then on.
                let copied = self.remotes[of].state().keys.clone();
                let mut state = self.remotes[thief].state();
                let new: Vec<_> =
                    copied.into_iter().filter(|it| !state.keys.contains(it)).collect();
                state.keys.extend(new);
                begin(&self.troubles, of);
            }
            Op::Break(at) => self.trouble(at, |remote| remote.state().down = Some(Down::Broken)),
            Op::Hang(at) => self.trouble(at, |remote| remote.state().down = Some(Down::Hanging)),
            Op::HideKeys(at) => {
                self.remotes[at].state().hides_keys = true;
                begin(&self.hidden, at);
            }
            Op::SlowReviews(at, seconds) => {
                self.remotes[at].state().review_takes = Duration::from_secs(seconds);
                if seconds > 2 {
                    self.trouble(at, |_| {});
                }
            }
            Op::Mend(at) => {
                {
                    let mut state = self.remotes[at].state();
                    (state.down, state.hides_keys) = (None, false);
                    state.review_takes = Duration::ZERO;
                }
                end(&self.troubles, at);
                end(&self.hidden, at);
            }
        }
    }

    fn trouble(&self, at: usize, change: impl FnOnce(&Remote)) {
        change(&self.remotes[at]);
        begin(&self.troubles, at);
    }

    /// Names a key that no cluster has.
    fn forged(&self) -> String {
        let now = self.cluster.time(Instant::now()).timestamp();
        key(NOBODYS).sign(&serde_json::json!({
            "iss": ISSUER, "sub": "system:serviceaccount:cart:cart", "aud": [ISSUER],
            "iat": now, "exp": now + 3600, "jti": format!("forged-{now}"),
            "kubernetes.io": {
                "namespace": "cart", "serviceaccount": { "name": "cart", "uid": "u-1" },
            },
        }))
    }

    fn ask(self: &Arc<Self>, token: String, audience: &'static str) {
        let world = self.clone();
        self.cluster.background(async move {
            let asked = Instant::now();
            let audiences = [audience.to_owned()];
            let answer = world.reviewer.review(Asked {
                token: &token,
                audiences: &audiences,
                audit_id: None,
                deadline: asked + DEADLINE,
                purpose: Purpose::Review,
                among: None,
            });
            let outcome = match answer.await.map(|reviewed| reviewed.answer) {
                Ok(Answer::Authenticated(accepted)) => {
                    let extra = accepted.user.extra.unwrap_or_default();
                    let name = extra.get("authentication.kubernetes.io/cluster-name");
                    Outcome::Good(name.map(|it| it.concat()).unwrap_or_default())
                }
                Ok(Answer::NotAuthenticated(_)) => Outcome::NotGood,
                Err(failure) => Outcome::Failed(failure.code),
            };
            let answered = Instant::now();
            lock(&world.attempts).push(Attempt { token, audience, asked, answered, outcome });
        });
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
        let outcome = paused().block_on(async {
            fastrand::seed(self.seed);
            let world = World::run(self).await;
            if std::env::var_os("TRUSTPLANE_TRACE").is_some() {
                print(&world.cluster);
                println!("{:#?}", lock(&world.attempts));
            }
            let violations = oracle::violations(&world, self);
            RunResult {
                violations,
                busy_calls: world.cluster.busy_calls(),
                digest: digest(&world.cluster),
            }
        });
        failpoints::switch(None);
        outcome
    }
}
