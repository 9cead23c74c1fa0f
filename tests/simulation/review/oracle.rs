//! What must hold in every history of renewals.
//!
//! - `secret`: every write of our Secret, and that none is late
//! - `bearers`: every token that was sent
//! - here: what is told, and that in the end everything is in its place, and then nothing is written

mod bearers;
mod history;
mod secret;

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use trustplane::{
    names::{REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    review::decide::directory::{self, Directory, published},
};

use super::{
    Case,
    remote::Purpose,
    signing::key,
    world::{CLUSTERS, World},
};
use crate::{
    cluster::lock,
    journal::{Commit, Journal},
};
use history::History;

/// All replicas have read the Secret by then, and the leader has told of it.
const A_MOMENT: Duration = Duration::from_secs(30);
/// A refusal is told by then.
const TOLD: Duration = Duration::from_secs(60);

/// All violations in this history.
pub fn violations(world: &World, case: &Case) -> Vec<String> {
    let journal = world.journal();
    let mut found = journal.violations.clone();
    let history = History::new(world, &journal);
    found.extend(secret::violations(&history));
    found.extend(bearers::violations(&history));
    found.extend(untold(world, &journal));
    if case.faults.is_empty() {
        found.extend(empty_writes(&journal));
    }
    found.extend(strange_writes(&journal));
    found.extend(writes_in_the_quiet(world, &journal));
    found.extend(not_converged(&history));
    found
}

/// Changes of an object of ours.
fn changes_of<'a>(
    journal: &'a Journal,
    plural: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a Commit> {
    let commits = journal.commits.iter();
    commits.filter(move |it| it.change.kind.plural == plural && &*it.change.name == name)
}

/// What the ConfigMap said of a cluster from then on.
fn reported(journal: &Journal, cluster: usize) -> Vec<(Instant, Value)> {
    let entry = |commit: &Commit| {
        let object = commit.change.after.clone().unwrap_or_default();
        let text = object["data"][CLUSTERS[cluster]].as_str().unwrap_or_default();
        (commit.at, serde_json::from_str(text).unwrap_or_default())
    };
    changes_of(journal, "configmaps", REVIEW_STATUS_CONFIG_MAP).map(entry).collect()
}

fn has_problem(entry: &Value, reason: &str) -> bool {
    let problems = entry["problems"].as_array();
    problems.into_iter().flatten().any(|it| it["reason"] == reason)
}

/// A cluster that forbids the renewal must be named with the missing rule, soon.
fn untold(world: &World, journal: &Journal) -> Vec<String> {
    let mut found = Vec::new();
    for (number, remote) in world.remotes.iter().enumerate() {
        let told = reported(journal, number);
        let is_refused = |code: u16, purpose| code == 403 && purpose == Purpose::Grant;
        let state = remote.state();
        let refused = state.received.iter().filter(|it| is_refused(it.code, it.purpose));
        for refused in refused {
            let (from, until) = (refused.at, refused.at + TOLD);
            let is_over = until > Instant::now() || world.had_trouble(None, from - TOLD, until);
            let goes_on = world.had_trouble(Some(number), until, until);
            if is_over || !goes_on {
                continue;
            }
            let before = told.iter().rfind(|(at, _)| *at <= from);
            let during = told.iter().filter(|(at, _)| (from..until).contains(at));
            let mut entries = before.into_iter().chain(during).map(|(_, entry)| entry);
            if !entries.any(|entry| has_problem(entry, "RenewalForbidden")) {
                found.push(format!("that {} forbids the renewal was not told", remote.name));
                break;
            }
        }
    }
    found
}

/// A write that changes nothing.
fn empty_writes(journal: &Journal) -> Vec<String> {
    let committed: HashSet<usize> = journal.commits.iter().map(|one| one.call).collect();
    let calls = journal.calls.iter().enumerate();
    calls
        .filter(|(_, call)| call.by.is_ours() && call.method == Method::PATCH)
        .filter(|(_, call)| matches!(call.answered, Some((_, 200, _))))
        .filter(|(number, _)| !committed.contains(number))
        .map(|(_, call)| format!("{} was patched with what stood there", call.path))
        .collect()
}

/// We write our Secret, one ConfigMap and Events, and delete nothing.
fn strange_writes(journal: &Journal) -> Vec<String> {
    let ours = journal.commits.iter().filter(|commit| commit.by.is_ours());
    ours.filter(|commit| {
        let change = &commit.change;
        let is_known = match change.kind.plural {
            "secrets" => &*change.name == REVIEW_SECRET,
            "configmaps" => &*change.name == REVIEW_STATUS_CONFIG_MAP,
            "events" => true,
            _ => false,
        };
        change.after.is_none() || !is_known
    })
    .map(|commit| {
        format!("{} {} is not ours to write", commit.change.kind.plural, commit.change.name)
    })
    .collect()
}

/// In the end only renewals that are due are written, and what is told of them.
fn writes_in_the_quiet(world: &World, journal: &Journal) -> Vec<String> {
    let Some(from) = *lock(&world.quiet_from) else { return Vec::new() };
    let renewed: Vec<Instant> =
        changes_of(journal, "secrets", REVIEW_SECRET).map(|it| it.at).collect();
    let follows_renewal =
        |at: Instant| renewed.iter().any(|renewal| *renewal <= at && at - *renewal < TOLD);
    let statuses = changes_of(journal, "configmaps", REVIEW_STATUS_CONFIG_MAP);
    let late = statuses.filter(|it| it.by.is_ours() && it.at >= from);
    let idle = late.filter(|it| !follows_renewal(it.at));
    idle.map(|_| "the statuses were written in the quiet".to_owned()).collect()
}

fn not_converged(history: &History<'_>) -> Vec<String> {
    let (world, now) = (history.world, Instant::now());
    let mut found = Vec::new();
    for (number, name) in CLUSTERS.iter().enumerate() {
        let entry = history.entry(number, now);
        let works = entry.as_ref().is_some_and(|it| history.works(number, it, now));
        if !works {
            found.push(format!("in the end the Secret holds no token that works at {name}"));
            continue;
        }
        // A renewal just now is not known everywhere yet.
        if history.entry(number, now - A_MOMENT) != entry {
            continue;
        }
        for (replica, process) in world.running() {
            let sent = process.credentials.bearer(&(*name).into()).header();
            let sent = sent.as_ref().and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
            if sent != entry.as_deref() {
                found.push(format!("in the end replica {replica} does not use {name}'s token"));
            }
        }
        let told = reported(history.journal, number).pop().map(|(_, entry)| entry);
        let told = told.unwrap_or_default();
        let expires = told["credential"]["expires"].as_str();
        let expires = expires.and_then(|it| it.parse::<DateTime<Utc>>().ok());
        let right = entry.as_ref().and_then(|it| history.granted(it)).map(|it| it.expires);
        if told["reachable"] != true || expires != right {
            found.push(format!("in the end the status of {name} is wrong: {told}"));
        }
        let problems = told["problems"].as_array().cloned().unwrap_or_default();
        if problems.iter().any(|it| it["reason"] != "KeyShared") {
            found.push(format!("in the end {name} is told to have problems: {problems:?}"));
        }
    }
    found.extend(stolen_keys(history));
    found
}

/// A key that is noted for a cluster is its own, whoever copies it.
fn stolen_keys(history: &History<'_>) -> Vec<String> {
    let world = history.world;
    let notes = history.secret_at(Instant::now()).map(|it| it.notes.clone()).unwrap_or_default();
    let mut found = Vec::new();
    for (owner, numbers) in lock(&world.copies).iter() {
        let is_noted =
            |it: &&usize| notes.get(&thumbprint(**it)).is_some_and(|of| of == CLUSTERS[*owner]);
        for number in numbers.iter().filter(is_noted) {
            let kid = &key(*number).kid;
            for (replica, process) in world.running() {
                let shared = process.keys.directory().shared.clone();
                let mut copied = shared.iter().filter(|it| it.kid.as_ref() == Some(kid));
                if copied.any(|it| it.owner.as_deref() != Some(CLUSTERS[*owner])) {
                    found.push(format!("for replica {replica}, {kid} was stolen"));
                }
            }
        }
    }
    found
}

/// As the notes have it.
fn thumbprint(number: usize) -> String {
    let document = json!({ "keys": [key(number).jwk()] }).to_string();
    let keys = published(document.as_bytes()).expect("it is a key").0;
    let cluster = directory::Cluster { keys, ..directory::Cluster::default() };
    let directory = Directory::new(&[cluster], &BTreeMap::new());
    let first = directory.to_note.into_keys().next();
    first.expect("it is noted for its only cluster").to_text()
}

/// Tokens in logs, Events, statuses or metrics.
pub fn leaks(world: &World, log: &str) -> Vec<String> {
    let journal = world.journal();
    let written = |plural: &str| -> String {
        let commits = journal.commits.iter().filter(|it| it.change.kind.plural == plural);
        commits.filter_map(|it| it.change.after.as_ref()).map(|it| it.to_string()).collect()
    };
    let places = [
        ("a log", log.to_owned()),
        ("an Event", written("events")),
        ("a ConfigMap", written("configmaps")),
        ("a metric", world.metrics()),
    ];
    let mut found = Vec::new();
    for remote in &world.remotes {
        for token in &remote.state().tokens {
            // Encoded once more, as in a Secret, all but its ends looks different.
            let signature = token.text.rsplit('.').next().unwrap_or_default();
            let needles = [signature.to_owned(), encoded(&token.text)];
            for (place, text) in &places {
                if needles.iter().any(|needle| text.contains(needle)) {
                    found.push(format!("a token of {} is in {place}", remote.name));
                }
            }
        }
    }
    found.dedup();
    found
}

/// A piece of the token as it is in the Secret, whose entry begins with it.
fn encoded(token: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(format!("{{\"token\":\"{token}"));
    text[text.len() / 2..text.len() - 4].to_owned()
}
