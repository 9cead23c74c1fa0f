//! The APIs that this version ships, compared with the installed ones: their rules are in the schema. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{found::Installed, rights::ManifestError};
use crate::api::{spiffe_federation, spire_server};

/// A CustomResourceDefinition.
#[derive(Clone, Copy, Debug)]
pub struct ShippedCrd {
    pub name: &'static str,
    version: &'static str,
    manifest: &'static str,
}

pub const SPIRE_SERVER: ShippedCrd = ShippedCrd {
    name: "spireservers.operator.openshift.io",
    version: spire_server::VERSION,
    manifest: include_str!("../../crds/federate/operator.openshift.io_spireservers.yaml"),
};

pub const SPIFFE_FEDERATION: ShippedCrd = ShippedCrd {
    name: "spiffefederations.trustplane.dev",
    version: spiffe_federation::VERSION,
    manifest: include_str!("../../crds/spiffe/trustplane.dev_spiffefederations.yaml"),
};

pub const JOIN_TOKEN: ShippedCrd = ShippedCrd {
    name: "jointokens.trustplane.dev",
    version: spiffe_federation::VERSION,
    manifest: include_str!("../../crds/spiffe/trustplane.dev_jointokens.yaml"),
};

impl ShippedCrd {
    pub fn compare(
        &self,
        found: Option<&CustomResourceDefinition>,
    ) -> Result<Installed, ManifestError> {
        let Some(found) = found else { return Ok(Installed::Missing) };
        // Read as the same type, so that what the type does not know and what is left out weigh the same.
        let shipped: Value = serde_saphyr::from_str(self.manifest)?;
        let shipped: CustomResourceDefinition = serde_json::from_value(shipped)?;
        let version = |crd: &CustomResourceDefinition| {
            crd.spec.versions.iter().find(|it| it.name == self.version).cloned()
        };
        let (Some(shipped), Some(found)) = (version(&shipped), version(found)) else {
            return Ok(Installed::Altered(vec!["spec.versions".to_owned()]));
        };
        let differ = [
            ("served", shipped.served != found.served),
            ("schema", shipped.schema != found.schema),
            ("subresources", shipped.subresources != found.subresources),
        ];
        let altered: Vec<String> = differ
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(field, _)| format!("{field} of {}", self.version))
            .collect();
        Ok(if altered.is_empty() { Installed::AsShipped } else { Installed::Altered(altered) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_lost_a_rule_or_a_subresource_is_altered() {
        for crd in [SPIRE_SERVER, SPIFFE_FEDERATION, JOIN_TOKEN] {
            let shipped: Value = serde_saphyr::from_str(crd.manifest).unwrap();
            assert_eq!(shipped["metadata"]["name"], crd.name);
            let compare = |found: &Value| {
                crd.compare(Some(&serde_json::from_value(found.clone()).unwrap())).unwrap()
            };
            let altered =
                |field: &str| Installed::Altered(vec![format!("{field} of {}", crd.version)]);
            assert_eq!(compare(&shipped), Installed::AsShipped);
            assert_eq!(crd.compare(None).unwrap(), Installed::Missing);

            let mut weaker = shipped.clone();
            let schema = &mut weaker["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            schema["properties"]["spec"]["x-kubernetes-validations"] = json!([]);
            assert_eq!(compare(&weaker), altered("schema"));

            let mut open = shipped.clone();
            open["spec"]["versions"][0]["subresources"] = json!({});
            assert_eq!(compare(&open), altered("subresources"));

            let mut other = shipped;
            other["spec"]["versions"][0]["name"] = json!("v9");
            let versions = Installed::Altered(vec!["spec.versions".to_owned()]);
            assert_eq!(compare(&other), versions);
        }
    }
}
