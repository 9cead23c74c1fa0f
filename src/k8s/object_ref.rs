//! Names an object by namespace and name.

use std::{fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::queue;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectRef {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        let [namespace, name] = [&meta.namespace, &meta.name].map(|text| text.as_deref());
        Self::new(namespace.unwrap_or_default(), name.unwrap_or_default())
    }
}

impl queue::Key for ObjectRef {
    type Group = Arc<str>;

    fn group(&self) -> Arc<str> {
        self.namespace.clone()
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
