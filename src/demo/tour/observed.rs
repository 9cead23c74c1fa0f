//! What the tours of trust domains have in common: bundles that clients got, and conditions.

use std::fmt;

use anstyle::Style;
use serde::{Serialize, Serializer};

use crate::{
    api::condition,
    runtime::terminal::{GOOD, WARNING},
    spiffe::bundle::Bundle,
};

/// This many groups of a fingerprint are enough to tell bundles apart.
const GROUPS: usize = 4;

/// A bundle that a client got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    pub trust_domain: String,
    pub sequence: u64,
    /// Number of CA certificates.
    pub authorities: usize,
    /// Fingerprint of its keys.
    pub fingerprint: String,
}

impl Received {
    pub fn new(trust_domain: String, bundle: &Bundle) -> Self {
        Self {
            trust_domain,
            sequence: bundle.sequence.unwrap_or_default(),
            authorities: bundle.x509.len(),
            fingerprint: bundle.fingerprint(),
        }
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: Vec<_> = self.fingerprint.split(':').take(GROUPS).collect();
        write!(
            f,
            "the bundle of {} from its endpoint: sequence {}, {}, fingerprint {}...",
            self.trust_domain,
            self.sequence,
            counted(self.authorities),
            short.join(":"),
        )
    }
}

pub fn counted(authorities: usize) -> String {
    match authorities {
        1 => "1 authority".to_owned(),
        many => format!("{many} authorities"),
    }
}

/// Sequence and number of authorities of the bundle that a client should get, in words.
pub fn should_get(wanted: Option<(u64, usize)>) -> String {
    match wanted {
        Some((sequence, authorities)) => {
            format!("the client should get sequence {sequence} with {}", counted(authorities))
        }
        None => "the client should get nothing".to_owned(),
    }
}

/// One of `status.conditions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl From<condition::Condition> for Condition {
    fn from(it: condition::Condition) -> Self {
        Self {
            r#type: it.r#type.into_owned(),
            status: it.status.into_owned(),
            reason: it.reason.into_owned(),
            message: it.message,
        }
    }
}

impl Condition {
    pub fn style(&self) -> Style {
        if self.status == "True" { GOOD } else { WARNING }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} ({})", self.r#type, self.status, self.reason)
    }
}

/// Whether an SVID was accepted, for a row: its ID, or why not.
pub fn judged(svid: &Result<String, String>) -> (Style, String) {
    match svid {
        Ok(id) => (GOOD, format!("trusted: {id}")),
        Err(why) => (WARNING, format!("refused: {why}")),
    }
}

pub fn or_error<S: Serializer, T: Serialize>(
    seen: &Result<T, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match seen {
        Ok(seen) => seen.serialize(serializer),
        Err(why) => serializer.collect_map([("error", why)]),
    }
}

pub fn some_or_error<S: Serializer, T: Serialize>(
    seen: &Option<Result<T, String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match seen {
        Some(seen) => or_error(seen, serializer),
        None => serializer.serialize_none(),
    }
}
