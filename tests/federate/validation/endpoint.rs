//! How this cluster offers its bundle.

use serde_json::{Value, json};

use super::{Rule, acme, federated, judge, rule, spec, web, with, without};
use crate::{on_both, only::Turn};

on_both! {
    federation_needs_a_bundle_endpoint,
    the_endpoint_has_one_of_two_profiles,
    others_are_asked_to_fetch_once_a_minute_at_most_and_once_an_hour_at_least,
    the_profile_https_web_needs_exactly_one_source_of_certificates,
    an_acme_authority_must_be_described,
    terms_that_are_not_accepted_are_for_the_controller_to_tell,
    a_certificate_from_the_cluster_is_looked_for_between_every_hour_and_every_ninety_days,
    the_route_is_managed_or_not_and_has_the_name_of_a_host,
}

const DNS: &str = "write the name of a host, such as federation.apps.example.com";

async fn federation_needs_a_bundle_endpoint(turn: Turn) {
    let says = "spec.federation.bundleEndpoint: Required value";
    let keep = [json!({ "bundleEndpoint": {} })];
    judge(&turn, &[rule(spec("/federation"), keep, [json!({})], says)]).await;
}

async fn the_endpoint_has_one_of_two_profiles(turn: Turn) {
    let endpoint = |profile: Value| match &profile {
        profile if profile == "https_web" => web(json!({ "servingCert": {} })),
        _ => with(federated(), "/spec/federation/bundleEndpoint/profile", profile),
    };
    let keep = ["https_spiffe", "https_web"].map(Value::from);
    let broken = ["https", "HTTPS_SPIFFE", ""].map(Value::from);
    let says = r#"supported values: "https_spiffe", "https_web""#;
    judge(&turn, &[rule(endpoint, keep, broken, says)]).await;
}

async fn others_are_asked_to_fetch_once_a_minute_at_most_and_once_an_hour_at_least(turn: Turn) {
    let hint = || |value| with(federated(), "/spec/federation/bundleEndpoint/refreshHint", value);
    let rules = [
        rule(hint(), [json!(60)], [json!(59), json!(0)], "should be greater than or equal to 60"),
        rule(hint(), [json!(3600)], [json!(3601)], "should be less than or equal to 3600"),
        rule(hint(), [json!(300)], [json!("300s")], "must be of type integer"),
    ];
    judge(&turn, &rules).await;
}

async fn the_profile_https_web_needs_exactly_one_source_of_certificates(turn: Turn) {
    let serving_cert = || web(json!({ "servingCert": {} }));
    let by_acme = || web(json!({ "acme": acme() }));
    let missing = without(serving_cert(), "/spec/federation/bundleEndpoint/httpsWeb");
    let both = web(json!({ "acme": acme(), "servingCert": {} }));
    let rules = [
        Rule {
            keep: vec![serving_cert(), by_acme(), federated()],
            broken: vec![missing],
            says: "profile https_web needs a certificate: set httpsWeb, with acme or servingCert in it",
        },
        Rule {
            keep: vec![serving_cert(), by_acme()],
            broken: vec![both, web(json!({}))],
            says: "exactly one of acme and servingCert must be set",
        },
        Rule {
            keep: vec![federated()],
            broken: vec![with(
                serving_cert(),
                "/spec/federation/bundleEndpoint/profile",
                json!("https_spiffe"),
            )],
            says: "profile https_spiffe proves itself without httpsWeb",
        },
    ];
    judge(&turn, &rules).await;
}

async fn an_acme_authority_must_be_described(turn: Turn) {
    let field = |name: &'static str| {
        move |value| web(json!({ "acme": with(acme(), &format!("/{name}"), value) }))
    };
    let hosts = ["federation.a.example.com", "localhost"].map(Value::from);
    let no_hosts = ["https://a.example.com", "a_b.example.com", "-a", "a..b", ""].map(Value::from);
    let addresses = ["admin@example.com", "first.last+spire@mail.example.com"].map(Value::from);
    let no_addresses = ["admin", "@example.com", "admin@example", "a b@example.com", ""];
    let rules = [
        rule(
            field("directoryUrl"),
            [json!("https://acme.example.com/dir")],
            ["http://acme.example.com/dir", "acme.example.com", ""].map(Value::from),
            "write a URL that begins with https:// and names a host in ASCII",
        ),
        rule(field("domainName"), hosts, no_hosts, DNS),
        rule(
            field("email"),
            addresses,
            no_addresses.map(Value::from),
            "write an e-mail address, such as admin@example.com",
        ),
        rule(
            field("tosAccepted"),
            ["true", "false"].map(Value::from),
            [json!("yes")],
            r#"supported values: "true", "false""#,
        ),
    ];
    judge(&turn, &rules).await;
    for (name, says) in [
        ("directoryUrl", "acme.directoryUrl: Required value"),
        ("domainName", "acme.domainName: Required value"),
        ("email", "acme.email: Required value"),
    ] {
        let lacking = web(json!({ "acme": without(acme(), &format!("/{name}")) }));
        let keep = vec![web(json!({ "acme": acme() }))];
        judge(&turn, &[Rule { keep, broken: vec![lacking], says }]).await;
    }
}

async fn terms_that_are_not_accepted_are_for_the_controller_to_tell(turn: Turn) {
    let made = turn.would_create(&web(json!({ "acme": acme() }))).await.expect("it is accepted");
    let web = &made["spec"]["federation"]["bundleEndpoint"]["httpsWeb"];
    assert_eq!(web["acme"]["tosAccepted"], "false");
}

async fn a_certificate_from_the_cluster_is_looked_for_between_every_hour_and_every_ninety_days(
    turn: Turn,
) {
    let field =
        |name: &'static str| move |value: Value| web(json!({ "servingCert": { name: value } }));
    let interval = || field("fileSyncInterval");
    let rules = [
        rule(interval(), [json!(3600)], [json!(3599)], "should be greater than or equal to 3600"),
        rule(
            interval(),
            [json!(7_776_000)],
            [json!(7_776_001)],
            "should be less than or equal to 7776000",
        ),
        rule(
            field("externalSecretRef"),
            [json!("federation-tls")],
            ["spire/federation-tls", "Federation", ""].map(Value::from),
            "write the name of a Secret, without its namespace",
        ),
    ];
    judge(&turn, &rules).await;
}

async fn the_route_is_managed_or_not_and_has_the_name_of_a_host(turn: Turn) {
    let field = |name: &'static str| {
        move |value| with(federated(), &format!("/spec/federation/{name}"), value)
    };
    let rules = [
        rule(
            field("managedRoute"),
            ["true", "false"].map(Value::from),
            ["no", ""].map(Value::from),
            r#"supported values: "true", "false""#,
        ),
        rule(
            field("routeHost"),
            [json!("federation.example.com")],
            ["https://federation.example.com", "federation.example.com:443", ""].map(Value::from),
            DNS,
        ),
    ];
    judge(&turn, &rules).await;
}
