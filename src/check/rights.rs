//! The rights that the controller's account needs, and those that installing needs. Pure.

use std::fmt;

use k8s_openapi::api::{authorization::v1::ResourceAttributes, rbac::v1::PolicyRule};
use serde_json::Value;

use crate::names::{NAMESPACE, SPIRE_NAMESPACE};

const ROLE: &str = include_str!("../../deploy/base/role.yaml");
const LEASE_ROLE: &str = include_str!("../../deploy/base/lease-role.yaml");
const FEDERATE_ROLES: [&str; 3] = [
    include_str!("../../deploy/federate/role.yaml"),
    include_str!("../../deploy/federate/spire-role.yaml"),
    include_str!("../../deploy/federate/lease-role.yaml"),
];

const AUTHORITY_ROLES: [&str; 2] = [
    include_str!("../../deploy/authority/role.yaml"),
    include_str!("../../deploy/authority/lease-role.yaml"),
];
const AUTHORITY_STATE_ROLE: &str = include_str!("../../deploy/authority/state-role.yaml");

const REVIEW_ROLES: [&str; 2] = [
    include_str!("../../deploy/review/role.yaml"),
    include_str!("../../deploy/review/lease-role.yaml"),
];
const REVIEW_STATE_ROLE: &str = include_str!("../../deploy/review/state-role.yaml");

/// One verb on one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    /// Empty for the core group.
    pub group: String,
    pub resource: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    pub verb: String,
    /// The one object that it is limited to; empty for all.
    pub name: String,
    /// Empty for all namespaces.
    pub namespace: String,
}

impl Right {
    fn to(verb: &str, group: &str, resource: &str, namespace: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [group, resource, subresource, verb, namespace] =
            [group, resource, subresource, verb, namespace].map(str::to_owned);
        Self { group, resource, subresource, verb, namespace, name: String::new() }
    }

    /// As the API server is asked about it.
    pub fn attributes(&self) -> ResourceAttributes {
        let said = |text: &String| (!text.is_empty()).then(|| text.clone());
        ResourceAttributes {
            group: Some(self.group.clone()),
            resource: Some(self.resource.clone()),
            subresource: said(&self.subresource),
            verb: Some(self.verb.clone()),
            name: said(&self.name),
            namespace: said(&self.namespace),
            ..ResourceAttributes::default()
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        for part in [&self.subresource, &self.name].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "/{part}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("a manifest that is part of this program can't be read: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("a manifest that is part of this program can't be understood: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("a manifest that is part of this program holds no {0}")]
    Lacks(&'static str),
}

/// The objects of a manifest.
pub(super) fn documents(manifest: &str) -> Result<Vec<Value>, ManifestError> {
    let read = |text| serde_saphyr::from_str::<Value>(text).map_err(ManifestError::from);
    manifest.split("\n---\n").map(read).collect()
}

/// The controller's calls in the namespaces that it serves, or in all where none is named.
pub fn of_controller(served: &[String]) -> Result<Vec<Right>, ManifestError> {
    let everywhere = [String::new()];
    let places = if served.is_empty() { &everywhere } else { served };
    let mut rights = Vec::new();
    for place in places {
        rights.extend(granted(&[ROLE], |_| place.clone())?);
    }
    Ok(rights)
}

/// The calls of its leader election, in the namespace where it is installed.
pub fn of_election(namespace: &str) -> Result<Vec<Right>, ManifestError> {
    granted(&[LEASE_ROLE], |_| namespace.to_owned())
}

/// The calls that authenticate and authorise readers of metrics.
pub fn of_metrics() -> [Right; 2] {
    [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
        .map(|(group, resource)| Right::to("create", group, resource, ""))
}

/// What `trustplane federate` calls: in the cluster, in the namespace of the SPIRE server, where it is
/// installed, and in `default`, where Events about a SpireServer are.
pub fn of_federate(installed_in: &str, spire_namespace: &str) -> Result<Vec<Right>, ManifestError> {
    let chosen = [(NAMESPACE, installed_in), (SPIRE_NAMESPACE, spire_namespace)];
    granted(&FEDERATE_ROLES, |object| place(object, &chosen))
}

/// What `trustplane authority` calls: in the cluster, where it is installed, where its Secret and ConfigMaps
/// are, and in `default`, where Events about SPIFFEFederations and JoinTokens are.
pub fn of_authority(
    installed_in: &str,
    state_namespace: &str,
) -> Result<Vec<Right>, ManifestError> {
    in_two_places((&AUTHORITY_ROLES, installed_in), (AUTHORITY_STATE_ROLE, state_namespace))
}

/// What `trustplane review` calls: in the cluster, where it is installed, and where its Secret and ConfigMap are.
pub fn of_review(installed_in: &str, state_namespace: &str) -> Result<Vec<Right>, ManifestError> {
    in_two_places((&REVIEW_ROLES, installed_in), (REVIEW_STATE_ROLE, state_namespace))
}

/// The rights of a job's Roles, and of the Role for its state, each with the namespace that they are in.
fn in_two_places(
    (roles, installed_in): (&[&str], &str),
    (state_role, state_namespace): (&str, &str),
) -> Result<Vec<Right>, ManifestError> {
    let in_place = |chosen| move |object: &Value| place(object, &[(NAMESPACE, chosen)]);
    let mut rights = granted(roles, in_place(installed_in))?;
    rights.extend(granted(&[state_role], in_place(state_namespace))?);
    Ok(rights)
}

/// Where the rights of a Role count; empty for a ClusterRole. `chosen` has the namespaces of deploy/ that an
/// installation may replace, each with the one that it has instead.
fn place(object: &Value, chosen: &[(&str, &str)]) -> String {
    let shipped = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let replaced = chosen.iter().find(|(from, _)| *from == shipped);
    replaced.map_or(shipped, |(_, to)| *to).to_owned()
}

/// The rights of these Roles, each in its place.
fn granted(
    manifests: &[&str],
    place: impl Fn(&Value) -> String,
) -> Result<Vec<Right>, ManifestError> {
    let mut rights = Vec::new();
    for manifest in manifests {
        for object in documents(manifest)? {
            rights.extend(of_object(&object, &place(&object))?);
        }
    }
    if rights.is_empty() { Err(ManifestError::Lacks("rules")) } else { Ok(rights) }
}

fn of_object(object: &Value, namespace: &str) -> Result<Vec<Right>, ManifestError> {
    let rules = object.get("rules").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let rules = serde_json::from_value::<Vec<PolicyRule>>(rules)?;
    Ok(rules.iter().flat_map(|rule| of_rule(rule, namespace)).collect())
}

fn of_rule(rule: &PolicyRule, namespace: &str) -> Vec<Right> {
    let any_name = [String::new()];
    let names = rule.resource_names.as_deref().filter(|names| !names.is_empty());
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                for name in names.unwrap_or(&any_name) {
                    let right = Right::to(verb, group, resource, namespace);
                    rights.push(Right { name: name.clone(), ..right });
                }
            }
        }
    }
    rights
}

/// The kinds that deploy/ installs: kind, group, plural, whether they live in a namespace.
const INSTALLED: [(&str, &str, &str, Scope); 13] = [
    ("Namespace", "", "namespaces", Scope::Cluster),
    ("ServiceAccount", "", "serviceaccounts", Scope::Namespace),
    ("Service", "", "services", Scope::Namespace),
    ("Deployment", "apps", "deployments", Scope::Namespace),
    ("PodDisruptionBudget", "policy", "poddisruptionbudgets", Scope::Namespace),
    ("NetworkPolicy", "networking.k8s.io", "networkpolicies", Scope::Namespace),
    ("Role", RBAC, "roles", Scope::Namespace),
    ("RoleBinding", RBAC, "rolebindings", Scope::Namespace),
    ("ClusterRole", RBAC, "clusterroles", Scope::Cluster),
    ("ClusterRoleBinding", RBAC, "clusterrolebindings", Scope::Cluster),
    ("ValidatingAdmissionPolicy", ADMISSION, "validatingadmissionpolicies", Scope::Cluster),
    (
        "ValidatingAdmissionPolicyBinding",
        ADMISSION,
        "validatingadmissionpolicybindings",
        Scope::Cluster,
    ),
    ("FlowSchema", "flowcontrol.apiserver.k8s.io", "flowschemas", Scope::Cluster),
];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespace,
}

/// The calls of `kubectl apply` of deploy/.
pub fn to_install(namespace: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for (_, group, resource, scope) in INSTALLED {
        let place = if scope == Scope::Namespace { namespace } else { "" };
        rights
            .extend(["get", "create", "patch"].map(|verb| Right::to(verb, group, resource, place)));
    }
    rights
}

/// With these a user may grant rights that they do not have themselves.
pub fn to_grant_any() -> [Right; 2] {
    ["escalate", "bind"].map(|verb| Right::to(verb, RBAC, "clusterroles", ""))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn shown(rights: &[Right]) -> Vec<String> {
        rights.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_controllers_rights_are_those_of_its_role() {
        let everywhere = shown(&of_controller(&[]).unwrap());
        assert!(everywhere.contains(&"patch routes.route.openshift.io".to_owned()));
        assert!(everywhere.contains(&"patch routes.route.openshift.io/status".to_owned()));
        assert!(everywhere.contains(&"get secrets".to_owned()), "{everywhere:?}");
        let two = shown(&of_controller(&["shop".into(), "blog".into()]).unwrap());
        assert_eq!(two.len(), 2 * everywhere.len());
        assert!(two.contains(&"get secrets in blog".to_owned()), "{two:?}");
    }

    #[test]
    fn federates_rights_are_those_of_its_roles_each_in_its_place() {
        let all = shown(&of_federate("infra", "identity").unwrap());
        for right in [
            "patch spireservers.operator.openshift.io/status",
            "list clusterfederatedtrustdomains.spire.spiffe.io",
            "create events.events.k8s.io in default",
            "patch statefulsets.apps/spire-server in identity",
            "create leases.coordination.k8s.io in infra",
        ] {
            assert!(all.contains(&right.to_owned()), "{right}: {all:?}");
        }
    }

    #[test]
    fn the_authoritys_rights_are_those_of_its_roles_each_in_its_place() {
        let all = shown(&of_authority("infra", "keys").unwrap());
        for right in [
            "get spiffefederations.trustplane.dev",
            "list spiffefederations.trustplane.dev",
            "patch spiffefederations.trustplane.dev/status",
            "get jointokens.trustplane.dev",
            "patch jointokens.trustplane.dev/status",
            "create events.events.k8s.io in default",
            "update leases.coordination.k8s.io/trustplane-authority in infra",
            "get secrets/trustplane-authority in keys",
            "patch configmaps/trustplane-bundle in keys",
            "get configmaps/trustplane-authority-requests in keys",
            "create events.events.k8s.io in keys",
        ] {
            assert!(all.contains(&right.to_owned()), "{right}: {all:?}");
        }
        assert!(!all.contains(&"get secrets in keys".to_owned()), "{all:?}");
    }

    #[test]
    fn reviews_rights_are_those_of_its_roles_each_in_its_place() {
        let all = shown(&of_review("infra", "keys").unwrap());
        for right in [
            "create tokenreviews.authentication.k8s.io",
            "create subjectaccessreviews.authorization.k8s.io",
            "update leases.coordination.k8s.io/trustplane-review in infra",
            "patch secrets/trustplane-review in keys",
            "patch configmaps/trustplane-review-status in keys",
            "create events.events.k8s.io in keys",
        ] {
            assert!(all.contains(&right.to_owned()), "{right}: {all:?}");
        }
        assert!(!all.contains(&"get secrets in keys".to_owned()), "{all:?}");
    }

    #[test]
    fn a_right_that_is_limited_to_one_object_is_asked_for_with_its_name() {
        let lease = shown(&of_election("trustplane").unwrap());
        let expected = ["get", "update"].map(|verb| {
            format!("{verb} leases.coordination.k8s.io/trustplane-inject in trustplane")
        });
        assert_eq!(lease[..2], expected);
        assert_eq!(lease[2], "create leases.coordination.k8s.io in trustplane");
    }

    #[test]
    fn a_subresource_is_asked_for_as_such() {
        let right = Right::to("patch", "route.openshift.io", "routes/status", "shop");
        let asked = right.attributes();
        assert_eq!(
            (asked.resource, asked.subresource),
            (Some("routes".into()), Some("status".into()))
        );
        assert_eq!((asked.name, asked.namespace), (None, Some("shop".into())));
    }

    #[test]
    fn installing_asks_for_every_kind_that_an_overlay_holds() {
        let mut kinds = BTreeSet::new();
        for folder in ["deploy/base", "deploy/policy", "deploy/flow-control"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            for file in fs::read_dir(folder).unwrap() {
                let text = fs::read_to_string(file.unwrap().path()).unwrap();
                let kind = |it: Value| it["kind"].as_str().map(str::to_owned);
                kinds.extend(documents(&text).unwrap().into_iter().filter_map(kind));
            }
        }
        kinds.remove("Kustomization");
        kinds.retain(|kind| !INSTALLED.iter().any(|(known, ..)| known == kind));
        assert!(kinds.is_empty(), "{kinds:?}");
    }
}
