//! Alerts and dashboard: their queries are right, each alert fires when it should, and they ask for
//! nothing that the controller does not tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};
use testkit::{
    Cluster, Launch, RouteFixture, SecretFixture, eventually, pair,
    proxy::{Fault, Proxy, WatchFault},
    tools::{folder, promtool, text_of},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn alerts() -> Vec<Value> {
    let rules: Value =
        serde_saphyr::from_str(&text_of("deploy/monitoring/alerts.yaml")).expect("YAML");
    rules["spec"]["groups"][0]["rules"].as_array().expect("rules").clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The rules as Prometheus itself reads them. JSON is YAML.
fn rules_alone() -> String {
    let rules: Value =
        serde_saphyr::from_str(&text_of("deploy/monitoring/alerts.yaml")).expect("YAML");
    rules["spec"].to_string()
}

/// The dashboard's queries, with values in place of Grafana's variables.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&text_of("deploy/monitoring/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets
        .map(|target| {
            text(&target["expr"]).replace("$__rate_interval", "5m").replace("$namespace", ".*")
        })
        .collect()
}

#[test]
fn prometheus_understands_every_alert_and_every_query_of_the_dashboard() {
    let queries: Vec<Value> = dashboard_queries()
        .iter()
        .enumerate()
        .map(|(number, query)| json!({ "record": format!("query:{number}"), "expr": query }))
        .collect();
    assert!(queries.len() > 10, "{queries:?}");
    let queries = json!({ "groups": [{ "name": "dashboard", "rules": queries }] }).to_string();
    let files = [("alerts.yaml", &*rules_alone()), ("dashboard.yaml", &*queries)];
    let checked =
        promtool(&["check", "rules", "alerts.yaml", "dashboard.yaml"], &folder("rules", &files));
    checked.unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn no_panel_of_the_dashboard_lies_on_another_or_goes_unexplained() {
    let dashboard: Value =
        serde_json::from_str(&text_of("deploy/monitoring/dashboard.json")).expect("JSON");
    let mut taken = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = text(&panel["title"]);
        assert!(!title.is_empty() && !text(&panel["description"]).is_empty(), "{panel}");
        assert!(ids.insert(panel["id"].as_u64()), "{title} has the id of another");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let side = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        assert!(side("x") + side("w") <= 24, "{title} is out of sight");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                let other = taken.insert((x, y), title.to_owned());
                assert_eq!(other, None, "under {title}");
            }
        }
    }
}

#[test]
fn each_alert_fires_when_it_should_and_a_healthy_system_fires_none() {
    let tests = text_of("tests/deploy/alerts.yaml");
    let files = [("rules.yaml", &*rules_alone()), ("alerts.yaml", &*tests)];
    let tested = promtool(&["test", "rules", "alerts.yaml"], &folder("alerts", &files));
    tested.unwrap_or_else(|why| panic!("{why}"));

    // None is left out, neither among those that fire nor in the healthy system.
    let tests: Value = serde_saphyr::from_str(&tests).expect("YAML");
    let tests = tests["tests"].as_array().expect("tests");
    let asked = |test: &Value, fires: bool| -> BTreeSet<String> {
        let asked = test["alert_rule_test"].as_array().expect("questions").iter();
        asked
            .filter(|question| question["exp_alerts"].is_array() == fires)
            .map(|question| text(&question["alertname"]).to_owned())
            .collect()
    };
    let all: BTreeSet<String> =
        alerts().iter().map(|rule| text(&rule["alert"]).to_owned()).collect();
    assert_eq!(asked(&tests[0], false), all);
    assert_eq!(asked(&tests[0], true), BTreeSet::new());
    assert_eq!(tests.iter().flat_map(|test| asked(test, true)).collect::<BTreeSet<_>>(), all);
}

#[test]
fn each_alert_says_what_to_do_and_leads_to_its_section() {
    let page = text_of("docs/operating.md");
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|title| format!("docs/operating.md#{}", title.to_lowercase()))
        .collect();
    for rule in alerts() {
        let name = text(&rule["alert"]);
        for annotation in ["summary", "description"] {
            assert!(text(&rule["annotations"][annotation]).ends_with('.'), "{name}: {annotation}");
        }
        assert!(["warning", "critical"].contains(&text(&rule["labels"]["severity"])), "{name}");
        let runbook = text(&rule["annotations"]["runbook"]);
        assert_eq!(runbook, format!("docs/operating.md#{}", name.to_lowercase()));
        assert!(anchors.contains(runbook), "{runbook} is no section");
    }
}

/// A controller that has seen everything that it counts: good and bad writes, a watch that broke, an
/// object that nobody can read.
async fn everything_told() -> String {
    let cluster = Cluster::get().await;
    let ns = cluster.namespace("told").await;
    let unreadable = json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": { "name": "broken", "namespace": ns.name(), "uid": "1", "resourceVersion": "1" },
        "spec": { "tls": "not an object" },
    });
    let line = format!("{{\"type\":\"ADDED\",\"object\":{unreadable}}}\n");
    let (watches, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let proxy = Proxy::start(&cluster, move |asked| {
        if asked.is_watch_of("secrets") && watches.fetch_add(1, Ordering::SeqCst) == 0 {
            return Fault::answer(500, "not now");
        }
        if asked.is_write_to("routes/shop") && writes.fetch_add(1, Ordering::SeqCst) == 0 {
            return Fault::answer(500, "not now");
        }
        if asked.is_watch_of("routes") {
            return Fault::Watch(WatchFault::Inject { after: 0, line: line.clone() });
        }
        Fault::Forward
    })
    .await;
    let kubeconfig = cluster.account_kubeconfig_through(proxy.url());
    let mut controller = Launch::within(&ns).kubeconfig(kubeconfig).start();
    controller.ready().await;
    // Clients object to a certificate for another host.
    SecretFixture::tls("shop-tls", &pair::issued("blog.example.com")).create(&ns).await;
    RouteFixture::edge("shop").annotated("shop-tls").create(&ns).await;
    let address = controller.address().await;
    eventually(PATIENCE, "everything is counted", async || {
        let told = controller.page("/metrics").await.1;
        let all = [
            "trustplane_certificate_not_after_seconds{",
            "trustplane_certificate_warnings{",
            "trustplane_watch_restarts_total{",
            "trustplane_reconcile_failures_total{",
            "trustplane_undecodable_objects_total{",
        ];
        match all.iter().find(|name| !told.contains(**name)) {
            None => Ok(told),
            Some(missing) => Err(format!("{address} does not tell {missing}")),
        }
    })
    .await
}

fn all_matches<'a>(pattern: &str, text: &'a str) -> BTreeSet<&'a str> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str())).collect()
}

#[tokio::test]
async fn they_ask_for_nothing_that_the_controller_does_not_tell() {
    let told = everything_told().await;
    let samples: String =
        told.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let names = all_matches(r"(?m)^(trustplane_[a-z_]+)[{ ]", &samples);
    let mut labels = all_matches(r#"[{,]([a-z_]+)=""#, &samples);
    // Prometheus adds these to whatever it scrapes, and renames a namespace that is ours.
    labels.extend(["namespace", "job", "instance", "exported_namespace"]);

    let mut queries = dashboard_queries();
    queries.extend(alerts().iter().map(|rule| text(&rule["expr"]).to_owned()));
    let mut asked_for = BTreeSet::new();
    for query in &queries {
        let metrics = all_matches(r"\b(trustplane_[a-z_]+)", query);
        assert!(!metrics.is_empty(), "{query}");
        for metric in metrics {
            assert!(names.contains(metric), "{metric} of {query}");
            asked_for.insert(metric.trim_end_matches("_bucket"));
        }
        let groups = all_matches(r"by \(([^)]*)\)", query);
        let grouped = groups.iter().flat_map(|group| group.split(", "));
        for label in grouped.chain(all_matches(r#"[{,]([a-z_]+)[=!]~?""#, query)) {
            assert!(labels.contains(label), "label {label} of {query}");
        }
    }
    // And nothing that it tells is left unlisted.
    let families: BTreeSet<&str> = names
        .iter()
        .map(|name| {
            name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count")
        })
        .collect();
    assert_eq!(asked_for, families);
}
