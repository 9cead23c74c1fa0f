//! Alerts about peers: their queries are right, and each fires when it should.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::tools::{folder, promtool, text_of};

fn rules() -> Value {
    serde_saphyr::from_str(&text_of("deploy/federate/monitoring/alerts.yaml")).expect("YAML")
}

fn names(list: &Value, field: &str) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| Some(it[field].as_str()?.to_owned())).collect()
}

#[test]
fn each_alert_about_a_peer_fires_when_it_should_and_peers_that_are_well_fire_none() {
    let (rules, tests) = (rules()["spec"].to_string(), text_of("tests/federate/alerts.yaml"));
    let files = [("rules.yaml", &*rules), ("alerts.yaml", &*tests)];
    let tested = promtool(&["test", "rules", "alerts.yaml"], &folder("federation-alerts", &files));
    tested.unwrap_or_else(|why| panic!("{why}"));
    let tests: Value = serde_saphyr::from_str(&tests).expect("YAML");
    let tests = tests["tests"].as_array().expect("tests");
    let fired: BTreeSet<String> = tests[1..]
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().into_iter().flatten())
        .filter(|question| question["exp_alerts"].is_array())
        .filter_map(|question| Some(question["alertname"].as_str()?.to_owned()))
        .collect();
    assert_eq!(fired, alerts(), "none is left out");
    assert_eq!(names(&tests[0]["alert_rule_test"], "alertname"), alerts());
}

fn alerts() -> BTreeSet<String> {
    names(&rules()["spec"]["groups"][0]["rules"], "alert")
}

#[test]
fn each_alert_about_a_peer_leads_to_its_section() {
    let page = text_of("docs/federate.md");
    for alert in alerts() {
        assert!(page.contains(&format!("### {alert}\n")), "{alert} is no section");
    }
}
