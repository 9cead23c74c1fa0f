//! Implements `kube::Resource` for types with a field `metadata`, or a field (`of`) that has one.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

macro_rules! resource {
    (
        $type:ty,
        $scope:ident,
        $group:expr,
        $version:expr,
        $kind:expr,
        $plural:expr $(, metadata_only: $metadata_only:literal)? $(, of: $field:ident)?
    ) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self$(.$field)?.metadata
            }
            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self$(.$field)?.metadata
            }
            $(
                /// Whether the API server is asked for the metadata only.
                fn metadata_api() -> bool {
                    $metadata_only
                }
            )?
        }
    };
}

pub(crate) use resource;

/// For Events, which are about an object and not about one version of it.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: object.meta().name.clone(),
        uid: object.meta().uid.clone(),
        ..ObjectReference::default()
    }
}
