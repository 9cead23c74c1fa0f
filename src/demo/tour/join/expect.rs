//! Compares the expectation of a step with the observation. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    api::join_token::JoinToken,
    demo::tour::{
        authority::{
            expect::{ExpectedStatus, FederationStatus, Signer},
            stage::{PARTNER, TRUST_DOMAIN},
        },
        observed::{counted, or_error, some_or_error},
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What the join service answers to a client; None in steps without one.
    pub client: Option<Answer>,
    pub workload: ExpectedWorkload,
    /// Uses of the JoinToken.
    pub uses: u64,
    /// The status of the SPIFFEFederation; None if there is no such object.
    pub federation: Option<ExpectedStatus>,
    /// The newest audit record of this event.
    pub audit: (&'static str, Recorded),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Joined,
    Refused,
}

/// What the workload should have from the agent's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedWorkload {
    /// There is no agent yet.
    NoAgent,
    Gets {
        /// Number of authorities of our own trust domain.
        own: usize,
        /// The same of the partner; None if it is not trusted.
        partner: Option<usize>,
        /// The CA of ours that signed its SVID; None for any.
        signer: Option<Signer>,
    },
    Nothing,
}

/// What an audit record should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Sequence(u64),
    Joined,
    Renewed,
    /// The failed check.
    Refused(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// What the client got from the join service, or why it got nothing.
    #[serde(serialize_with = "some_or_error", skip_serializing_if = "Option::is_none")]
    pub client: Option<Result<JoinedAs, String>>,
    /// What the workload has from the agent's socket, or why it has nothing. None before there is an agent.
    #[serde(serialize_with = "some_or_error")]
    pub workload: Option<Result<WorkloadStatus, String>>,
    pub token: Option<TokenStatus>,
    /// None if there is no SPIFFEFederation.
    pub federation: Option<FederationStatus>,
    /// The record, as it was written.
    pub audit: Option<Value>,
}

/// What a client got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JoinedAs {
    pub spiffe_id: String,
    /// Trust domains whose bundles came with it.
    pub trusted: Vec<String>,
}

/// What the newest message of the Workload API has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkloadStatus {
    pub spiffe_id: String,
    /// Number of messages so far.
    pub messages: u64,
    /// The CA of ours that signed its SVID.
    pub signer: Signer,
    /// By trust domain, how many.
    pub authorities: BTreeMap<String, usize>,
    /// ID of the partner's workload if its new SVID is accepted, or why not.
    #[serde(serialize_with = "or_error")]
    pub partner: Result<String, String>,
    /// The same for an SVID from before the partner's rotation, if there was one.
    #[serde(serialize_with = "some_or_error", skip_serializing_if = "Option::is_none")]
    pub outdated: Option<Result<String, String>>,
}

/// What the JoinToken's status shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenStatus {
    pub name: String,
    pub uses: u64,
    pub max_uses: Option<u32>,
    pub used_by: Vec<String>,
}

impl From<JoinToken> for TokenStatus {
    fn from(token: JoinToken) -> Self {
        Self {
            name: token.name().to_owned(),
            uses: token.status.uses,
            max_uses: token.spec.max_uses,
            used_by: token.status.used_by.into_iter().map(|it| it.spiffe_id).collect(),
        }
    }
}

impl Expected {
    /// Differences from the expectation; empty if it is met.
    pub fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut differences = self.compare_client(seen);
        differences.extend(self.workload.differences(seen.workload.as_ref()));
        if seen.token.as_ref().map(|it| it.uses) != Some(self.uses) {
            differences.push(format!("the JoinToken should have {} uses", self.uses));
        }
        differences
            .extend(ExpectedStatus::compare(self.federation.as_ref(), seen.federation.as_ref()));
        let (event, recorded) = self.audit;
        let of_event = seen.audit.as_ref().filter(|it| it["event"] == event);
        if !of_event.is_some_and(|it| recorded.is_in(it)) {
            let recorded = recorded.words();
            differences.push(format!("the newest record of {event} should be {recorded}"));
        }
        differences
    }

    fn compare_client(&self, seen: &Seen) -> Vec<String> {
        let reference = seen.audit.as_ref().and_then(|it| it["id"].as_str());
        let difference = match (self.client, &seen.client) {
            (None, None) | (Some(Answer::Joined), Some(Ok(_))) => return Vec::new(),
            (Some(Answer::Refused), Some(Err(why))) => match reference {
                Some(reference) if why.contains(reference) => return Vec::new(),
                _ => "the client should be told the reference of the audit record",
            },
            (Some(Answer::Joined), _) => "the client should have joined",
            (Some(Answer::Refused), _) => "the client should be refused",
            (None, Some(_)) => "no client should join",
        };
        vec![difference.to_owned()]
    }
}

impl ExpectedWorkload {
    fn differences(self, seen: Option<&Result<WorkloadStatus, String>>) -> Vec<String> {
        let (own, partner, signer) = match (self, seen) {
            (Self::NoAgent, None) | (Self::Nothing, Some(Err(_))) => return Vec::new(),
            (Self::Gets { own, partner, signer }, _) => (own, partner, signer),
            _ => return vec!["the workload should get nothing".to_owned()],
        };
        let Some(Ok(seen)) = seen else {
            return vec!["the workload should get an SVID and bundles".to_owned()];
        };
        let mut differences = Vec::new();
        let wanted = [(TRUST_DOMAIN, Some(own)), (PARTNER, partner)]
            .into_iter()
            .filter_map(|(name, authorities)| Some((name.to_owned(), authorities?)));
        let wanted: BTreeMap<_, _> = wanted.collect();
        if seen.authorities != wanted {
            let wanted = described(&wanted);
            differences.push(format!("the workload should have the bundles {wanted}"));
        }
        if let Some(signer) = signer.filter(|it| seen.signer != *it) {
            let signer = signer.words();
            differences.push(format!("the workload's SVID should be signed by {signer}"));
        }
        if seen.partner.is_ok() != partner.is_some() {
            let wanted = if partner.is_some() { "trusted" } else { "refused" };
            differences.push(format!("the partner should be {wanted} at the workload"));
        }
        if let Some(Ok(_)) = seen.outdated {
            differences.push("the SVID of the old authority should be refused".to_owned());
        }
        differences
    }
}

/// Trust domains with their numbers of authorities.
pub fn described(authorities: &BTreeMap<String, usize>) -> String {
    let one = |(name, number): (&String, &usize)| format!("{name} with {}", counted(*number));
    authorities.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl Recorded {
    fn is_in(self, record: &Value) -> bool {
        let is_renewal = &record["issued"]["isRenewal"];
        match self {
            Self::Sequence(sequence) => {
                record["sequence"].as_str() == Some(sequence.to_string().as_str())
            }
            // A client that asks again in the same step renews.
            Self::Joined => record["success"] == true,
            Self::Renewed => record["success"] == true && is_renewal == true,
            Self::Refused(check) => record["success"] == false && record["check"] == check,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Sequence(sequence) => format!("one with sequence {sequence}"),
            Self::Joined => "a join".to_owned(),
            Self::Renewed => "a renewal".to_owned(),
            Self::Refused(check) => format!("a refusal by the check \"{check}\""),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::demo::tour::observed::Condition;

    fn expected() -> Expected {
        Expected {
            client: Some(Answer::Refused),
            workload: ExpectedWorkload::Gets {
                own: 2,
                partner: Some(1),
                signer: Some(Signer::NewestCa),
            },
            uses: 2,
            federation: Some(ExpectedStatus::well(3)),
            audit: ("bot.join", Recorded::Refused("proof")),
        }
    }

    fn workload() -> WorkloadStatus {
        WorkloadStatus {
            spiffe_id: "spiffe://example.org/agent/0f0f0f0f-0f0f-8f0f-8f0f-0f0f0f0f0f0f".to_owned(),
            messages: 7,
            signer: Signer::NewestCa,
            authorities: BTreeMap::from([(TRUST_DOMAIN.to_owned(), 2), (PARTNER.to_owned(), 1)]),
            partner: Ok("spiffe://partner.example/shop".to_owned()),
            outdated: Some(Err("signed by no authority".to_owned())),
        }
    }

    pub fn seen() -> Seen {
        let condition = |about: &str, reason: &str| {
            let (r#type, reason, message) = (about.to_owned(), reason.to_owned(), String::new());
            Condition { r#type, status: "True".to_owned(), reason, message }
        };
        Seen {
            client: Some(Err("the audit log has the reason under 4711".to_owned())),
            workload: Some(Ok(workload())),
            token: Some(TokenStatus {
                name: "partner".to_owned(),
                uses: 2,
                max_uses: Some(2),
                used_by: vec!["spiffe://partner.example/ci/deploy".to_owned()],
            }),
            federation: Some(FederationStatus {
                sequence: Some("3".to_owned()),
                conditions: vec![
                    condition("Synced", "Synced"),
                    condition("Trusted", "BundleCurrent"),
                ],
            }),
            audit: Some(json!({
                "id": "4711", "event": "bot.join", "success": false, "token": "partner",
                "address": "127.0.0.1", "check": "proof", "reason": "another nonce",
                "svid": { "sans": ["spiffe://partner.example/ci/deploy"] },
            })),
        }
    }

    fn with_workload(change: impl FnOnce(&mut WorkloadStatus)) -> Seen {
        let mut workload = workload();
        change(&mut workload);
        Seen { workload: Some(Ok(workload)), ..seen() }
    }

    #[test]
    fn an_expected_observation_has_no_differences() {
        assert_eq!(expected().differences(&seen()), Vec::<String>::new());
        let ended = Expected {
            client: None,
            workload: ExpectedWorkload::Nothing,
            federation: None,
            ..expected()
        };
        let nothing = Some(Err("its SVID has ended".to_owned()));
        let seen = Seen { client: None, workload: nothing, federation: None, ..seen() };
        assert_eq!(ended.differences(&seen), Vec::<String>::new());
        let before = Expected { workload: ExpectedWorkload::NoAgent, ..ended };
        assert!(before.differences(&Seen { workload: None, ..seen }).is_empty());
    }

    #[test]
    fn every_difference_is_reported() {
        let record = |name: &str, value: Value| {
            let mut seen = seen();
            seen.audit.as_mut().unwrap()[name] = value;
            seen
        };
        let joined = JoinedAs { spiffe_id: "an ID".to_owned(), trusted: Vec::new() };
        let cases = [
            Seen { client: Some(Ok(joined)), ..seen() },
            Seen { client: Some(Err("no reference".to_owned())), ..seen() },
            Seen { client: None, ..seen() },
            Seen { workload: None, ..seen() },
            Seen { workload: Some(Err("cut off".to_owned())), ..seen() },
            with_workload(|it| it.signer = Signer::CaBefore),
            with_workload(|it| it.authorities.extend([(PARTNER.to_owned(), 2)])),
            with_workload(|it| it.authorities.retain(|of, _| of != TRUST_DOMAIN)),
            with_workload(|it| it.partner = Err("refused".to_owned())),
            with_workload(|it| it.outdated = Some(Ok("an ID".to_owned()))),
            Seen { token: None, ..seen() },
            Seen { federation: None, ..seen() },
            record("event", json!("agent.join")),
            record("check", json!("chain")),
            record("success", json!(true)),
        ];
        for seen in cases {
            assert_eq!(expected().differences(&seen).len(), 1, "{seen:?}");
        }
    }

    #[test]
    fn a_bundle_that_should_be_gone_is_reported_and_so_is_an_identity() {
        let gone = ExpectedWorkload::Gets { own: 2, partner: None, signer: None };
        let still_there = Expected { workload: gone, ..expected() }.differences(&seen());
        let wanted = [
            "the workload should have the bundles example.org with 2 authorities",
            "the partner should be refused at the workload",
        ];
        assert_eq!(still_there, wanted);
        for nothing in [ExpectedWorkload::Nothing, ExpectedWorkload::NoAgent] {
            let differences = Expected { workload: nothing, ..expected() }.differences(&seen());
            assert_eq!(differences, ["the workload should get nothing"]);
        }
    }

    #[test]
    fn a_renewal_is_a_join_and_a_first_join_is_no_renewal() {
        let record = json!({ "success": true, "issued": { "isRenewal": false } });
        assert!(Recorded::Joined.is_in(&record) && !Recorded::Renewed.is_in(&record));
        let record = json!({ "success": true, "issued": { "isRenewal": true } });
        assert!(Recorded::Joined.is_in(&record) && Recorded::Renewed.is_in(&record));
        assert!(!Recorded::Refused("proof").is_in(&record));
        assert!(Recorded::Sequence(3).is_in(&json!({ "sequence": "3" })));
    }
}
