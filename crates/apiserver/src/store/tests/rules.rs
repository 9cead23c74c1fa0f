//! The rules of single kinds.

use super::*;

fn created(kind: &Kind, object: Value) -> Result<Arc<Value>, ApiError> {
    let (mut store, mut call) = store();
    store.create(kind, "web", object, &mut call)
}

/// The fields in an error.
fn blamed(outcome: Result<Arc<Value>, ApiError>) -> Vec<String> {
    let error = outcome.expect_err("it must be refused");
    let causes = error.details.map(|details| details.causes).unwrap_or_default();
    causes.into_iter().map(|cause| cause.field).collect()
}

#[test]
fn a_secret_takes_plain_texts_and_has_a_type() {
    let object = json!({
        "metadata": { "name": "a" }, "data": { "both": "eA==" },
        "stringData": { "both": "y", "text": "z" },
    });
    let object = created(kinds::secret(), object).unwrap();
    assert_eq!(object["data"], json!({ "both": "eQ==", "text": "eg==" }));
    assert_eq!((object.get("stringData"), &object["type"]), (None, &json!("Opaque")));
}

#[test]
fn a_tls_secret_needs_both_halves_and_other_types_what_they_need() {
    let typed = |name: &str| json!({ "metadata": { "name": "a" }, "type": name });
    let tls = blamed(created(kinds::secret(), typed("kubernetes.io/tls")));
    assert_eq!(tls, ["data[tls.crt]", "data[tls.key]"]);
    let basic = blamed(created(kinds::secret(), typed("kubernetes.io/basic-auth")));
    assert_eq!(basic, ["data[username]", "data[password]"]);
    created(kinds::secret(), typed("example.com/any")).unwrap();
}

#[test]
fn a_secrets_keys_are_file_names_and_its_values_base64() {
    let with = |data: Value| json!({ "metadata": { "name": "a" }, "data": data });
    let bad_key = blamed(created(kinds::secret(), with(json!({ "a b": "eA==" }))));
    assert_eq!(bad_key, ["data[a b]"]);
    let bad_value = created(kinds::secret(), with(json!({ "a": "not base64" })));
    assert_eq!(reason(bad_value), (400, "BadRequest"));
    let large = "A".repeat(1_400_000);
    assert_eq!(blamed(created(kinds::secret(), with(json!({ "a": large })))), ["data"]);
}

#[test]
fn a_secret_keeps_its_type_and_an_immutable_one_its_data() {
    let (mut store, mut call) = store();
    let object = json!({ "metadata": { "name": "a" }, "immutable": true, "data": { "k": "eA==" } });
    store.create(kinds::secret(), "web", object, &mut call).unwrap();
    let mut patch = |change| {
        let patch = Patch::Merge(change);
        blamed(store.patch(kinds::secret(), ("web", "a"), Part::Main, &patch, &mut call))
    };
    assert_eq!(patch(json!({ "type": "other" })), ["type"]);
    assert_eq!(patch(json!({ "data": { "k": "eQ==" } })), ["data"]);
    assert_eq!(patch(json!({ "immutable": false })), ["immutable"]);
}

#[test]
fn a_refusal_never_quotes_a_value_of_a_secret_or_a_key_of_a_route() {
    const KEY: &str = "c2VjcmV0LWtleQ";
    let (mut store, mut call) = store();
    let mut shop = route("a");
    shop["spec"]["tls"] = json!({ "termination": "passthrough", "key": KEY, "certificate": [KEY] });
    let refused = [
        created(
            kinds::secret(),
            json!({ "metadata": { "name": "a" }, "data": { "k": format!("%{KEY}") } }),
        ),
        created(kinds::secret(), json!({ "metadata": { "name": "a" }, "data": [KEY] })),
        created(testing::route(), shop),
        store.create(testing::route(), "web", route("a"), &mut call).and_then(|_| {
            let patch = json!({ "spec": { "tls": { "termination": KEY, "key": { "a": KEY } } } });
            store.patch(testing::route(), ("web", "a"), Part::Main, &Patch::Merge(patch), &mut call)
        }),
    ];
    for (at, outcome) in refused.into_iter().enumerate() {
        let status = outcome.expect_err("each is refused").to_status().to_string();
        // Values of enums are quoted as in Kubernetes: a termination is no secret.
        let status = status.replacen(&format!("Unsupported value: \\\"{KEY}\\\""), "", 9);
        assert!(!status.contains(KEY), "case {at} quotes the value");
    }
}

#[test]
fn unknown_fields_are_dropped_warned_about_or_refused_as_requested() {
    let (mut store, mut call) = store();
    let odd = |name: &str| {
        let mut object = route(name);
        object["spec"]["odd"] = 1.into();
        object
    };
    let made = store.create(testing::route(), "web", odd("a"), &mut call).unwrap();
    assert_eq!((made["spec"].get("odd"), call.warnings.len()), (None, 0));
    call.unknown_fields = FieldValidation::Warn;
    store.create(testing::route(), "web", odd("b"), &mut call).unwrap();
    assert_eq!(call.warnings, ["unknown field \"spec.odd\""]);
    call.unknown_fields = FieldValidation::Strict;
    assert_eq!(
        reason(store.create(testing::route(), "web", odd("c"), &mut call)),
        (400, "BadRequest")
    );
}

#[test]
fn a_route_is_defaulted_and_held_to_its_schema_and_its_rules() {
    let made = created(testing::route(), route("a")).unwrap();
    assert_eq!(made["spec"]["to"], json!({ "kind": "Service", "name": "shop", "weight": 100 }));
    let with = |field: &str, value: Value| {
        let mut object = route("a");
        object["spec"][field] = value;
        blamed(created(testing::route(), object))
    };
    assert_eq!(with("host", json!("-")), ["spec.host"]);
    assert_eq!(with("to", json!({ "name": "a", "weight": 300 })), ["spec.to.weight"]);
    assert_eq!(with("path", json!(5)), ["spec.path", "<nil>"], "a wrong type hides the rules");
    assert_eq!(with("wildcardPolicy", json!("Subdomain")), ["spec.wildcardPolicy"]);
    let both = json!({ "termination": "edge", "certificate": "c", "externalCertificate": { "name": "s" } });
    assert_eq!(with("tls", both), ["spec.tls.externalCertificate"]);
    assert_eq!(with("port", json!({ "targetPort": 0 })), ["spec.port.targetPort"]);
    let header = json!({ "actions": { "request": [
        { "name": "Set-Cookie", "action": { "type": "Set", "set": { "value": "%[src]" } } },
    ] } });
    let headers = "spec.httpHeaders.actions.request";
    assert_eq!(with("httpHeaders", header), [headers.to_owned(), format!("{headers}[0].name")]);
}

#[test]
fn an_invalid_value_may_stay_while_another_field_changes() {
    let (mut store, mut call) = store();
    let made = store.create(testing::route(), "web", route("a"), &mut call).unwrap();
    let mut broken = Value::clone(&made);
    broken["spec"]["host"] = "-".into();
    store.put(testing::route(), "web", "a", broken);
    let path = Patch::Merge(json!({ "spec": { "path": "/x" } }));
    store.patch(testing::route(), ("web", "a"), Part::Main, &path, &mut call).unwrap();
    let host = Patch::Merge(json!({ "spec": { "host": "--" } }));
    let refused = store.patch(testing::route(), ("web", "a"), Part::Main, &host, &mut call);
    assert_eq!(blamed(refused), ["spec.host"]);
}

#[test]
fn an_event_of_the_newer_group_is_strictly_judged_and_hardly_changes() {
    let event = json!({ "metadata": { "name": "e" }, "regarding": { "namespace": "web" } });
    let mut fields = blamed(created(kinds::new_event(), event));
    fields.sort();
    assert_eq!(fields, ["eventTime", "type"]);

    let (mut store, mut call) = store();
    let event = json!({
        "metadata": { "name": "e" }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "trustplane.dev/test", "reportingInstance": "a", "action": "Look",
        "reason": "Because", "type": "Normal", "regarding": { "namespace": "web" },
    });
    store.create(kinds::new_event(), "web", event, &mut call).unwrap();
    let mut patch = |change| {
        let patch = Patch::Merge(change);
        store.patch(kinds::new_event(), ("web", "e"), Part::Main, &patch, &mut call)
    };
    let seen = "2026-01-01T01:00:00.000000Z";
    patch(json!({ "series": { "count": 2, "lastObservedTime": seen } })).unwrap();
    assert_eq!(blamed(patch(json!({ "note": "other words" }))), ["message"]);
}

#[test]
fn names_labels_and_annotations_have_their_syntax_and_sizes() {
    let with = |metadata: Value| blamed(created(kinds::secret(), json!({ "metadata": metadata })));
    assert_eq!(with(json!({ "name": "Upper" })), ["metadata.name"]);
    assert_eq!(with(json!({})), ["metadata.name"]);
    assert_eq!(with(json!({ "name": "a", "labels": { "a/b/c": "x" } })), ["metadata.labels"]);
    assert_eq!(with(json!({ "name": "a", "labels": { "a": "x y" } })), ["metadata.labels"]);
    let large = "x".repeat(256 * 1024);
    assert_eq!(
        with(json!({ "name": "a", "annotations": { "a": large } })),
        ["metadata.annotations"]
    );
    assert_eq!(with(json!({ "name": "a", "finalizers": ["plain"] })), ["metadata.finalizers[0]"]);
}

#[test]
fn a_lease_counts_forward() {
    let with =
        |spec: Value| created(kinds::lease(), json!({ "metadata": { "name": "l" }, "spec": spec }));
    assert_eq!(blamed(with(json!({ "leaseDurationSeconds": 0 }))), ["spec.leaseDurationSeconds"]);
    assert_eq!(blamed(with(json!({ "leaseTransitions": -1 }))), ["spec.leaseTransitions"]);
    assert_eq!(reason(with(json!({ "renewTime": "yesterday" }))), (400, "BadRequest"));
    let kept = with(json!({ "holderIdentity": "", "leaseTransitions": 0 })).unwrap();
    assert_eq!(kept["spec"], json!({ "holderIdentity": "", "leaseTransitions": 0 }));
}

#[test]
fn services_get_addresses_of_their_own() {
    let (mut store, mut call) = store();
    let mut make = |name: &str| {
        let object = json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } });
        let made = store.create(kinds::service(), "web", object, &mut call).unwrap();
        made["spec"]["clusterIP"].as_str().unwrap().to_owned()
    };
    assert_ne!(make("a"), make("b"));
}

#[test]
fn an_object_too_large_for_etcd_is_refused_and_a_smaller_one_is_not() {
    let with = |certificate: String| {
        let mut object = route("a");
        object["spec"]["tls"] = json!({ "termination": "edge", "certificate": certificate });
        created(testing::route(), object)
    };
    with("A".repeat(1_500_000)).unwrap();
    assert_eq!(reason(with("A".repeat(1_600_000))), (500, ""));
    assert_eq!(reason(with("\n".repeat(800_000))), (500, ""), "as it is stored, it is longer");
}
