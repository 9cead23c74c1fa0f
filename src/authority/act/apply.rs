//! The only place that writes to the API: our state, what is published of it, statuses, uses of tokens, and
//! what the audit log knows.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    api::{
        config_map::ConfigMap,
        join_token::{JoinToken, JoinTokenStatus},
        metadata,
        resource::resource,
        secret::SecretBytes,
        spiffe_federation::{SpiffeFederation, SpiffeFederationStatus},
    },
    authority::decide::{
        audit::{Audited, AuditedOwn},
        ca::{AuthorityState, Requests},
        request,
    },
    k8s::api_error::{self, ApiError},
    names::{
        AUTHORITY_SECRET, BUNDLE_CONFIG_MAP, FEDERATIONS_CONFIG_MAP, FIELD_MANAGER,
        REQUESTS_CONFIG_MAP, REVOKE_ANNOTATION, ROTATE_ANNOTATION,
    },
    spiffe::bundle::Bundle,
};

const STATE: &str = "state.json";
/// In the ConfigMap.
pub const BUNDLE: &str = "bundle.json";
/// In the ConfigMap: the state without keys, for `trustplane spiffe status`.
pub const VIEW: &str = "authority.json";
/// Beside the names of audited federations: our own CAs. No name of an object has an underscore.
const OWN: &str = "_own";

/// Keys by the ID of their CA.
pub type Keys = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// Our state as it was read.
#[derive(Clone)]
pub struct Stored {
    pub state: AuthorityState,
    pub keys: Keys,
    meta: ObjectMeta,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({:?}, {} keys)", self.state, self.keys.len())
    }
}

/// What is published of our state.
#[derive(Clone, Debug, Default)]
pub struct Published {
    pub document: Option<String>,
    view: Option<String>,
    /// Of the document.
    pub sequence: Option<u64>,
    /// Of the document, too.
    pub refresh_hint: Option<Duration>,
    meta: Option<ObjectMeta>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("Secret {AUTHORITY_SECRET} holds no readable state. Restore it from a backup")]
    Damaged,
}

/// The Secret. Its values are never printed.
#[derive(Clone, Debug, Deserialize)]
struct AuthoritySecret {
    #[serde(deserialize_with = "metadata::readable")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, SecretBytes>,
}

resource!(AuthoritySecret, NamespaceResourceScope, "", "v1", "Secret", "secrets");

#[derive(Clone)]
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
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn patch<K>(&self, name: &str, patch: Value) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let (params, patch) = (patch_params(), Patch::Merge(patch));
        api_error::with_timeout(self.namespaced::<K>().patch(name, &params, &patch)).await
    }

    /// Our state now, never from a cache.
    pub async fn load(&self) -> Result<Option<Stored>, StoreError> {
        let secrets: Api<AuthoritySecret> = self.namespaced();
        let secret = api_error::with_timeout(secrets.get_opt(AUTHORITY_SECRET)).await?;
        secret.map(stored).transpose()
    }

    /// Fails with `AlreadyExists` if another replica was faster.
    pub async fn create(&self, state: &AuthorityState, keys: &Keys) -> Result<Stored, StoreError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": AUTHORITY_SECRET, "namespace": self.namespace },
            "type": "Opaque",
            "data": data(state, keys.iter().map(|(id, key)| (id.as_str(), Some(key)))),
        });
        let created: AuthoritySecret = self.post("secrets", object).await?;
        stored(created)
    }

    /// Replaces the state that was decided from. Keys, phases, times and sequence are one write.
    pub async fn replace(
        &self,
        before: &Stored,
        state: &AuthorityState,
        keys: &Keys,
    ) -> Result<Stored, StoreError> {
        let added = keys.iter().map(|(id, key)| (id.as_str(), Some(key)));
        let gone =
            before.keys.keys().filter(|id| !keys.contains_key(*id)).map(|id| (id.as_str(), None));
        let patch = json!({
            "metadata": precondition(&before.meta),
            "data": data(state, added.chain(gone)),
        });
        stored(self.patch(AUTHORITY_SECRET, patch).await?)
    }

    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        api_error::with_timeout(self.namespaced::<ConfigMap>().get_opt(name)).await
    }

    pub async fn load_published(&self) -> Result<Published, ApiError> {
        let found = self.config_map(BUNDLE_CONFIG_MAP).await?;
        Ok(found.map(published).unwrap_or_default())
    }

    /// What administrators ask for. None if there is no object to ask on.
    pub async fn load_requests(&self) -> Result<Option<Requests>, ApiError> {
        Ok(self.config_map(REQUESTS_CONFIG_MAP).await?.map(|it| requests(&it)))
    }

    /// Makes the object to ask on, so that nobody else needs the right to create ConfigMaps.
    pub async fn create_requests(&self) -> Result<(), ApiError> {
        match self.create_config_map(REQUESTS_CONFIG_MAP, json!({})).await {
            Err(ApiError::AlreadyExists) => Ok(()),
            created => created,
        }
    }

    /// Publishes the document, unless that is done.
    pub async fn publish(
        &self,
        before: &Published,
        document: &str,
        view: &str,
    ) -> Result<(), ApiError> {
        let data = json!({ BUNDLE: document, VIEW: view });
        match &before.meta {
            _ if before.document.as_deref() == Some(document)
                && before.view.as_deref() == Some(view) =>
            {
                Ok(())
            }
            Some(meta) => {
                let patch = json!({ "metadata": precondition(meta), "data": data });
                self.patch::<ConfigMap>(BUNDLE_CONFIG_MAP, patch).await.map(|_| ())
            }
            None => self.create_config_map(BUNDLE_CONFIG_MAP, data).await,
        }
    }

    async fn create_config_map(&self, name: &str, data: Value) -> Result<(), ApiError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": self.namespace },
            "data": data,
        });
        self.post::<ConfigMap>("configmaps", object).await.map(|_| ())
    }

    async fn post<T: DeserializeOwned>(&self, plural: &str, object: Value) -> Result<T, ApiError> {
        let body = Zeroizing::new(object.to_string());
        let path =
            format!("/api/v1/namespaces/{}/{plural}?fieldManager={FIELD_MANAGER}", self.namespace);
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.as_bytes().to_vec())
            .map_err(|_| ApiError::Undecodable)?;
        match api_error::with_timeout(self.client.request(request)).await {
            // The API server answers 409 to a name that is taken.
            Err(ApiError::Conflict) => Err(ApiError::AlreadyExists),
            answer => answer,
        }
    }

    /// A federation now, never from a cache.
    pub async fn load_federation(&self, name: &str) -> Result<Option<SpiffeFederation>, ApiError> {
        let api: Api<SpiffeFederation> = Api::all(self.client.clone());
        api_error::with_timeout(api.get_opt(name)).await
    }

    /// Writes the status that was decided from this version of the object, and answers the object with it.
    pub async fn write_status(
        &self,
        federation: &SpiffeFederation,
        status: &SpiffeFederationStatus,
    ) -> Result<SpiffeFederation, ApiError> {
        let mut new = serde_json::to_value(status).map_err(|_| ApiError::Undecodable)?;
        let old = serde_json::to_value(&federation.status).map_err(|_| ApiError::Undecodable)?;
        // A merge patch keeps what it does not name.
        null_absent(&mut new, &old);
        let patch = json!({ "metadata": precondition(&federation.metadata), "status": new });
        let api: Api<SpiffeFederation> = Api::all(self.client.clone());
        let (params, patch) = (patch_params(), Patch::Merge(patch));
        api_error::with_timeout(api.patch_status(federation.name(), &params, &patch)).await
    }

    /// The token now, never from a cache.
    pub async fn load_token(&self, name: &str) -> Result<Option<JoinToken>, ApiError> {
        let api: Api<JoinToken> = Api::all(self.client.clone());
        api_error::with_timeout(api.get_opt(name)).await
    }

    /// Notes a use that was decided from this version of the token, and answers the token with it.
    pub async fn write_use(
        &self,
        token: &JoinToken,
        status: &JoinTokenStatus,
    ) -> Result<JoinToken, ApiError> {
        let patch = json!({ "metadata": precondition(&token.metadata), "status": status });
        let api: Api<JoinToken> = Api::all(self.client.clone());
        let (params, patch) = (patch_params(), Patch::Merge(patch));
        api_error::with_timeout(api.patch_status(token.name(), &params, &patch)).await
    }

    /// The federations whose creation was audited, by name.
    pub async fn load_audited(&self) -> Result<BTreeMap<String, Audited>, ApiError> {
        let found = self.config_map(FEDERATIONS_CONFIG_MAP).await?;
        let mut data = found.and_then(|it| it.data).unwrap_or_default();
        data.remove(OWN);
        let entry = |(name, text): (String, String)| Some((name, Audited::from_text(&text)?));
        Ok(data.into_iter().filter_map(entry).collect())
    }

    /// Notes a federation, or forgets it. Each has its own key, so these writes need no precondition.
    pub async fn note_audited(
        &self,
        name: &str,
        audited: Option<&Audited>,
    ) -> Result<(), ApiError> {
        self.note(name, audited.map(Audited::to_text)).await
    }

    /// Our own CAs as they were last audited.
    pub async fn load_audited_own(&self) -> Result<Option<AuditedOwn>, ApiError> {
        let found = self.config_map(FEDERATIONS_CONFIG_MAP).await?;
        Ok(found.and_then(|it| AuditedOwn::from_text(it.data?.get(OWN)?)))
    }

    pub async fn note_audited_own(&self, audited: &AuditedOwn) -> Result<(), ApiError> {
        self.note(OWN, Some(audited.to_text())).await
    }

    async fn note(&self, key: &str, value: Option<String>) -> Result<(), ApiError> {
        let data = json!({ key: value });
        match self.patch::<ConfigMap>(FEDERATIONS_CONFIG_MAP, json!({ "data": data })).await {
            Err(ApiError::NotFound) if value.is_some() => {
                match self.create_config_map(FEDERATIONS_CONFIG_MAP, data).await {
                    Err(ApiError::AlreadyExists) => Err(ApiError::Conflict),
                    created => created,
                }
            }
            Err(ApiError::NotFound) => Ok(()),
            patched => patched.map(|_| ()),
        }
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn precondition(meta: &ObjectMeta) -> Value {
    json!({ "uid": meta.uid, "resourceVersion": meta.resource_version })
}

/// The data of the Secret; a key that is gone is null.
fn data<'a>(
    state: &AuthorityState,
    keys: impl Iterator<Item = (&'a str, Option<&'a Zeroizing<Vec<u8>>>)>,
) -> Value {
    // A state is plain data, which always becomes JSON.
    let text = serde_json::to_string(state).unwrap_or_default();
    let mut data = json!({ STATE: STANDARD.encode(text) });
    for (id, key) in keys {
        data[format!("{id}.key")] = key.map(|key| STANDARD.encode(&**key)).into();
    }
    data
}

fn stored(secret: AuthoritySecret) -> Result<Stored, StoreError> {
    let state = secret.data.get(STATE).ok_or(StoreError::Damaged)?;
    let state: AuthorityState =
        serde_json::from_slice(state.expose()).map_err(|_| StoreError::Damaged)?;
    let key = |(name, value): (&String, &SecretBytes)| {
        let id = name.strip_suffix(".key")?;
        Some((id.to_owned(), Zeroizing::new(value.expose().to_vec())))
    };
    let keys = secret.data.iter().filter_map(key).collect();
    Ok(Stored { state, keys, meta: secret.metadata })
}

/// What the annotations of the ConfigMap of requests ask for.
pub(crate) fn requests(config_map: &ConfigMap) -> Requests {
    let annotation = |name: &str| {
        let annotations = config_map.metadata.annotations.as_ref()?;
        annotations.get(name).filter(|it| !it.is_empty()).map(|it| request::kept(it))
    };
    Requests { rotate: annotation(ROTATE_ANNOTATION), revoke: annotation(REVOKE_ANNOTATION) }
}

fn published(config_map: ConfigMap) -> Published {
    let value = |name: &str| config_map.data.as_ref()?.get(name).cloned();
    let document = value(BUNDLE);
    let bundle = document.as_deref().and_then(|it| Bundle::parse(it.as_bytes()).ok());
    Published {
        sequence: bundle.as_ref().and_then(|it| it.sequence),
        refresh_hint: bundle.and_then(|it| it.refresh_hint),
        view: value(VIEW),
        document,
        meta: Some(config_map.metadata),
    }
}

fn null_absent(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    for (name, value) in old {
        match new.get_mut(name) {
            None => {
                new.insert(name.clone(), Value::Null);
            }
            Some(inner) => null_absent(inner, value),
        }
    }
}

#[cfg(test)]
mod tests;
