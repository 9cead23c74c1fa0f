//! Prints the tour in the same blocks as the tour of `inject`. Pure: text in, text out.

use anstyle::Style;

use super::expect::{Peer, Seen};
use crate::{
    demo::tour::{observed::judged, printer::Rows, walk::WalkedStep},
    federate::decide::conditions::TRUST,
    runtime::terminal::{BAD, FAINT, GOOD, WARNING},
};

/// The text at the end of a step.
pub fn ends(outcome: &WalkedStep<Seen>, width: usize) -> String {
    let mut rows = Rows::new(outcome.holds(), outcome.seconds, width);
    let seen = &outcome.seen;
    match &seen.received {
        Ok(it) => rows.add("client", GOOD, &format!("b got {it}")),
        Err(why) => rows.add("client", WARNING, &format!("b got nothing from a: {why}")),
    }
    let svids = [("a in b", Some(&seen.a_in_b)), ("old a in b", seen.outdated.as_ref())];
    for (label, svid) in svids.into_iter().chain([("b in a", Some(&seen.b_in_a))]) {
        if let Some((style, text)) = svid.map(judged) {
            rows.add(label, style, &text);
        }
    }
    for (label, peer) in [("b's status", &seen.peer_in_b), ("a's status", &seen.peer_in_a)] {
        let (style, text) = described(peer.as_ref());
        rows.add(label, style, &text);
    }
    for condition in &seen.conditions {
        let mut text = condition.to_string();
        if condition.r#type == TRUST && condition.status == "False" {
            text = format!("{text}: {}", condition.message);
        }
        rows.add("condition", condition.style(), &text);
    }
    for difference in &outcome.differences {
        rows.add("expected", BAD, difference);
    }
    rows.text
}

fn described(peer: Option<&Peer>) -> (Style, String) {
    let Some(peer) = peer else { return (FAINT, "no such peer".to_owned()) };
    let name = &peer.trust_domain;
    match (&peer.error, peer.sequence) {
        (Some(error), _) => (WARNING, format!("{name}: {error}")),
        (None, Some(sequence)) => {
            let proven = if peer.verified { "verified" } else { "not verified" };
            (GOOD, format!("{name} {proven}, sequence {sequence}"))
        }
        (None, None) => (FAINT, format!("{name} was not asked yet")),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::{super::expect::tests::seen, *};
    use crate::{
        demo::tour::walk::testing::{check_hostile_block, walked},
        runtime::printable::HOSTILE,
    };

    #[test]
    fn a_block_shows_what_the_client_got_who_trusts_whom_and_the_status() {
        let shown = strip_str(&ends(&walked(seen(), &[]), 100)).to_string();
        let expected = "   ✓ 0.50 s   client     b got the bundle of cluster-a.example from its endpoint: sequence 2, 1
                         authority, fingerprint 0123:0123:0123:0123...
              a in b     trusted: spiffe://cluster-a.example/shop
              old a in b refused: signed by no authority
              b in a     trusted: spiffe://cluster-b.example/shop
              b's status cluster-a.example verified, sequence 2
              a's status cluster-b.example verified, sequence 1
              condition  PeersReachable=True (AllPeersReachable)
              condition  TrustMatchesSpec=True (OnlyListedTrustDomains)
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_block_of_any_observation_is_harmless_and_breaks_no_word() {
        let hostile = || HOSTILE.to_owned();
        let mut seen = Seen { received: Err(hostile()), a_in_b: Err(hostile()), ..seen() };
        seen.peer_in_b.as_mut().unwrap().error = Some(hostile());
        check_hostile_block(&seen, ends);
    }
}
