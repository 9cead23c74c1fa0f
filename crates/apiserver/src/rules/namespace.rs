//! Namespaces.

use serde_json::{Value, json};

use super::finalizer_names;
use crate::{api_error::Cause, kinds::text, name_rules};

pub(super) fn default(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        label(object, name);
    }
    if text(object, &["status", "phase"]).is_empty() {
        if !object["status"].is_object() {
            object["status"] = json!({});
        }
        object["status"]["phase"] = "Active".into();
    }
}

fn label(object: &mut Value, name: Value) {
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name;
}

pub(super) fn prepare_create(object: &mut Value) {
    object["status"] = json!({ "phase": "Active" });
    let given = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let ours = Value::from("kubernetes");
    let finalizers = if given.contains(&ours) { given } else { [given, vec![ours]].concat() };
    object["spec"] = json!({ "finalizers": finalizers });
}

/// The label with the name, which a generated one did not have before.
pub(super) fn complete(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    label(object, name);
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.finalizers";
    let finalizers = &object["spec"]["finalizers"];
    let mut causes = Vec::new();
    for name in finalizers.as_array().into_iter().flatten().filter_map(Value::as_str) {
        for why in name_rules::qualified_name(name) {
            causes.push(Cause::invalid(PATH, &format!("{name:?}"), why));
        }
    }
    let without_index = |cause: Cause| Cause { field: PATH.to_owned(), ..cause };
    causes.extend(finalizer_names(finalizers, PATH).into_iter().map(without_index));
    causes
}

pub(super) fn validate_finalize(object: &Value) -> Vec<Cause> {
    finalizer_names(&object["spec"]["finalizers"], "spec.finalizers")
}

pub(super) fn validate_status(object: &Value) -> Vec<Cause> {
    let terminating = object["metadata"].get("deletionTimestamp").is_some();
    let (phase, when) = if terminating {
        ("Terminating", "if `deletionTimestamp` is not empty")
    } else {
        ("Active", "if `deletionTimestamp` is empty")
    };
    let actual = text(object, &["status", "phase"]);
    let why = format!("may only be '{phase}' {when}");
    let wrong = actual != phase;
    wrong.then(|| Cause::invalid("status.Phase", &format!("{actual:?}"), why)).into_iter().collect()
}
