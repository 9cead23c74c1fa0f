//! The built program: `trustplane demo federation`.

use serde_json::Value;

use crate::tours::{check_widths, report, run, text};

const TOUR: &str = "federation";

/// A step and its results: the bundle that b's client got, whether b trusts a and a trusts b, and
/// a's entry in b's SpireServer.
type Row<'a> = (&'a str, Option<(u64, u64)>, bool, bool, &'a str);

fn row(step: &Value) -> Row<'_> {
    let trusted = |which: &str| step[which].is_string();
    let received = &step["received"];
    let received = received["sequence"].as_u64().zip(received["authorities"].as_u64());
    let peer = &step["peer_in_b"];
    let peer = match (peer.is_object(), peer["error"].is_string()) {
        (false, _) => "no peer",
        (true, true) => "failing",
        (true, false) => "well",
    };
    let title = step["title"].as_str().unwrap();
    (title, received, trusted("a_in_b"), trusted("b_in_a"), peer)
}

#[test]
fn two_clusters_come_to_trust_each_other_and_stop_again() {
    let report = report(TOUR);
    let steps = report["steps"].as_array().unwrap();
    let steps: Vec<_> = steps.iter().map(row).collect();
    let expected = [
        (
            "Two clusters list each other as peers. Neither knows the other yet",
            None,
            false,
            false,
            "failing",
        ),
        (
            "b gets the first bundle of a, after its fingerprint was compared",
            Some((1, 1)),
            true,
            false,
            "well",
        ),
        (
            "a gets the first bundle of b, and workloads trust each other",
            Some((1, 1)),
            true,
            true,
            "well",
        ),
        (
            "a prepares a new authority: it is in the bundle before it signs",
            Some((2, 2)),
            true,
            true,
            "well",
        ),
        (
            "The new authority signs, the old one is gone, and b has followed",
            Some((3, 1)),
            true,
            true,
            "well",
        ),
        (
            "a's endpoint is dark: b says so, and trusts the bundle that it has",
            None,
            true,
            true,
            "failing",
        ),
        ("a's endpoint is back, and all is well again", Some((3, 1)), true, true, "well"),
        (
            "b no longer lists a. SPIRE trusts it all the same, and b's status says so",
            Some((3, 1)),
            true,
            true,
            "no peer",
        ),
        (
            "Its ClusterFederatedTrustDomain and its bundle go: b no longer trusts a",
            None,
            false,
            true,
            "no peer",
        ),
    ];
    assert_eq!(steps, expected);
    let after_rotation = &report["steps"][4]["outdated"]["error"];
    assert!(after_rotation.as_str().is_some_and(|it| it.contains("no authority")), "{report}");
    let trust = report["steps"].as_array().unwrap().iter().map(|step| {
        let mut conditions = step["conditions"].as_array().unwrap().iter();
        conditions.find(|it| it["type"] == "TrustMatchesSpec").expect("it is always told")
    });
    let trust: Vec<_> = trust.collect();
    let unlisted: Vec<_> = (1..).zip(&trust).filter(|(_, it)| it["status"] == "False").collect();
    assert!(matches!(unlisted[..], [(8, _)]), "{trust:?}");
    assert!(unlisted[0].1["message"].as_str().unwrap().contains("cluster-a.example"), "{trust:?}");
}

#[test]
fn without_a_terminal_the_tour_ends_by_itself_and_breaks_no_word_at_50_or_80_columns() {
    check_widths(TOUR, 9);
}

#[test]
fn colours_can_be_forced_and_a_proxy_is_not_used_for_this_machine() {
    // A port without a listener.
    let proxy = [("HTTPS_PROXY", "http://127.0.0.1:9"), ("https_proxy", "http://127.0.0.1:9")];
    let colours = [("CLICOLOR_FORCE", "1")];
    let ended = run(TOUR, &[], &[&colours[..], &proxy].concat());
    assert!(ended.status.success(), "{}", text(&ended.stdout));
    assert!(ended.stdout.contains(&0x1b));
    let none = run(TOUR, &[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(none.status.success() && !none.stdout.contains(&0x1b));
}
