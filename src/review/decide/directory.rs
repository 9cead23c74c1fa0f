//! Which cluster a key belongs to.
//!
//! Public keys can be copied. If a cluster could take over another's key by publishing it, that one's tokens
//! would be sent to it. So a key that two clusters publish stays with the one that it was noted for first; if
//! none was noted, it is nobody's until the configuration says whose.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::jose::{
    json::Unique,
    jwk::{Malformed, PublicKey},
};

/// Of one cluster. Kubernetes has one or two, and more while keys are rotated.
pub const MOST_KEYS: usize = 64;
/// What tokens that lie in Secrets name as their issuer, in every cluster.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("not a JSON object in which no member is there twice: {0}")]
    Json(String),
    #[error("it has no list \"keys\"")]
    NoKeys,
    #[error("it has {0} keys, and {MOST_KEYS} are taken")]
    Many(usize),
}

/// What identifies a key, whatever name it is published under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    fn of(key: &PublicKey) -> Self {
        let mut digest = Sha256::new();
        for part in key.parts() {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    /// As it is noted in our Secret.
    pub fn to_text(self) -> String {
        hex::encode(self.0)
    }

    pub fn from_text(text: &str) -> Option<Self> {
        hex::decode(text).ok()?.try_into().ok().map(Self)
    }
}

/// A key that a cluster publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKey {
    pub kid: Option<String>,
    /// If it is limited to one.
    pub algorithm: Option<String>,
    pub key: PublicKey,
}

/// The keys of a JWKS document, without those that sign no token that we take. The number of those follows.
pub fn published(document: &[u8]) -> Result<(Vec<PublishedKey>, usize), KeysError> {
    let read: Unique =
        serde_json::from_slice(document).map_err(|error| KeysError::Json(error.to_string()))?;
    let all = read.0["keys"].as_array().ok_or(KeysError::NoKeys)?;
    if all.len() > MOST_KEYS {
        return Err(KeysError::Many(all.len()));
    }
    let keys: Vec<_> = all.iter().filter_map(|it| published_key(it).ok().flatten()).collect();
    let skipped = all.len() - keys.len();
    Ok((keys, skipped))
}

fn published_key(key: &Value) -> Result<Option<PublishedKey>, Malformed> {
    let text = |name: &str| match &key[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(Malformed),
    };
    if text("use")?.is_some_and(|it| it != "sig") {
        return Ok(None);
    }
    let (kid, algorithm) = (text("kid")?, text("alg")?);
    let key = PublicKey::read(key)?;
    Ok(key.map(|key| PublishedKey { kid, algorithm, key }))
}

/// What the configuration says of a cluster, and what it publishes.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub name: Arc<str>,
    /// `issuer`, `additional_issuers`, and with `legacy_tokens` the one of those.
    pub issuers: BTreeSet<String>,
    /// The kids of keys that are this cluster's, whoever else publishes them.
    pub claimed: BTreeSet<String>,
    pub keys: Vec<PublishedKey>,
}

/// A key that several clusters publish.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedKey {
    pub kid: Option<String>,
    pub published_by: Vec<Arc<str>>,
    /// Whose it is; nobody's if it is not known who had it first.
    pub owner: Option<Arc<str>>,
}

/// A key of a cluster, found by issuer and kid.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub cluster: Arc<str>,
    pub key: PublishedKey,
}

/// All keys, by the issuers of their clusters.
#[derive(Debug, Default)]
pub struct Directory {
    issuers: HashMap<String, Keys>,
    pub shared: Vec<SharedKey>,
    /// Keys that belong to a cluster and are not noted yet.
    pub to_note: BTreeMap<Thumbprint, Arc<str>>,
    /// All keys that a cluster publishes.
    pub published: BTreeSet<Thumbprint>,
    owners: BTreeMap<Thumbprint, Arc<str>>,
}

#[derive(Debug, Default)]
struct Keys {
    clusters: Vec<Arc<str>>,
    by_kid: HashMap<String, Vec<Candidate>>,
    /// For tokens without a kid, which are tried with one key after another.
    all: Vec<Candidate>,
}

impl Directory {
    pub fn new(clusters: &[Cluster], noted: &BTreeMap<Thumbprint, Arc<str>>) -> Self {
        let mut directory = Self::default();
        directory.owners = directory.owners_of(clusters, noted);
        for cluster in clusters {
            for issuer in &cluster.issuers {
                let keys = directory.issuers.entry(issuer.clone()).or_default();
                keys.clusters.push(cluster.name.clone());
                for key in &cluster.keys {
                    if directory.owners.get(&Thumbprint::of(&key.key)) == Some(&cluster.name) {
                        keys.add(Candidate { cluster: cluster.name.clone(), key: key.clone() });
                    }
                }
            }
        }
        directory
    }

    fn owners_of(
        &mut self,
        clusters: &[Cluster],
        noted: &BTreeMap<Thumbprint, Arc<str>>,
    ) -> BTreeMap<Thumbprint, Arc<str>> {
        let mut publishers: BTreeMap<Thumbprint, Vec<(&Cluster, &PublishedKey)>> = BTreeMap::new();
        for cluster in clusters {
            for key in &cluster.keys {
                let all = publishers.entry(Thumbprint::of(&key.key)).or_default();
                if all.iter().all(|(other, _)| other.name != cluster.name) {
                    all.push((cluster, key));
                }
            }
        }
        let mut owners = BTreeMap::new();
        for (thumbprint, all) in publishers {
            // Of a cluster that was taken out of the configuration, nothing is left to protect.
            self.published.insert(thumbprint);
            let noted = noted.get(&thumbprint);
            let noted = noted.filter(|name| clusters.iter().any(|it| it.name == **name));
            let owner = owner(&all, noted);
            let is_foreign =
                owner.as_ref().is_some_and(|it| all.iter().all(|(by, _)| by.name != *it));
            if all.len() > 1 || is_foreign {
                let published_by = all.iter().map(|(by, _)| by.name.clone()).collect();
                let kid = all[0].1.kid.clone();
                self.shared.push(SharedKey { kid, published_by, owner: owner.clone() });
            }
            if let Some(owner) = owner {
                if noted != Some(&owner) {
                    self.to_note.insert(thumbprint, owner.clone());
                }
                owners.insert(thumbprint, owner);
            }
        }
        owners
    }

    /// The cluster that a key belongs to.
    pub fn owner(&self, key: &PublicKey) -> Option<&Arc<str>> {
        self.owners.get(&Thumbprint::of(key))
    }

    /// The clusters that tokens of this issuer may come from.
    pub fn clusters_of(&self, issuer: &str) -> &[Arc<str>] {
        self.issuers.get(issuer).map_or(&[], |keys| &keys.clusters)
    }

    /// The keys that a token of this issuer with this kid may be signed with. Without a kid, all of them.
    pub fn candidates(&self, issuer: &str, kid: Option<&str>) -> &[Candidate] {
        let Some(keys) = self.issuers.get(issuer) else { return &[] };
        match kid {
            Some(kid) => keys.by_kid.get(kid).map_or(&[], Vec::as_slice),
            None => &keys.all[..keys.all.len().min(MOST_KEYS)],
        }
    }
}

impl Keys {
    fn add(&mut self, candidate: Candidate) {
        if let Some(kid) = &candidate.key.kid {
            self.by_kid.entry(kid.clone()).or_default().push(candidate.clone());
        }
        self.all.push(candidate);
    }
}

/// Whose a key is. The configuration decides, then who had it first, then that nobody else has it.
fn owner(publishers: &[(&Cluster, &PublishedKey)], noted: Option<&Arc<str>>) -> Option<Arc<str>> {
    let claims = |(cluster, key): &&(&Cluster, &PublishedKey)| {
        key.kid.as_ref().is_some_and(|kid| cluster.claimed.contains(kid))
    };
    let claimed: Vec<_> = publishers.iter().filter(claims).collect();
    match (&claimed[..], noted, publishers) {
        ([(cluster, _)], ..) => Some(cluster.name.clone()),
        // Two claim it, and the configuration contradicts itself.
        ([_, _, ..], ..) => None,
        ([], Some(first), _) => Some(first.clone()),
        ([], None, [(only, _)]) => Some(only.name.clone()),
        ([], None, _) => None,
    }
}

#[cfg(test)]
mod tests;
