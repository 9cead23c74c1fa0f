//! Objects that are watched for their names alone.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// An object of which only the name matters.
#[derive(Deserialize)]
#[serde(bound = "")]
pub struct Noticed<K> {
    /// With its name.
    pub metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Noticed<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Noticed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Noticed").field(&self.metadata.name).finish()
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Noticed<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
