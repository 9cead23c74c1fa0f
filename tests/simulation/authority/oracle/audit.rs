//! The audit log: at least one record of every change, with an id that is always the same.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio::time::Instant;

use super::is_of;
use crate::{authority::world::World, journal::Journal};

type Record = (Instant, Value);

pub fn violations(world: &World, journal: &Journal) -> Vec<String> {
    let audit = world.audit();
    // The id of a join is the reference that its client got.
    let is_of_us = |it: &&Record| !it.1["event"].as_str().is_some_and(|it| it.ends_with(".join"));
    let audit: Vec<Record> = audit.iter().filter(is_of_us).cloned().collect();
    let mut found = unstable_ids(&audit);
    found.extend(too_many_creations(&audit, journal));
    found.extend(false_deletions(&audit, journal));
    for commit in journal.commits.iter().filter(|it| is_of(it, "spiffefederations")) {
        let (before, after) = (commit.change.before.as_deref(), commit.change.after.as_deref());
        let name = &commit.change.name;
        match (before, after) {
            (Some(before), Some(after)) if commit.by.is_ours() => {
                let missing = missing(&audit, before, after, commit.at);
                found.extend(missing.map(|it| format!("federation {name}: {it}")));
            }
            (Some(before), None) => {
                let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
                let is_created = has(&audit, uid, "create", |_| true);
                let is_deleted = has(&audit, uid, "delete", |it| it.0 >= commit.at);
                if is_created && !is_deleted {
                    found.push(format!("federation {name}: its deletion was not audited"));
                }
            }
            _ => {}
        }
    }
    found
}

fn has(audit: &[Record], uid: &str, event: &str, matches: impl Fn(&Record) -> bool) -> bool {
    let event = format!("spiffe.federation.{event}");
    audit.iter().any(|it| it.1["uid"] == uid && it.1["event"] == *event && matches(it))
}

/// What a status shows must have been audited before.
fn missing(audit: &[Record], before: &Value, after: &Value, at: Instant) -> Option<String> {
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    let status = |object: &Value, field: &str| object["status"][field].clone();
    let is_before = |it: &Record| it.0 <= at;
    let generations = (status(before, "auditedGeneration"), status(after, "auditedGeneration"));
    match generations {
        (Value::Null, new) if !new.is_null() && !has(audit, uid, "create", is_before) => {
            return Some("its creation was not audited".to_owned());
        }
        (old, new) if !old.is_null() && old != new => {
            let updates = audit.iter().filter(|it| {
                it.1["uid"] == uid && it.1["event"] == "spiffe.federation.update" && is_before(it)
            });
            // Each has an id of its own, and some changes are seen together.
            let ids: HashSet<_> = updates.map(|it| it.1["id"].to_string()).collect();
            if ids.is_empty() {
                return Some("its change was not audited".to_owned());
            }
        }
        _ => {}
    }
    let (old, new) = (status(before, "fingerprint"), status(after, "fingerprint"));
    if new.is_null() || old == new {
        return None;
    }
    let sequence = status(after, "sequence");
    let is_it = |it: &Record| is_before(it) && it.1["sequence"] == sequence;
    (!has(audit, uid, "rotation", is_it)).then(|| "its new keys were not audited".to_owned())
}

/// A creation that could not be noted in the status comes again, under another id only if the spec
/// changed meanwhile.
fn too_many_creations(audit: &[Record], journal: &Journal) -> Vec<String> {
    let mut generations: HashMap<&str, u64> = HashMap::new();
    let objects = journal.commits.iter().filter(|it| is_of(it, "spiffefederations"));
    for object in objects.filter_map(|it| it.change.after.as_deref()) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        generations.insert(uid, object["metadata"]["generation"].as_u64().unwrap_or_default());
    }
    let mut ids: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (_, record) in audit.iter().filter(|it| it.1["event"] == "spiffe.federation.create") {
        let text = |field: &str| record[field].as_str().unwrap_or_default();
        ids.entry(text("uid")).or_default().insert(text("id"));
    }
    let most = |uid: &str| generations.get(uid).copied().unwrap_or_default() as usize;
    ids.iter()
        .filter(|(uid, ids)| ids.len() > most(uid))
        .map(|(uid, _)| format!("the creation of {uid} was audited under too many ids"))
        .collect()
}

/// Nothing is recorded as deleted that is still there.
fn false_deletions(audit: &[Record], journal: &Journal) -> Vec<String> {
    let objects = journal.commits.iter().filter(|it| is_of(it, "spiffefederations"));
    let deleted: HashMap<&str, Instant> = objects
        .filter(|it| it.change.after.is_none())
        .filter_map(|it| Some((it.change.before.as_deref()?["metadata"]["uid"].as_str()?, it.at)))
        .collect();
    let records = audit.iter().filter(|it| it.1["event"] == "spiffe.federation.delete");
    let is_false = |(at, record): &&Record| {
        let uid = record["uid"].as_str().unwrap_or_default();
        deleted.get(uid).is_none_or(|deleted| at < deleted)
    };
    let named =
        |(_, record): &Record| format!("the deletion of {} was audited before", record["uid"]);
    records.filter(is_false).map(named).collect()
}

/// A record that comes twice has the same id, and no other record has it.
fn unstable_ids(audit: &[Record]) -> Vec<String> {
    let mut by_id: HashMap<String, Value> = HashMap::new();
    let mut by_change: HashMap<String, Value> = HashMap::new();
    let mut found = Vec::new();
    for (_, record) in audit {
        let mut change = record.clone();
        for field in ["id", "time", "changedBy", "source", "sequence"] {
            if let Some(change) = change.as_object_mut() {
                change.remove(field);
            }
        }
        let (id, event) = (record["id"].clone(), record["event"].clone());
        let known = by_id.entry(id.to_string()).or_insert_with(|| change.clone());
        if *known != change {
            found.push(format!("two audit records have the id {id}"));
        }
        if event == "spiffe.federation.delete" {
            let known = by_change.entry(change.to_string()).or_insert_with(|| id.clone());
            if *known != id {
                found.push(format!("the same {event} was audited under two ids"));
            }
        }
    }
    found
}
