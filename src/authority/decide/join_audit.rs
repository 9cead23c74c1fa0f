//! Records of joins for the audit log, and how many refusals get a record of their own.
//!
//! A caller who is refused again and again must not fill the log: of each address and failed check a few
//! refusals a minute are recorded whole, and the rest as one number.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;

use super::{audit::cut, join::Refusal};
use crate::{
    api::join_token::Role,
    spiffe::{Summary, id::SpiffeId},
};

/// Refusals of one address and check that are recorded whole, in each minute.
const MOST_WHOLE: u64 = 32;
/// The same of all together.
const MOST_WHOLE_IN_ALL: u64 = 1000;
/// Addresses and checks that are told apart, and tokens.
const MOST_KEYS: usize = 1000;
const MOST_NAMES: usize = 8;
const MINUTE: TimeDelta = TimeDelta::minutes(1);

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRecord {
    /// The reference that a refused caller was given.
    pub id: String,
    pub time: String,
    pub event: &'static str,
    pub success: bool,
    /// Of the SVID. It is proved only where `check` is "rules", or missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trust_domain: String,
    pub address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// As the client calls itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub svid: Option<PresentedNames>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued: Option<IssuedNames>,
    /// The check that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// More refusals like this one, which have no record of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// Of the SVID that somebody joined with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PresentedNames {
    pub subject: String,
    pub sans: Vec<String>,
    pub serial: String,
    pub issuer: String,
}

/// Of the SVID that we signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedNames {
    #[serde(rename = "spiffeID")]
    pub spiffe_id: String,
    pub serial: String,
    pub expires: String,
    /// The ID of our CA.
    pub ca: String,
    /// Whether this SPIFFE ID had joined with this token before.
    pub is_renewal: bool,
}

/// Somebody who wants to join.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// Random.
    pub reference: &'a str,
    pub role: Role,
    pub address: IpAddr,
    pub token: &'a str,
    pub node_name: &'a str,
    pub svid: &'a Summary,
    pub id: Option<&'a SpiffeId>,
    pub now: DateTime<Utc>,
}

pub fn event(role: Role) -> &'static str {
    match role {
        Role::Bot => "bot.join",
        Role::Agent => "agent.join",
    }
}

pub fn success(attempt: &Attempt<'_>, issued: IssuedNames) -> JoinRecord {
    JoinRecord { success: true, issued: Some(issued), ..of(attempt) }
}

pub fn failure(attempt: &Attempt<'_>, refusal: &Refusal) -> JoinRecord {
    let reason = Some(cut(&refusal.to_string()));
    JoinRecord { check: Some(refusal.category()), reason, ..of(attempt) }
}

fn of(attempt: &Attempt<'_>) -> JoinRecord {
    let Summary { subject, issuer, serial, names } = attempt.svid;
    let svid = PresentedNames {
        subject: cut(subject),
        sans: names.iter().take(MOST_NAMES).map(|it| cut(it)).collect(),
        serial: cut(serial),
        issuer: cut(issuer),
    };
    JoinRecord {
        id: attempt.reference.to_owned(),
        trust_domain: attempt.id.map(|it| cut(it.trust_domain().as_str())).unwrap_or_default(),
        token: cut(attempt.token),
        node_name: cut(attempt.node_name),
        svid: Some(svid),
        ..empty(event(attempt.role), attempt.address.to_string(), attempt.now)
    }
}

fn empty(event: &'static str, address: String, now: DateTime<Utc>) -> JoinRecord {
    JoinRecord {
        id: String::new(),
        time: text(now),
        event,
        success: false,
        trust_domain: String::new(),
        address,
        token: String::new(),
        node_name: String::new(),
        svid: None,
        issued: None,
        check: None,
        reason: None,
        count: None,
        since: None,
    }
}

fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// What a refusal becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Whole,
    /// In a number that comes later.
    Summed,
}

/// A client without others: an address of IPv4, or a network of IPv6, which one host may have for itself.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from(u128::from(it) >> 64 << 64).into(),
        it => it,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    event: &'static str,
    /// None for all that are too many to be told apart.
    address: Option<IpAddr>,
    check: &'static str,
}

#[derive(Clone, Debug)]
struct Entry {
    since: DateTime<Utc>,
    whole: u64,
    more: u64,
}

/// Refusals of the last minute. Its size is bounded, whatever callers do.
#[derive(Debug, Default)]
pub struct RefusalSums {
    entries: BTreeMap<Key, Entry>,
    whole: u64,
    /// By token and check, of tokens that exist.
    tokens: BTreeMap<String, BTreeMap<&'static str, u64>>,
}

impl RefusalSums {
    /// Counts a refusal. `token` is one that exists.
    pub fn add(
        &mut self,
        attempt: &Attempt<'_>,
        check: &'static str,
        token: Option<&str>,
    ) -> Recorded {
        if let Some(token) = token
            && (self.tokens.len() < MOST_KEYS || self.tokens.contains_key(token))
        {
            *self.tokens.entry(token.to_owned()).or_default().entry(check).or_default() += 1;
        }
        let event = event(attempt.role);
        let mut key = Key { event, address: Some(network(attempt.address)), check };
        if self.entries.len() >= MOST_KEYS && !self.entries.contains_key(&key) {
            key.address = None;
        }
        let new = Entry { since: attempt.now, whole: 0, more: 0 };
        let entry = self.entries.entry(key).or_insert(new);
        if entry.whole < MOST_WHOLE && self.whole < MOST_WHOLE_IN_ALL {
            entry.whole += 1;
            self.whole += 1;
            Recorded::Whole
        } else {
            entry.more += 1;
            Recorded::Summed
        }
    }

    /// The numbers of minutes that are over.
    pub fn take(&mut self, now: DateTime<Utc>) -> Vec<JoinRecord> {
        // Also where the clock was put back.
        self.take_where(|entry| (now - entry.since).abs() >= MINUTE, now)
    }

    /// All numbers, before the process ends.
    pub fn take_all(&mut self, now: DateTime<Utc>) -> Vec<JoinRecord> {
        self.take_where(|_| true, now)
    }

    fn take_where(
        &mut self,
        is_over: impl Fn(&Entry) -> bool,
        now: DateTime<Utc>,
    ) -> Vec<JoinRecord> {
        let mut records = Vec::new();
        self.entries.retain(|key, entry| {
            if !is_over(entry) {
                return true;
            }
            self.whole -= entry.whole;
            records.extend((entry.more > 0).then(|| summed(key, entry, now)));
            false
        });
        records
    }

    /// For each token the refusals since the last call, by check.
    pub fn take_tokens(&mut self) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
        std::mem::take(&mut self.tokens)
    }
}

fn summed(key: &Key, entry: &Entry, now: DateTime<Utc>) -> JoinRecord {
    let address = key.address.map_or_else(|| "others".to_owned(), |it| it.to_string());
    JoinRecord {
        check: Some(key.check),
        count: Some(entry.more),
        since: Some(text(entry.since)),
        ..empty(key.event, address, now)
    }
}

#[cfg(test)]
mod tests;
