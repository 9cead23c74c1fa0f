//! Records of the audit log: what changed in whom we trust, and by whom.
//!
//! A record is written before the change is noted in the status, so after a crash it may come a second
//! time, with the same id. docs/spiffe.md has the schema.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::sync::Rotation;
use crate::{
    api::spiffe_federation::SpiffeFederation, authority::decide::ca::Changed,
    runtime::printable::printable,
};

/// Longer texts of others are cut.
const LONGEST_TEXT: usize = 256;
const MOST_KEYS: usize = 32;

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
    /// Who changed the object last, as `metadata.managedFields` says.
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
        changed_by: changed_by(federation),
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
    let old = federation.status.fingerprint.as_deref().unwrap_or_default();
    let parts = [federation.uid(), EVENT, old, &rotation.fingerprint, sequence.unwrap_or_default()];
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

/// Of our own CAs.
pub fn own(trust_domain: &str, changed: &Changed, sequence: u64, now: DateTime<Utc>) -> Record {
    let event = match changed.revoked {
        Some(_) => "spiffe.authority.revocation",
        None => "spiffe.authority.rotation",
    };
    let new: Vec<_> = changed.prepared.iter().chain(&changed.activated).cloned().collect();
    let sequence = sequence.to_string();
    // A CA is prepared and activated under the same sequence: two changes, so two ids.
    let activated = changed.activated.as_deref().unwrap_or_default();
    let removed = changed.removed.join(",");
    let parts = [trust_domain, event, &sequence, &new.join(","), activated, &removed];
    Record {
        id: id(&parts),
        sequence: Some(sequence.clone()),
        old_keys: keys(&changed.removed),
        new_keys: keys(&new),
        ..empty(event, trust_domain, now)
    }
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

/// The manager of the newest entry that is not about the status.
fn changed_by(federation: &SpiffeFederation) -> Option<ChangedBy> {
    let entries = federation.metadata.managed_fields.as_deref().unwrap_or_default();
    let of_spec =
        entries.iter().filter(|it| it.subresource.as_deref().unwrap_or_default().is_empty());
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
fn cut(text: &str) -> String {
    let printable = printable(text);
    match printable.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &printable[..end]),
        None => printable.into_owned(),
    }
}

#[cfg(test)]
mod tests;
