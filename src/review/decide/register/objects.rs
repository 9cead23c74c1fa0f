//! What belongs into a cluster whose tokens are reviewed elsewhere. The manifests of deploy/review/remote are
//! read themselves, so that the two can't differ.

use std::fmt;

use serde_json::{Value, json};

const MANIFESTS: [&str; 5] = [
    include_str!("../../../../deploy/review/remote/namespace.yaml"),
    include_str!("../../../../deploy/review/remote/service-account.yaml"),
    include_str!("../../../../deploy/review/remote/role.yaml"),
    include_str!("../../../../deploy/review/remote/token-role.yaml"),
    include_str!("../../../../deploy/review/remote/flow-schema.yaml"),
];
/// What kustomize adds to them, and what we know our own by.
const LABELS: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "trustplane"), ("app.kubernetes.io/part-of", "trustplane")];
/// Group, version, kind and plural.
const KINDS: [(&str, &str, &str, &str); 7] = [
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    (RBAC, "v1", "ClusterRole", "clusterroles"),
    (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    (RBAC, "v1", "Role", "roles"),
    (RBAC, "v1", "RoleBinding", "rolebindings"),
    (FLOW_CONTROL, "v1", "FlowSchema", "flowschemas"),
];
const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("a manifest that is part of this program can't be read: {0}")]
    Yaml(String),
    #[error("a manifest that is part of this program holds an object of an unknown kind")]
    Kind,
}

/// An object as it is to be. Displayed as kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// None if the kind has none.
    namespace: Option<String>,
    pub name: String,
    pub content: Value,
}

impl Object {
    fn of(mut content: Value) -> Result<Self, ManifestError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let is_named = |(group, version, kind, _): &&(&str, &str, &str, &str)| {
            let api_version = match *group {
                "" => (*version).to_owned(),
                group => format!("{group}/{version}"),
            };
            content["kind"] == **kind && content["apiVersion"] == *api_version
        };
        let kind = KINDS.iter().find(is_named).ok_or(ManifestError::Kind)?;
        let &(group, version, kind, plural) = kind;
        for (label, value) in LABELS {
            content["metadata"]["labels"][label] = json!(value);
        }
        let namespace = text(&content["metadata"]["namespace"]);
        let name = text(&content["metadata"]["name"]).ok_or(ManifestError::Kind)?;
        Ok(Self { group, version, kind, plural, namespace, name, content })
    }

    /// Where the API server has all of this kind.
    pub fn collection(&self) -> String {
        let group = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match &self.namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{}", self.plural),
            None => format!("{group}/{}", self.plural),
        }
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Whether it only helps under load, and needs an API that not every cluster has.
    pub fn is_optional(&self) -> bool {
        self.group == FLOW_CONTROL
    }

    pub fn is_account(&self) -> bool {
        self.kind == "ServiceAccount"
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// In the order in which they are made.
pub fn objects() -> Result<Vec<Object>, ManifestError> {
    let documents = MANIFESTS.iter().flat_map(|manifest| manifest.split("\n---\n"));
    let read = |text| {
        let content = serde_saphyr::from_str(text);
        Object::of(content.map_err(|error| ManifestError::Yaml(error.to_string()))?)
    };
    documents.map(read).collect()
}

/// What has to be done so that an object is right. What it says beyond that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Create,
    /// A merge patch with the resourceVersion that it was decided from.
    Patch(Value),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    #[error("{0} is being deleted. Run it again once it is gone")]
    BeingDeleted(String),
    #[error("{0} is for another role, and that can't be changed. Delete it, and run this again")]
    OtherRole(String),
}

pub fn change(wanted: &Object, found: Option<&Value>) -> Result<Change, ObjectError> {
    let Some(found) = found else { return Ok(Change::Create) };
    if !found["metadata"]["deletionTimestamp"].is_null() {
        return Err(ObjectError::BeingDeleted(wanted.to_string()));
    }
    if found["roleRef"] != wanted.content["roleRef"] {
        return Err(ObjectError::OtherRole(wanted.to_string()));
    }
    let list = |object: &Value, field: &str| object[field].as_array().cloned().unwrap_or_default();
    type Has = fn(&Value, &Value) -> bool;
    let parts: [(&str, Has); 2] = [("rules", grants), ("subjects", is_same_subject)];
    for (field, has) in parts {
        let mut all = list(found, field);
        let missing = list(&wanted.content, field);
        let missing = missing.into_iter().filter(|part| !all.iter().any(|it| has(it, part)));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            all.extend(missing);
            let version = &found["metadata"]["resourceVersion"];
            let patch = json!({ "metadata": { "resourceVersion": version }, field: all });
            return Ok(Change::Patch(patch));
        }
    }
    Ok(Change::Nothing)
}

/// Whether a rule grants all that another one does.
fn grants(rule: &Value, wanted: &Value) -> bool {
    let all = |field| texts(&wanted[field]).iter().all(|it| texts(&rule[field]).contains(it));
    let names = texts(&rule["resourceNames"]);
    let is_for_all = names.is_empty();
    let is_for_these = !texts(&wanted["resourceNames"]).is_empty() && all("resourceNames");
    all("apiGroups")
        && all("resources")
        && all("verbs")
        && all("nonResourceURLs")
        && (is_for_all || is_for_these)
}

/// The API server fills in a group.
fn is_same_subject(subject: &Value, wanted: &Value) -> bool {
    ["kind", "name", "namespace"].iter().all(|field| subject[*field] == wanted[*field])
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether an object is one that we made, or deploy/review/remote.
pub fn is_ours(found: &Value) -> bool {
    LABELS.iter().all(|(label, value)| found["metadata"]["labels"][*label] == **value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(shown: &str) -> Object {
        objects().unwrap().into_iter().find(|it| it.to_string() == shown).expect(shown)
    }

    /// As the API server has it.
    fn stored(object: &Object) -> Value {
        let mut stored = object.content.clone();
        stored["metadata"]["resourceVersion"] = json!("41");
        stored["metadata"]["uid"] = json!("u");
        stored
    }

    #[test]
    fn what_is_made_in_a_cluster_is_what_the_manifests_have() {
        let shown: Vec<_> = objects().unwrap().iter().map(ToString::to_string).collect();
        let expected = [
            "Namespace trustplane-review",
            "ServiceAccount trustplane-review/trustplane-review",
            "ClusterRole trustplane-review-remote",
            "ClusterRoleBinding trustplane-review-remote",
            "ClusterRoleBinding trustplane-review-remote-discovery",
            "Role trustplane-review/trustplane-review-remote",
            "RoleBinding trustplane-review/trustplane-review-remote",
            "FlowSchema trustplane-review-remote",
        ];
        assert_eq!(shown, expected);
        let paths: Vec<_> = objects().unwrap().iter().map(Object::path).collect();
        assert_eq!(paths[0], "/api/v1/namespaces/trustplane-review");
        assert_eq!(
            paths[5],
            "/apis/rbac.authorization.k8s.io/v1/namespaces/trustplane-review/roles/trustplane-review-remote"
        );
    }

    #[test]
    fn what_is_right_is_not_changed_and_what_is_missing_is_made() {
        for object in objects().unwrap() {
            assert_eq!(change(&object, Some(&stored(&object))), Ok(Change::Nothing), "{object}");
            assert_eq!(change(&object, None), Ok(Change::Create), "{object}");
            assert!(is_ours(&stored(&object)), "{object}");
        }
    }

    #[test]
    fn a_role_gets_the_rules_that_it_lacks_and_loses_none() {
        let role = object("ClusterRole trustplane-review-remote");
        let mut other = stored(&role);
        let own = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] });
        other["rules"] = json!([own]);
        let Ok(Change::Patch(patch)) = change(&role, Some(&other)) else { panic!("no patch") };
        assert_eq!(patch["rules"], json!([own, role.content["rules"][0]]));
        assert_eq!(patch["metadata"]["resourceVersion"], "41");
        other["rules"] = json!([own, {
            "apiGroups": ["authentication.k8s.io", ""], "resources": ["tokenreviews", "pods"],
            "verbs": ["get", "create"],
        }]);
        assert_eq!(change(&role, Some(&other)), Ok(Change::Nothing));
    }

    #[test]
    fn a_rule_for_other_names_does_not_count() {
        let role = object("Role trustplane-review/trustplane-review-remote");
        let mut other = stored(&role);
        other["rules"][0]["resourceNames"] = json!(["somebody"]);
        assert!(matches!(change(&role, Some(&other)), Ok(Change::Patch(_))));
        other["rules"][0]["resourceNames"] = json!(["somebody", "trustplane-review"]);
        assert_eq!(change(&role, Some(&other)), Ok(Change::Nothing));
        // Whoever gave more has their reasons.
        other["rules"][0]["resourceNames"] = Value::Null;
        assert_eq!(change(&role, Some(&other)), Ok(Change::Nothing));
    }

    #[test]
    fn a_binding_gets_our_account_and_is_never_turned_to_another_role() {
        let binding = object("ClusterRoleBinding trustplane-review-remote");
        let mut other = stored(&binding);
        other["subjects"] = Value::Null;
        let Ok(Change::Patch(patch)) = change(&binding, Some(&other)) else { panic!("no patch") };
        assert_eq!(patch["subjects"], binding.content["subjects"]);
        other["roleRef"]["name"] = json!("cluster-admin");
        let refused = change(&binding, Some(&other)).unwrap_err();
        assert_eq!(refused, ObjectError::OtherRole(binding.to_string()));
    }

    #[test]
    fn what_is_being_deleted_is_waited_for() {
        let namespace = object("Namespace trustplane-review");
        let mut found = stored(&namespace);
        found["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        let refused = change(&namespace, Some(&found)).unwrap_err();
        assert_eq!(refused, ObjectError::BeingDeleted(namespace.to_string()));
    }

    #[test]
    fn an_object_without_our_labels_is_not_ours() {
        let mut found = stored(&object("Namespace trustplane-review"));
        found["metadata"]["labels"]["app.kubernetes.io/part-of"] = json!("kube-fed");
        assert!(!is_ours(&found));
    }
}
