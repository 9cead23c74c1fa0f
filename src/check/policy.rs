//! The admission policies that this version ships, compared with the installed ones. Pure.

use serde_json::{Map, Value, json};

use super::{
    found::Installed,
    rights::{ManifestError, documents},
};
use crate::names;

/// A policy with its binding, which has the same name.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    /// The first of its variables, if that is the namespace that it is for: an overlay may choose another.
    namespace_variable: Option<&'static str>,
    manifest: &'static str,
}

/// Guards the annotation of Routes.
pub const ROUTE_SECRETS: Shipped = Shipped {
    name: names::POLICY,
    namespace_variable: None,
    manifest: include_str!("../../deploy/policy/route-secrets.yaml"),
};

/// Guards the SpireServer.
pub const ENDPOINT: Shipped = Shipped {
    name: names::ENDPOINT_POLICY,
    namespace_variable: Some("serverNamespace"),
    manifest: include_str!("../../deploy/federate/endpoint-policy.yaml"),
};

/// Guards the status of SPIFFEFederations and JoinTokens.
pub const SPIFFE_STATUS: Shipped = Shipped {
    name: names::SPIFFE_STATUS_POLICY,
    namespace_variable: Some("authorityNamespace"),
    manifest: include_str!("../../deploy/authority/status-policy.yaml"),
};

pub const POLICY: &str = "ValidatingAdmissionPolicy";
pub const BINDING: &str = "ValidatingAdmissionPolicyBinding";

impl Shipped {
    /// Compares an installed object of one of the two kinds with the one that is shipped. The namespace that
    /// an overlay may choose is compared with nothing here: see [`Shipped::guarded_namespace`].
    pub fn compare(
        &self,
        kind: &'static str,
        found: Option<&Value>,
    ) -> Result<Installed, ManifestError> {
        let shipped = documents(self.manifest)?.into_iter().find(|it| it["kind"] == kind);
        let shipped = shipped.ok_or(ManifestError::Lacks(kind))?;
        let Some(found) = found else { return Ok(Installed::Missing) };
        let mut found = found["spec"].clone();
        let chosen = [&shipped["spec"], &found].map(|spec| self.guarded_namespace(spec));
        if chosen.iter().all(Option::is_some) {
            found["variables"][0] = shipped["spec"]["variables"][0].clone();
        }
        let differences = differences(&defaulted(&shipped["spec"]), &defaulted(&found));
        Ok(match differences.is_empty() {
            true => Installed::AsShipped,
            false => Installed::Altered(differences),
        })
    }

    /// The one namespace that an installed policy names in its variable for that; none where it has no such
    /// variable, or computes it.
    pub fn guarded_namespace<'a>(&self, spec: &'a Value) -> Option<&'a str> {
        let variable = &spec["variables"][0];
        let expression = variable["expression"].as_str()?;
        let name = expression.strip_prefix('\'')?.strip_suffix('\'')?;
        let is_name = |name: &str| {
            let is_allowed = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
            !name.is_empty() && name.bytes().all(is_allowed)
        };
        (variable["name"] == self.namespace_variable? && is_name(name)).then_some(name)
    }
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

    fn shipped(policy: Shipped, kind: &str) -> Value {
        documents(policy.manifest).unwrap().into_iter().find(|it| it["kind"] == kind).unwrap()
    }

    #[test]
    fn what_is_shipped_is_unaltered_with_and_without_what_the_server_adds() {
        for policy in [ROUTE_SECRETS, ENDPOINT, SPIFFE_STATUS] {
            for kind in [POLICY, BINDING] {
                let mut found = shipped(policy, kind);
                assert_eq!(found["metadata"]["name"], policy.name);
                assert_eq!(policy.compare(kind, Some(&found)).unwrap(), Installed::AsShipped);
                found["spec"] = defaulted(&found["spec"]);
                assert_eq!(policy.compare(kind, Some(&found)).unwrap(), Installed::AsShipped);
            }
            let all = documents(policy.manifest).unwrap();
            assert_eq!(all.len(), 2, "{}: anything else would not be compared", policy.name);
        }
    }

    #[test]
    fn what_weakens_it_is_named_by_its_field() {
        let altered = |kind: &'static str, field: &str, value: Value| {
            let mut found = shipped(ROUTE_SECRETS, kind);
            found["spec"][field] = value;
            ROUTE_SECRETS.compare(kind, Some(&found)).unwrap()
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
    fn another_namespace_for_the_spire_server_is_read_and_an_expression_in_its_place_is_an_alteration()
     {
        let mut found = shipped(ENDPOINT, POLICY);
        assert_eq!(ENDPOINT.guarded_namespace(&found["spec"]), Some(names::SPIRE_NAMESPACE));
        found["spec"]["variables"][0]["expression"] = json!("'elsewhere'");
        assert_eq!(ENDPOINT.guarded_namespace(&found["spec"]), Some("elsewhere"));
        assert_eq!(ENDPOINT.compare(POLICY, Some(&found)).unwrap(), Installed::AsShipped);

        let altered = Installed::Altered(vec!["spec.variables".into()]);
        for expression in ["object.metadata.name", "'a' + 'b'", "''"] {
            found["spec"]["variables"][0]["expression"] = json!(expression);
            assert_eq!(ENDPOINT.guarded_namespace(&found["spec"]), None, "{expression}");
            assert_eq!(ENDPOINT.compare(POLICY, Some(&found)).unwrap(), altered, "{expression}");
        }
        let mut found = shipped(ENDPOINT, POLICY);
        found["spec"]["variables"][1]["expression"] = json!("''");
        assert_eq!(ENDPOINT.compare(POLICY, Some(&found)).unwrap(), altered);
    }

    #[test]
    fn each_policy_has_its_own_variable_for_the_namespace() {
        let spec = |policy| shipped(policy, POLICY)["spec"].clone();
        let status = spec(SPIFFE_STATUS);
        assert_eq!(SPIFFE_STATUS.guarded_namespace(&status), Some(names::NAMESPACE));
        assert_eq!(ENDPOINT.guarded_namespace(&status), None);
        assert_eq!(ROUTE_SECRETS.guarded_namespace(&status), None);
    }

    #[test]
    fn what_is_not_there_is_missing() {
        assert_eq!(ROUTE_SECRETS.compare(POLICY, None).unwrap(), Installed::Missing);
    }
}
