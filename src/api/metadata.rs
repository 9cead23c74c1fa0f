//! The part of an object's metadata that we have a use for.
//!
//! kube wants an `ObjectMeta`, so one is filled, but labels, other people's annotations and
//! `managedFields` are skipped while they pass by. `managedFields` alone would be a tree larger
//! than all else that is read of an object. Code that needs them requests the metadata by itself.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use crate::names::{
    INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION, is_misspelt,
};

/// Whole metadata without entries of `managedFields` that can't be read. Whoever may change an object writes
/// these, also with times that no clock shows, and must not make the object unreadable by that.
pub(crate) fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = Value::deserialize(deserializer)?;
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        entries.retain(|entry| ManagedFieldsEntry::deserialize(entry).is_ok());
    }
    ObjectMeta::deserialize(metadata).map_err(D::Error::custom)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slim {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: Option<Annotations>,
}

/// Those of `names.rs`, and one that is misspelt.
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadAnnotations)
    }
}

struct ReadAnnotations;

/// A tenant may have thousands of annotations on a Route, and its spelling is worth only so much.
const EXAMINED: usize = 100;

impl<'de> Visitor<'de> for ReadAnnotations {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        const OURS: [&str; 3] =
            [SECRET_NAME_ANNOTATION, INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION];
        let (mut kept, mut has_misspelt, mut examined) = (BTreeMap::new(), false, 0);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let is_ours = OURS.contains(&&*key);
            examined += 1;
            if is_ours || !has_misspelt && examined <= EXAMINED && is_misspelt(&key) {
                has_misspelt |= !is_ours;
                if let Some(value) = map.next_value::<Option<String>>()? {
                    kept.insert(key.into_owned(), value);
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Annotations(kept))
    }
}

/// The identity of an object, without any annotation: kubectl's copy of a Secret holds its key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

pub(super) fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let Identity { namespace, name, uid, resource_version } = Identity::deserialize(deserializer)?;
    Ok(ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() })
}

pub(super) fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        namespace: slim.namespace,
        name: slim.name,
        uid: slim.uid,
        resource_version: slim.resource_version,
        deletion_timestamp: slim.deletion_timestamp,
        owner_references: slim.owner_references,
        annotations: slim.annotations.map(|Annotations(kept)| kept),
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_is_ever_looked_at_is_read_and_nothing_else() {
        let owner =
            json!({ "apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true });
        let kept = json!({
            "namespace": "web", "name": "shop", "uid": "4711", "resourceVersion": "41",
            "deletionTimestamp": "2026-03-01T12:00:00Z", "ownerReferences": [owner],
            "annotations": {
                SECRET_NAME_ANNOTATION: "shop-tls", INJECTED_ANNOTATION: "v1:a:b",
                INJECTED_FROM_ANNOTATION: "v1:u:1:1:c",
            },
        });
        let mut whole = kept.clone();
        whole["labels"] = json!({ "app": "shop" });
        whole["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{}");
        whole["managedFields"] = json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }]);
        assert_eq!(json!(slim(whole.clone()).unwrap()), kept);
        let identity = identity(whole).unwrap();
        let [namespace, name, uid, version] =
            ["namespace", "name", "uid", "resourceVersion"].map(|field| &kept[field]);
        assert_eq!(
            json!(identity),
            json!({ "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version })
        );
    }

    #[test]
    fn one_misspelt_annotation_is_read_and_no_more() {
        let meta = json!({ "annotations": {
            "router.openshift.io/tls-secret-name": "a", "routes.openshift.io/tls-secret-name": "b",
            "app": null, INJECTED_ANNOTATION: null,
        } });
        let read = slim(meta).unwrap().annotations.unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["router.openshift.io/tls-secret-name"]);
    }

    #[test]
    fn an_object_without_any_of_it_is_read_too() {
        assert_eq!(slim(json!({})).unwrap(), ObjectMeta::default());
        let empty = json!({ "annotations": null, "ownerReferences": null });
        assert_eq!(slim(empty).unwrap(), ObjectMeta::default());
    }

    #[test]
    fn an_entry_with_a_time_that_no_clock_shows_makes_no_object_unreadable() {
        let entry = |manager: &str, time: &str| json!({ "manager": manager, "time": time });
        let entries =
            [entry("kubectl", "2026-03-01T12:00:00Z"), entry("liar", "9999-12-31T23:59:59Z")];
        let whole = json!({ "name": "a", "managedFields": entries });
        assert!(ObjectMeta::deserialize(&whole).is_err(), "so it has to be left out");
        let read = readable(whole).unwrap();
        let managers = read.managed_fields.unwrap().into_iter().filter_map(|it| it.manager);
        assert_eq!(managers.collect::<Vec<_>>(), ["kubectl"]);
        assert_eq!(read.name.as_deref(), Some("a"));
    }
}
