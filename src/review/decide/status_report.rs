//! What ConfigMap `trustplane-review-status` says of each cluster.
//!
//! Nothing in it changes by itself: an outage has the time at which it began, and keys that are fetched again
//! are as they were.

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde::{Deserialize, Serialize};

use super::{directory::SharedKey, renewal::Source};
use crate::runtime::printable::{printable, shortened};

/// Of texts that another cluster has a say in, in bytes.
const LONGEST_TEXT: usize = 256;
/// Shared keys of one cluster that are named.
const MOST_SHARED: usize = 3;

/// Something that somebody has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As in Events.
    pub reason: &'static str,
    pub text: String,
}

/// What a replica knows of a cluster now.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether its keys were fetched at least once.
    pub has_keys: bool,
    pub keys: usize,
    /// Of the last fetch of its keys, if it failed.
    pub error: Option<String>,
    /// Where the credential in use is from, and its end. None for the local cluster.
    pub credential: Option<(Source, DateTime<Utc>)>,
    pub problems: Vec<Problem>,
}

/// One cluster's entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub reachable: bool,
    /// How many keys of it are known. They may be old while it is not reachable.
    pub keys: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemEntry {
    pub reason: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    pub since: DateTime<Utc>,
    /// How it began.
    pub error: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialEntry {
    /// `file` or `secret`.
    pub from: String,
    /// None for a token without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<DateTime<Utc>>,
}

/// The entries that there should be, given those that there are.
pub fn entries(
    before: &BTreeMap<String, String>,
    facts: &BTreeMap<&str, Facts>,
    now: DateTime<Utc>,
) -> BTreeMap<String, String> {
    let entry = |(name, facts): (&&str, &Facts)| {
        let before = before.get(*name).and_then(|text| serde_json::from_str(text).ok());
        let entry = entry(before, facts, now);
        // Plain data always becomes JSON.
        ((*name).to_owned(), serde_json::to_string(&entry).unwrap_or_default())
    };
    facts.iter().map(entry).collect()
}

fn entry(before: Option<Entry>, facts: &Facts, now: DateTime<Utc>) -> Entry {
    let error = match (&facts.error, facts.has_keys) {
        (Some(error), _) => Some(error.as_str()),
        (None, true) => None,
        (None, false) => Some("its keys were not fetched yet"),
    };
    let outage = error.map(|error| {
        let begins = || Outage { since: now.trunc_subsecs(0), error: bounded(error) };
        before.and_then(|it| it.outage).unwrap_or_else(begins)
    });
    let credential = facts.credential.map(|(source, expires)| CredentialEntry {
        from: match source {
            Source::File => "file".to_owned(),
            Source::Secret => "secret".to_owned(),
        },
        expires: Some(expires).filter(|it| *it != DateTime::<Utc>::MAX_UTC),
    });
    let problems = facts.problems.iter();
    let problems = problems
        .map(|it| ProblemEntry { reason: it.reason.to_owned(), text: it.text.clone() })
        .collect();
    Entry { reachable: outage.is_none(), keys: facts.keys, outage, credential, problems }
}

/// About keys of this cluster that another one publishes, too.
pub fn shared_keys(cluster: &str, shared: &[SharedKey]) -> Vec<Problem> {
    let own = shared.iter().filter(|key| key.published_by.iter().any(|by| **by == *cluster));
    own.take(MOST_SHARED).map(|key| shared_key(cluster, key)).collect()
}

fn shared_key(cluster: &str, key: &SharedKey) -> Problem {
    let kid = bounded(key.kid.as_deref().unwrap_or("without a kid"));
    let others = key.published_by.iter().filter(|by| ***by != *cluster);
    let others: Vec<&str> = others.map(|by| &**by).collect();
    let with = match others.is_empty() {
        true => String::new(),
        false => format!(" is published by {}, too, and", bounded(&others.join(", "))),
    };
    let owner = match &key.owner {
        Some(owner) => format!("counts as a key of {owner}"),
        None => "counts as nobody's".to_owned(),
    };
    let text = format!("key {kid}{with} {owner}. List it in kids: of the cluster whose it is");
    Problem { reason: "KeyShared", text }
}

fn bounded(text: &str) -> String {
    shortened(&printable(text), LONGEST_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::{super::testing::noon, *};

    fn well() -> Facts {
        Facts {
            has_keys: true,
            keys: 2,
            credential: Some((Source::Secret, noon() + TimeDelta::hours(168))),
            ..Facts::default()
        }
    }

    fn down(error: &str) -> Facts {
        Facts { error: Some(error.to_owned()), ..well() }
    }

    /// The entry of a cluster after these facts, reported one after the other, a minute apart.
    fn reported(all: &[Facts]) -> Entry {
        let mut entries_now = BTreeMap::new();
        for (minutes, facts) in (0..).zip(all) {
            let facts = BTreeMap::from([("a", facts.clone())]);
            entries_now = entries(&entries_now, &facts, noon() + TimeDelta::minutes(minutes));
        }
        serde_json::from_str(&entries_now["a"]).unwrap()
    }

    #[test]
    fn a_cluster_that_is_well_is_told_the_same_for_ever() {
        assert_eq!(reported(&[well()]), reported(&[well(), well(), well()]));
        let entry = reported(&[well()]);
        assert!(entry.reachable && entry.outage.is_none() && entry.problems.is_empty());
        assert_eq!(entry.credential.unwrap().from, "secret");
    }

    #[test]
    fn an_outage_has_the_time_and_the_error_with_which_it_began() {
        let entry = reported(&[well(), down("HTTP 503"), down("no route"), down("HTTP 503")]);
        let outage = entry.outage.unwrap();
        assert_eq!((outage.since, &*outage.error), (noon() + TimeDelta::minutes(1), "HTTP 503"));
        assert!(!entry.reachable && entry.keys == 2);
        assert!(reported(&[down("x"), well()]).reachable);
        let again = reported(&[down("x"), well(), down("y")]).outage.unwrap();
        assert_eq!(again.since, noon() + TimeDelta::minutes(2));
    }

    #[test]
    fn a_cluster_of_which_nothing_is_known_is_not_reachable() {
        let entry = reported(&[Facts::default()]);
        assert!(!entry.reachable && entry.credential.is_none());
    }

    #[test]
    fn what_was_written_by_somebody_else_is_written_anew() {
        let facts = BTreeMap::from([("a", well())]);
        for text in ["", "{}", "[]", "no JSON"] {
            let before = BTreeMap::from([("a".to_owned(), text.to_owned())]);
            assert_eq!(entries(&before, &facts, noon()), entries(&BTreeMap::new(), &facts, noon()));
        }
    }

    #[test]
    fn a_shared_key_is_told_of_each_that_publishes_it() {
        let key = SharedKey {
            kid: Some("k\n".repeat(999)),
            published_by: vec!["a".into(), "b".into()],
            owner: Some("a".into()),
        };
        let shared = vec![key; 9];
        for cluster in ["a", "b"] {
            let problems = shared_keys(cluster, &shared);
            assert_eq!(problems.len(), MOST_SHARED);
            assert!(problems.iter().all(|it| it.text.len() < 1024 && !it.text.contains('\n')));
            assert!(problems[0].text.contains("counts as a key of a"));
        }
        assert!(shared_keys("c", &shared).is_empty());
    }
}
