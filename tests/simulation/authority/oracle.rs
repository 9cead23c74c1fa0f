//! What must hold in every history of the authority.
//!
//! - `own`: our CAs, their sequence, and what the replicas serve
//! - `sync`: the bundles of others
//! - `joins`: who joined, and with what certificate
//! - `audit`: the audit log of both
//! - here: in the end everything is in its place, and then nothing is written

mod audit;
mod joins;
mod own;
mod sync;

use std::{collections::HashSet, time::Duration};

use http::Method;
use serde_json::Value;
use trustplane::names::{AUTHORITY_SECRET, BUNDLE_CONFIG_MAP};

pub use joins::leaks;

use super::{
    Case,
    ops::{published, state},
    world::World,
};
use crate::{
    cluster::lock,
    journal::{Commit, Journal},
};

/// Both replicas have read our state by then.
const A_MOMENT: Duration = Duration::from_secs(60);

/// All violations in this history.
pub fn violations(world: &World, case: &Case) -> Vec<String> {
    let journal = world.journal();
    let mut found = journal.violations.clone();
    found.extend(joins::violations(world, &journal, case));
    found.extend(own::violations(world, &journal, case));
    found.extend(own::false_alarms(world, case));
    found.extend(sync::violations(world, &journal));
    found.extend(sync::late(world, &journal, case));
    found.extend(audit::violations(world, &journal));
    if case.faults.is_empty() {
        found.extend(empty_writes(&journal));
    }
    found.extend(strange_writes(&journal));
    found.extend(writes_in_the_quiet(world, &journal));
    drop(journal);
    found.extend(sync::not_converged(world));
    found.extend(own_not_converged(world));
    found
}

fn is_of(commit: &Commit, plural: &str) -> bool {
    commit.change.kind.plural == plural
}

/// Changes of an object in our own namespace.
fn changes_of<'a>(
    journal: &'a Journal,
    plural: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a Commit> {
    let commits = journal.commits.iter().filter(move |it| is_of(it, plural));
    commits.filter(move |it| &*it.change.name == name)
}

fn condition<'a>(federation: &'a Value, about: &str) -> &'a Value {
    let conditions = federation["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == about);
    found.unwrap_or(&Value::Null)
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

/// We write statuses of federations and tokens, our own Secret, two ConfigMaps and Events, and delete nothing.
fn strange_writes(journal: &Journal) -> Vec<String> {
    let ours = journal.commits.iter().filter(|commit| commit.by.is_ours());
    ours.filter(|commit| {
        let change = &commit.change;
        let is_status = journal.calls[commit.call].target.subresource.is_some();
        let is_known = match change.kind.plural {
            "secrets" => &*change.name == AUTHORITY_SECRET,
            "configmaps" | "events" => true,
            "spiffefederations" | "jointokens" => is_status && change.before.is_some(),
            _ => false,
        };
        change.after.is_none() || !is_known
    })
    .map(|commit| {
        format!("{} {} is not ours to write", commit.change.kind.plural, commit.change.name)
    })
    .collect()
}

/// In the end only syncs note their times, and our CAs take the steps that are due.
fn writes_in_the_quiet(world: &World, journal: &Journal) -> Vec<String> {
    let Some(from) = *lock(&world.quiet_from) else { return Vec::new() };
    let late = journal.commits.iter().filter(|it| it.by.is_ours() && it.at >= from);
    let rotates =
        changes_of(journal, "secrets", AUTHORITY_SECRET).any(|it| it.at + A_MOMENT >= from);
    let expected = |commit: &Commit| match commit.change.kind.plural {
        "spiffefederations" => true,
        "secrets" => true,
        // What is published, and what is audited of it.
        "configmaps" => rotates,
        // A problem that lasts is reported every hour.
        "events" => true,
        _ => false,
    };
    late.filter(|commit| !expected(commit))
        .map(|it| format!("{} {} was written in the quiet", it.change.kind.plural, it.change.name))
        .collect()
}

fn own_not_converged(world: &World) -> Vec<String> {
    let journal = world.journal();
    let last = |plural, name| {
        changes_of(&journal, plural, name).last().and_then(|it| it.change.after.clone())
    };
    let is_new = |it: &Commit| it.at.elapsed() < A_MOMENT;
    if changes_of(&journal, "secrets", AUTHORITY_SECRET).last().is_some_and(is_new) {
        return Vec::new();
    }
    let Some(state) = last("secrets", AUTHORITY_SECRET).as_deref().and_then(state) else {
        return vec!["in the end there is no Secret".to_owned()];
    };
    let document = state.document().expect("the state can be read");
    let config_map = last("configmaps", BUNDLE_CONFIG_MAP);
    let text = config_map.as_deref().and_then(published).map(|(text, _)| text.to_owned());
    let mut found = Vec::new();
    if text.as_deref() != Some(&document) {
        found.push("in the end the ConfigMap does not have our document".to_owned());
    }
    let snapshots = world.snapshots();
    let served = snapshots.last().map(|last| &last.served);
    for (replica, served) in served.into_iter().flatten().enumerate() {
        if served.as_ref().map(|it| &*it.document) != Some(&*document) {
            found.push(format!("in the end replica {replica} does not serve our document"));
        }
    }
    found
}
