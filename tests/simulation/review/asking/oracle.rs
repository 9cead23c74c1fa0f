//! What must hold in every history of reviews.

use std::time::Duration;

use tokio::time::Instant;
use trustplane::review::decide::token::Token;

use super::{
    super::{
        remote::{Purpose, Received},
        signing::key,
        world::CLUSTERS,
    },
    Attempt, Case, DEADLINE, Outcome, Trouble, World,
};
use crate::cluster::lock;

/// After trouble ends, the circuit breaker keeps reviews away for so long, and keys are fetched again.
const RECOVERY: Duration = Duration::from_secs(45);
/// Fetches of one cluster's keys within ten seconds.
const MOST_FETCHES: usize = 12;
const TEN_SECONDS: Duration = Duration::from_secs(10);

pub fn violations(world: &World, case: &Case) -> Vec<String> {
    let mut found = world.cluster.journal().violations.clone();
    // How old a verdict may be: the call that it is of took a while, too.
    let age = case.cache().map_or(Duration::ZERO, |ttl| ttl + DEADLINE);
    let attempts = lock(&world.attempts).clone();
    for attempt in &attempts {
        found.extend(wrong(world, attempt, age).map(|what| {
            let (from, until) = (attempt.asked, attempt.answered);
            let after = [from, until].map(|at| world.cluster.time(at).format("%T%.3f").to_string());
            format!("asked at {}, answered at {}: {what}", after[0], after[1])
        }));
    }
    found.extend(sent_elsewhere(world));
    found.extend(hot(world));
    found
}

/// The cluster that granted a token. None for a forged one.
fn home(world: &World, token: &str) -> Option<usize> {
    world.remotes.iter().position(|remote| remote.state().granted(token).is_some())
}

fn wrong(world: &World, attempt: &Attempt, age: Duration) -> Option<String> {
    let Some(at) = home(world, &attempt.token) else {
        return match &attempt.outcome {
            Outcome::Good(_) => Some("a forged token is good".to_owned()),
            // Without the keys of all clusters it is not known whose it is.
            Outcome::NotGood | Outcome::Failed(_) => None,
        };
    };
    let name = CLUSTERS[at];
    match &attempt.outcome {
        Outcome::Good(told) if told != name => Some(format!("a token of {name} is {told}'s")),
        Outcome::Good(_) if !is_confirmed(world, at, attempt, age) => {
            Some(format!("{name} did not say so after it was asked"))
        }
        Outcome::Good(_) => None,
        Outcome::NotGood if is_good(world, at, attempt) && !is_contested(world, at) => {
            Some(format!("a good token of {name} is said not to be"))
        }
        Outcome::NotGood => None,
        Outcome::Failed(code) if !may_fail(world, at, attempt) => {
            Some(format!("HTTP {code}, and nothing is wrong at {name}"))
        }
        Outcome::Failed(_) => None,
    }
}

/// Whether the cluster said yes to this token and audience after it was asked.
fn is_confirmed(world: &World, at: usize, attempt: &Attempt, age: Duration) -> bool {
    let state = world.remotes[at].state();
    state.received.iter().any(|it| {
        it.token == attempt.token
            && it.audiences == [attempt.audience]
            && it.authenticated
            && it.sent + age >= attempt.asked
            && it.at <= attempt.answered
    })
}

/// Whether the token was good, and known to be of the cluster, all the time.
fn is_good(world: &World, at: usize, attempt: &Attempt) -> bool {
    let state = world.remotes[at].state();
    let Some(granted) = state.granted(&attempt.token) else { return false };
    let lasts = granted.expires > world.cluster.time(attempt.answered)
        && granted.revoked.is_none_or(|at| at > attempt.answered);
    let Ok(token) = Token::read(&attempt.token) else { return false };
    let is_for = token.audiences.is_some_and(|all| all.iter().any(|it| it == attempt.audience));
    let number = token.kid.as_deref().and_then(|kid| kid.strip_prefix("key-")?.parse().ok());
    let published = number.and_then(|number: usize| lock(&world.published).get(&number).copied());
    lasts && is_for && published.is_some_and(|since| since <= attempt.asked)
}

/// Whether another cluster copied its keys, and nothing notes here whose they are.
fn is_contested(world: &World, at: usize) -> bool {
    let keys = world.remotes[at].state().keys.clone();
    let others = world.remotes.iter().enumerate().filter(|(other, _)| *other != at);
    let mut others = others.flat_map(|(_, remote)| remote.state().keys.clone());
    others.any(|number| keys.contains(&number))
}

/// Whether a review may fail without an answer.
fn may_fail(world: &World, at: usize, attempt: &Attempt) -> bool {
    let troubles = lock(&world.troubles);
    let own: Vec<&Trouble> = troubles.iter().filter(|it| it.at == at).collect();
    let is_first = own
        .iter()
        .filter_map(|it| it.until)
        .max()
        .is_some_and(|end| end < attempt.asked && !has_answered(world, at, end, attempt.asked));
    // One review tries a cluster that failed, and the others are sent away meanwhile.
    overlaps(&own, attempt, RECOVERY)
        || (is_first && !is_alone(world, at, attempt))
        || depends_on_hidden_keys(world, at, attempt)
}

fn overlaps(troubles: &[&Trouble], attempt: &Attempt, recovery: Duration) -> bool {
    let from = attempt.asked - recovery;
    let during =
        |it: &&Trouble| it.from <= attempt.answered && it.until.is_none_or(|end| end >= from);
    troubles.iter().any(during)
}

/// Whether the cluster reviewed anything between the two moments.
fn has_answered(world: &World, at: usize, from: Instant, until: Instant) -> bool {
    let state = world.remotes[at].state();
    let reviews = state.received.iter().filter(|it| it.purpose == Purpose::Review);
    let mut good = reviews.filter(|it| it.code == 201);
    good.any(|it| from < it.at && it.at < until)
}

fn is_alone(world: &World, at: usize, attempt: &Attempt) -> bool {
    let attempts = lock(&world.attempts);
    let same = attempts.iter().filter(|it| home(world, &it.token) == Some(at));
    same.filter(|it| it.asked <= attempt.answered && it.answered >= attempt.asked).count() == 1
}

/// A key that is not the cluster's first may not have been fetched before its keys were hidden.
fn depends_on_hidden_keys(world: &World, at: usize, attempt: &Attempt) -> bool {
    let hidden = lock(&world.hidden);
    let own: Vec<&Trouble> = hidden.iter().filter(|it| it.at == at).collect();
    let is_first =
        Token::read(&attempt.token).is_ok_and(|token| token.kid.as_deref() == Some(&*key(at).kid));
    !is_first && overlaps(&own, attempt, RECOVERY)
}

/// Tokens that a cluster received, and that are not its own.
fn sent_elsewhere(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for remote in &world.remotes {
        let state = remote.state();
        let is_foreign = |it: &&Received| {
            it.purpose != Purpose::Keys
                && !it.token.is_empty()
                && state.granted(&it.token).is_none()
        };
        if state.received.iter().any(|it| is_foreign(&it)) {
            found.push(format!("{} received a token that is not its own", remote.name));
        }
        if state.received.iter().any(|it| state.granted(&it.bearer).is_none()) {
            found.push(format!("{} was asked with a token that is not its own", remote.name));
        }
    }
    found
}

fn hot(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for remote in &world.remotes {
        let state = remote.state();
        let fetches = state.received.iter().filter(|it| it.purpose == Purpose::Keys);
        let fetches: Vec<Instant> = fetches.map(|it| it.at).collect();
        let mut windows = fetches.windows(MOST_FETCHES);
        if windows.any(|of| of[MOST_FETCHES - 1] - of[0] < TEN_SECONDS) {
            found.push(format!("the keys of {} were fetched again and again", remote.name));
        }
    }
    found
}
