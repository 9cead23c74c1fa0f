//! Work after the API server's answer: content of deleted namespaces, and garbage collection.
//!
//! In a real cluster controllers do it a moment later, so calls are repeated until the sides agree.

use serde_json::{Value, json};

use crate::call::{Call, Until};

const CORE: &str = "/api/v1/namespaces";
const ROUTES: &str = "/apis/route.openshift.io/v1/namespaces";

/// All cases, each in its own namespaces.
pub fn scenarios() -> Vec<(&'static str, Vec<Call>)> {
    let namespace = format!("{CORE}/${{a}}");
    vec![
        ("a namespace goes with its content", namespace_with_content()),
        ("a namespace waits for finalizers", namespace_with_finalizers()),
        ("an empty namespace goes", vec![Call::delete(namespace.clone()), gone(namespace)]),
        ("dependents go with their owner", dependents("Background")),
        ("dependents go before their owner", dependents("Foreground")),
        ("orphans stay", dependents("Orphan")),
        ("a dependent of nobody goes", absent_owner()),
        ("a dependent stays until its last owner goes", two_owners()),
    ]
}

fn gone(path: String) -> Call {
    Call::get(path).until(Until::Code(404))
}

fn object(kind: &str, name: &str) -> Value {
    match kind {
        "Route" => {
            json!({ "apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": { "name": name }, "spec": { "to": { "name": "web" } } })
        }
        _ => json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } }),
    }
}

fn namespace_with_content() -> Vec<Call> {
    let namespace = format!("{CORE}/${{a}}");
    vec![
        Call::watch(format!("{CORE}/${{a}}/secrets")),
        Call::watch(format!("{ROUTES}/${{a}}/routes")),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "one")),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "two")),
        Call::post(format!("{CORE}/${{a}}/configmaps"), object("ConfigMap", "one")),
        Call::post(format!("{ROUTES}/${{a}}/routes"), object("Route", "one")),
        Call::delete(namespace.clone()),
        gone(namespace.clone()),
        Call::get(format!("{CORE}/${{a}}/secrets")),
        Call::get(format!("{ROUTES}/${{a}}/routes/one")),
        Call::delete(namespace.clone()),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "late")),
        Call::post(CORE, json!({ "metadata": { "name": "${a}" } })),
        Call::get(namespace),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "one")),
    ]
}

fn namespace_with_finalizers() -> Vec<Call> {
    let (namespace, held) = (format!("{CORE}/${{a}}"), format!("{CORE}/${{a}}/configmaps/held"));
    let mut config_map = object("ConfigMap", "held");
    config_map["metadata"]["finalizers"] = json!(["example.com/hold"]);
    vec![
        Call::post(format!("{CORE}/${{a}}/configmaps"), config_map),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "one")),
        Call::delete(namespace.clone()),
        Call::get(format!("{CORE}/${{a}}/secrets")).until(Until::Items(0)),
        Call::get(held.clone()).until(Until::Code(200)),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "late")),
        Call::post(format!("{ROUTES}/${{a}}/routes"), object("Route", "late")),
        Call::post(CORE, json!({ "metadata": { "name": "${a}" } })),
        Call::merge(held.clone(), json!({ "data": { "still": "writable" } })),
        Call::delete(held.clone()),
        Call::merge(held.clone(), json!({ "metadata": { "finalizers": null } })),
        gone(held),
        gone(namespace),
    ]
}

fn owned(kind: &str, name: &str, owners: &[&str]) -> Value {
    let mut dependent = object(kind, name);
    let owner = |name: &&str| {
        let uid = format!("${{uid {CORE}/${{a}}/secrets/{name}}}");
        json!({ "apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid, "blockOwnerDeletion": true })
    };
    dependent["metadata"]["ownerReferences"] = owners.iter().map(owner).collect();
    dependent
}

fn dependents(policy: &str) -> Vec<Call> {
    let left = if policy == "Orphan" { 1 } else { 0 };
    let owner = format!("{CORE}/${{a}}/secrets/owner");
    vec![
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "owner")),
        Call::post(format!("{CORE}/${{a}}/configmaps"), owned("ConfigMap", "one", &["owner"])),
        Call::post(format!("{ROUTES}/${{a}}/routes"), owned("Route", "two", &["owner"])),
        Call::post(format!("{CORE}/${{a}}/configmaps"), object("ConfigMap", "free")),
        Call::delete(owner.clone()).with("propagationPolicy", policy),
        gone(owner),
        Call::get(format!("{CORE}/${{a}}/configmaps")).until(Until::Items(left + 1)),
        Call::get(format!("{ROUTES}/${{a}}/routes")).until(Until::Items(left)),
    ]
}

fn absent_owner() -> Vec<Call> {
    vec![
        Call::post(format!("{CORE}/${{a}}/configmaps"), owned("ConfigMap", "one", &["nobody"])),
        Call::post(format!("{CORE}/${{a}}/configmaps"), object("ConfigMap", "free")),
        Call::get(format!("{CORE}/${{a}}/configmaps")).until(Until::Items(1)),
    ]
}

fn two_owners() -> Vec<Call> {
    vec![
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "first")),
        Call::post(format!("{CORE}/${{a}}/secrets"), object("Secret", "second")),
        Call::post(
            format!("{CORE}/${{a}}/configmaps"),
            owned("ConfigMap", "one", &["first", "second"]),
        ),
        Call::delete(format!("{CORE}/${{a}}/secrets/first")),
        Call::get(format!("{CORE}/${{a}}/configmaps/one")).until(Until::Code(200)),
        Call::delete(format!("{CORE}/${{a}}/secrets/second")),
        gone(format!("{CORE}/${{a}}/configmaps/one")),
    ]
}
