//! The built program: `trustplane demo authority`.

use serde_json::Value;

use crate::tours::{check_widths, report};

const TOUR: &str = "authority";

/// A step and its results: sequence and authorities of the bundle that the partner got from us, whether
/// the partner is trusted here, its sequence and the reason of `Trusted`, and the event of the newest
/// audit record.
type Row<'a> = (&'a str, (u64, u64), bool, Option<(&'a str, &'a str)>, &'a str);

/// A condition of the SPIFFEFederation after a step.
fn condition<'a>(step: &'a Value, about: &str) -> &'a Value {
    let mut conditions = step["federation"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == about).expect("a condition")
}

fn row(step: &Value) -> Row<'_> {
    let received = &step["received"];
    let received = received["sequence"].as_u64().zip(received["authorities"].as_u64());
    let sequence = step["federation"]["sequence"].as_str();
    (
        step["title"].as_str().unwrap(),
        received.expect("a bundle"),
        step["partner"].is_string(),
        sequence.map(|it| (it, condition(step, "Trusted")["reason"].as_str().unwrap())),
        step["audit"]["event"].as_str().expect("a record"),
    )
}

#[test]
fn a_partner_is_trusted_through_every_rotation_and_not_a_minute_longer() {
    let report = report(TOUR);
    let steps = report["steps"].as_array().unwrap();
    let rotation = "spiffe.federation.rotation";
    let own = "spiffe.authority.rotation";
    let well = |sequence| Some((sequence, "BundleCurrent"));
    let expected = [
        (
            "We publish a bundle, and the partner's SPIRE server fetches it",
            (1, 1),
            false,
            None,
            own,
        ),
        ("We federate with the partner, and its SVIDs verify", (1, 1), true, well("1"), rotation),
        (
            "The partner prepares a new authority: it is in the bundle before it signs",
            (1, 1),
            true,
            well("2"),
            rotation,
        ),
        (
            "The partner's new authority signs, the old one is gone, and we have followed",
            (1, 1),
            true,
            well("3"),
            rotation,
        ),
        (
            "We rotate: the next CA is published, and does not sign yet",
            (2, 2),
            true,
            well("3"),
            own,
        ),
        (
            "The next CA signs, and the partner knew it already: no fetch was refused",
            (2, 2),
            true,
            well("3"),
            own,
        ),
        (
            "A lower sequence is refused and reported; the last bundle stays",
            (2, 2),
            true,
            well("3"),
            own,
        ),
        (
            "The partner revokes everything: its empty bundle ends the trust",
            (2, 2),
            false,
            Some(("4", "BundleEmpty")),
            rotation,
        ),
        (
            "The federation is deleted, and nothing of the partner is left here",
            (2, 2),
            false,
            None,
            "spiffe.federation.delete",
        ),
    ];
    assert_eq!(steps.iter().map(row).collect::<Vec<_>>(), expected);

    let old_svid = &steps[3]["outdated"]["error"];
    assert!(old_svid.as_str().is_some_and(|it| it.contains("no authority")), "{old_svid}");
    assert_eq!(steps[5]["signer"], "newest_ca");
    let last = &steps[8];
    assert!(last["fetches"]["all"].as_u64().is_some_and(|all| all > 9), "{last}");
    assert_eq!(last["fetches"]["failed"], 0);
    let synced: Vec<_> = steps[1..7].iter().map(|it| &condition(it, "Synced")["reason"]).collect();
    let refused = "SequenceRefused";
    assert_eq!(synced, ["Synced", "Synced", "Synced", "Synced", "Synced", refused]);
    let refused = condition(&steps[6], "Synced")["message"].as_str().unwrap();
    assert!(
        refused.contains("trustplane spiffe accept partner.example --fingerprint"),
        "{refused}"
    );
    let (revoked, deleted) = (&steps[7]["audit"], &last["audit"]);
    assert!(revoked["newKeys"].is_null(), "{revoked}");
    assert_eq!(revoked["oldKeys"].as_array().map(Vec::len), Some(1), "{revoked}");
    assert_eq!(deleted["federation"], "partner.example");
}

#[test]
fn without_a_terminal_the_tour_ends_by_itself_and_breaks_no_word_at_50_or_80_columns() {
    check_widths(TOUR, 9);
}
