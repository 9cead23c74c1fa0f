//! Records of the audit log: what changed in whom we trust, and by whom.
//!
//! A record is written before it is noted that it was, so after a crash it may come a second time, with the
//! same id. docs/spiffe.md has the schema.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    ca::{AuthorityState, Phase},
    sync::Rotation,
};
use crate::{api::spiffe_federation::SpiffeFederation, runtime::printable::printable};

/// Longer texts of others are cut.
const LONGEST_TEXT: usize = 256;
const MOST_KEYS: usize = 32;
/// Of all notes about federations, in bytes. An object has 1.5 MiB at most, and the note about our own CAs must
/// fit in: without it none of them can be replaced.
const MOST_NOTED: usize = 1_000_000;
/// Of a note, apart from its texts.
const NOTE_OVERHEAD: usize = 32;
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The same for the same change.
    pub id: String,
    pub time: String,
    pub event: &'static str,
    pub trust_domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub federation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_sequence: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub old_keys: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_keys: Vec<String>,
    /// The author of the last change, by `metadata.managedFields`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<ChangedBy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBy {
    pub manager: String,
    pub operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// A federation whose creation was audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    pub uid: String,
    pub trust_domain: String,
}

impl Audited {
    pub fn of(federation: &SpiffeFederation) -> Self {
        Self {
            uid: federation.uid().to_owned(),
            trust_domain: federation.trust_domain().to_owned(),
        }
    }

    /// As a value of the ConfigMap.
    pub fn to_text(&self) -> String {
        format!("{} {}", self.uid, self.trust_domain)
    }

    pub fn from_text(text: &str) -> Option<Self> {
        let (uid, trust_domain) = text.split_once(' ')?;
        Some(Self { uid: uid.to_owned(), trust_domain: trust_domain.to_owned() })
    }
}

/// Whether there is room for a note about this federation. Whoever may create federations could otherwise keep
/// our own CAs from being audited, and so from rotating.
pub fn has_room(all: &BTreeMap<String, Audited>, name: &str, new: &Audited) -> bool {
    // The name is there twice: the API server notes who wrote which one.
    let size = |name: &str, it: &Audited| 2 * name.len() + it.to_text().len() + NOTE_OVERHEAD;
    let others = all.iter().filter(|(other, _)| *other != name);
    let noted: usize = others.map(|(name, it)| size(name, it)).sum();
    all.get(name) == Some(new) || noted + size(name, new) <= MOST_NOTED
}

/// Our own CAs as the audit log knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct AuditedOwn {
    pub sequence: u64,
    /// Phases by ID.
    pub cas: BTreeMap<String, Phase>,
}

impl AuditedOwn {
    pub fn of(state: &AuthorityState) -> Self {
        let cas = state.cas.iter().map(|ca| (ca.id.clone(), ca.phase)).collect();
        Self { sequence: state.sequence, cas }
    }

    /// As a value of the ConfigMap.
    pub fn to_text(&self) -> String {
        // Plain data, which always becomes JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn is_active(&self, id: &str) -> bool {
        self.cas.get(id) == Some(&Phase::Active)
    }
}

/// The record of a federation that was created or changed since it was last audited.
pub fn change(federation: &SpiffeFederation, now: DateTime<Utc>) -> Option<Record> {
    let generation = federation.generation();
    let event = match federation.status.audited_generation {
        Some(audited) if audited == generation => return None,
        Some(_) => "spiffe.federation.update",
        None => "spiffe.federation.create",
    };
    Some(Record {
        id: id(&[federation.uid(), event, &generation.to_string()]),
        changed_by: changed_by(federation, now),
        ..of(federation, event, now)
    })
}

pub fn rotation(
    federation: &SpiffeFederation,
    rotation: &Rotation,
    sequence: Option<&str>,
    now: DateTime<Utc>,
) -> Record {
    const EVENT: &str = "spiffe.federation.rotation";
    let before = &federation.status;
    let old = before.fingerprint.as_deref().unwrap_or_default();
    // The same keys may come back and go again: that is another change, though a peer that counts none has no
    // number for it.
    let since = before.current_bundle_synced_at.map(|at| at.timestamp().to_string());
    let parts = [
        federation.uid(),
        EVENT,
        old,
        &since.unwrap_or_default(),
        &rotation.fingerprint,
        sequence.unwrap_or_default(),
    ];
    Record {
        id: id(&parts),
        sequence: sequence.map(str::to_owned),
        old_sequence: rotation.old_sequence.clone(),
        old_keys: keys(&rotation.old_keys),
        new_keys: keys(&rotation.new_keys),
        ..of(federation, EVENT, now)
    }
}

pub fn deletion(name: &str, audited: &Audited, now: DateTime<Utc>) -> Record {
    const EVENT: &str = "spiffe.federation.delete";
    Record {
        id: id(&[&audited.uid, EVENT]),
        federation: Some(name.to_owned()),
        uid: Some(audited.uid.clone()),
        ..empty(EVENT, &audited.trust_domain, now)
    }
}

/// What changed in our own CAs since they were last audited. None if others verify and sign as before.
pub fn own(before: &AuditedOwn, state: &AuthorityState, now: DateTime<Utc>) -> Option<Record> {
    let after = AuditedOwn::of(state);
    let is_gone = |id: &&String| !after.cas.contains_key(*id);
    let removed: Vec<_> = before.cas.keys().filter(is_gone).cloned().collect();
    let is_new = |id: &&String| {
        !before.cas.contains_key(*id) || after.is_active(id) && !before.is_active(id)
    };
    let new: Vec<_> = after.cas.keys().filter(is_new).cloned().collect();
    if removed.is_empty() && new.is_empty() {
        return None;
    }
    let is_revoked = state.handled.revoke.as_ref().is_some_and(|id| removed.contains(id));
    let event = match is_revoked {
        true => "spiffe.authority.revocation",
        false => "spiffe.authority.rotation",
    };
    let old_sequence = (!before.cas.is_empty()).then(|| before.sequence.to_string());
    Some(Record {
        // Both states, because a CA is prepared and activated under the same sequence.
        id: id(&[&state.trust_domain, event, &before.to_text(), &after.to_text()]),
        sequence: Some(state.sequence.to_string()),
        old_sequence,
        old_keys: keys(&removed),
        new_keys: keys(&new),
        ..empty(event, &state.trust_domain, now)
    })
}

fn of(federation: &SpiffeFederation, event: &'static str, now: DateTime<Utc>) -> Record {
    Record {
        federation: Some(federation.name().to_owned()),
        uid: Some(federation.uid().to_owned()),
        source: Some(cut(&federation.spec.bundle_source.summary())),
        sequence: federation.status.sequence.clone(),
        ..empty(event, federation.trust_domain(), now)
    }
}

fn empty(event: &'static str, trust_domain: &str, now: DateTime<Utc>) -> Record {
    Record {
        id: String::new(),
        time: now.to_rfc3339_opts(SecondsFormat::Millis, true),
        event,
        trust_domain: cut(trust_domain),
        federation: None,
        uid: None,
        source: None,
        sequence: None,
        old_sequence: None,
        old_keys: Vec::new(),
        new_keys: Vec::new(),
        changed_by: None,
    }
}

/// The manager of the newest entry that is not about the status. Whoever changes an object can write entries,
/// so one of the future, which would be the newest for ever, does not count.
fn changed_by(federation: &SpiffeFederation, now: DateTime<Utc>) -> Option<ChangedBy> {
    let entries = federation.metadata.managed_fields.as_deref().unwrap_or_default();
    let latest = (now + CLOCK_SKEW).timestamp();
    let of_spec = entries.iter().filter(|it| {
        it.subresource.as_deref().unwrap_or_default().is_empty()
            && it.time.as_ref().is_none_or(|at| at.0.as_second() <= latest)
    });
    let newest = of_spec.max_by_key(|it| it.time.as_ref().map(|time| time.0))?;
    Some(ChangedBy {
        manager: cut(newest.manager.as_deref().unwrap_or_default()),
        operation: cut(newest.operation.as_deref().unwrap_or_default()),
        time: newest.time.as_ref().map(|it| it.0.to_string()),
    })
}

fn id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..16])
}

fn keys(ids: &[String]) -> Vec<String> {
    ids.iter().take(MOST_KEYS).map(|it| cut(it)).collect()
}

/// A text of somebody else, escaped and of bounded length.
pub(super) fn cut(text: &str) -> String {
    let printable = printable(text);
    match printable.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &printable[..end]),
        None => printable.into_owned(),
    }
}

#[cfg(test)]
mod tests;
