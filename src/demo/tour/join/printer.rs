//! Prints the tour in the same blocks as the tour of `inject`. Pure: text in, text out.

use anstyle::Style;
use serde_json::Value;

use super::expect::{Seen, TokenStatus, WorkloadStatus, described as bundles};
use crate::{
    authority::decide::sync::TRUSTED,
    demo::tour::{
        authority::{expect::FederationStatus, printer::described as rotation, stage::PARTNER},
        observed::judged,
        printer::Rows,
        walk::WalkedStep,
    },
    runtime::terminal::{BAD, FAINT, GOOD, WARNING},
};

/// The text at the end of a step.
pub fn ends(step: &WalkedStep<Seen>, width: usize) -> String {
    let mut rows = Rows::new(step.holds(), step.seconds, width);
    let seen = &step.seen;
    match &seen.client {
        Some(Ok(joined)) => {
            let mut text = format!("joined as {}", joined.spiffe_id);
            if !joined.trusted.is_empty() {
                text = format!("{text}, with the bundles of {}", joined.trusted.join(", "));
            }
            rows.add("client", GOOD, &text);
        }
        Some(Err(why)) => rows.add("client", WARNING, why),
        None => {}
    }
    match &seen.workload {
        Some(Ok(workload)) => add_workload(&mut rows, workload),
        Some(Err(why)) => rows.add("workload", WARNING, &format!("gets nothing: {why}")),
        None => {}
    }
    let (style, text) = token(seen.token.as_ref());
    rows.add("token", style, &text);
    let (style, text) = federation(seen.federation.as_ref());
    rows.add("status", style, &text);
    match &seen.audit {
        Some(record) => rows.add("audit", Style::new(), &record_in_words(record)),
        None => rows.add("audit", FAINT, "no record"),
    }
    for difference in &step.differences {
        rows.add("expected", BAD, difference);
    }
    rows.text
}

fn add_workload(rows: &mut Rows, workload: &WorkloadStatus) {
    let WorkloadStatus { spiffe_id, messages, signer, authorities, partner, outdated } = workload;
    rows.add("workload", GOOD, &format!("message {messages}: {spiffe_id}"));
    rows.add("signed by", Style::new(), signer.words());
    rows.add("bundles", GOOD, &bundles(authorities));
    for (label, svid) in [("partner", Some(partner)), ("old SVID", outdated.as_ref())] {
        if let Some((style, text)) = svid.map(judged) {
            rows.add(label, style, &text);
        }
    }
}

fn token(token: Option<&TokenStatus>) -> (Style, String) {
    let Some(token) = token else { return (FAINT, "no JoinToken".to_owned()) };
    let most = token.max_uses.map(|most| format!(" of {most}")).unwrap_or_default();
    (Style::new(), format!("JoinToken {}, used {}{most}", token.name, token.uses))
}

/// In one row: what matters here is whether it counts.
fn federation(status: Option<&FederationStatus>) -> (Style, String) {
    let Some(status) = status else { return (FAINT, format!("no SPIFFEFederation {PARTNER}")) };
    let trusted = status.conditions.iter().find(|it| it.r#type == TRUSTED);
    let sequence = status.sequence.as_deref().unwrap_or("not known yet");
    let text = format!("SPIFFEFederation {PARTNER}, sequence {sequence}");
    match trusted {
        Some(condition) => (condition.style(), format!("{text}, {condition}")),
        None => (FAINT, text),
    }
}

/// An audit record, as far as it fits into a row.
fn record_in_words(record: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if record["success"].is_null() {
        return rotation(record);
    }
    let sans = record["svid"]["sans"].as_array().into_iter().flatten();
    let sans: Vec<_> = sans.map(text).collect();
    let what = format!("{} of {}", text(&record["event"]), sans.join(", "));
    let issued = &record["issued"];
    match record["success"] == true {
        true => {
            let renewal = if issued["isRenewal"] == true { "renewal" } else { "first" };
            format!("{what} as {} ({renewal})", text(&issued["spiffeID"]))
        }
        false => {
            let (id, check) = (text(&record["id"]), text(&record["check"]));
            format!("{id}: {what} refused, check \"{check}\": {}", text(&record["reason"]))
        }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::json;

    use super::{
        super::expect::{JoinedAs, tests::seen},
        *,
    };
    use crate::{
        demo::tour::walk::testing::{check_hostile_block, walked},
        runtime::printable::HOSTILE,
    };

    fn shown(seen: Seen) -> String {
        strip_str(&ends(&walked(seen, &[]), 100)).to_string()
    }

    #[test]
    fn a_block_shows_the_client_the_workload_the_token_the_status_and_the_audit_record() {
        let expected = "   ✓ 0.50 s   client     the audit log has the reason under 4711
              workload   message 7: spiffe://example.org/agent/0f0f0f0f-0f0f-8f0f-8f0f-0f0f0f0f0f0f
              signed by  our newest CA
              bundles    example.org with 2 authorities, partner.example with 1 authority
              partner    trusted: spiffe://partner.example/shop
              old SVID   refused: signed by no authority
              token      JoinToken partner, used 2 of 2
              status     SPIFFEFederation partner.example, sequence 3, Trusted=True (BundleCurrent)
              audit      4711: bot.join of spiffe://partner.example/ci/deploy refused, check
                         \"proof\": another nonce
";
        assert_eq!(shown(seen()), expected);
    }

    #[test]
    fn a_join_says_what_it_brought_and_what_is_not_there_is_said() {
        let joined = JoinedAs {
            spiffe_id: "spiffe://example.org/bot/deploy".to_owned(),
            trusted: vec!["example.org".to_owned(), "partner.example".to_owned()],
        };
        let mut record = seen().audit.unwrap();
        record["success"] = json!(true);
        record["issued"] = json!({ "spiffeID": joined.spiffe_id, "isRenewal": false });
        let text = shown(Seen {
            client: Some(Ok(joined)),
            workload: Some(Err("cut off".to_owned())),
            token: None,
            federation: None,
            audit: Some(record),
        });
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "joined as spiffe://example.org/bot/deploy, with the bundles of example.org, partner.example",
            "gets nothing: cut off",
            "no JoinToken",
            "no SPIFFEFederation partner.example",
            "bot.join of spiffe://partner.example/ci/deploy as spiffe://example.org/bot/deploy (first)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let nothing = Seen { client: None, workload: None, audit: None, ..seen() };
        assert!(shown(nothing).contains("no record"));
    }

    #[test]
    fn a_record_of_bundles_is_shown_as_in_the_tour_of_the_authority() {
        let record = json!({
            "event": "spiffe.federation.rotation", "trustDomain": "partner.example", "sequence": "3",
        });
        let text = shown(Seen { audit: Some(record), ..seen() });
        assert!(
            text.contains("spiffe.federation.rotation of partner.example, sequence 3"),
            "{text}"
        );
    }

    #[test]
    fn a_block_of_any_observation_is_harmless_and_breaks_no_word() {
        let hostile = || HOSTILE.to_owned();
        let mut seen = Seen { client: Some(Err(hostile())), ..seen() };
        seen.token.as_mut().unwrap().name = hostile();
        seen.audit.as_mut().unwrap()["reason"] = hostile().into();
        seen.workload.as_mut().unwrap().as_mut().unwrap().partner = Err(hostile());
        check_hostile_block(&seen, ends);
    }
}
