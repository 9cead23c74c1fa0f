//! Prints the tour in the same blocks as the tour of `inject`. Pure: text in, text out.

use std::collections::BTreeSet;

use anstyle::Style;
use serde_json::Value;

use super::{
    expect::{Fetches, Seen},
    stage::PARTNER,
};
use crate::{
    demo::tour::{observed::judged, printer::Rows, walk::WalkedStep},
    runtime::terminal::{BAD, FAINT, GOOD, WARNING},
};

/// The text at the end of a step.
pub fn ends(step: &WalkedStep<Seen>, width: usize) -> String {
    let mut rows = Rows::new(step.holds(), step.seconds, width);
    let seen = &step.seen;
    match &seen.received {
        Ok(it) => rows.add("client", GOOD, &format!("the partner got {it}")),
        Err(why) => rows.add("client", WARNING, &format!("the partner got nothing: {why}")),
    }
    if let Some(signer) = seen.signer {
        let (style, fetches) = counted(seen.fetches);
        rows.add(
            "endpoint",
            style,
            &format!("its SVID is signed by {}; {fetches}", signer.words()),
        );
    }
    for (label, svid) in [("partner", Some(&seen.partner)), ("old SVID", seen.outdated.as_ref())] {
        if let Some((style, text)) = svid.map(judged) {
            rows.add(label, style, &text);
        }
    }
    match &seen.federation {
        Some(status) => {
            let sequence = status.sequence.as_deref().unwrap_or("not known yet");
            rows.add("status", Style::new(), &format!("{PARTNER}, sequence {sequence}"));
        }
        None => rows.add("status", FAINT, &format!("no SPIFFEFederation {PARTNER}")),
    }
    for condition in seen.federation.iter().flat_map(|it| &it.conditions) {
        let text = match &*condition.status {
            "True" => condition.to_string(),
            _ => format!("{condition}: {}", condition.message),
        };
        rows.add("condition", condition.style(), &text);
    }
    match &seen.audit {
        Some(record) => rows.add("audit", Style::new(), &described(record)),
        None => rows.add("audit", FAINT, "no record"),
    }
    for difference in &step.differences {
        rows.add("expected", BAD, difference);
    }
    rows.text
}

fn counted(Fetches { all, failed }: Fetches) -> (Style, String) {
    let fetches = if all == 1 { "fetch" } else { "fetches" };
    match failed {
        0 => (GOOD, format!("{all} {fetches}, none failed")),
        _ => (BAD, format!("{all} {fetches}, {failed} failed")),
    }
}

/// An audit record of bundles, as far as it fits into a row.
pub fn described(record: &Value) -> String {
    let text = |name: &str| record[name].as_str();
    let keys = |name: &str| -> BTreeSet<&str> {
        record[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let event = text("event").unwrap_or_default();
    let mut parts = vec![format!("{event} of {}", text("trustDomain").unwrap_or_default())];
    match (text("oldSequence"), text("sequence")) {
        (Some(old), Some(new)) => parts.push(format!("sequence {old} to {new}")),
        (None, Some(new)) => parts.push(format!("sequence {new}")),
        (_, None) => {}
    }
    let (old, new) = (keys("oldKeys"), keys("newKeys"));
    for (what, keys) in [("new", new.difference(&old)), ("gone", old.difference(&new))] {
        parts.extend(keys.map(|key| format!("{what}: {key}")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::{super::expect::tests::seen, *};
    use crate::{
        demo::tour::walk::testing::{check_hostile_block, walked},
        runtime::printable::HOSTILE,
    };

    fn shown(seen: Seen) -> String {
        strip_str(&ends(&walked(seen, &[]), 100)).to_string()
    }

    #[test]
    fn a_block_shows_what_the_client_got_whom_we_trust_the_status_and_the_audit_record() {
        let expected = "   ✓ 0.50 s   client     the partner got the bundle of example.org from its endpoint: sequence 2, 2
                         authorities, fingerprint 0123:0123:0123:0123...
              endpoint   its SVID is signed by our newest CA; 7 fetches, none failed
              partner    trusted: spiffe://partner.example/shop
              old SVID   refused: signed by no authority
              status     partner.example, sequence 3
              condition  Synced=True (Synced)
              condition  Trusted=True (BundleCurrent)
              audit      spiffe.federation.rotation of partner.example, sequence 2 to 3, gone:
                         x509:01
";
        assert_eq!(shown(seen()), expected);
    }

    #[test]
    fn a_condition_that_does_not_hold_says_why_and_what_is_not_there_is_said() {
        let mut refused = seen();
        let status = refused.federation.as_mut().unwrap();
        status.conditions[0].status = "False".to_owned();
        status.conditions[0].message = "an old copy".to_owned();
        assert!(shown(refused).contains("Synced=False (Synced): an old copy\n"));
        let nothing = Seen { federation: None, audit: None, signer: None, ..seen() };
        let nothing = shown(nothing);
        for words in ["no SPIFFEFederation partner.example", "no record"] {
            assert!(nothing.contains(words), "{nothing}");
        }
        let failing = Seen { fetches: Fetches { all: 7, failed: 2 }, ..seen() };
        assert!(shown(failing).contains("7 fetches, 2 failed"));
    }

    #[test]
    fn a_block_of_any_observation_is_harmless_and_breaks_no_word() {
        let hostile = || HOSTILE.to_owned();
        let mut seen = Seen { received: Err(hostile()), partner: Err(hostile()), ..seen() };
        seen.federation.as_mut().unwrap().sequence = Some(hostile());
        seen.audit.as_mut().unwrap()["trustDomain"] = hostile().into();
        check_hostile_block(&seen, ends);
    }
}
