//! Compares the expectation of a step with the observation. Pure.

use serde::Serialize;
use serde_json::Value;

use crate::{
    api::spiffe_federation::SpiffeFederation,
    authority::decide::sync::{SYNCED, TRUSTED},
    demo::tour::observed::{Condition, Received, or_error, should_get, some_or_error},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Sequence and number of authorities of the bundle that the partner gets from us.
    pub received: (u64, usize),
    /// The CA of ours that signed the SVID of our endpoint; None for any.
    pub signer: Option<Signer>,
    /// Whether a new SVID of the partner verifies here.
    pub partner_trusted: bool,
    /// The status of the SPIFFEFederation; None if there is no such object.
    pub federation: Option<ExpectedStatus>,
    /// Event of the newest audit record, and its sequence.
    pub audit: (&'static str, Option<u64>),
}

/// Expected status of the SPIFFEFederation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedStatus {
    pub sequence: u64,
    /// Type, status and reason of conditions; others may be any.
    pub conditions: &'static [(&'static str, &'static str, &'static str)],
}

const STILL_TRUSTED: (&str, &str, &str) = (TRUSTED, "True", "BundleCurrent");

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signer {
    NewestCa,
    /// It still signs while the newest is only published.
    CaBefore,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The bundle that the partner got from our endpoint, or why it got none.
    #[serde(serialize_with = "or_error")]
    pub received: Result<Received, String>,
    /// The CA of ours that signed the SVID of our endpoint.
    pub signer: Option<Signer>,
    pub fetches: Fetches,
    /// ID of the partner's workload if its new SVID verifies with the bundle here, or why not.
    #[serde(serialize_with = "or_error")]
    pub partner: Result<String, String>,
    /// The same for an SVID from before the partner's rotation, if there was one.
    #[serde(serialize_with = "some_or_error", skip_serializing_if = "Option::is_none")]
    pub outdated: Option<Result<String, String>>,
    /// None if there is no SPIFFEFederation.
    pub federation: Option<FederationStatus>,
    /// The newest record, as it was written.
    pub audit: Option<Value>,
}

/// How often the partner fetched our bundle, from its first success on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fetches {
    pub all: u64,
    pub failed: u64,
}

impl Fetches {
    pub fn count(&mut self, is_ok: bool) {
        // Until the first bundle is imported, our endpoint can't be verified.
        if is_ok || self.all > 0 {
            self.all += 1;
            self.failed += u64::from(!is_ok);
        }
    }
}

/// What the SPIFFEFederation's status shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FederationStatus {
    pub sequence: Option<String>,
    pub conditions: Vec<Condition>,
}

impl From<SpiffeFederation> for FederationStatus {
    fn from(it: SpiffeFederation) -> Self {
        let conditions = it.status.conditions.into_iter().map(Condition::from).collect();
        Self { sequence: it.status.sequence, conditions }
    }
}

impl ExpectedStatus {
    pub fn well(sequence: u64) -> Self {
        Self { sequence, conditions: &[(SYNCED, "True", "Synced"), STILL_TRUSTED] }
    }

    pub fn sequence_refused(sequence: u64) -> Self {
        Self { sequence, conditions: &[(SYNCED, "False", "SequenceRefused"), STILL_TRUSTED] }
    }

    /// After a bundle without keys. It verifies no endpoint, so `Synced` soon becomes False.
    pub fn empty(sequence: u64) -> Self {
        Self { sequence, conditions: &[(TRUSTED, "False", "BundleEmpty")] }
    }

    /// Differences from the expectation, which may be that there is no such object.
    pub fn compare(wanted: Option<&Self>, seen: Option<&FederationStatus>) -> Vec<String> {
        match (wanted, seen) {
            (Some(wanted), Some(seen)) => wanted.differences(seen),
            (Some(_), None) => vec!["there should be a SPIFFEFederation".to_owned()],
            (None, Some(_)) => vec!["there should be no SPIFFEFederation".to_owned()],
            (None, None) => Vec::new(),
        }
    }

    fn differences(&self, seen: &FederationStatus) -> Vec<String> {
        let mut differences = Vec::new();
        let sequence = self.sequence.to_string();
        if seen.sequence.as_deref() != Some(&*sequence) {
            differences.push(format!("the status should have the sequence {sequence}"));
        }
        for &(about, status, reason) in self.conditions {
            let is_it =
                |it: &Condition| (&*it.r#type, &*it.status, &*it.reason) == (about, status, reason);
            if !seen.conditions.iter().any(is_it) {
                differences.push(format!("the condition {about} should be {status} ({reason})"));
            }
        }
        differences
    }
}

impl Signer {
    pub fn words(self) -> &'static str {
        match self {
            Self::NewestCa => "our newest CA",
            Self::CaBefore => "the CA before our newest one",
        }
    }
}

impl Expected {
    /// Differences from the expectation; empty if it is met.
    pub fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        let received = seen.received.as_ref().map(|it| (it.sequence, it.authorities));
        if received != Ok(self.received) {
            differences.push(should_get(Some(self.received)));
        }
        if let Some(signer) = self.signer.filter(|it| seen.signer != Some(*it)) {
            let signer = signer.words();
            differences.push(format!("the SVID of our endpoint should be signed by {signer}"));
        }
        if seen.fetches.failed > 0 {
            differences.push("no fetch of our bundle should fail".to_owned());
        }
        if seen.partner.is_ok() != self.partner_trusted {
            let wanted = if self.partner_trusted { "trusted" } else { "refused" };
            differences.push(format!("the partner should be {wanted}"));
        }
        if let Some(Ok(_)) = &seen.outdated {
            differences.push("the SVID of the old authority should be refused".to_owned());
        }
        differences
            .extend(ExpectedStatus::compare(self.federation.as_ref(), seen.federation.as_ref()));
        let (event, sequence) = self.audit;
        let of_record = |name: &str| seen.audit.as_ref().and_then(|it| it[name].as_str());
        let sequence = sequence.map(|it| it.to_string());
        if (of_record("event"), of_record("sequence")) != (Some(event), sequence.as_deref()) {
            let sequence = sequence.map(|it| format!(", sequence {it}")).unwrap_or_default();
            differences.push(format!("the newest audit record should be {event}{sequence}"));
        }
        differences
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    fn expected() -> Expected {
        Expected {
            received: (2, 2),
            signer: Some(Signer::NewestCa),
            partner_trusted: true,
            federation: Some(ExpectedStatus::well(3)),
            audit: ("spiffe.federation.rotation", Some(3)),
        }
    }

    fn condition(about: &str, reason: &str) -> Condition {
        let (r#type, reason, message) = (about.to_owned(), reason.to_owned(), String::new());
        Condition { r#type, status: "True".to_owned(), reason, message }
    }

    pub fn seen() -> Seen {
        Seen {
            received: Ok(Received {
                trust_domain: "example.org".to_owned(),
                sequence: 2,
                authorities: 2,
                fingerprint: ["0123"; 16].join(":"),
            }),
            signer: Some(Signer::NewestCa),
            fetches: Fetches { all: 7, failed: 0 },
            partner: Ok("spiffe://partner.example/shop".to_owned()),
            outdated: Some(Err("signed by no authority".to_owned())),
            federation: Some(FederationStatus {
                sequence: Some("3".to_owned()),
                conditions: vec![condition(SYNCED, "Synced"), condition(TRUSTED, "BundleCurrent")],
            }),
            audit: Some(json!({
                "event": "spiffe.federation.rotation",
                "trustDomain": "partner.example",
                "sequence": "3",
                "oldSequence": "2",
                "oldKeys": ["x509:01", "x509:02"],
                "newKeys": ["x509:02"],
            })),
        }
    }

    #[test]
    fn an_expected_observation_has_no_differences() {
        assert_eq!(expected().differences(&seen()), Vec::<String>::new());
        let ended = Expected {
            signer: None,
            partner_trusted: false,
            federation: None,
            audit: ("spiffe.federation.delete", None),
            ..expected()
        };
        let seen = Seen {
            signer: Some(Signer::CaBefore),
            partner: Err("there is no SPIFFEFederation".to_owned()),
            outdated: None,
            federation: None,
            audit: Some(json!({ "event": "spiffe.federation.delete" })),
            ..seen()
        };
        assert_eq!(ended.differences(&seen), Vec::<String>::new());
    }

    #[test]
    fn every_difference_is_reported() {
        let status = |change: fn(&mut FederationStatus)| {
            let mut seen = seen();
            seen.federation.as_mut().map(change).unwrap();
            seen
        };
        let record = |name: &str, value: Value| {
            let mut seen = seen();
            seen.audit.as_mut().unwrap()[name] = value;
            seen
        };
        let cases = [
            Seen { received: Err("refused".to_owned()), ..seen() },
            Seen { signer: Some(Signer::CaBefore), ..seen() },
            Seen { fetches: Fetches { all: 7, failed: 1 }, ..seen() },
            Seen { partner: Err("refused".to_owned()), ..seen() },
            Seen { outdated: Some(Ok("an ID".to_owned())), ..seen() },
            Seen { federation: None, ..seen() },
            status(|it| it.sequence = None),
            status(|it| it.conditions[0].status = "False".to_owned()),
            status(|it| it.conditions[1].reason = "BundleEmpty".to_owned()),
            Seen { audit: None, ..seen() },
            record("event", json!("spiffe.federation.update")),
            record("sequence", json!("2")),
        ];
        for seen in cases {
            assert_eq!(expected().differences(&seen).len(), 1, "{seen:?}");
        }
        let gone = Expected { federation: None, ..expected() };
        assert_eq!(gone.differences(&seen()), ["there should be no SPIFFEFederation"]);
        let other = Expected { received: (3, 1), ..expected() };
        let wanted = "the client should get sequence 3 with 1 authority";
        assert_eq!(other.differences(&seen()), [wanted]);
    }

    #[test]
    fn a_lower_sequence_and_an_empty_bundle_are_told_apart_by_their_conditions() {
        let wanted = |federation| Expected { federation: Some(federation), ..expected() };
        let refused = wanted(ExpectedStatus::sequence_refused(3)).differences(&seen());
        assert_eq!(refused, ["the condition Synced should be False (SequenceRefused)"]);
        let empty = wanted(ExpectedStatus::empty(3)).differences(&seen());
        assert_eq!(empty, ["the condition Trusted should be False (BundleEmpty)"]);
    }

    #[test]
    fn fetches_count_from_the_first_success_on() {
        let mut fetches = Fetches::default();
        [false, true, true, false].into_iter().for_each(|is_ok| fetches.count(is_ok));
        assert_eq!(fetches, Fetches { all: 3, failed: 1 });
    }
}
