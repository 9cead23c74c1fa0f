//! The part of an object's metadata that we have a use for.
//!
//! kube wants an `ObjectMeta`, so one is filled, but labels, other people's annotations and
//! `managedFields` are skipped while they pass by. `managedFields` alone would be a tree larger
//! than all else that is read of an object. Who needs them asks for the metadata by itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

use crate::names::{INJECTED_ANNOTATION, INJECTED_FROM_ANNOTATION, SECRET_NAME_ANNOTATION};

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

/// Those of `names.rs`.
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "route.openshift.io/tls-secret-name")]
    secret_name: Option<String>,
    #[serde(rename = "trustplane.dev/injected")]
    injected: Option<String>,
    #[serde(rename = "trustplane.dev/injected-from")]
    injected_from: Option<String>,
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

/// Reads that part; for `deserialize_with`.
pub(super) fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let Identity { namespace, name, uid, resource_version } = Identity::deserialize(deserializer)?;
    Ok(ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() })
}

/// Reads that part; for `deserialize_with`.
pub(super) fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = Slim::deserialize(deserializer)?;
    let named = |Annotations { secret_name, injected, injected_from }| {
        let known = [
            (SECRET_NAME_ANNOTATION, secret_name),
            (INJECTED_ANNOTATION, injected),
            (INJECTED_FROM_ANNOTATION, injected_from),
        ];
        known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    };
    Ok(ObjectMeta {
        namespace: slim.namespace,
        name: slim.name,
        uid: slim.uid,
        resource_version: slim.resource_version,
        deletion_timestamp: slim.deletion_timestamp,
        owner_references: slim.owner_references,
        annotations: slim.annotations.map(named),
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
    fn an_object_without_any_of_it_is_read_too() {
        assert_eq!(slim(json!({})).unwrap(), ObjectMeta::default());
        let empty = json!({ "annotations": null, "ownerReferences": null });
        assert_eq!(slim(empty).unwrap(), ObjectMeta::default());
    }
}
