//! What there was, and when: tokens, bundles that count, and our CAs.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::time::Instant;
use trustplane::{
    authority::decide::ca::AuthorityState,
    names::{AUTHORITY_SECRET, REQUESTS_CONFIG_MAP, REVOKE_ANNOTATION},
    spiffe::bundle::Bundle,
};

use super::super::{condition, is_of};
use crate::{
    authority::{
        ops::{state, token_name},
        peers::{PEERS, trust_domain},
    },
    journal::{Commit, Journal},
};

/// Values that replace each other.
pub struct Timeline<T> {
    first: T,
    changes: Vec<(Instant, T)>,
}

impl<T> Timeline<T> {
    fn new(first: T) -> Self {
        Self { first, changes: Vec::new() }
    }

    /// All that there was in this time, both ends included.
    pub fn during(&self, from: Instant, to: Instant) -> impl Iterator<Item = &T> {
        let begun = self.changes.partition_point(|(at, _)| *at < from);
        let before = self.changes[..begun].last().map_or(&self.first, |(_, value)| value);
        let within = self.changes[begun..].iter().take_while(move |(at, _)| *at <= to);
        std::iter::once(before).chain(within.map(|(_, value)| value))
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(self.changes.iter().map(|(_, value)| value))
    }
}

/// A JoinToken, read without the product's types.
#[derive(Clone, Debug)]
pub struct Token {
    pub uid: String,
    pub most_uses: Option<usize>,
    pub used_by: Vec<String>,
    expires: Option<DateTime<Utc>>,
    is_leaving: bool,
}

impl Token {
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let used_by = object["status"]["usedBy"].as_array();
        Self {
            uid: text(&object["metadata"]["uid"]),
            most_uses: object["spec"]["maxUses"].as_u64().map(|it| it as usize),
            used_by: used_by.into_iter().flatten().map(|it| text(&it["spiffeID"])).collect(),
            expires: object["spec"]["expires"].as_str().map(|it| it.parse().expect("a time")),
            is_leaving: !object["metadata"]["deletionTimestamp"].is_null(),
        }
    }

    pub fn has_noted(&self, id: &str) -> bool {
        self.used_by.iter().any(|it| it == id)
    }

    pub fn admits(&self, id: &str, now: DateTime<Utc>) -> bool {
        let has_room = self.most_uses.is_none_or(|most| self.used_by.len() < most);
        let has_ended = self.expires.is_some_and(|at| now >= at);
        !self.is_leaving && !has_ended && (has_room || self.has_noted(id))
    }
}

/// Those of the bundle that counts for a trust domain; none where none does.
pub type Authorities = HashSet<CertificateDer<'static>>;

pub struct TokenChange {
    pub at: Instant,
    pub call: usize,
    pub name: String,
    pub is_creation: bool,
}

pub struct Past {
    pub start: Instant,
    /// By name.
    pub tokens: BTreeMap<String, Timeline<Option<Token>>>,
    /// By peer.
    pub federations: Vec<Timeline<Authorities>>,
    pub states: Timeline<Option<AuthorityState>>,
    /// When somebody asked for the revocation of a CA first.
    pub revoked_at: Option<Instant>,
    /// Changes of tokens, in order.
    changes: Vec<TokenChange>,
    absent: Timeline<Option<Token>>,
}

impl Past {
    pub fn new(journal: &Journal) -> Self {
        let mut past = Self {
            start: journal.calls[0].sent,
            tokens: BTreeMap::new(),
            federations: (0..PEERS).map(|_| Timeline::new(Authorities::new())).collect(),
            states: Timeline::new(None),
            revoked_at: None,
            changes: Vec::new(),
            absent: Timeline::new(None),
        };
        let mut federations = BTreeMap::new();
        for commit in &journal.commits {
            past.read(commit, &mut federations);
        }
        past
    }

    fn read(&mut self, commit: &Commit, federations: &mut BTreeMap<String, Arc<Value>>) {
        let (at, name, after) = (commit.at, commit.change.name.to_string(), &commit.change.after);
        if is_of(commit, super::TOKENS) {
            let token = after.as_deref().map(Token::of);
            let timeline = self.tokens.entry(name.clone()).or_insert_with(|| Timeline::new(None));
            timeline.changes.push((at, token));
            let is_creation = commit.change.before.is_none();
            self.changes.push(TokenChange { at, call: commit.call, name, is_creation });
        } else if is_of(commit, "spiffefederations") {
            match after {
                Some(after) => federations.insert(name, after.clone()),
                None => federations.remove(&name),
            };
            for (peer, timeline) in self.federations.iter_mut().enumerate() {
                timeline.changes.push((at, authorities(federations, &trust_domain(peer))));
            }
        } else if is_of(commit, "secrets") && name == AUTHORITY_SECRET {
            self.states.changes.push((at, after.as_deref().and_then(state)));
        } else if is_of(commit, "configmaps") && name == REQUESTS_CONFIG_MAP {
            let annotations = after.as_deref().map(|it| &it["metadata"]["annotations"]);
            if annotations.is_some_and(|it| !it[REVOKE_ANNOTATION].is_null()) {
                self.revoked_at.get_or_insert(at);
            }
        }
    }

    pub fn token(&self, token: usize) -> &Timeline<Option<Token>> {
        self.tokens.get(&token_name(token)).unwrap_or(&self.absent)
    }

    pub fn changes_of(&self, name: &str) -> impl Iterator<Item = &TokenChange> {
        self.changes.iter().filter(move |it| it.name == name)
    }
}

/// Of several federations for a trust domain the oldest counts, if it is trusted.
fn authorities(federations: &BTreeMap<String, Arc<Value>>, trust_domain: &str) -> Authorities {
    let stays = |it: &&Arc<Value>| {
        it["spec"]["trustDomain"] == *trust_domain && it["metadata"]["deletionTimestamp"].is_null()
    };
    let age = |it: &&Arc<Value>| {
        let text = |name: &str| it["metadata"][name].as_str().unwrap_or_default().to_owned();
        (text("creationTimestamp"), text("name"))
    };
    let oldest = federations.values().filter(stays).min_by_key(age);
    let trusted = oldest.filter(|it| condition(it, "Trusted")["status"] == "True");
    let document = trusted.and_then(|it| it["status"]["currentBundle"].as_str());
    let bundle = document.and_then(|it| Bundle::parse(it.as_bytes()).ok());
    bundle.iter().flat_map(|it| &it.x509).map(|it| it.der().clone()).collect()
}
