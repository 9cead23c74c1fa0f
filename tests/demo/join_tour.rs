//! The built program: `trustplane demo join`.

use serde_json::{Value, json};

use crate::tours::{check_widths, report};

const TOUR: &str = "join";

/// A step and its results: whether a client joined, the authorities that the workload knows, the uses of the
/// token, the sequence of the partner's bundle, and what the audit record says.
type Row<'a> = (&'a str, &'a str, Value, u64, Option<&'a str>, String);

fn row(step: &Value) -> Row<'_> {
    let client = match &step["client"] {
        Value::Null => "nobody joins",
        client if client["error"].is_string() => "refused",
        _ => "joined",
    };
    let audit = &step["audit"];
    let outcome = match &audit["success"] {
        Value::Bool(true) => "joined".to_owned(),
        Value::Bool(false) => audit["check"].as_str().unwrap().to_owned(),
        _ => audit["sequence"].as_str().unwrap().to_owned(),
    };
    (
        step["title"].as_str().unwrap(),
        client,
        step["workload"]["authorities"].clone(),
        step["token"]["uses"].as_u64().unwrap(),
        step["federation"]["sequence"].as_str(),
        format!("{} {outcome}", audit["event"].as_str().unwrap()),
    )
}

fn expected() -> Vec<Row<'static>> {
    let (nothing, nobody) = (Value::Null, "nobody joins");
    let trusts = |own, partner| json!({ "example.org": own, "partner.example": partner });
    let well = |sequence| Some(sequence);
    let says = str::to_owned;
    vec![
        (
            "We federate with a partner, and say who of it may join us",
            nobody,
            nothing.clone(),
            0,
            well("1"),
            says("spiffe.federation.rotation 1"),
        ),
        (
            "A pipeline of the partner joins with its own SVID, and gets one of ours",
            "joined",
            nothing.clone(),
            1,
            well("1"),
            says("bot.join joined"),
        ),
        (
            "An agent joins, and a workload beside it gets an SVID and every trusted bundle",
            nobody,
            trusts(1, 1),
            2,
            well("1"),
            says("agent.join joined"),
        ),
        (
            "We rotate: the workload knows our next CA before it signs",
            nobody,
            trusts(2, 1),
            2,
            well("1"),
            says("spiffe.authority.rotation 2"),
        ),
        (
            "The partner prepares a new authority: the workload knows it before it signs",
            nobody,
            trusts(2, 2),
            2,
            well("2"),
            says("spiffe.federation.rotation 2"),
        ),
        (
            "The partner's new authority signs, and the old one is gone at the workload",
            nobody,
            trusts(2, 1),
            2,
            well("3"),
            says("spiffe.federation.rotation 3"),
        ),
        (
            "Our next CA signs, and the workload got a new SVID without asking",
            nobody,
            trusts(2, 1),
            2,
            well("3"),
            says("agent.join joined"),
        ),
        (
            "Somebody who recorded the pipeline's join sends it again, and is refused",
            "refused",
            trusts(2, 1),
            2,
            well("3"),
            says("bot.join proof"),
        ),
        (
            "The federation is deleted: gone at the workload, and the next join is refused",
            "refused",
            json!({ "example.org": 2 }),
            2,
            None,
            says("bot.join federation"),
        ),
        (
            "The agent can't renew: what it has ends with its SVID",
            nobody,
            nothing,
            2,
            None,
            says("agent.join federation"),
        ),
    ]
}

#[test]
fn a_partner_s_workloads_join_with_their_own_svids_until_the_trust_ends() {
    let report = report(TOUR);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(row).collect::<Vec<_>>(), expected());

    assert_eq!(steps[1]["client"]["spiffe_id"], "spiffe://example.org/bot/deploy");
    assert_eq!(steps[1]["client"]["trusted"], json!(["example.org", "partner.example"]));
    let agent = steps[2]["workload"]["spiffe_id"].as_str().unwrap();
    assert!(agent.starts_with("spiffe://example.org/agent/"), "{agent}");
    assert_eq!(steps[6]["workload"]["spiffe_id"], agent, "it keeps its name");
    assert_eq!(steps[6]["workload"]["signer"], "newest_ca");
    assert_eq!(steps[6]["audit"]["issued"]["isRenewal"], true);
    let messages = |step: usize| steps[step]["workload"]["messages"].as_u64().unwrap();
    // Our rotation, both halves of the partner's, and a renewal.
    assert!((3..=6).all(|step| messages(step) > messages(step - 1)), "{steps:#?}");
    let old_svid = &steps[5]["workload"]["outdated"]["error"];
    assert!(old_svid.as_str().is_some_and(|it| it.contains("no authority")), "{old_svid}");
    for refused in &steps[7..9] {
        let (told, reference) = (&refused["client"]["error"], &refused["audit"]["id"]);
        let (told, reference) = (told.as_str().unwrap(), reference.as_str().unwrap());
        assert!(told.contains(reference), "{told}");
    }
    let ended = &steps[9]["workload"]["error"];
    assert!(ended.as_str().is_some_and(|it| it.contains("its SVID has ended")), "{ended}");
}

#[test]
fn without_a_terminal_the_tour_ends_by_itself_and_breaks_no_word_at_50_or_80_columns() {
    check_widths(TOUR, 10);
}
