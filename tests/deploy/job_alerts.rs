//! The alerts of the jobs beside `trustplane inject`: each fires when it should, and leads to what to do.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::tools::{folder, promtool, text_of};

/// Those that have alerts, and the page with a section for each.
const ALERTING: [(&str, &str); 3] =
    [("authority", "docs/spiffe.md"), ("agent", "docs/spiffe.md"), ("review", "docs/review.md")];

fn alert_rules(of: &str) -> Value {
    let rules = text_of(&format!("deploy/{of}/monitoring/alerts.yaml"));
    serde_saphyr::from_str(&rules).expect("YAML")
}

fn names(list: &Value, field: &str) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| Some(it[field].as_str()?.to_owned())).collect()
}

#[test]
fn each_alert_fires_when_it_should_and_a_healthy_job_fires_none() {
    ALERTING.into_iter().for_each(|(of, _)| fires_as_it_should(of));
}

fn fires_as_it_should(of: &str) {
    let alerts = names(&alert_rules(of)["spec"]["groups"][0]["rules"], "alert");
    let rules = alert_rules(of)["spec"].to_string();
    let tests = text_of(&format!("tests/deploy/{of}_alerts.yaml"));
    let files = [("rules.yaml", &*rules), ("alerts.yaml", &*tests)];
    let scratch = folder(&format!("{of}-alerts"), &files);
    let tested = promtool(&["test", "rules", "alerts.yaml"], &scratch);
    tested.unwrap_or_else(|why| panic!("{why}"));

    // None is left out, neither among those that fire nor in the healthy system.
    let tests: Value = serde_saphyr::from_str(&tests).expect("YAML");
    let tests = tests["tests"].as_array().expect("tests");
    let fired: BTreeSet<String> = tests[1..]
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().into_iter().flatten())
        .filter(|question| question["exp_alerts"].is_array())
        .filter_map(|question| Some(question["alertname"].as_str()?.to_owned()))
        .collect();
    assert_eq!(fired, alerts);
    assert_eq!(names(&tests[0]["alert_rule_test"], "alertname"), alerts);
}

#[test]
fn each_alert_says_what_to_do_and_leads_to_its_section() {
    for (of, page) in ALERTING {
        let sections = text_of(page);
        let rules = alert_rules(of);
        for rule in rules["spec"]["groups"][0]["rules"].as_array().expect("rules") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&rule["alert"]);
            for annotation in ["summary", "description"] {
                let says = text(&rule["annotations"][annotation]);
                assert!(says.ends_with('.'), "{name}: {annotation}");
            }
            let severity = text(&rule["labels"]["severity"]);
            assert!(["warning", "critical"].contains(&&*severity), "{name}");
            let runbook = text(&rule["annotations"]["runbook"]);
            assert_eq!(runbook, format!("{page}#{}", name.to_lowercase()));
            assert!(sections.contains(&format!("### {name}\n")), "{name} is no section");
        }
    }
}
