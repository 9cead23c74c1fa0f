//! Decodes each object of a list by itself: a damaged one hides none of the others.
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
/// It can be read from JSON text only, and in a watch event only after the `type`, where every API
/// server writes it.
#[derive(Clone, Debug)]
pub enum MaybeDecoded<K> {
    Decoded(K),
    /// Namespace, name and version of an object that can't be decoded. The reason is not kept: it
    /// may quote the content.
    Undecodable(Box<ObjectMeta>),
}

/// The part that is read of an undecodable object.
#[derive(Default, Deserialize)]
struct NamedObject {
    metadata: NamedMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedMeta {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

impl From<NamedObject> for ObjectMeta {
    fn from(NamedObject { metadata }: NamedObject) -> Self {
        let NamedMeta { namespace, name, resource_version } = metadata;
        Self { namespace, name, resource_version, ..Self::default() }
    }
}

impl<'de, K: Deserialize<'de>> MaybeDecoded<K> {
    pub fn from_json(text: &'de str) -> Self {
        if let Ok(object) = serde_json::from_str(text) {
            return Self::Decoded(object);
        }
        let named: NamedObject = serde_json::from_str(text).unwrap_or_default();
        Self::Undecodable(Box::new(named.into()))
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for MaybeDecoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|text| Self::from_json(text.get()))
    }
}

impl<K: Resource> Resource for MaybeDecoded<K> {
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

    fn is_good(object: &MaybeDecoded<ConfigMap>) -> bool {
        matches!(object, MaybeDecoded::Decoded(map) if map.data.as_ref().is_some_and(|data| data["k"] == "v"))
    }

    fn is_bad(object: &MaybeDecoded<ConfigMap>) -> bool {
        let meta = object.meta();
        let name = [&meta.namespace, &meta.name, &meta.resource_version].map(Option::as_deref);
        matches!(object, MaybeDecoded::Undecodable(_))
            && name == [Some("web"), Some("b"), Some("6")]
    }

    #[test]
    fn in_a_list_each_object_is_decoded_for_itself() {
        let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{GOOD},{BAD}]}}"#);
        let list: ObjectList<MaybeDecoded<ConfigMap>> = serde_json::from_str(&list).unwrap();
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
            let object: MaybeDecoded<ConfigMap> = serde_json::from_str(text).unwrap();
            assert!(matches!(object, MaybeDecoded::Undecodable(_)));
            assert!(!format!("{object:?}").contains("secret"));
        }
    }
}
