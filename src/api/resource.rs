//! Implements `kube::Resource` for types with a field `metadata`, or a field (`of`) that has one.

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
