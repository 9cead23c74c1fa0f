//! The CRD and the Rust types mean the same object: nothing is lost between them, and what is left
//! out has its default.

use serde_json::{Value, json};
use trustplane::api::spire_server::SpireServer;

use crate::{
    on_both,
    only::{Turn, minimal},
};

on_both! {
    a_full_object_comes_back_without_loss,
    a_minimal_object_has_every_default,
}

const CRD: &str = include_str!("../../crds/federate/operator.openshift.io_spireservers.yaml");

async fn a_full_object_comes_back_without_loss(turn: Turn) {
    let acme = json!({ "acme": {
        "directoryUrl": "https://acme.example.com/directory",
        "domainName": "federation.a.example.com",
        "email": "admin@example.com",
        "tosAccepted": "true",
    }});
    let serving_cert = json!({ "servingCert": {
        "fileSyncInterval": 3600,
        "externalSecretRef": "federation-tls",
    }});
    for https_web in [acme, serving_cert] {
        let sent = full(https_web);
        turn.create(&sent).await;
        let stored = turn.report(&status()).await.expect("the status is accepted");
        assert_eq!(stored["spec"], sent["spec"], "the schema knows every field");
        assert_eq!(stored["status"], status(), "the schema knows every field");

        let read: SpireServer = serde_json::from_value(stored.clone()).expect("it can be read");
        let written = serde_json::to_value(&read).expect("it can be written");

        for part in ["metadata", "spec", "status"] {
            assert_eq!(written[part], stored[part], "{part}");
        }
        turn.delete().await;
    }
}

async fn a_minimal_object_has_every_default(turn: Turn) {
    let mut object = minimal();
    let made = turn.would_create(&object).await.expect("it is accepted");
    let mut expected = json!({
        "trustDomain": "a.example.com",
        "clusterName": "a",
        "jwtIssuer": "https://oidc.a.example.com",
        "logLevel": "info",
        "logFormat": "text",
        "caValidity": "24h",
        "defaultX509Validity": "1h",
        "defaultJWTValidity": "5m",
        "caKeyType": "rsa-2048",
        "persistence": { "size": "1Gi", "accessMode": "ReadWriteOnce" },
        "datastore": {
            "databaseType": "sqlite3",
            "connectionString": "/run/spire/data/datastore.sqlite3",
            "maxOpenConns": 100,
            "maxIdleConns": 2,
            "disableMigration": "false",
        },
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(spec_of(&made), expected, "the Rust types read what the server made of it");

    object["spec"]["federation"] = json!({ "bundleEndpoint": {} });
    let made = turn.would_create(&object).await.expect("it is accepted");
    expected["federation"] = json!({
        "bundleEndpoint": { "profile": "https_spiffe", "refreshHint": 300 },
        "managedRoute": "true",
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(spec_of(&made), expected, "the Rust types read what the server made of it");

    let endpoint = json!({ "profile": "https_web", "httpsWeb": { "servingCert": {} } });
    object["spec"]["federation"]["bundleEndpoint"] = endpoint;
    let made = turn.would_create(&object).await.expect("it is accepted");
    let web = &spec_of(&made)["federation"]["bundleEndpoint"]["httpsWeb"];
    assert_eq!(web["servingCert"], json!({ "fileSyncInterval": 86_400 }));
}

#[test]
fn the_full_objects_leave_no_field_of_the_schema_out() {
    let crd: Value = serde_saphyr::from_str(CRD).expect("the CRD is YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let acme = json!({ "directoryUrl": "", "domainName": "", "email": "", "tosAccepted": "" });
    let serving_cert = json!({ "fileSyncInterval": 0, "externalSecretRef": "" });
    let mut object = full(json!({ "acme": acme, "servingCert": serving_cert }));
    object["status"] = status();
    let mut missing = Vec::new();
    look_for(schema, &[&object], "", &mut missing);
    assert_eq!(missing, [""; 0]);
}

/// Notes the fields of the schema that none of the values has.
fn look_for(schema: &Value, values: &[&Value], path: &str, missing: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let found: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        let path = format!("{path}.{name}");
        match found.is_empty() {
            true => missing.push(path),
            false => look_for(field, &found, &path, missing),
        }
    }
    if schema["items"].is_object() {
        let items: Vec<&Value> =
            values.iter().filter_map(|value| value.as_array()).flatten().collect();
        look_for(&schema["items"], &items, &format!("{path}[]"), missing);
    }
    let entries = values.iter().filter_map(|value| value.as_object()).flatten().count();
    if schema["additionalProperties"].is_object() && entries == 0 {
        missing.push(format!("{path}.*"));
    }
}

fn spec_of(object: &Value) -> Value {
    let read: SpireServer = serde_json::from_value(object.clone()).expect("it can be read");
    serde_json::to_value(&read.spec).expect("it can be written")
}

/// Every field, with another value than its default.
fn full(https_web: Value) -> Value {
    let mut object = minimal();
    object["spec"] = json!({
        "trustDomain": "a.example.com",
        "clusterName": "a",
        "logLevel": "debug",
        "logFormat": "json",
        "jwtIssuer": "https://oidc.a.example.com",
        "caValidity": "48h",
        "defaultX509Validity": "2h",
        "defaultJWTValidity": "10m",
        "caKeyType": "ec-p256",
        "jwtKeyType": "rsa-4096",
        "caSubject": { "country": "US", "organization": "Example", "commonName": "a.example.com" },
        "persistence": { "size": "2Gi", "accessMode": "ReadWriteOncePod", "storageClass": "fast" },
        "datastore": {
            "databaseType": "postgres",
            "connectionString": "host=db dbname=spire sslmode=verify-full",
            "tlsSecretName": "db-tls",
            "maxOpenConns": 10,
            "maxIdleConns": 1,
            "connMaxLifetime": 3600,
            "disableMigration": "true",
        },
        "federation": {
            "bundleEndpoint": { "profile": "https_web", "refreshHint": 60, "httpsWeb": https_web },
            "federatesWith": [
                {
                    "trustDomain": "b.example.com",
                    "bundleEndpointUrl": "https://federation.b.example.com",
                    "bundleEndpointProfile": "https_spiffe",
                    "endpointSpiffeId": "spiffe://b.example.com/spire/server",
                },
                {
                    "trustDomain": "c.example.com",
                    "bundleEndpointUrl": "https://federation.c.example.com",
                    "bundleEndpointProfile": "https_web",
                },
            ],
            "managedRoute": "false",
            "routeHost": "federation.a.example.com",
        },
        "labels": { "team": "web" },
        "resources": {
            "claims": [{ "name": "device", "request": "one" }],
            "limits": { "memory": "512Mi" },
            "requests": { "cpu": "500m" },
        },
        "affinity": affinity(),
        "tolerations": [{
            "key": "disk",
            "operator": "Equal",
            "value": "full",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }],
        "nodeSelector": { "disk": "ssd" },
    });
    object
}

fn affinity() -> Value {
    let requirement = json!([{ "key": "disk", "operator": "In", "values": ["ssd"] }]);
    let node_term = json!({ "matchExpressions": requirement, "matchFields": requirement });
    let selector = json!({ "matchLabels": { "app": "db" }, "matchExpressions": requirement });
    let pod_term = json!({
        "topologyKey": "kubernetes.io/hostname",
        "namespaces": ["db"],
        "matchLabelKeys": ["a"],
        "mismatchLabelKeys": ["b"],
        "labelSelector": selector,
        "namespaceSelector": selector,
    });
    let pods = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [pod_term],
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{ "weight": 1, "podAffinityTerm": pod_term }],
    });
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [node_term] },
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{ "weight": 100, "preference": node_term }],
        },
        "podAffinity": pods,
        "podAntiAffinity": pods,
    })
}

fn status() -> Value {
    json!({
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "The server is ready.",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }],
        "lastValidSpec": "2c9081e4",
        "federation": {
            "endpointUrl": "https://federation.a.example.com",
            "peersSummary": "0/1",
            "peers": [{
                "trustDomain": "b.example.com",
                "reachable": true,
                "profileVerified": true,
                "lastSuccessTime": "2026-01-02T03:04:05Z",
                "bundleSince": "2026-01-02T03:04:05Z",
                "sequence": 9_223_372_036_854_775_807_i64,
                "sequenceWentBackFrom": 9_223_372_036_854_775_807_i64,
                "refreshHint": 300,
                "x509Authorities": 2,
                "jwtAuthorities": 1,
                "earliestExpiry": "2026-01-03T03:04:05Z",
                "latestExpiry": "2026-01-04T03:04:05Z",
                "lastError": "the endpoint did not answer within 10 s",
                "warnings": ["the sequence of its bundle went back"],
                "spireFetch": "failing",
                "spireDetail": "its last fetch ended with the status NotFound",
            }],
        },
    })
}
