//! What the CRD bounds, too. That both judge alike is tests/federate/validation/judged.rs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{super::*, blamed, server};
use crate::federate::decide::validate::{datastore, duration, labels, resources};

const CRD: &str =
    include_str!("../../../../../crds/federate/operator.openshift.io_spireservers.yaml");

fn schema() -> Value {
    let crd: Value = serde_saphyr::from_str(CRD).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        .clone()
}

/// The rules of a schema as `(rule, message)`.
fn rules(schema: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rules = schema["x-kubernetes-validations"].as_array().unwrap().iter();
    rules.map(|rule| (text(&rule["rule"]), text(&rule["message"]))).collect()
}

#[test]
fn the_crd_judges_by_the_same_expressions_and_in_the_same_words() {
    let schema = schema();
    let find = |schema: &Value, says: &str| {
        let rules = rules(schema);
        let found = rules.iter().find(|(_, message)| message == says);
        found.unwrap_or_else(|| panic!("{says}\n{rules:#?}")).0.clone()
    };
    let has = |rule: String, patterns: &[&pattern::Pattern]| {
        for pattern in patterns {
            let pattern = pattern.0.as_ref().unwrap().as_str();
            assert!(rule.contains(pattern), "{pattern}\n{rule}");
        }
    };
    let database = &schema["datastore"];
    has(find(database, datastore::SQLITE_SAYS), &[&datastore::SQLITE]);
    has(find(database, datastore::MYSQL_SAYS), &[&datastore::MYSQL, &datastore::MYSQL_TIMES]);
    let postgres = [&datastore::POSTGRES_WORDS, &datastore::POSTGRES_URL];
    has(find(database, datastore::POSTGRES_SAYS), &postgres);
    has(find(&schema["labels"], labels::KEY_SAYS), &[&labels::KEY]);
    has(find(&schema["nodeSelector"], labels::KEY_SAYS), &[&labels::KEY]);
    has(find(&schema["labels"], labels::RESERVED_SAYS), &[&labels::RESERVED]);
    has(find(&schema["labels"]["additionalProperties"], labels::VALUE_SAYS), &[&labels::VALUE]);
    for amounts in ["limits", "requests"] {
        let amount = &schema["resources"]["properties"][amounts]["additionalProperties"];
        has(find(amount, resources::AMOUNT_SAYS), &[&resources::AMOUNT]);
    }
    for bounds in [duration::CA, duration::X509, duration::JWT] {
        let rule = find(&schema[bounds.field], &bounds.says());
        has(rule.clone(), &[&duration::FORM]);
        let most = bounds.words.1.split(' ').next().unwrap();
        for bound in [bounds.words.0, most] {
            assert!(rule.contains(&format!("duration('{bound}')")), "{rule}");
        }
    }
}

#[test]
fn durations_are_such_that_the_server_starts() {
    let with = |field: &str, value: &str| {
        let mut spec = json!(server(None));
        spec[field] = json!(value);
        blamed(&serde_json::from_value(spec).unwrap())
    };
    let right = ["10m", "24h", "8760h", "1h30m", "90m", "1.5h", "600s", "24h0m0s", "0.5h0.5s"];
    for (field, least, too_much) in [
        ("caValidity", "9m59.999s", "87600h0.001s"),
        ("defaultX509Validity", "59.999s", "8760h0.001s"),
        ("defaultJWTValidity", "0.999m", "525600.001m"),
    ] {
        for right in right {
            assert_eq!(with(field, right), Vec::<String>::new(), "{field} {right}");
        }
        let wrong = ["", "1us", "500ms", "3000000h", "999999h", "1d", "-1h", "1m1h", "h", "24"];
        for wrong in wrong.into_iter().chain([least, too_much]) {
            assert_eq!(with(field, wrong), [format!("spec.{field}")], "{wrong}");
        }
    }
    assert_eq!(with("caValidity", "87600h"), Vec::<String>::new());
}

fn database(kind: &str, text: &str) -> Vec<Problem> {
    let mut spec = json!(server(None));
    spec["datastore"]["databaseType"] = json!(kind);
    spec["datastore"]["connectionString"] = json!(text);
    problems(&serde_json::from_value(spec).unwrap())
}

#[test]
fn a_connection_string_that_could_read_files_is_refused_and_not_repeated() {
    for (kind, wrong) in [
        ("mysql", "u:hunter2@tcp(db:3306)/spire?parseTime=true&allowAllFiles=true"),
        ("postgres", "host=db password=hunter2 sslkey=/run/spire/data/keys.json"),
        ("postgres", "host=db password=hunter2\u{a0}sslkey=/run/spire/data/keys.json"),
        ("postgres", "postgres://u:hunter2@db/spire?%73slkey=/run/spire/data/keys.json"),
        ("sqlite3", "file:/run/spire/data/hunter2.sqlite3?_loc=auto"),
        ("oracle", "hunter2"),
    ] {
        let told = database(kind, wrong);
        assert_eq!(told.len(), 1, "{kind} {wrong}");
        assert!(!told[0].to_string().contains("hunter2"), "{}", told[0]);
    }
    assert_eq!(database("mysql", "u:p/?@:x@tcp(db)/spire?tls=true&parseTime=true"), []);
    assert_eq!(database("postgres", "host=db user=u password='a \\' b' dbname=spire"), []);
}

#[test]
fn a_database_has_more_than_one_connection() {
    let with = |count: i32| {
        let mut spec = server(None);
        spec.datastore.max_open_conns = count;
        blamed(&spec)
    };
    assert_eq!(with(2), Vec::<String>::new());
    assert_eq!(with(1), ["spec.datastore.maxOpenConns"]);
}

#[test]
fn labels_that_steer_the_cluster_are_for_nobody_and_a_wrong_one_is_named() {
    let with = |labels: &[(&str, &str)]| {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let labels: BTreeMap<_, _> = labels.iter().map(own).collect();
        blamed(&SpireServerSpec { labels, ..server(None) })
    };
    assert_eq!(with(&[("team", "web"), ("example.com/team", "")]), Vec::<String>::new());
    assert_eq!(
        with(&[("rbac.authorization.k8s.io/aggregate-to-view", "true"), ("a b\n", "-")]),
        [
            "spec.labels[a b\\n]",
            "spec.labels[a b\\n]",
            "spec.labels[rbac.authorization.k8s.io/aggregate-to-view]"
        ]
    );
    let node_selector = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
    let spec = SpireServerSpec { node_selector, ..server(None) };
    assert_eq!(blamed(&spec), Vec::<String>::new(), "nodes are labelled by the cluster");
}

#[test]
fn an_issuer_is_a_url_without_a_query() {
    let with =
        |issuer: &str| blamed(&SpireServerSpec { jwt_issuer: issuer.to_owned(), ..server(None) });
    assert_eq!(with("https://oidc.example.com/spire"), Vec::<String>::new());
    for wrong in ["https:///x", "https://u:p@b/", "https://b:0", "https://b/?a=b", "b"] {
        assert_eq!(with(wrong), ["spec.jwtIssuer"], "{wrong}");
    }
}

#[test]
fn an_amount_that_the_api_server_would_compute_for_minutes_is_refused() {
    let with = |resources: Value| SpireServerSpec {
        resources: Some(serde_json::from_value(resources).unwrap()),
        ..server(None)
    };
    for amount in ["1e2000000000", "1e-2000000000", "1E100", &"1".repeat(33), "", "half", "1e"] {
        for map in ["limits", "requests"] {
            let found = blamed(&with(json!({ map: { "memory": amount } })));
            assert_eq!(found, [format!("spec.resources.{map}[memory]")], "{amount}");
        }
    }
    for amount in ["1", "500m", "1.5Gi", "1e3", "1E-99", "0."] {
        assert_eq!(blamed(&with(json!({ "limits": { "memory": amount } }))), [""; 0], "{amount}");
    }
}
