//! The bundles of others: each comes from its source, none is lost or replaced by an older one without
//! an acceptance, and none is fetched or noted more often than it should be.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use tokio::time::Instant;
use trustplane::{
    names::{ACCEPT_ANNOTATION, REFRESH_ANNOTATION},
    spiffe::bundle::Bundle,
};

use super::{condition, is_of};
use crate::{
    authority::{
        Case,
        ops::{Op, federation_path},
        peers::HINT,
        world::World,
    },
    journal::{Actor, Commit, Journal},
};

const KIND: &str = "spiffefederations";
/// The longest way from a fetch to the write of its answer, by a replica that was cut off meanwhile.
const FRESH: Duration = Duration::from_secs(300);
/// Between two status writes of the same object, if nobody changed anything.
const APART: Duration = Duration::from_secs(55);
/// A change of a federation, or of a rival, is known by then, whatever delays it.
const NOTICED: Duration = Duration::from_secs(400);
/// "At once", for a leader that is there.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Requests are carried out every ten seconds at most.
const ON_REQUEST: Duration = Duration::from_secs(25);
/// Trust ends for these reasons, and the bundle goes.
const ENDS: [&str; 4] =
    ["InvalidTrustDomain", "OwnTrustDomain", "DuplicateTrustDomain", "Deleting"];

pub fn violations(world: &World, journal: &Journal) -> Vec<String> {
    let mut found = Vec::new();
    let mut last_write: HashMap<String, Instant> = HashMap::new();
    let mut changed: Option<Instant> = None;
    for commit in journal.commits.iter().filter(|commit| is_of(commit, KIND)) {
        if !commit.by.is_ours() {
            changed = Some(commit.at);
            continue;
        }
        let (Some(before), Some(after)) = (&commit.change.before, &commit.change.after) else {
            continue;
        };
        let mut wrong = wrong_write(world, commit, before, after);
        let uid = text(after, "/metadata/uid").to_owned();
        // When it was decided: a slow write arrives late.
        let sent = journal.calls[commit.call].sent;
        let earlier = last_write.insert(uid, sent);
        let is_calm = changed.is_none_or(|at| commit.at - at > NOTICED);
        if let Some(earlier) = earlier.filter(|it| is_calm && sent - *it < APART) {
            wrong.push(format!("written again after {:?}", sent - earlier));
        }
        found.extend(
            wrong.iter().map(|wrong| format!("federation {}: {wrong}", commit.change.name)),
        );
    }
    found
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn sequence(object: &Value) -> Option<u64> {
    text(object, "/status/sequence").parse().ok()
}

fn url(federation: &Value) -> &str {
    let source = &federation["spec"]["bundleSource"];
    let of = |profile: &str| source[profile]["bundleEndpointURL"].as_str();
    of("httpsWeb").or(of("httpsSPIFFE")).unwrap_or_default()
}

fn is_accepted(federation: &Value, fingerprint: &str) -> bool {
    let annotation = federation["metadata"]["annotations"][ACCEPT_ANNOTATION].as_str();
    let annotation = annotation.unwrap_or_default();
    let is_new = text(federation, "/status/observedAccept") != annotation;
    is_new && annotation.split_whitespace().next() == Some(fingerprint)
}

fn wrong_write(world: &World, commit: &Commit, before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let bundle = |object: &Value| object["status"]["currentBundle"].as_str().map(str::to_owned);
    let (old, new) = (bundle(before), bundle(after));
    let reason = condition(after, "Synced")["reason"].as_str().unwrap_or_default();
    let is_leaving = !before["metadata"]["deletionTimestamp"].is_null();
    match (&old, &new) {
        (Some(_), None) if !ENDS.contains(&reason) => {
            found.push(format!("its bundle was lost ({reason})"));
        }
        (_, Some(_)) if is_leaving && old != new => {
            found.push("it got a bundle while it was being deleted".to_owned());
        }
        (_, Some(new)) if old.as_ref() != Some(new) => {
            found.extend(wrong_bundle(world, commit, before, new));
        }
        _ => {}
    }
    let lowered = sequence(after) < sequence(before);
    let fingerprint = text(after, "/status/fingerprint");
    if lowered && !is_accepted(before, fingerprint) {
        found.push("its sequence was lowered without an acceptance".to_owned());
    }
    let parsed = new.as_ref().and_then(|it| Bundle::parse(it.as_bytes()).ok());
    let has_keys = parsed.is_some_and(|it| !it.x509.is_empty());
    let is_trusted = condition(after, "Trusted")["status"] == "True";
    if is_trusted != has_keys {
        found.push(format!("Trusted is {is_trusted}, and there are keys: {has_keys}"));
    }
    found
}

fn wrong_bundle(world: &World, commit: &Commit, before: &Value, new: &str) -> Option<String> {
    let Ok(bundle) = Bundle::parse(new.as_bytes()) else {
        return Some("it got something that is no bundle".to_owned());
    };
    if bundle.sequence < sequence(before) && !is_accepted(before, &bundle.fingerprint()) {
        return Some("its bundle was replaced by an older one".to_owned());
    }
    if let Some(fixed) = before["spec"]["bundleSource"]["static"]["bundle"].as_str() {
        return (fixed != new).then(|| "it got another bundle than its own".to_owned());
    }
    let Actor::Ours { replica, .. } = commit.by else { return None };
    let is_source = world.fetches().iter().any(|fetch| {
        fetch.replica == replica
            && fetch.url == url(before)
            && fetch.document.as_deref() == Some(new)
            && fetch.at <= commit.at
            && commit.at - fetch.at <= FRESH
    });
    (!is_source).then(|| "it got a bundle that did not come from its source".to_owned())
}

/// Without faults a federation is synced at once after a change of its spec, or a request.
pub fn late(world: &World, journal: &Journal, case: &Case) -> Vec<String> {
    let moves = |op: &Op| {
        matches!(
            op,
            Op::Restart(_)
                | Op::Stop(..)
                | Op::StopAll(_)
                | Op::HandOver
                | Op::SetHint(_)
                | Op::SetNewAuthority(_)
                | Op::CreateTwin(_)
        )
    };
    if !case.faults.is_empty() || case.steps.iter().any(|step| moves(&step.op)) {
        return Vec::new();
    }
    let changes = journal.commits.iter().filter(|it| is_of(it, KIND) && !it.by.is_ours());
    let late = changes.filter_map(|commit| {
        let after = commit.change.after.as_ref()?;
        let request = |it: &Value| it["metadata"]["annotations"][REFRESH_ANNOTATION].clone();
        let before = commit.change.before.as_ref();
        let is_changed = before.is_none_or(|before| before["spec"] != after["spec"]);
        let is_asked = before.is_some_and(|before| request(before) != request(after));
        let is_new = is_changed || is_asked;
        let until = commit.at + if is_changed { AT_ONCE } else { ON_REQUEST };
        let is_gone = journal.commits.iter().any(|it| {
            it.change.name == commit.change.name
                && (commit.at..until).contains(&it.at)
                && it.change.version > commit.change.version
                && !it.by.is_ours()
        });
        let is_apart = url(after).is_empty() || is_gone;
        let is_fetched = world
            .fetches()
            .iter()
            .any(|fetch| fetch.url == url(after) && (commit.at..until).contains(&fetch.at));
        let is_late = is_new && !is_apart && !is_fetched;
        is_late.then(|| format!("federation {} was not synced at once", commit.change.name))
    });
    late.collect()
}

fn federations(world: &World) -> Vec<Value> {
    let path = federation_path("");
    let (_, list) = world.api.request(http::Method::GET, path.trim_end_matches('/'), &Value::Null);
    list["items"].as_array().cloned().unwrap_or_default()
}

/// In the end the status of every federation says what its source says.
pub fn not_converged(world: &World) -> Vec<String> {
    let all = federations(world);
    let mut found = Vec::new();
    for federation in &all {
        let wrong = wrong_end(world, federation, &all);
        let name = text(federation, "/metadata/name");
        found.extend(wrong.map(|wrong| format!("in the end federation {name}: {wrong}")));
    }
    found
}

fn wrong_end(world: &World, federation: &Value, all: &[Value]) -> Option<String> {
    let synced = condition(federation, "Synced");
    let (Some(status), Some(reason)) = (synced["status"].as_str(), synced["reason"].as_str())
    else {
        return Some("it was never synced".to_owned());
    };
    let current = federation["status"]["currentBundle"].as_str();
    if synced["observedGeneration"] != federation["metadata"]["generation"] {
        return Some("the last change was not noticed".to_owned());
    }
    let expected = match () {
        () if !federation["metadata"]["deletionTimestamp"].is_null() => Some("Deleting"),
        () if is_second(federation, all) => Some("DuplicateTrustDomain"),
        () => None,
    };
    if let Some(expected) = expected {
        let is_right = reason == expected && current.is_none();
        return (!is_right).then(|| format!("{reason} instead of {expected}"));
    }
    let request = &federation["metadata"]["annotations"][REFRESH_ANNOTATION];
    if *request != federation["status"]["observedRefresh"] {
        return Some("the last request was not noticed".to_owned());
    }
    let answer = match federation["spec"]["bundleSource"]["static"]["bundle"].as_str() {
        Some(text) => Some(text.to_owned()),
        None => match last_answer(world, url(federation)) {
            Ok(answer) => answer,
            Err(wrong) => return Some(wrong),
        },
    };
    let bundle = answer.as_ref().and_then(|it| Bundle::parse(it.as_bytes()).ok());
    let Some(bundle) = bundle else {
        return (status != "False").then(|| format!("{reason} though nothing was fetched"));
    };
    let is_older = bundle.sequence < sequence(federation);
    let expected = if is_older { "SequenceRefused" } else { "Synced" };
    let is_taken = current == answer.as_deref();
    (reason != expected || is_taken == is_older)
        .then(|| format!("{reason} instead of {expected}, and its bundle is taken: {is_taken}"))
}

/// Somebody else is older.
fn is_second(federation: &Value, all: &[Value]) -> bool {
    let age = |it: &Value| {
        (text(it, "/metadata/creationTimestamp").to_owned(), text(it, "/metadata/name").to_owned())
    };
    all.iter().any(|other| {
        other["spec"]["trustDomain"] == federation["spec"]["trustDomain"]
            && other["metadata"]["deletionTimestamp"].is_null()
            && age(other) < age(federation)
    })
}

/// What the source answered last, which must not be long ago.
fn last_answer(world: &World, url: &str) -> Result<Option<String>, String> {
    let fetches = world.fetches();
    let last = fetches.iter().rev().find(|fetch| fetch.url == url);
    let last = last.ok_or("it was never fetched")?;
    match last.at.elapsed() <= HINT + AT_ONCE {
        true => Ok(last.document.clone()),
        false => Err(format!("it was last fetched {:?} ago", last.at.elapsed())),
    }
}
