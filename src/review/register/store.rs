//! Where trustplane review finds its configuration and its first credentials: in the cluster that it runs in, or in
//! a folder.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, Preconditions},
};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    api::{config_map::ConfigMap, metadata, resource::resource, secret::SecretBytes},
    k8s::{
        api_error::{self, ApiError},
        client,
    },
    names::{REVIEW_CONFIG_KEY, REVIEW_CONFIG_MAP, REVIEW_DEPLOYMENT},
    review::decide::register::{Places, mount::secret_name},
};

const CA: &str = "ca.crt";
const TOKEN: &str = "token";
/// Where the Pods see the files of all clusters.
const MOUNTED: &str = "/etc/trustplane/clusters";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{object} could not be {done}: {source}{}", advice(.source))]
    Call { object: String, done: &'static str, source: ApiError },
    #[error("{path} could not be {done}: {source}")]
    File { path: PathBuf, done: &'static str, source: io::Error },
    #[error("{0} changed in the meantime. Run this again")]
    Changed(PathBuf),
}

fn advice(error: &ApiError) -> &'static str {
    match error {
        ApiError::Conflict | ApiError::AlreadyExists => {
            ". Somebody else changed it: run this again"
        }
        ApiError::NotFound => {
            ". Is the namespace there? See deploy/review/namespace, or choose another with --namespace"
        }
        ApiError::Forbidden => {
            ". Choose a kubeconfig that may do that with KUBECONFIG, or write files with --out"
        }
        _ => "",
    }
}

/// What is there of a cluster, with what it must not have changed from when it is written.
#[derive(Default)]
pub struct Found {
    pub config: Option<String>,
    pub ca: Option<String>,
    pub token: Option<Zeroizing<String>>,
    config_meta: Option<ObjectMeta>,
    secret_meta: Option<ObjectMeta>,
}

impl Found {
    /// Whether there is something to remove.
    pub fn has_credential(&self) -> bool {
        self.secret_meta.is_some() || self.ca.is_some() || self.token.is_some()
    }
}

/// CA and token as they are written.
pub struct NewCredential<'a> {
    pub ca: Option<&'a str>,
    pub token: &'a str,
}

pub enum Store {
    /// ConfigMap and Secrets.
    Cluster { client: Client, namespace: String },
    /// `config` is the file with the configuration.
    Folder { folder: PathBuf, config: PathBuf },
}

/// The Secret of a cluster. Its values are never printed.
#[derive(Clone, Debug, Deserialize)]
struct CredentialSecret {
    #[serde(deserialize_with = "metadata::readable")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, SecretBytes>,
}

resource!(CredentialSecret, NamespaceResourceScope, "", "v1", "Secret", "secrets");

impl Store {
    /// Where CA and token of a cluster are for trustplane review.
    pub fn files(&self, cluster: &str) -> [PathBuf; 2] {
        let folder = match self {
            Self::Cluster { .. } => Path::new(MOUNTED).join(cluster),
            Self::Folder { folder, .. } => folder.join("clusters").join(cluster),
        };
        [folder.join(CA), folder.join(TOKEN)]
    }

    pub fn places(&self, cluster: &str) -> Places {
        match self {
            Self::Cluster { namespace, .. } => Places {
                credential: format!("Secret {namespace}/{}", secret_name(cluster)),
                config: format!("entry {cluster} in ConfigMap {namespace}/{REVIEW_CONFIG_MAP}"),
            },
            Self::Folder { config, .. } => Places {
                credential: format!("file {}", self.files(cluster)[1].display()),
                config: format!("entry {cluster} in {}", config.display()),
            },
        }
    }

    pub async fn read(&self, cluster: &str) -> Result<Found, StoreError> {
        match self {
            Self::Cluster { client, namespace } => {
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let map = api_error::with_timeout(maps.get_opt(REVIEW_CONFIG_MAP)).await;
                let map = map.map_err(self.failed(cluster, Part::Config, "read"))?;
                let secrets: Api<CredentialSecret> = Api::namespaced(client.clone(), namespace);
                let secret = api_error::with_timeout(secrets.get_opt(&secret_name(cluster))).await;
                let secret = secret.map_err(self.failed(cluster, Part::Credential, "read"))?;
                Ok(found(map, secret))
            }
            Self::Folder { config, .. } => {
                let [ca, token] = self.files(cluster);
                Ok(Found {
                    config: read(config)?,
                    ca: read(&ca)?,
                    token: read(&token)?.map(Zeroizing::new),
                    ..Found::default()
                })
            }
        }
    }

    fn failed(
        &self,
        cluster: &str,
        part: Part,
        done: &'static str,
    ) -> impl FnOnce(ApiError) -> StoreError {
        let Places { credential, config } = self.places(cluster);
        let object = match part {
            Part::Config => config,
            Part::Credential => credential,
        };
        move |source| StoreError::Call { object, done, source }
    }

    pub async fn write_credential(
        &self,
        cluster: &str,
        before: &Found,
        new: NewCredential<'_>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Cluster { client, namespace } => {
                let ca = new.ca.map(|ca| STANDARD.encode(ca));
                let data = json!({ CA: ca, TOKEN: STANDARD.encode(new.token) });
                let written = match &before.secret_meta {
                    Some(meta) => {
                        let patch = json!({ "metadata": precondition(meta), "data": data });
                        patched::<CredentialSecret>(client, namespace, &secret_name(cluster), patch)
                            .await
                    }
                    None => {
                        let mut object = object("Secret", namespace, &secret_name(cluster), data);
                        object["type"] = json!("Opaque");
                        created(client, namespace, "secrets", &object).await
                    }
                };
                written.map_err(self.failed(cluster, Part::Credential, "written"))
            }
            Self::Folder { .. } => {
                let [ca, token] = self.files(cluster);
                if let Some(text) = new.ca {
                    write(&ca, text.as_bytes(), 0o644)?;
                }
                write(&token, new.token.as_bytes(), 0o600)
            }
        }
    }

    pub async fn write_config(
        &self,
        cluster: &str,
        before: &Found,
        text: &str,
    ) -> Result<(), StoreError> {
        match self {
            Self::Cluster { client, namespace } => {
                let data = json!({ REVIEW_CONFIG_KEY: text });
                let written = match &before.config_meta {
                    Some(meta) => {
                        let patch = json!({ "metadata": precondition(meta), "data": data });
                        patched::<ConfigMap>(client, namespace, REVIEW_CONFIG_MAP, patch).await
                    }
                    None => {
                        let object = object("ConfigMap", namespace, REVIEW_CONFIG_MAP, data);
                        created(client, namespace, "configmaps", &object).await
                    }
                };
                written.map_err(self.failed(cluster, Part::Config, "written"))
            }
            Self::Folder { config, .. } => {
                if read(config)? != before.config {
                    return Err(StoreError::Changed(config.clone()));
                }
                let mode = fs::metadata(config).map_or(0o644, |it| it.permissions().mode() & 0o777);
                // A link stays one.
                let target = fs::canonicalize(config).unwrap_or_else(|_| config.clone());
                write(&target, text.as_bytes(), mode)
            }
        }
    }

    pub async fn remove_credential(&self, cluster: &str, before: &Found) -> Result<(), StoreError> {
        match (self, &before.secret_meta) {
            (Self::Cluster { client, namespace }, Some(meta)) => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: meta.uid.clone(),
                        resource_version: meta.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                let secrets: Api<CredentialSecret> = Api::namespaced(client.clone(), namespace);
                let name = secret_name(cluster);
                match api_error::with_timeout(secrets.delete(&name, &params)).await {
                    Ok(_) | Err(ApiError::NotFound) => Ok(()),
                    Err(error) => Err(self.failed(cluster, Part::Credential, "deleted")(error)),
                }
            }
            (Self::Cluster { .. }, None) => Ok(()),
            (Self::Folder { .. }, _) => {
                let [ca, token] = self.files(cluster);
                for path in [&token, &ca] {
                    match fs::remove_file(path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            return Err(file_error(path, "deleted")(error));
                        }
                        _ => {}
                    }
                }
                // It stays if somebody else has something in it.
                let _ = token.parent().map(fs::remove_dir);
                Ok(())
            }
        }
    }

    /// The Deployment that mounts the credentials. None if there is none, or if it can't be read.
    pub async fn deployment(&self) -> Option<Value> {
        let Self::Cluster { client, namespace } = self else { return None };
        let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let found = api_error::with_timeout(api.get_opt(REVIEW_DEPLOYMENT)).await.ok().flatten();
        found.map(|it| json!(it))
    }
}

#[derive(Clone, Copy)]
enum Part {
    Config,
    Credential,
}

fn found(map: Option<ConfigMap>, secret: Option<CredentialSecret>) -> Found {
    let text = |bytes: &SecretBytes| {
        Some(Zeroizing::new(String::from_utf8_lossy(bytes.expose()).into_owned()))
    };
    let data = secret.as_ref().map(|it| &it.data);
    let value = |name: &str| data.and_then(|all| all.get(name)).and_then(text);
    Found {
        ca: value(CA).map(|it| it.to_string()),
        token: value(TOKEN),
        config_meta: map.as_ref().map(|it| it.metadata.clone()),
        config: map.and_then(|it| it.data?.remove(REVIEW_CONFIG_KEY)),
        secret_meta: secret.map(|it| it.metadata),
    }
}

fn precondition(meta: &ObjectMeta) -> Value {
    json!({ "resourceVersion": meta.resource_version, "uid": meta.uid })
}

fn object(kind: &str, namespace: &str, name: &str, data: Value) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "trustplane", "app.kubernetes.io/part-of": "trustplane",
    });
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
    json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data })
}

async fn created(
    client: &Client,
    namespace: &str,
    plural: &str,
    object: &Value,
) -> Result<(), ApiError> {
    let body = Zeroizing::new(object.to_string());
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/{plural}"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.as_bytes().to_vec())
        .map_err(|_| ApiError::Undecodable)?;
    api_error::with_timeout(client.request::<Value>(request)).await.map(drop)
}

async fn patched<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: Value,
) -> Result<(), ApiError>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let (params, patch) = (client::patch_params(), Patch::Merge(patch));
    api_error::with_timeout(api.patch(name, &params, &patch)).await.map(drop)
}

fn file_error(path: &Path, done: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { path, done, source }
}

/// None if there is no such file.
fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, "read")(error)),
    }
}

/// The whole file or none of it.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), StoreError> {
    let written = || -> io::Result<()> {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let temporary = format!(".{}.{:016x}", name.display(), fastrand::u64(..));
        let temporary = path.with_file_name(temporary);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        let moved = file
            .write_all(content)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, path));
        moved.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        File::open(folder)?.sync_all()
    };
    written().map_err(file_error(path, "written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_folder_holds_the_token_for_its_owner_alone_and_is_empty_after_all_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("review");
        let store = Store::Folder { config: folder.join("clusters.yaml"), folder: folder.clone() };
        let before = store.read("b").await.unwrap();
        assert!(before.config.is_none() && before.token.is_none());
        let new = NewCredential { ca: Some("a CA"), token: "secret" };
        store.write_credential("b", &before, new).await.unwrap();
        store.write_config("b", &before, "clusters:\n").await.unwrap();
        let [ca, token] = store.files("b");
        assert_eq!((mode(&token), mode(&ca), mode(token.parent().unwrap())), (0o600, 0o644, 0o700));
        let found = store.read("b").await.unwrap();
        assert_eq!(found.token.as_ref().map(|it| it.as_str()), Some("secret"));
        assert_eq!(
            (found.ca.as_deref(), found.config.as_deref()),
            (Some("a CA"), Some("clusters:\n"))
        );
        store.remove_credential("b", &found).await.unwrap();
        assert!(!token.parent().unwrap().exists());
    }

    #[tokio::test]
    async fn a_configuration_that_somebody_changed_meanwhile_is_not_overwritten_and_a_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real.yaml", "link.yaml"].map(|name| folder.path().join(name));
        fs::write(&real, "one").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let store = Store::Folder { folder: folder.path().into(), config: link.clone() };
        let before = store.read("b").await.unwrap();
        store.write_config("b", &before, "two").await.unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "two");
        assert_eq!(mode(&real), 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let error = store.write_config("b", &before, "three").await.unwrap_err();
        assert!(matches!(error, StoreError::Changed(_)));
        assert_eq!(fs::read_to_string(&real).unwrap(), "two");
    }
}
