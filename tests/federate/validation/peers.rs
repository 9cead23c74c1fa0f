//! Whose bundles this cluster fetches.

use serde_json::{Value, json};

use super::{Rule, judge, peer, rule, with, with_peers, without};
use crate::{on_both, only::Turn};

on_both! {
    there_are_fifty_peers_at_most_and_no_empty_list,
    a_trust_domain_does_not_federate_with_itself,
    a_trust_domain_is_listed_once,
    a_peer_that_proves_itself_by_spiffe_needs_an_id_and_no_other_has_one,
    every_field_of_a_peer_is_checked,
}

fn many(count: usize) -> Value {
    with_peers((1..=count).map(|number| peer(&format!("b{number}.example.com"))))
}

async fn there_are_fifty_peers_at_most_and_no_empty_list(turn: Turn) {
    let sizes = || |count: Value| many(count.as_u64().expect("a number") as usize);
    let rules = [
        rule(
            sizes(),
            [json!(1), json!(50)],
            [json!(51)],
            "Too many: 51: must have at most 50 items",
        ),
        rule(sizes(), [json!(1)], [json!(0)], "should have at least 1 items"),
    ];
    judge(&turn, &rules).await;
    let url = json!(format!("https://b.example.com/{}", "a".repeat(2026)));
    let longest =
        |number: usize| with(peer(&format!("{number:0>255}")), "/bundleEndpointUrl", url.clone());
    let longest = with_peers((0..50).map(longest));
    turn.would_create(&longest).await.expect("the rules can afford the longest names");
}

async fn a_trust_domain_does_not_federate_with_itself(turn: Turn) {
    let others = vec![peer("b.example.com"), peer("c.example.com")];
    let own = vec![peer("b.example.com"), peer("a.example.com")];
    let says = "a trust domain cannot federate with itself: remove the entry that has the trustDomain of this server";
    let (keep, broken) = (vec![with_peers(others)], vec![with_peers(own)]);
    judge(&turn, &[Rule { keep, broken, says }]).await;
}

async fn a_trust_domain_is_listed_once(turn: Turn) {
    let other_url = with(peer("b.example.com"), "/bundleEndpointUrl", json!("https://other"));
    let twice = vec![peer("b.example.com"), peer("c.example.com"), other_url];
    let says = "a trust domain is listed twice: keep one entry for each";
    let keep = vec![with_peers([peer("b.example.com"), peer("c.example.com")])];
    judge(&turn, &[Rule { keep, broken: vec![with_peers(twice)], says }]).await;
}

async fn a_peer_that_proves_itself_by_spiffe_needs_an_id_and_no_other_has_one(turn: Turn) {
    let without_id = || without(peer("b.example.com"), "/endpointSpiffeId");
    let by_web = with(without_id(), "/bundleEndpointProfile", json!("https_web"));
    let idle = with(peer("b.example.com"), "/bundleEndpointProfile", json!("https_web"));
    let keep = || vec![with_peers([by_web.clone()]), with_peers([peer("b.example.com")])];
    let rules = [
        Rule {
            keep: keep(),
            broken: vec![with_peers([without_id()])],
            says: "profile https_spiffe needs endpointSpiffeId",
        },
        Rule {
            keep: keep(),
            broken: vec![with_peers([idle])],
            says: "profile https_web asks for no SPIFFE ID: remove endpointSpiffeId",
        },
    ];
    judge(&turn, &rules).await;
}

async fn every_field_of_a_peer_is_checked(turn: Turn) {
    let field = |name: &'static str| {
        move |value| with_peers([with(peer("b.example.com"), &format!("/{name}"), value)])
    };
    let rules = [
        rule(
            field("trustDomain"),
            ["b.example.com", "b_1"].map(Value::from),
            ["B.example.com", "spiffe://b.example.com"].map(Value::from),
            "a trust domain has only lower-case letters",
        ),
        rule(
            field("bundleEndpointUrl"),
            ["https://b.example.com", "https://b.example.com:8443/bundle"].map(Value::from),
            ["http://b.example.com", "b.example.com", ""].map(Value::from),
            "write a URL that begins with https:// and names a host in ASCII",
        ),
        rule(
            field("bundleEndpointProfile"),
            [json!("https_spiffe")],
            [json!("https")],
            r#"supported values: "https_spiffe", "https_web""#,
        ),
        rule(
            field("endpointSpiffeId"),
            [json!("spiffe://b.example.com/spire/server")],
            ["b.example.com/spire/server", "https://b.example.com", ""].map(Value::from),
            "write a SPIFFE ID, such as spiffe://apps.example.com/spire/server",
        ),
    ];
    judge(&turn, &rules).await;
    for (name, says) in [
        ("trustDomain", "federatesWith[0].trustDomain: Required value"),
        ("bundleEndpointUrl", "federatesWith[0].bundleEndpointUrl: Required value"),
        ("bundleEndpointProfile", "federatesWith[0].bundleEndpointProfile: Required value"),
    ] {
        let broken = vec![with_peers([without(peer("b.example.com"), &format!("/{name}"))])];
        judge(&turn, &[Rule { keep: vec![many(1)], broken, says }]).await;
    }
}
