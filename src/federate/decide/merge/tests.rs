use super::*;

fn wanted() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "spire-server", "namespace": "spire", "labels": { "app": "spire" },
            "ownerReferences": [{ "uid": "1", "name": "cluster" }],
        },
        "spec": {
            "selector": { "app": "spire" },
            "ports": [{ "name": "grpc", "port": 443 }, { "name": "federation", "port": 8443 }],
        },
    })
}

/// What the API server makes of a creation.
fn stored(wanted: &Value) -> Value {
    let mut object = creation(wanted);
    object["metadata"]["uid"] = json!("4711");
    object["metadata"]["resourceVersion"] = json!("7");
    object["spec"]["clusterIP"] = json!("10.0.0.1");
    for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
        port["protocol"] = json!("TCP");
    }
    object
}

/// As the API server does it.
fn merged(mut object: Value, patch: &Value) -> Value {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *into = patch.clone();
            return;
        };
        for (name, value) in fields {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(name);
            } else {
                merge(&mut into[name], value);
            }
        }
    }
    merge(&mut object, patch);
    object
}

#[test]
fn what_stands_there_as_it_was_wanted_is_not_written_although_the_server_added_defaults() {
    assert_eq!(patch(&stored(&wanted()), &wanted()), None);
}

#[test]
fn a_field_of_ours_that_somebody_changed_is_put_back_and_nothing_else_is_sent() {
    let mut live = stored(&wanted());
    live["spec"]["selector"]["app"] = json!("mine");
    let patch = patch(&live, &wanted()).unwrap();
    let expected = json!({
        "metadata": { "uid": "4711", "resourceVersion": "7" },
        "spec": { "selector": { "app": "spire" } },
    });
    assert_eq!(patch, expected);
    assert_eq!(named(&patch), ["spec.selector.app"]);
}

#[test]
fn a_field_of_ours_that_somebody_removed_comes_back() {
    let mut live = stored(&wanted());
    live["metadata"].as_object_mut().unwrap().remove("labels");
    live["spec"]["ports"].as_array_mut().unwrap().pop();
    let live = merged(live.clone(), &patch(&live, &wanted()).unwrap());
    assert_eq!(live["metadata"]["labels"], json!({ "app": "spire" }));
    assert_eq!(live["spec"]["ports"][1]["port"], 8443);
    assert_eq!(patch(&live, &wanted()), None);
}

#[test]
fn labels_annotations_and_ports_of_others_survive_and_cause_no_write() {
    let mut live = stored(&wanted());
    live["metadata"]["labels"]["team"] = json!("theirs");
    live["metadata"]["annotations"]["note"] = json!("theirs");
    live["spec"]["ports"].as_array_mut().unwrap().insert(0, json!({ "name": "own", "port": 1 }));
    assert_eq!(patch(&live, &wanted()), None);

    let mut other = wanted();
    other["spec"]["ports"][0]["port"] = json!(444);
    let live = merged(live.clone(), &patch(&live, &other).unwrap());
    assert_eq!(live["metadata"]["labels"]["team"], "theirs");
    assert_eq!(live["metadata"]["annotations"]["note"], "theirs");
    let ports: Vec<_> = live["spec"]["ports"].as_array().unwrap().iter().collect();
    assert_eq!(ports[0], &json!({ "name": "own", "port": 1 }));
    assert_eq!(ports[1], &json!({ "name": "grpc", "port": 444, "protocol": "TCP" }));
}

#[test]
fn what_is_no_longer_wanted_goes_and_what_others_put_beside_it_stays() {
    let mut before = wanted();
    before["metadata"]["labels"]["extra"] = json!("ours");
    before["metadata"]["annotations"] = json!({ "route.openshift.io/tls-secret-name": "tls" });
    before["spec"]["ports"].as_array_mut().unwrap().push(json!({ "name": "old", "port": 2 }));
    let mut live = stored(&before);
    live["metadata"]["labels"]["team"] = json!("theirs");

    let live = merged(live.clone(), &patch(&live, &wanted()).unwrap());
    assert_eq!(live["metadata"]["labels"], json!({ "app": "spire", "team": "theirs" }));
    assert!(live["metadata"]["annotations"]["route.openshift.io/tls-secret-name"].is_null());
    let names: Vec<_> =
        live["spec"]["ports"].as_array().unwrap().iter().map(|port| port["name"].clone()).collect();
    assert_eq!(names, ["grpc", "federation"]);
    assert_eq!(patch(&live, &wanted()), None);
}

#[test]
fn an_object_that_somebody_else_made_is_taken_over_without_losing_what_is_theirs() {
    let live = json!({
        "metadata": { "name": "spire-server", "uid": "1", "resourceVersion": "3", "labels": { "team": "theirs" } },
        "spec": { "selector": { "old": "x" }, "ports": [{ "name": "grpc", "port": 1 }] },
    });
    let live = merged(live.clone(), &patch(&live, &wanted()).unwrap());
    assert_eq!(live["spec"]["selector"], json!({ "old": "x", "app": "spire" }));
    assert_eq!(live["spec"]["ports"][0]["port"], 443);
    assert_eq!(live["metadata"]["labels"]["team"], "theirs");
    assert_eq!(patch(&live, &wanted()), None);
}

#[test]
fn a_note_that_somebody_broke_or_removed_is_written_anew() {
    for broken in [json!("no json"), json!("[1]"), Value::Null] {
        let mut live = stored(&wanted());
        live["metadata"]["annotations"][FIELDS_ANNOTATION] = broken;
        let patch = patch(&live, &wanted()).unwrap();
        assert_eq!(named(&patch), Vec::<String>::new(), "only the note: {patch}");
    }
}

#[test]
fn quantities_are_the_same_however_they_are_written() {
    let with = |memory: &str, cpu: Value| {
        let mut wanted = wanted();
        wanted["spec"]["resources"] = json!({ "limits": { "memory": memory, "cpu": cpu } });
        wanted
    };
    let live = stored(&with("1024Mi", json!("1")));
    assert_eq!(patch(&live, &with("1Gi", json!("1000m"))), None);
    assert_eq!(patch(&live, &with("1Gi", json!(1))), None);
    assert!(patch(&live, &with("1G", json!(1))).is_some());
    for (wanted, kept) in [
        ("1024Ti", "1Pi"),
        ("1000000u", "1"),
        ("0.5m", "1m"),
        ("1E9", "1e9"),
        ("1000e+6", "1e9"),
        ("5e-1", "500e-3"),
        ("1000P", "1E"),
        ("1024Pi", "1Ei"),
    ] {
        let wanted = with(wanted, json!(1));
        let mut live = stored(&wanted);
        live["spec"]["resources"]["limits"]["memory"] = json!(kept);
        assert_eq!(patch(&live, &wanted), None, "{wanted}");
    }
    assert!(patch(&live, &with("1Gi", json!("1.5"))).is_some());
    assert!(patch(&live, &with("1e99", json!(1))).is_some(), "more than anybody has");
}

#[test]
fn fields_that_can_only_be_set_at_creation_are_not_sent_again() {
    let mut with = wanted();
    with["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" } }]);
    let mut live = stored(&with);
    live["spec"]["volumeClaimTemplates"][0]["status"] = json!({ "phase": "Pending" });
    let patch = patch(&live, &with);
    assert!(patch.is_none(), "{patch:?}");
}

#[test]
fn what_somebody_put_in_place_of_ours_goes_where_there_can_be_only_one() {
    let mut with = wanted();
    with["spec"]["volumes"] = json!([{ "name": "config", "configMap": { "name": "ours" } }]);
    with["spec"]["containers"] = json!([{
        "name": "server",
        "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
        "livenessProbe": { "httpGet": { "path": "/live" } },
    }]);
    let mut live = stored(&with);
    let defaulted = live.clone();
    live["spec"]["volumes"][0] = json!({ "name": "config", "hostPath": { "path": "/" } });
    let container = &mut live["spec"]["containers"][0];
    container["env"][0] = json!({ "name": "POD", "value": "theirs" });
    container["livenessProbe"] = json!({ "exec": { "command": ["true"] }, "timeoutSeconds": 1 });

    let live = merged(live.clone(), &patch(&live, &with).unwrap());
    assert_eq!(live["spec"]["volumes"], defaulted["spec"]["volumes"]);
    let (merged, whole) = (&live["spec"]["containers"][0], &defaulted["spec"]["containers"][0]);
    assert_eq!(merged["env"], whole["env"]);
    let probe = json!({ "httpGet": { "path": "/live" }, "timeoutSeconds": 1 });
    assert_eq!(merged["livenessProbe"], probe, "what is not an alternative stays");
    assert_eq!(patch(&live, &with), None);
}

#[test]
fn a_port_of_ours_that_somebody_renamed_gets_its_name_back_and_stands_there_once() {
    for protocol in [json!("TCP"), Value::Null] {
        let mut live = stored(&wanted());
        live["spec"]["ports"][0] = json!({ "name": "theirs", "port": 443, "protocol": protocol });
        let live = merged(live.clone(), &patch(&live, &wanted()).unwrap());
        let ports = live["spec"]["ports"].as_array().unwrap();
        let on_443: Vec<_> =
            ports.iter().filter(|it| it["port"] == 443).map(|it| it["name"].clone()).collect();
        assert_eq!(on_443, ["grpc"], "Kubernetes refuses a Service with a port twice: {ports:?}");
        assert_eq!(patch(&live, &wanted()), None);
    }
}

#[test]
fn a_port_of_somebody_s_with_our_number_and_another_protocol_stays() {
    let mut live = stored(&wanted());
    let theirs = json!({ "name": "theirs", "port": 443, "protocol": "UDP" });
    live["spec"]["ports"].as_array_mut().unwrap().push(theirs);
    assert_eq!(patch(&live, &wanted()), None);
}
