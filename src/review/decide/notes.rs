//! Whose each key was first, as our Secret has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{NaiveDate, TimeDelta};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::directory::{Directory, MOST_KEYS, Thumbprint};

/// A key that no cluster publishes for so long is forgotten.
const KEPT: TimeDelta = TimeDelta::days(30);
/// Of one cluster. A cluster that rotates without end must not fill the Secret.
const MOST_NOTES: usize = 2 * MOST_KEYS;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    cluster: Arc<str>,
    /// Since when no cluster publishes the key.
    gone: Option<NaiveDate>,
}

/// A note as it is written.
#[derive(Serialize, Deserialize)]
struct Entry {
    cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<NaiveDate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    keys: BTreeMap<Thumbprint, Note>,
    /// Notes that can't be read stay as they are.
    unreadable: Map<String, Value>,
}

/// What is known of all keys now.
pub struct Published<'a> {
    pub directory: &'a Directory,
    /// Clusters whose keys were not fetched yet.
    pub missing: &'a BTreeSet<Arc<str>>,
    pub today: NaiveDate,
}

impl Notes {
    /// None if the text holds no notes at all.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let mut notes = Self::default();
        for (name, value) in serde_json::from_slice::<Map<String, Value>>(text).ok()? {
            match (Thumbprint::from_text(&name), Entry::deserialize(&value)) {
                (Some(thumbprint), Ok(Entry { cluster, gone })) => {
                    notes.keys.insert(thumbprint, Note { cluster: cluster.into(), gone });
                }
                _ => {
                    notes.unreadable.insert(name, value);
                }
            }
        }
        Some(notes)
    }

    pub(super) fn to_text(&self) -> String {
        let mut all = self.unreadable.clone();
        all.extend(self.keys.iter().map(|(key, note)| {
            let entry = Entry { cluster: note.cluster.to_string(), gone: note.gone };
            (key.to_text(), json!(entry))
        }));
        Value::Object(all).to_string()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.unreadable.is_empty()
    }

    pub(super) fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// For [`Directory::new`].
    pub fn owners(&self) -> BTreeMap<Thumbprint, Arc<str>> {
        self.keys.iter().map(|(key, note)| (*key, note.cluster.clone())).collect()
    }

    /// The notes that there should be.
    ///
    /// Before all keys are known, nobody can tell who was first: whoever answers sooner would get another's key.
    /// So new keys are noted only if no cluster is missing, or `is_patient` no more.
    pub fn next(&self, published: &Published<'_>, is_patient: bool) -> Self {
        let mut next = self.clone();
        if published.missing.is_empty() || !is_patient {
            let new = published.directory.to_note.iter();
            next.keys.extend(new.map(|(key, it)| (*key, Note { cluster: it.clone(), gone: None })));
        }
        for (key, note) in &mut next.keys {
            if published.directory.published.contains(key) {
                note.gone = None;
            } else if !published.missing.contains(&note.cluster) {
                note.gone.get_or_insert(published.today);
            }
        }
        next.keys.retain(|_, note| note.gone.is_none_or(|day| published.today - day <= KEPT));
        next.bound();
        next
    }

    /// Those that are gone for longest go first.
    fn bound(&mut self) {
        let mut gone: BTreeMap<&Arc<str>, Vec<(NaiveDate, Thumbprint)>> = BTreeMap::new();
        let mut count: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for (key, note) in &self.keys {
            *count.entry(&note.cluster).or_default() += 1;
            if let Some(day) = note.gone {
                gone.entry(&note.cluster).or_default().push((day, *key));
            }
        }
        let mut surplus = BTreeSet::new();
        for (cluster, mut keys) in gone {
            keys.sort_unstable();
            let many = count[cluster].saturating_sub(MOST_NOTES);
            surplus.extend(keys.into_iter().take(many).map(|(_, key)| key));
        }
        self.keys.retain(|key, _| !surplus.contains(key));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            directory::{Cluster, published as keys_of},
            testing::{Issuer, noon},
        },
        *,
    };

    fn day(number: i64) -> NaiveDate {
        noon().date_naive() + TimeDelta::days(number)
    }

    fn cluster(name: &str, keys: &[&Issuer]) -> Cluster {
        let document = json!({ "keys": keys.iter().map(|it| it.jwk()).collect::<Vec<_>>() });
        let keys = keys_of(document.to_string().as_bytes()).unwrap().0;
        Cluster { name: name.into(), keys, ..Cluster::default() }
    }

    /// What the notes become once the clusters publish these keys.
    fn next(notes: &Notes, clusters: &[Cluster], number: i64) -> Notes {
        let directory = Directory::new(clusters, &notes.owners());
        let missing = BTreeSet::new();
        let published = Published { directory: &directory, missing: &missing, today: day(number) };
        notes.next(&published, true)
    }

    fn owners(notes: &Notes) -> Vec<String> {
        notes.keys.values().map(|note| note.cluster.to_string()).collect()
    }

    #[test]
    fn a_key_is_noted_for_the_first_that_publishes_it_and_stays_noted() {
        let key = Issuer::p256("k");
        let (first, thief) = (cluster("first", &[&key]), cluster("thief", &[&key]));
        let notes = next(&Notes::default(), std::slice::from_ref(&first), 0);
        assert_eq!(owners(&notes), ["first"]);
        assert_eq!(next(&notes, &[first.clone(), thief.clone()], 1), notes);
        assert_eq!(next(&notes, &[cluster("first", &[]), thief], 400), notes, "it is published");
        assert_eq!(next(&notes, &[first], 400), notes, "nothing changes by itself");
    }

    #[test]
    fn a_key_that_two_publish_at_first_is_noted_for_nobody() {
        let key = Issuer::p256("k");
        let both = [cluster("a", &[&key]), cluster("b", &[&key])];
        assert!(next(&Notes::default(), &both, 0).is_empty());
    }

    #[test]
    fn nothing_is_noted_before_all_keys_are_known_or_for_so_long_that_one_must_be_down() {
        let key = Issuer::p256("k");
        let directory = Directory::new(&[cluster("thief", &[&key])], &BTreeMap::new());
        let missing = BTreeSet::from(["first".into()]);
        let published = Published { directory: &directory, missing: &missing, today: day(0) };
        assert!(Notes::default().next(&published, true).is_empty());
        assert_eq!(owners(&Notes::default().next(&published, false)), ["thief"]);
    }

    #[test]
    fn a_key_that_nobody_publishes_is_forgotten_after_thirty_days() {
        let key = Issuer::p256("k");
        let (with, without) = ([cluster("a", &[&key])], [cluster("a", &[])]);
        let noted = next(&Notes::default(), &with, 0);
        let gone = next(&noted, &without, 10);
        assert_eq!(gone.keys.values().next().unwrap().gone, Some(day(10)));
        assert_eq!(next(&gone, &without, 40), gone);
        assert_eq!(next(&gone, &with, 40), noted, "it came back");
        assert!(next(&gone, &without, 41).is_empty());
        // Whether a cluster still publishes it is not known while its keys are not.
        let directory = Directory::new(&[], &noted.owners());
        let missing = BTreeSet::from(["a".into()]);
        let published = Published { directory: &directory, missing: &missing, today: day(99) };
        assert_eq!(noted.next(&published, true), noted);
    }

    #[test]
    fn a_cluster_that_rotates_without_end_fills_no_secret() {
        let stays = Issuer::p256("stays");
        let mut notes = Notes::default();
        for number in 0..200 {
            let key = Issuer::p256(&number.to_string());
            let both = [cluster("a", &[&key]), cluster("b", &[&stays])];
            notes = next(&notes, &both, number / 100);
        }
        assert_eq!(notes.keys.len(), MOST_NOTES + 1);
        assert!(notes.owners().values().any(|it| **it == *"b"));
        assert_eq!(notes.keys.values().filter(|it| it.gone.is_none()).count(), 2);
    }

    #[test]
    fn notes_are_read_as_they_were_written_and_broken_ones_are_kept() {
        let key = Issuer::p256("k");
        let noted = next(&Notes::default(), &[cluster("a", &[&key])], 0);
        let gone = next(&noted, &[], 1);
        for notes in [noted, gone] {
            assert_eq!(Notes::read(notes.to_text().as_bytes()), Some(notes));
        }
        let text = json!({ "0a": { "cluster": "a" }, "x": 7, "00".repeat(32): { "cluster": "b" } });
        let text = text.to_string();
        let notes = Notes::read(text.as_bytes()).unwrap();
        assert_eq!((owners(&notes), notes.unreadable()), (vec!["b".to_owned()], 2));
        assert_eq!(notes.to_text(), text);
        assert_eq!(Notes::read(b"[]"), None);
    }
}
