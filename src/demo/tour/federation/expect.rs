//! Compares the expectation of a step with the observation. Pure.

use serde::Serialize;

use crate::{
    demo::tour::observed::{Condition, Received, or_error, should_get, some_or_error},
    federate::decide::conditions::{PEERS, TRUST},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Sequence and number of authorities of the bundle that a client in b gets from a; None if it
    /// gets nothing.
    pub received: Option<(u64, usize)>,
    /// Whether b accepts workloads of a.
    pub a_in_b: bool,
    /// Whether a accepts workloads of b.
    pub b_in_a: bool,
    /// Peer a in the status of b's SpireServer.
    pub peer_in_b: State,
    /// Peer b in the status of a's SpireServer.
    pub peer_in_a: State,
    /// The condition of b's SpireServer about all peers.
    pub peers_reachable: PeersCondition,
    /// Whether b's SpireServer says that SPIRE trusts a peer that is not listed.
    pub unlisted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeersCondition {
    False,
    NotFalse,
    Absent,
}

/// Expected state of a peer in a SpireServer's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Fetched, with this sequence.
    Healthy(u64),
    /// The bundle can't be fetched.
    Failing,
    Unlisted,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The bundle that a client in b got from a's endpoint, or why it got none.
    #[serde(serialize_with = "or_error")]
    pub received: Result<Received, String>,
    /// ID of a's workload if b accepts it, or why not.
    #[serde(serialize_with = "or_error")]
    pub a_in_b: Result<String, String>,
    /// ID of b's workload if a accepts it, or why not.
    #[serde(serialize_with = "or_error")]
    pub b_in_a: Result<String, String>,
    /// The same for an SVID of a from before the rotation, if there was one.
    #[serde(serialize_with = "some_or_error", skip_serializing_if = "Option::is_none")]
    pub outdated: Option<Result<String, String>>,
    /// Peer a in the status of b's SpireServer.
    pub peer_in_b: Option<Peer>,
    /// Peer b in the status of a's SpireServer.
    pub peer_in_a: Option<Peer>,
    /// Conditions of b's SpireServer.
    pub conditions: Vec<Condition>,
}

/// One of `status.federation.peers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peer {
    pub trust_domain: String,
    pub reachable: bool,
    /// Whether its endpoint was authenticated.
    pub verified: bool,
    /// Sequence of its bundle.
    pub sequence: Option<u64>,
    pub error: Option<String>,
}

impl Expected {
    /// Differences from the expectation; empty if it is met.
    pub fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        let received = seen.received.as_ref().ok().map(|it| (it.sequence, it.authorities));
        if received != self.received {
            differences.push(should_get(self.received));
        }
        for (what, wanted, got) in
            [("a in b", self.a_in_b, &seen.a_in_b), ("b in a", self.b_in_a, &seen.b_in_a)]
        {
            if got.is_ok() != wanted {
                let wanted = if wanted { "trusted" } else { "refused" };
                differences.push(format!("{what} should be {wanted}"));
            }
        }
        if let Some(Ok(_)) = &seen.outdated {
            differences.push("the SVID of the old authority should be refused".to_owned());
        }
        for (whose, wanted, got) in [
            ("b", self.peer_in_b, seen.peer_in_b.as_ref()),
            ("a", self.peer_in_a, seen.peer_in_a.as_ref()),
        ] {
            if !wanted.is(got) {
                differences.push(format!("the status in {whose} should be: {}", wanted.words()));
            }
        }
        let reachable = seen.conditions.iter().find(|it| it.r#type == PEERS);
        if !self.peers_reachable.is(reachable) {
            let wanted = self.peers_reachable.words();
            differences.push(format!("the condition {PEERS} should {wanted}"));
        }
        let wanted = if self.unlisted { "False" } else { "True" };
        if !seen.conditions.iter().any(|it| it.r#type == TRUST && it.status == wanted) {
            differences.push(format!("the condition {TRUST} should be {wanted}"));
        }
        differences
    }
}

impl State {
    fn is(self, seen: Option<&Peer>) -> bool {
        match (self, seen) {
            (Self::Unlisted, seen) => seen.is_none(),
            (Self::Failing, Some(peer)) => peer.error.is_some(),
            (Self::Healthy(sequence), Some(peer)) => {
                let proven = peer.reachable && peer.verified && peer.error.is_none();
                proven && peer.sequence == Some(sequence)
            }
            (_, None) => false,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Healthy(sequence) => format!("verified, with sequence {sequence}"),
            Self::Failing => "failing".to_owned(),
            Self::Unlisted => "no such peer".to_owned(),
        }
    }
}

impl PeersCondition {
    fn is(self, seen: Option<&Condition>) -> bool {
        match self {
            Self::False => seen.is_some_and(|it| it.status == "False"),
            Self::NotFalse => seen.is_some_and(|it| it.status != "False"),
            Self::Absent => seen.is_none(),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::False => "be False",
            Self::NotFalse => "be there and not be False",
            Self::Absent => "not be there",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn expected() -> Expected {
        Expected {
            received: Some((2, 1)),
            a_in_b: true,
            b_in_a: true,
            peer_in_b: State::Healthy(2),
            peer_in_a: State::Healthy(1),
            peers_reachable: PeersCondition::NotFalse,
            unlisted: false,
        }
    }

    fn condition(about: &str, reason: &str) -> Condition {
        let (r#type, reason) = (about.to_owned(), reason.to_owned());
        Condition { r#type, status: "True".to_owned(), reason, message: "told".to_owned() }
    }

    pub fn peer(trust_domain: &str, sequence: u64) -> Peer {
        Peer {
            trust_domain: trust_domain.to_owned(),
            reachable: true,
            verified: true,
            sequence: Some(sequence),
            error: None,
        }
    }

    pub fn seen() -> Seen {
        Seen {
            received: Ok(Received {
                trust_domain: "cluster-a.example".to_owned(),
                sequence: 2,
                authorities: 1,
                fingerprint: ["0123"; 16].join(":"),
            }),
            a_in_b: Ok("spiffe://cluster-a.example/shop".to_owned()),
            b_in_a: Ok("spiffe://cluster-b.example/shop".to_owned()),
            outdated: Some(Err("signed by no authority".to_owned())),
            peer_in_b: Some(peer("cluster-a.example", 2)),
            peer_in_a: Some(peer("cluster-b.example", 1)),
            conditions: vec![
                condition(PEERS, "AllPeersReachable"),
                condition(TRUST, "OnlyListedTrustDomains"),
            ],
        }
    }

    #[test]
    fn an_expected_observation_has_no_differences() {
        assert_eq!(expected().differences(&seen()), Vec::<String>::new());
        let alone = Expected {
            received: None,
            peer_in_b: State::Unlisted,
            peer_in_a: State::Failing,
            peers_reachable: PeersCondition::False,
            ..expected()
        };
        let failing = Peer { error: Some("refused".to_owned()), ..peer("cluster-b.example", 1) };
        let mut seen = Seen {
            received: Err("there is no bundle".to_owned()),
            peer_in_b: None,
            peer_in_a: Some(failing),
            outdated: None,
            ..seen()
        };
        seen.conditions[0].status = "False".to_owned();
        assert_eq!(alone.differences(&seen), Vec::<String>::new());
    }

    #[test]
    fn every_difference_is_reported() {
        let got = |change: fn(&mut Received)| {
            let mut seen = seen();
            seen.received.as_mut().map(change).unwrap();
            seen
        };
        let status = |change: fn(&mut Peer)| {
            let mut seen = seen();
            seen.peer_in_b.as_mut().map(change).unwrap();
            seen
        };
        let refused = || Err("refused".to_owned());
        let [mut unreachable, mut unlisted, mut silent] = [seen(), seen(), seen()];
        unreachable.conditions[0].status = "False".to_owned();
        unlisted.conditions[1].status = "False".to_owned();
        silent.conditions.remove(0);
        let cases = [
            got(|it| it.sequence = 1),
            got(|it| it.authorities = 2),
            Seen { received: Err("refused".to_owned()), ..seen() },
            Seen { a_in_b: refused(), ..seen() },
            Seen { b_in_a: refused(), ..seen() },
            Seen { outdated: Some(Ok("an ID".to_owned())), ..seen() },
            status(|it| it.sequence = Some(1)),
            status(|it| it.verified = false),
            status(|it| it.error = Some("refused".to_owned())),
            Seen { peer_in_b: None, ..seen() },
            Seen { peer_in_a: None, ..seen() },
            silent,
            unreachable,
            unlisted,
        ];
        for seen in cases {
            assert_eq!(expected().differences(&seen).len(), 1, "{seen:?}");
        }
        let distrusted = Expected { a_in_b: false, peer_in_b: State::Failing, ..expected() };
        assert_eq!(
            distrusted.differences(&seen()),
            ["a in b should be refused", "the status in b should be: failing"]
        );
        for verdict in [PeersCondition::False, PeersCondition::Absent] {
            let other = Expected { peers_reachable: verdict, ..expected() };
            assert_eq!(other.differences(&seen()).len(), 1, "{verdict:?}");
        }
    }
}
