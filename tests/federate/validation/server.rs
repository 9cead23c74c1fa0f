//! Fields of the server itself.

use serde_json::{Value, json};

use super::{Rule, judge, rule, spec, with, without};
use crate::{
    on_both,
    only::{Turn, minimal},
};

on_both! {
    there_is_one_spire_server_and_it_is_named_cluster,
    what_must_be_said_is_asked_for,
    choices_are_named,
    texts_are_explained,
    numbers_and_sizes_have_bounds,
    what_pods_are_given_has_the_shape_of_a_pod,
}

async fn there_is_one_spire_server_and_it_is_named_cluster(turn: Turn) {
    let named = |name| with(minimal(), "/metadata/name", name);
    let says = "a cluster has one SpireServer: set metadata.name to cluster";
    judge(&turn, &[rule(named, [json!("cluster")], [json!("other"), json!("cluster-2")], says)])
        .await;
}

async fn what_must_be_said_is_asked_for(turn: Turn) {
    for (pointer, says) in [
        ("/spec", "spec: Required value"),
        ("/spec/trustDomain", "spec.trustDomain: Required value"),
        ("/spec/clusterName", "spec.clusterName: Required value"),
        ("/spec/jwtIssuer", "spec.jwtIssuer: Required value"),
    ] {
        let broken = vec![without(minimal(), pointer)];
        judge(&turn, &[Rule { keep: vec![minimal()], broken, says }]).await;
    }
}

async fn choices_are_named(turn: Turn) {
    let texts = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect::<Vec<Value>>();
    let choice = |pointer, choices: &[&str], says| {
        let odd = json!(choices[0].to_uppercase());
        rule(spec(pointer), texts(choices), [odd, json!("other"), json!("")], says)
    };
    let keys = ["rsa-2048", "rsa-4096", "ec-p256", "ec-p384"];
    let says_keys = r#"supported values: "rsa-2048", "rsa-4096", "ec-p256", "ec-p384""#;
    let rules = [
        choice(
            "/logLevel",
            &["debug", "info", "warn", "error"],
            r#"supported values: "debug", "info", "warn", "error""#,
        ),
        choice("/logFormat", &["text", "json"], r#"supported values: "text", "json""#),
        choice("/caKeyType", &keys, says_keys),
        choice("/jwtKeyType", &keys, says_keys),
        choice(
            "/persistence/accessMode",
            &["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"],
            r#"supported values: "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany""#,
        ),
        rule(
            spec("/datastore"),
            [
                json!({ "databaseType": "sqlite3" }),
                json!({ "databaseType": "postgres", "connectionString": "host=db" }),
                json!({ "databaseType": "mysql", "connectionString": "tcp(db)/a?parseTime=true" }),
            ],
            ["SQLITE3", "other", ""].map(|kind| json!({ "databaseType": kind })),
            r#"supported values: "sqlite3", "postgres", "mysql""#,
        ),
        choice(
            "/datastore/disableMigration",
            &["true", "false"],
            r#"supported values: "true", "false""#,
        ),
    ];
    judge(&turn, &rules).await;
    let not_in_quotes = [json!(true)];
    let says = "must be of type string";
    let rules = [rule(spec("/datastore/disableMigration"), [json!("true")], not_in_quotes, says)];
    judge(&turn, &rules).await;
}

async fn texts_are_explained(turn: Turn) {
    let long = |length: usize| json!("a".repeat(length));
    let rules = [
        rule(
            spec("/trustDomain"),
            [json!("apps.cluster-a.example.com"), json!("a_b-c.1"), long(255)],
            ["Apps.example.com", "spiffe://a.example.com", "a.example.com:8443", "a/b", "a b"]
                .map(Value::from),
            "a trust domain has only lower-case letters, digits, dots, dashes and underscores",
        ),
        rule(
            spec("/trustDomain"),
            [json!("a")],
            [json!("")],
            "spec.trustDomain in body should be at least 1 chars long",
        ),
        rule(spec("/trustDomain"), [long(255)], [long(256)], "may not be more than 255"),
        rule(
            spec("/clusterName"),
            ["a", "Cluster_1.b-c", "..."].map(Value::from),
            ["a/b", "a b", ".", ".."].map(Value::from),
            "clusterName is part of SPIFFE IDs",
        ),
        // With a longer one the SPIRE server refuses every entry that the controller manager makes.
        rule(spec("/clusterName"), [long(255 - 37)], [long(255 - 36)], "may not be more than 218"),
        rule(
            spec("/persistence/size"),
            ["1Gi", "512Mi", "1073741824"].map(Value::from),
            ["1 GB", "0Gi", "1.5Gi", "Gi"].map(Value::from),
            "write a size such as 1Gi",
        ),
        rule(
            spec("/persistence/storageClass"),
            ["", "standard", "gp3.encrypted"].map(Value::from),
            ["Standard", "my class", "a/b", "-a"].map(Value::from),
            "write the name of a StorageClass",
        ),
        rule(
            spec("/datastore/tlsSecretName"),
            ["db-tls", "db.tls"].map(Value::from),
            ["spire/db-tls", "DB", "-db", ""].map(Value::from),
            "write the name of a Secret, without its namespace",
        ),
    ];
    judge(&turn, &rules).await;
}

async fn numbers_and_sizes_have_bounds(turn: Turn) {
    let letters = |count: usize| json!("A".repeat(count));
    let rules = [
        rule(spec("/caSubject/country"), [letters(2)], [letters(3)], "may not be more than 2"),
        rule(
            spec("/caSubject/organization"),
            [letters(64)],
            [letters(65)],
            "may not be more than 64",
        ),
        rule(
            spec("/caSubject/commonName"),
            [letters(255)],
            [letters(256)],
            "may not be more than 255",
        ),
        rule(
            spec("/datastore/maxOpenConns"),
            [json!(2), json!(10_000)],
            [json!(1), json!(0)],
            "should be greater than or equal to 2",
        ),
        rule(
            spec("/datastore/maxIdleConns"),
            [json!(0), json!(10_000)],
            [json!(10_001)],
            "should be less than or equal to 10000",
        ),
        rule(
            spec("/datastore/connMaxLifetime"),
            [json!(0), json!(3600)],
            [json!(-1)],
            "should be greater than or equal to 0",
        ),
        rule(
            spec("/datastore/connectionString"),
            [json!("/run/spire/data/spire.db")],
            [json!("")],
            "should be at least 1 chars long",
        ),
    ];
    judge(&turn, &rules).await;
}

async fn what_pods_are_given_has_the_shape_of_a_pod(turn: Turn) {
    let weight = |weight: i32| json!([{ "weight": weight, "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname" } }]);
    let rules = [
        rule(
            spec("/labels/team"),
            [json!("web"), json!("")],
            [json!("web team"), json!("-web")],
            "a label's value has letters, digits, dashes, dots and underscores",
        ),
        rule(
            spec("/nodeSelector/disk"),
            [json!("ssd")],
            [json!("s s d")],
            "a label's value has letters, digits, dashes, dots and underscores",
        ),
        rule(
            spec("/resources/limits"),
            [json!({ "cpu": "500m", "memory": "1.5Gi", "pods": "1e3" })],
            [json!({ "cpu": "half" }), json!({ "memory": "1 Gi" })],
            "write an amount such as 500m, \"1\" or 512Mi",
        ),
        rule(spec("/resources/requests/cpu"), [json!("1")], [json!(1)], "must be of type string"),
        rule(
            spec("/tolerations"),
            [json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }])],
            [json!([{ "key": "a", "effect": "Never" }])],
            r#"supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
        ),
        rule(
            spec("/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution"),
            [weight(1), weight(100)],
            [weight(101)],
            "should be less than or equal to 100",
        ),
        rule(
            spec("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"),
            [
                json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }] }),
            ],
            [
                json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "disk", "operator": "Like" }] }] }),
            ],
            r#"supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt""#,
        ),
    ];
    judge(&turn, &rules).await;
}
