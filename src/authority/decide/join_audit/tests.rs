use serde_json::json;

use super::*;
use crate::{
    runtime::printable::{HOSTILE, is_harmless},
    spiffe::testing::{id, noon},
};

fn svid() -> Summary {
    Summary {
        subject: "CN=workload".to_owned(),
        issuer: "CN=partner".to_owned(),
        serial: "0a".to_owned(),
        names: vec!["spiffe://partner.test/ci".to_owned()],
    }
}

fn attempt<'a>(svid: &'a Summary, address: &str, now: DateTime<Utc>) -> Attempt<'a> {
    Attempt {
        reference: "r1",
        role: Role::Bot,
        address: address.parse().unwrap(),
        token: "ci",
        node_name: "",
        svid,
        id: None,
        now,
    }
}

#[test]
fn a_record_says_who_joined_with_what_and_what_was_issued() {
    let (svid, foreign) = (svid(), id("spiffe://partner.test/ci"));
    let attempt = Attempt { id: Some(&foreign), ..attempt(&svid, "192.0.2.1", noon()) };
    let issued = IssuedNames {
        spiffe_id: "spiffe://ours.test/bot/ci".to_owned(),
        serial: "7f".to_owned(),
        expires: "2030-06-15T13:00:00Z".to_owned(),
        ca: "c1".to_owned(),
        is_renewal: false,
    };
    let expected = json!({
        "id": "r1", "time": "2030-06-15T12:00:00.000Z", "event": "bot.join", "success": true,
        "trustDomain": "partner.test", "address": "192.0.2.1", "token": "ci",
        "svid": {
            "subject": "CN=workload", "sans": ["spiffe://partner.test/ci"], "serial": "0a", "issuer": "CN=partner",
        },
        "issued": {
            "spiffeID": "spiffe://ours.test/bot/ci", "serial": "7f", "expires": "2030-06-15T13:00:00Z",
            "ca": "c1", "isRenewal": false,
        },
    });
    assert_eq!(json!(success(&attempt, issued)), expected);
}

#[test]
fn a_refusal_has_the_failed_check_and_texts_of_the_caller_are_cut_and_escaped() {
    let long = HOSTILE.repeat(100);
    let svid = Summary { subject: long.clone(), names: vec![long.clone(); 100], ..svid() };
    let attempt = Attempt {
        token: &long,
        node_name: &long,
        role: Role::Agent,
        ..attempt(&svid, "192.0.2.1", noon())
    };
    let record = failure(&attempt, &Refusal::TokenSpent);
    assert_eq!((record.event, record.success), ("agent.join", false));
    assert_eq!(
        (record.check, record.reason.as_deref()),
        (Some("token"), Some("the token is used up"))
    );
    let text = json!(record).to_string();
    assert!(text.len() < 6000, "{} bytes", text.len());
    assert!(is_harmless(&text), "{text}");
}

#[test]
fn a_caller_who_is_refused_again_and_again_gets_a_few_records_and_a_number() {
    let (svid, mut sums) = (svid(), RefusalSums::default());
    let add = |sums: &mut RefusalSums, address: &str, now| {
        sums.add(&attempt(&svid, address, now), "token", Some("ci"))
    };
    let whole = (0..100).filter(|_| add(&mut sums, "192.0.2.1", noon()) == Recorded::Whole);
    assert_eq!(whole.count() as u64, MOST_WHOLE);
    assert_eq!(add(&mut sums, "192.0.2.2", noon()), Recorded::Whole, "another address");

    assert_eq!(sums.take(noon() + TimeDelta::seconds(59)), []);
    let records = sums.take(noon() + MINUTE);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((&*records[0].address, records[0].count), ("192.0.2.1", Some(100 - MOST_WHOLE)));
    assert_eq!(sums.take_tokens()["ci"]["token"], 101);
    assert_eq!(add(&mut sums, "192.0.2.1", noon() + MINUTE), Recorded::Whole, "a new minute");
}

#[test]
fn no_flood_makes_the_sums_or_the_log_grow_without_end() {
    let (svid, mut sums) = (svid(), RefusalSums::default());
    let mut whole = 0;
    for number in 0..10_000_u32 {
        let address = Ipv6Addr::from(u128::from(number) << 64).to_string();
        let attempt = attempt(&svid, &address, noon());
        let recorded = sums.add(&attempt, "proof", Some(&number.to_string()));
        whole += u64::from(recorded == Recorded::Whole);
    }
    assert_eq!(whole, MOST_WHOLE_IN_ALL);
    assert!(sums.entries.len() <= MOST_KEYS + 1, "{}", sums.entries.len());
    assert_eq!(sums.tokens.len(), MOST_KEYS);
    let records = sums.take(noon() + MINUTE);
    let counted: u64 = records.iter().filter_map(|it| it.count).sum();
    assert_eq!(whole + counted, 10_000, "nothing is lost");
    assert!(sums.entries.is_empty() && sums.whole == 0);
}

#[test]
fn a_host_with_a_network_of_its_own_is_one_client() {
    let of = |text: &str| network(text.parse().unwrap()).to_string();
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
}
