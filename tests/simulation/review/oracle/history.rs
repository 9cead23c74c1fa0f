//! The history of one simulation, as the oracle asks for it.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::time::Instant;
use trustplane::{names::REVIEW_SECRET, review::decide::state::entry_name};

use super::{
    super::{
        remote::Granted,
        world::{CLUSTERS, RENEW_BEFORE, TOKEN_DURATION, World},
    },
    changes_of,
};
use crate::journal::{Actor, Commit, Journal};

/// The Secret after one of its changes.
#[derive(Clone, Debug)]
pub struct SecretState {
    pub at: Instant,
    /// When the request left.
    pub sent: Instant,
    pub by: Actor,
    pub exists: bool,
    /// Tokens, by cluster.
    pub entries: Vec<Option<String>>,
    /// Owners, by thumbprint.
    pub notes: BTreeMap<String, String>,
}

pub struct History<'a> {
    pub world: &'a World,
    pub journal: &'a Journal,
    /// In their order.
    pub secrets: Vec<SecretState>,
    granted: BTreeMap<String, Granted>,
}

impl<'a> History<'a> {
    pub fn new(world: &'a World, journal: &'a Journal) -> Self {
        let commits = changes_of(journal, "secrets", REVIEW_SECRET);
        let secrets = commits.map(|commit| secret_state(commit, journal)).collect();
        let tokens = world.remotes.iter().flat_map(|remote| remote.state().tokens.clone());
        let granted = tokens.map(|it| (it.text.clone(), it)).collect();
        Self { world, journal, secrets, granted }
    }

    pub fn secret_at(&self, at: Instant) -> Option<&SecretState> {
        self.secrets.iter().rfind(|state| state.at <= at)
    }

    /// The token of a cluster in the Secret. Where somebody deleted the Secret, what it held is remembered.
    pub fn entry(&self, cluster: usize, at: Instant) -> Option<String> {
        let mut states = self.secrets.iter().filter(|state| state.at <= at && state.exists);
        states.next_back()?.entries[cluster].clone()
    }

    /// A token that some cluster granted.
    pub fn granted(&self, token: &str) -> Option<&Granted> {
        self.granted.get(token)
    }

    /// Whether the cluster accepted the token at a moment.
    pub fn works(&self, cluster: usize, token: &str, at: Instant) -> bool {
        let is_own = self.world.remotes[cluster].state().granted(token).is_some();
        let accepted = self.granted(token).is_some_and(|it| {
            let is_revoked = it.revoked.is_some_and(|revoked| revoked <= at);
            !it.is_void && !is_revoked && it.expires > self.world.time(at)
        });
        is_own && accepted
    }

    /// When a token should be renewed. First ones are made by hand, and live for too long.
    pub fn due(&self, token: &str) -> Option<DateTime<Utc>> {
        let token = self.granted(token)?;
        let length = token.expires - token.issued;
        if length > delta(TOKEN_DURATION) {
            return Some(token.issued);
        }
        Some(token.expires - delta(RENEW_BEFORE).min(length / 2))
    }

    /// Whether a token was asked for with another one, or with one that was.
    fn descends(&self, token: &str, from: &str) -> bool {
        let mut parent = self.granted(token).and_then(|it| it.from.as_deref());
        while let Some(token) = parent {
            if token == from {
                return true;
            }
            parent = self.granted(token).and_then(|it| it.from.as_deref());
        }
        false
    }

    /// The token that counts: the newest that has not ended.
    pub fn chosen(
        &self,
        file: Option<String>,
        entry: Option<String>,
        at: Instant,
    ) -> Option<String> {
        let now = self.world.time(at);
        let (Some(of_file), Some(of_entry)) = (
            file.as_ref().and_then(|it| self.granted(it)),
            entry.as_ref().and_then(|it| self.granted(it)),
        ) else {
            return entry.or(file);
        };
        let file_counts = match (of_file.expires <= now, of_entry.expires <= now) {
            (true, false) => false,
            (false, true) => true,
            _ => !self.descends(&of_entry.text, &of_file.text) && of_file.issued >= of_entry.issued,
        };
        if file_counts { file } else { entry }
    }

    /// The last good token that a process which was born then has seen in the file.
    pub fn seen_file(
        &self,
        cluster: usize,
        replica: usize,
        born: Instant,
        at: Instant,
    ) -> Option<String> {
        let changes = self.world.file_changes(cluster);
        let seen = changes.iter().filter(|change| change.seen_from[replica] <= at);
        let seen: Vec<_> = seen.collect();
        let first = seen.iter().rposition(|change| change.seen_from[replica] <= born).unwrap_or(0);
        let mut texts = seen[first..].iter().filter_map(|change| change.text.clone());
        texts.rfind(|text| self.granted(text).is_some())
    }
}

pub fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).expect("a simulation is short")
}

fn secret_state(commit: &Commit, journal: &Journal) -> SecretState {
    let object = commit.change.after.clone();
    let exists = object.is_some();
    let object = object.unwrap_or_default();
    let value = |name: &str| -> Option<Value> {
        let text = STANDARD.decode(object["data"][name].as_str()?).ok()?;
        serde_json::from_slice(&text).ok()
    };
    let token = |name: &&str| Some(value(&entry_name(name))?["token"].as_str()?.to_owned());
    let notes = value("keys.json").unwrap_or_default();
    let notes = notes.as_object().into_iter().flatten();
    let note = |(key, note): (&String, &Value)| {
        (key.clone(), note["cluster"].as_str().unwrap_or_default().to_owned())
    };
    SecretState {
        at: commit.at,
        sent: journal.calls[commit.call].sent,
        by: commit.by,
        exists,
        entries: CLUSTERS.iter().map(token).collect(),
        notes: notes.map(note).collect(),
    }
}
