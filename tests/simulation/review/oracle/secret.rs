//! Every write of our Secret: only tokens that a cluster served take the place of others, in time and not early.

use std::time::Duration;

use chrono::TimeDelta;
use tokio::time::Instant;

use super::{
    super::{
        remote::Purpose,
        world::{CLUSTERS, World},
    },
    history::{History, SecretState},
};
use crate::{election::REPLICAS, journal::Actor};

/// A renewal that is due and possible is done by then: longer than any back-off and election.
const GRACE: Duration = Duration::from_secs(140);
const SAMPLE: Duration = Duration::from_secs(15);
/// The clocks of replicas differ by less.
const SKEW: TimeDelta = TimeDelta::seconds(3);
/// Between the look at a file and the write that follows.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// More TokenRequests to one cluster within ten minutes mean that the back-off does not work.
const HOT: usize = 40;
const TEN_MINUTES: Duration = Duration::from_secs(600);

pub fn violations(history: &History<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, state) in history.secrets.iter().enumerate() {
        if state.by.is_ours() {
            found.extend(wrong_write(history, basis(history, number), state));
        }
    }
    found.extend(late(history));
    found.extend(hot(history.world));
    found
}

/// What the writer of a change had to go by. Of a Secret that somebody deleted, that is what it remembers.
fn basis<'a>(history: &'a History<'_>, number: usize) -> Option<&'a SecretState> {
    let before = history.secrets[..number].last()?;
    if before.exists {
        return Some(before);
    }
    let Actor::Ours { replica, life } = history.secrets[number].by else { return None };
    let process = history.world.processes(replica).into_iter().find(|it| it.life == life)?;
    let remembers = process.born + UNDER_WAY < before.at;
    history.secrets[..number].iter().rfind(|it| it.exists).filter(|_| remembers)
}

fn wrong_write(
    history: &History<'_>,
    before: Option<&SecretState>,
    state: &SecretState,
) -> Vec<String> {
    let mut found = Vec::new();
    for (cluster, name) in CLUSTERS.iter().enumerate() {
        let old = before.and_then(|it| it.entries[cluster].clone());
        let new = state.entries[cluster].clone();
        if old == new {
            continue;
        }
        match (&old, &new) {
            (Some(_), None) => found.push(format!("the token of {name} was dropped")),
            (_, Some(new)) => {
                let wrong = wrong_token(history, cluster, old.as_deref(), new, state);
                found.extend(wrong.map(|what| format!("a token of {name} was saved {what}")));
            }
            (None, None) => {}
        }
    }
    let notes = before.map(|it| &it.notes).into_iter().flatten();
    for (key, owner) in notes {
        if state.notes.get(key) != Some(owner) {
            found.push(format!("a key of {owner} was noted for {:?}", state.notes.get(key)));
        }
    }
    found
}

fn wrong_token(
    history: &History<'_>,
    cluster: usize,
    old: Option<&str>,
    new: &str,
    state: &SecretState,
) -> Option<&'static str> {
    let remote = history.world.remotes[cluster].state();
    let is_proved = remote.received.iter().any(|it| {
        it.bearer == new && it.code != 401 && it.at <= state.sent && it.purpose == Purpose::Trial
    });
    drop(remote);
    if !is_proved {
        return Some("before the cluster served it");
    }
    let old = old?;
    let (old_token, new_token) = (history.granted(old)?, history.granted(new)?);
    if new_token.issued < old_token.issued {
        return Some("over a newer one");
    }
    let works = |token| history.works(cluster, token, state.at);
    if works(old) && !works(new) {
        return Some("over one that worked, and does not work");
    }
    let is_due = history.due(old).is_some_and(|at| at <= history.world.time(state.at) + SKEW);
    (!is_due && !has_newer_file(history, cluster, old, state.at)).then_some("before it was due")
}

/// Whether a replica has seen a file that wins over the token in the Secret.
fn has_newer_file(history: &History<'_>, cluster: usize, entry: &str, at: Instant) -> bool {
    let wins = |replica, at| {
        let file = history.world.file(cluster, replica, at);
        let file = file.filter(|it| history.granted(it).is_some());
        file.is_some() && history.chosen(file.clone(), Some(entry.to_owned()), at) == file
    };
    let mut moments = (0..=12).map(|step| at - UNDER_WAY / 12 * step);
    moments.any(|at| (0..REPLICAS).any(|replica| wins(replica, at)))
}

/// Renewals that were due and possible, and were not done.
fn late(history: &History<'_>) -> Vec<String> {
    let world = history.world;
    let Some(first) = history.journal.calls.first() else { return Vec::new() };
    let mut found = Vec::new();
    for (cluster, name) in CLUSTERS.iter().enumerate() {
        let (mut at, mut since) = (first.sent, None);
        while at < Instant::now() {
            if !needs_renewal(history, cluster, at) || world.had_trouble(Some(cluster), at, at) {
                since = None;
            } else if at - *since.get_or_insert(at) > GRACE {
                let when = at - first.sent;
                found.push(format!("no token of {name} was renewed, which was due ({when:?})"));
                break;
            }
            at += SAMPLE;
        }
    }
    found
}

fn needs_renewal(history: &History<'_>, cluster: usize, at: Instant) -> bool {
    let files: Vec<_> = (0..REPLICAS).map(|it| history.world.file(cluster, it, at)).collect();
    if files[0] != files[1] {
        return false;
    }
    let file = files[0].clone().filter(|it| history.granted(it).is_some());
    let entry = history.entry(cluster, at);
    let Some(chosen) = history.chosen(file.clone(), entry.clone(), at) else { return false };
    let is_due = history.due(&chosen).is_some_and(|due| due + SKEW <= history.world.time(at));
    let is_file = entry.is_some() && file.as_ref() == Some(&chosen);
    (is_due || is_file) && history.works(cluster, &chosen, at)
}

/// Clusters that are asked again and again.
fn hot(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for remote in &world.remotes {
        let state = remote.state();
        let asked = state.received.iter().filter(|it| it.purpose == Purpose::Grant);
        let asked: Vec<Instant> = asked.map(|it| it.at).collect();
        if asked.windows(HOT).any(|of| of[HOT - 1] - of[0] < TEN_MINUTES) {
            found.push(format!("{} was asked for {HOT} tokens in ten minutes", remote.name));
        }
    }
    found
}
