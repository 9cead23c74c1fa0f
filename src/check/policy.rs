//! The admission policy as this version brings it along, to hold against what is installed. Pure.

use serde_json::{Map, Value, json};

use super::{
    facts::Installed,
    rights::{ManifestError, documents},
};

const MANIFEST: &str = include_str!("../../deploy/policy/route-secrets.yaml");

/// The kind of the policy.
pub const POLICY: &str = "ValidatingAdmissionPolicy";
/// The kind of its binding.
pub const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Compares an object of one of the two kinds with the one in deploy/policy.
pub fn compare(kind: &'static str, found: Option<&Value>) -> Result<Installed, ManifestError> {
    let shipped = documents(MANIFEST)?.into_iter().find(|it| it["kind"] == kind);
    let shipped = shipped.ok_or(ManifestError::Lacks(kind))?;
    let Some(found) = found else { return Ok(Installed::Missing) };
    let differences = differences(&defaulted(&shipped["spec"]), &defaulted(&found["spec"]));
    Ok(if differences.is_empty() { Installed::AsShipped } else { Installed::Altered(differences) })
}

/// The fields of the spec that are not the same.
fn differences(shipped: &Value, found: &Value) -> Vec<String> {
    let empty = Map::new();
    let (shipped, found) =
        (shipped.as_object().unwrap_or(&empty), found.as_object().unwrap_or(&empty));
    let mut names: Vec<_> = shipped.keys().chain(found.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| shipped.get(*name) != found.get(*name));
    names.into_iter().map(|name| format!("spec.{name}")).collect()
}

/// The spec with what the API server adds to it.
fn defaulted(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec.get("policyName").is_none() {
        default(&mut spec, "failurePolicy", json!("Fail"));
    }
    for place in ["matchConstraints", "matchResources"] {
        let Some(resources) = spec.get_mut(place) else { continue };
        default(resources, "matchPolicy", json!("Equivalent"));
        default(resources, "namespaceSelector", json!({}));
        default(resources, "objectSelector", json!({}));
        for rules in ["resourceRules", "excludeResourceRules"] {
            let rules = resources.get_mut(rules).and_then(Value::as_array_mut);
            rules.into_iter().flatten().for_each(|rule| default(rule, "scope", json!("*")));
        }
    }
    spec
}

fn default(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(kind: &str) -> Value {
        documents(MANIFEST).unwrap().into_iter().find(|it| it["kind"] == kind).unwrap()
    }

    #[test]
    fn what_is_shipped_is_unaltered_with_and_without_what_the_server_adds() {
        for kind in [POLICY, BINDING] {
            let mut found = shipped(kind);
            assert_eq!(compare(kind, Some(&found)).unwrap(), Installed::AsShipped);
            found["spec"] = defaulted(&found["spec"]);
            assert_eq!(compare(kind, Some(&found)).unwrap(), Installed::AsShipped);
        }
    }

    #[test]
    fn what_weakens_it_is_named_by_its_field() {
        let altered = |kind: &'static str, field: &str, value: Value| {
            let mut found = shipped(kind);
            found["spec"][field] = value;
            compare(kind, Some(&found)).unwrap()
        };
        let named = |field: &str| Installed::Altered(vec![format!("spec.{field}")]);
        let never = json!([{ "name": "never", "expression": "false" }]);
        assert_eq!(altered(POLICY, "matchConditions", never), named("matchConditions"));
        assert_eq!(altered(POLICY, "failurePolicy", json!("Ignore")), named("failurePolicy"));
        assert_eq!(altered(POLICY, "validations", json!([])), named("validations"));
        assert_eq!(
            altered(BINDING, "validationActions", json!(["Audit"])),
            named("validationActions")
        );
        let some = json!({ "namespaceSelector": { "matchLabels": { "guarded": "yes" } } });
        assert_eq!(altered(BINDING, "matchResources", some), named("matchResources"));
    }

    #[test]
    fn what_is_not_there_is_missing() {
        assert_eq!(compare(POLICY, None).unwrap(), Installed::Missing);
    }
}
