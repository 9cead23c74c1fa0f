//! The kinds of the SPIRE controller manager: the sandbox's own definitions match those of the
//! release.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::toolbox;
use trustplane::demo::api_server::KINDS;

use crate::call::Call;

const DOMAINS: &str = "/apis/spire.spiffe.io/v1alpha1/clusterfederatedtrustdomains";
const IDS: &str = "/apis/spire.spiffe.io/v1alpha1/clusterspiffeids";
const ENTRIES: &str = "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries";

/// The definitions of the release.
pub fn released() -> PathBuf {
    toolbox().unwrap_or_else(|why| panic!("{why}")).join("spire-controller-manager.crds.yaml")
}

/// Without descriptions.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept =
                map.iter().filter(|(name, value)| *name != "description" || !value.is_string());
            kept.map(|(name, value)| (name.clone(), bare(value))).collect()
        }
        Value::Array(list) => list.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Sorted, because the order has no meaning.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (name, below) in map.iter_mut() {
                *below = sorted(below.take());
                if let (true, Value::Array(names)) = (name == "required", below) {
                    names.sort_by_key(Value::to_string);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|it| *it = sorted(it.take())),
        _ => {}
    }
    value
}

#[test]
fn the_sandbox_defines_the_kinds_of_the_spire_controller_manager_as_its_release_does() {
    let text = std::fs::read_to_string(released()).expect("the toolbox has them");
    let definitions = text.split("\n---\n").map(|it| it.trim_start_matches("---\n"));
    let definitions: Vec<Value> = definitions
        .filter(|it| !it.trim().is_empty())
        .map(|it| serde_saphyr::from_str(it).expect("YAML"))
        .collect();
    for kind in ["ClusterFederatedTrustDomain", "ClusterSPIFFEID", "ClusterStaticEntry"] {
        let released = definitions.iter().find(|it| it["spec"]["names"]["kind"] == kind);
        let released = released.expect("the release has it");
        let ours = KINDS.named("spire.spiffe.io/v1alpha1", kind).expect("the sandbox has it");
        let ours = &ours.crd.as_ref().expect("from a definition").object;
        let [ours, released] = [&ours["spec"], &released["spec"]].map(|it| sorted(bare(it)));
        assert_eq!(ours, released, "{kind}");
    }
}

/// Calls whose answers are compared.
pub fn calls() -> Vec<Call> {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let object = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "spire.spiffe.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let domain = |name: &str, spec: Value| object("ClusterFederatedTrustDomain", name, spec);
    let id = |name: &str, spec: Value| object("ClusterSPIFFEID", name, spec);
    let entry = |name: &str, spec: Value| object("ClusterStaticEntry", name, spec);
    let good = json!({ "trustDomain": "b.test", "bundleEndpointURL": "https://b.test", "bundleEndpointProfile": { "type": "https_spiffe", "endpointSPIFFEID": "spiffe://b.test/spire/server" }, "trustDomainBundle": "{}", "className": "c", "unknown": 1 });
    let mut calls = vec![
        Call::watch(DOMAINS),
        Call::post(DOMAINS, domain("${a}", good.clone())),
        Call::post(DOMAINS, domain("${a}", good.clone())),
        Call::post(DOMAINS, domain("${b}", good)).with("fieldValidation", "Strict"),
        Call::post(DOMAINS, domain("${b}", json!({}))),
        Call::post(
            DOMAINS,
            domain(
                "${b}",
                json!({ "trustDomain": "B", "bundleEndpointURL": 1, "bundleEndpointProfile": { "type": "web" } }),
            ),
        ),
        Call::merge(
            format!("{DOMAINS}/${{a}}"),
            json!({ "spec": { "className": null, "bundleEndpointProfile": { "type": "https_web", "endpointSPIFFEID": null } } }),
        ),
        Call::merge(format!("{DOMAINS}/${{a}}/status"), json!({ "status": { "any": 1 } })),
        Call::post(
            IDS,
            id(
                "${a}",
                json!({ "spiffeIDTemplate": "spiffe://a.test/x", "podSelector": { "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "c", "operator": "Exists" }] }, "federatesWith": ["b.test"], "ttl": "1h", "hint": "h", "fallback": true }),
            ),
        ),
        Call::post(
            IDS,
            id(
                "${b}",
                json!({ "podSelector": { "matchExpressions": [{}] }, "federatesWith": "b.test" }),
            ),
        ),
        Call::merge(
            format!("{IDS}/${{a}}/status"),
            json!({ "status": { "stats": { "podsSelected": 1, "unknown": 2 } } }),
        ),
        Call::post(
            ENTRIES,
            entry(
                "${a}",
                json!({ "spiffeID": "spiffe://a.test/x", "parentID": "spiffe://a.test/agent", "selectors": ["unix:uid:1"], "x509SVIDTTL": "1h", "admin": false }),
            ),
        ),
        Call::post(ENTRIES, entry("${b}", json!({ "selectors": [1] }))),
        Call::merge(format!("{ENTRIES}/${{a}}/status"), json!({ "status": { "set": true } })),
        Call::merge(
            format!("{ENTRIES}/${{a}}/status"),
            json!({ "status": { "set": true, "masked": false, "rendered": true } }),
        ),
    ];
    for collection in [DOMAINS, IDS, ENTRIES] {
        calls.push(Call::get(collection));
        calls.push(Call::get(collection).header("accept", table));
        calls.push(Call::get(format!("{collection}/${{a}}")));
        calls.push(Call::delete(format!("{collection}/${{a}}")));
        calls.push(Call::get(format!("{collection}/${{a}}")));
    }
    calls
}
