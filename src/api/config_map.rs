//! ConfigMap, as far as we read it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::{metadata, resource::resource};

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConfigMap {
    #[serde(deserialize_with = "metadata::readable")]
    pub metadata: ObjectMeta,
    pub data: Option<BTreeMap<String, String>>,
}

resource!(ConfigMap, NamespaceResourceScope, "", "v1", "ConfigMap", "configmaps");
