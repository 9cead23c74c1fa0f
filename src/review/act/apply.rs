//! The only place that writes to the API of our own cluster: our Secret and the ConfigMap of statuses.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, Resource, api::Patch};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::{
    api::{config_map::ConfigMap, metadata, resource::resource, secret::SecretBytes},
    k8s::{
        api_error::{self, ApiError},
        client::patch_params,
    },
    names::{FIELD_MANAGER, REVIEW_SECRET, REVIEW_STATUS_CONFIG_MAP},
    review::decide::state::State,
};

/// What the Secret held when it was read or written last.
#[derive(Clone, Default)]
pub struct Stored {
    pub state: State,
    /// None if there is no Secret.
    meta: Option<ObjectMeta>,
}

impl Stored {
    pub fn exists(&self) -> bool {
        self.meta.is_some()
    }

    /// As before, but somebody deleted the Secret.
    pub fn lose(&mut self) {
        self.meta = None;
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({:?})", self.state)
    }
}

/// The ConfigMap of statuses as it was read. Its entries are JSON, by cluster.
#[derive(Clone, Debug, Default)]
pub struct StatusObject {
    pub entries: BTreeMap<String, String>,
    /// None if there is no ConfigMap.
    meta: Option<ObjectMeta>,
}

/// The Secret. Its values are never printed.
#[derive(Clone, Debug, Deserialize)]
struct ReviewSecret {
    #[serde(deserialize_with = "metadata::readable")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<BTreeMap<String, SecretBytes>>,
}

resource!(ReviewSecret, NamespaceResourceScope, "", "v1", "Secret", "secrets");

pub struct Writer {
    client: Client,
    namespace: String,
}

impl Writer {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace }
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, ApiError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        api_error::with_timeout(self.namespaced::<K>().get_opt(name)).await
    }

    async fn patch<K>(&self, name: &str, meta: &ObjectMeta, data: Value) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let precondition = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
        let patch = Patch::Merge(json!({ "metadata": precondition, "data": data }));
        let api = self.namespaced::<K>();
        api_error::with_timeout(api.patch(name, &patch_params(), &patch)).await
    }

    async fn create<K: DeserializeOwned>(
        &self,
        plural: &str,
        object: &Value,
    ) -> Result<K, ApiError> {
        let body = Zeroizing::new(object.to_string());
        let path =
            format!("/api/v1/namespaces/{}/{plural}?fieldManager={FIELD_MANAGER}", self.namespace);
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.as_bytes().to_vec())
            .map_err(|_| ApiError::Undecodable)?;
        api_error::with_timeout(self.client.request(request)).await
    }

    /// The Secret now, never from a cache.
    pub async fn load(&self) -> Result<Option<Stored>, ApiError> {
        Ok(self.get::<ReviewSecret>(REVIEW_SECRET).await?.map(stored))
    }

    /// Writes the entries that are new, over the Secret that they were decided from.
    pub async fn save(&self, before: &Stored, state: &State) -> Result<Stored, ApiError> {
        let Some(meta) = &before.meta else { return self.create_secret(state).await };
        let changes = state.changes_from(&before.state);
        if changes.is_empty() {
            return Ok(before.clone());
        }
        Ok(stored(self.patch(REVIEW_SECRET, meta, encoded(changes)).await?))
    }

    async fn create_secret(&self, state: &State) -> Result<Stored, ApiError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": REVIEW_SECRET, "namespace": self.namespace },
            "type": "Opaque",
            "data": encoded(state.changes_from(&State::default())),
        });
        Ok(stored(self.create("secrets", &object).await?))
    }

    pub async fn load_status(&self) -> Result<StatusObject, ApiError> {
        let found = self.get::<ConfigMap>(REVIEW_STATUS_CONFIG_MAP).await?;
        Ok(found.map(status).unwrap_or_default())
    }

    /// Replaces the entries, if that changes anything.
    pub async fn save_status(
        &self,
        before: &StatusObject,
        entries: &BTreeMap<String, String>,
    ) -> Result<(), ApiError> {
        let Some(meta) = &before.meta else {
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": REVIEW_STATUS_CONFIG_MAP, "namespace": self.namespace },
                "data": entries,
            });
            return self.create::<ConfigMap>("configmaps", &object).await.map(drop);
        };
        let mut changes = Map::new();
        for (name, entry) in
            entries.iter().filter(|(name, it)| before.entries.get(*name) != Some(*it))
        {
            changes.insert(name.clone(), json!(entry));
        }
        for name in before.entries.keys().filter(|name| !entries.contains_key(*name)) {
            changes.insert(name.clone(), Value::Null);
        }
        if changes.is_empty() {
            return Ok(());
        }
        let patched = self.patch::<ConfigMap>(REVIEW_STATUS_CONFIG_MAP, meta, changes.into()).await;
        patched.map(drop)
    }
}

/// Entries of a Secret; null removes one.
fn encoded(changes: BTreeMap<String, Option<Zeroizing<String>>>) -> Value {
    let text = |text: Option<Zeroizing<String>>| json!(text.map(|it| STANDARD.encode(&*it)));
    changes.into_iter().map(|(name, it)| (name, text(it))).collect::<Map<_, _>>().into()
}

fn stored(secret: ReviewSecret) -> Stored {
    let data = secret.data.unwrap_or_default();
    let state = State::read(data.iter().map(|(name, value)| (&**name, value.expose())));
    Stored { state, meta: Some(secret.metadata) }
}

fn status(object: ConfigMap) -> StatusObject {
    StatusObject { entries: object.data.unwrap_or_default(), meta: Some(object.metadata) }
}
