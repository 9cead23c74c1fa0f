//! Objects that may not decode, each for itself: a damaged one hides none of the others.
//!
//! kube's own guard builds every object as a tree and copies it before it decodes it. Here the text
//! is decoded straight into the object, and once more, for its name alone, only where that fails.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object of a list or of a watch.
///
/// Comes from JSON text alone, and in a watch's event after the `type`, where every API server
/// writes it.
#[derive(Clone, Debug)]
pub enum Guarded<K> {
    /// As it is.
    Decoded(K),
    /// It can't be decoded; this is its namespace, name and version. The reason is not kept: it may
    /// quote what it could not decode.
    Undecodable(Box<ObjectMeta>),
}

/// What is read of an object that can't be read.
#[derive(Default, Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

impl From<Named> for ObjectMeta {
    fn from(Named { metadata: Name { namespace, name, resource_version } }: Named) -> Self {
        Self { namespace, name, resource_version, ..Self::default() }
    }
}

impl<'de, K: Deserialize<'de>> Guarded<K> {
    /// The object of this JSON text.
    pub fn of_text(text: &'de str) -> Self {
        if let Ok(object) = serde_json::from_str(text) {
            return Self::Decoded(object);
        }
        let named: Named = serde_json::from_str(text).unwrap_or_default();
        Self::Undecodable(Box::new(named.into()))
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|text| Self::of_text(text.get()))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    // Without this a type that is read for its metadata alone would be sent whole, unnoticed.
    fn metadata_api() -> bool {
        K::metadata_api()
    }
    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }
    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }
    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }
    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Decoded(object) => object.meta(),
            Self::Undecodable(meta) => meta,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Decoded(object) => object.meta_mut(),
            Self::Undecodable(meta) => meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const GOOD: &str =
        r#"{"metadata":{"name":"a","namespace":"web","resourceVersion":"5"},"data":{"k":"v"}}"#;
    const BAD: &str = r#"{"data":"a text","metadata":{"name":"b","namespace":"web","resourceVersion":"6","labels":7}}"#;

    fn is_good(object: &Guarded<ConfigMap>) -> bool {
        matches!(object, Guarded::Decoded(map) if map.data.as_ref().is_some_and(|data| data["k"] == "v"))
    }

    fn is_bad(object: &Guarded<ConfigMap>) -> bool {
        let meta = object.meta();
        let name = [&meta.namespace, &meta.name, &meta.resource_version].map(Option::as_deref);
        matches!(object, Guarded::Undecodable(_)) && name == [Some("web"), Some("b"), Some("6")]
    }

    #[test]
    fn in_a_list_each_object_is_decoded_for_itself() {
        let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{GOOD},{BAD}]}}"#);
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        assert!(matches!(&list.items[..], [good, bad] if is_good(good) && is_bad(bad)));
    }

    #[test]
    fn in_a_watch_an_object_that_cannot_be_decoded_is_told_by_its_name_and_version() {
        let event =
            |object| serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{object}}}"#));
        assert!(matches!(event(GOOD).unwrap(), WatchEvent::Added(object) if is_good(&object)));
        assert!(matches!(event(BAD).unwrap(), WatchEvent::Added(object) if is_bad(&object)));
    }

    #[test]
    fn what_cannot_be_decoded_is_never_quoted_and_not_even_without_a_name_an_error() {
        for text in [r#"{"metadata":{"name":"b"},"data":"very secret"}"#, r#""very secret""#] {
            let object: Guarded<ConfigMap> = serde_json::from_str(text).unwrap();
            assert!(matches!(object, Guarded::Undecodable(_)));
            assert!(!format!("{object:?}").contains("secret"));
        }
    }
}
