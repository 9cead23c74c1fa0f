//! What our Secret holds: the credentials that we renewed, and whose each key was first.
//!
//! Each credential has an entry of its own, so that one that somebody broke takes no other with it. Entries that
//! can't be read, or that we do not know, are told and left as they are.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{credential::Credential, notes::Notes};

/// How the name of a cluster's entry begins.
const CREDENTIAL: &str = "cluster.";
const NOTES: &str = "keys.json";

/// The name of a cluster's entry.
pub fn entry_name(cluster: &str) -> String {
    format!("{CREDENTIAL}{cluster}")
}

/// A credential that we renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub credential: Credential,
    /// The life that was asked for. The server may have granted less.
    pub asked: TimeDelta,
    /// The fingerprint of the file's token that it was renewed from, perhaps over several generations.
    pub origin: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Problem {
    #[error("entry {0} holds no credential that can be read")]
    Credential(String),
    #[error("entry {NOTES} can't be read, so it is not known whose keys were first")]
    Notes,
    #[error("{0} of entry {NOTES} can't be read")]
    SomeNotes(usize),
    #[error("entry {0} is not ours")]
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// By cluster.
    pub saved: BTreeMap<Arc<str>, Saved>,
    /// None if they can't be read. Then they stay as they are.
    pub notes: Option<Notes>,
    pub problems: Vec<Problem>,
}

impl Default for State {
    fn default() -> Self {
        Self { saved: BTreeMap::new(), notes: Some(Notes::default()), problems: Vec::new() }
    }
}

/// An entry as it is written.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    token: &'a str,
    issued: DateTime<Utc>,
    expires: DateTime<Utc>,
    asked_seconds: i64,
    origin: &'a str,
}

impl State {
    /// Given the data of the Secret.
    pub fn read<'a>(data: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut state = Self::default();
        for (name, value) in data {
            match name.strip_prefix(CREDENTIAL) {
                Some(cluster) => match saved(value) {
                    Some(saved) => {
                        state.saved.insert(cluster.into(), saved);
                    }
                    None => state.problems.push(Problem::Credential(name.to_owned())),
                },
                None if name == NOTES => state.notes = Notes::read(value),
                None => state.problems.push(Problem::Unknown(name.to_owned())),
            }
        }
        match state.notes.as_ref().map(Notes::unreadable) {
            None => state.problems.push(Problem::Notes),
            Some(0) => {}
            Some(some) => state.problems.push(Problem::SomeNotes(some)),
        }
        state
    }

    /// The entries that differ from another state's; None for one that is to be removed.
    pub fn changes_from(&self, before: &Self) -> BTreeMap<String, Option<Zeroizing<String>>> {
        let mut changes = BTreeMap::new();
        for (cluster, saved) in &self.saved {
            if before.saved.get(cluster) != Some(saved) {
                changes.insert(entry_name(cluster), Some(text(saved)));
            }
        }
        for cluster in before.saved.keys().filter(|it| !self.saved.contains_key(*it)) {
            changes.insert(entry_name(cluster), None);
        }
        if let Some(notes) = self.notes.as_ref().filter(|it| before.notes.as_ref() != Some(*it)) {
            changes.insert(NOTES.to_owned(), Some(Zeroizing::new(notes.to_text())));
        }
        changes
    }

    /// Whether a Secret with it would hold nothing.
    pub fn is_empty(&self) -> bool {
        self.saved.is_empty() && self.notes.as_ref().is_none_or(Notes::is_empty)
    }
}

fn saved(value: &[u8]) -> Option<Saved> {
    let entry: Entry<'_> = serde_json::from_slice(value).ok()?;
    let mut credential = Credential::read(entry.token).ok()?;
    credential.life.issued = entry.issued;
    credential.life.expires = entry.expires;
    let asked = TimeDelta::try_seconds(entry.asked_seconds)?;
    Some(Saved { credential, asked, origin: entry.origin.to_owned() })
}

fn text(saved: &Saved) -> Zeroizing<String> {
    let Saved { credential, asked, origin } = saved;
    let entry = Entry {
        token: credential.token.expose(),
        issued: credential.life.issued,
        expires: credential.life.expires,
        asked_seconds: asked.num_seconds(),
        origin,
    };
    // Plain data always becomes JSON.
    Zeroizing::new(serde_json::to_string(&entry).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::testing::{Issuer, claims, noon},
        *,
    };

    fn a_saved() -> Saved {
        let credential = Credential::read(&Issuer::p256("a").token(&claims())).unwrap();
        let credential = credential.ending(noon() + TimeDelta::minutes(7));
        Saved { credential, asked: TimeDelta::hours(168), origin: "sha256:00".to_owned() }
    }

    fn state_of(data: &BTreeMap<String, Vec<u8>>) -> State {
        State::read(data.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// The data of a Secret after these changes.
    fn data_with(state: &State, before: &State) -> BTreeMap<String, Vec<u8>> {
        let changes = state.changes_from(before).into_iter();
        changes.filter_map(|(name, text)| Some((name, text?.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn what_was_written_is_read_and_then_nothing_is_left_to_write() {
        let mut state = State::default();
        assert!(state.is_empty());
        state.saved.insert("a".into(), a_saved());
        let data = data_with(&state, &State::default());
        assert_eq!(data.keys().collect::<Vec<_>>(), ["cluster.a"]);
        let read = state_of(&data);
        assert_eq!(read, state);
        assert!(state.changes_from(&read).is_empty());
        assert_eq!(
            State::default().changes_from(&read),
            BTreeMap::from([("cluster.a".into(), None)])
        );
    }

    #[test]
    fn nothing_of_a_token_is_printed() {
        let saved = a_saved();
        let shown = format!("{saved:?}");
        assert!(!shown.contains(saved.credential.token.expose()), "{shown}");
    }

    #[test]
    fn an_entry_that_somebody_broke_takes_no_other_with_it_and_is_told() {
        let mut state = State::default();
        state.saved.extend([("a".into(), a_saved()), ("b".into(), a_saved())]);
        let whole = data_with(&state, &State::default());
        let entry: Value = serde_json::from_slice(&whole["cluster.a"]).unwrap();
        for field in ["token", "issued", "expires", "asked_seconds", "origin"] {
            for value in [Value::Null, json!({}), json!(i64::MAX)] {
                let (mut data, mut broken) = (whole.clone(), entry.clone());
                broken[field] = value;
                data.insert("cluster.a".to_owned(), broken.to_string().into_bytes());
                let read = state_of(&data);
                assert_eq!(
                    read.saved.keys().map(|it| &**it).collect::<Vec<_>>(),
                    ["b"],
                    "{broken}"
                );
                assert_eq!(read.problems, [Problem::Credential("cluster.a".to_owned())]);
                assert!(read.changes_from(&read).is_empty(), "it stays as it is");
            }
        }
    }

    #[test]
    fn unknown_entries_and_broken_notes_are_told_and_left_alone() {
        let data = BTreeMap::from([
            ("keys.json".to_owned(), b"no JSON".to_vec()),
            ("other".to_owned(), b"\xff".to_vec()),
        ]);
        let state = state_of(&data);
        assert_eq!(state.problems, [Problem::Unknown("other".to_owned()), Problem::Notes]);
        let mut next = state.clone();
        next.saved.insert("a".into(), a_saved());
        assert_eq!(next.changes_from(&state).keys().collect::<Vec<_>>(), ["cluster.a"]);
    }
}
