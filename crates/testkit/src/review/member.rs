//! A cluster of which tokens are reviewed, or that has them reviewed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    api_server::{ApiServer, Etcd, Launch, new_admin_token},
    recording_proxy::RecordingProxy,
    signing_key::SigningKey,
    switch::Switch,
};
use crate::{Access, authority::Authority, kubectl, suite};

/// What a cluster is made with.
pub struct Profile {
    pub name: &'static str,
    pub issuer: String,
    pub signing: SigningKey,
    /// Further public keys of which tokens are accepted, and which are published.
    pub public_keys: Vec<String>,
    pub flags: Vec<String>,
}

/// Ends with this.
pub struct Member {
    profile: Profile,
    ca: Authority,
    admin: Access,
    /// Direct, without the proxy.
    switch: Switch,
    proxy: RecordingProxy,
    folder: PathBuf,
    api: Mutex<Option<ApiServer>>,
}

impl Member {
    /// Runs its proxy on the runtime of the caller.
    pub async fn start(etcd: &Etcd, profile: Profile) -> Result<Self, String> {
        let ca = Authority::new(profile.name);
        let admin_token = new_admin_token();
        let flags = &profile.flags[..];
        let api = launch(etcd, &profile, &ca, &admin_token, &profile.signing, flags).await?;
        let switch = Switch::start(api.address()).await.map_err(|error| error.to_string())?;
        let proxy = RecordingProxy::start(profile.name, &ca, switch.address()).await;
        let proxy = proxy.map_err(|error| error.to_string())?;
        let admin = Access {
            url: format!("https://{}", switch.address()),
            authority: ca.root(),
            token: admin_token,
        };
        let folder = etcd.private_folder(profile.name);
        let api = Mutex::new(Some(api));
        Ok(Self { profile, ca, admin, switch, proxy, folder, api })
    }

    pub fn name(&self) -> &'static str {
        self.profile.name
    }

    pub fn issuer(&self) -> &str {
        &self.profile.issuer
    }

    /// What it was made with; [`Member::rotate`] does not change it.
    pub fn first_key(&self) -> &SigningKey {
        &self.profile.signing
    }

    pub fn ca(&self) -> &Authority {
        &self.ca
    }

    pub fn proxy(&self) -> &RecordingProxy {
        &self.proxy
    }

    /// A proxy of a test's own before the same server.
    pub async fn another_proxy(&self) -> RecordingProxy {
        let started = RecordingProxy::start(self.name(), &self.ca, self.switch.address()).await;
        started.expect("a proxy can listen")
    }

    /// An administrator, who does not go through the proxy.
    pub fn admin(&self) -> &Access {
        &self.admin
    }

    pub async fn client(&self) -> Client {
        self.admin.client().await
    }

    /// The same for somebody with a token.
    pub fn kubeconfig(&self, access: &Access) -> PathBuf {
        let path = self.folder.join(format!("{}.kubeconfig", suite::next_number()));
        access.write_kubeconfig(&path);
        path
    }

    /// A file that only we can read. It is removed at the end.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.join(format!("{}-{name}", suite::next_number()));
        suite::write_private(&path, content);
        path
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs kubectl as administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        kubectl(&self.kubeconfig(&self.admin), arguments).await
    }

    /// Creates an object at the path of its kind.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        let created = self.call("POST", path, Some(object)).await;
        created.unwrap_or_else(|why| panic!("POST {path} at {}: {why}", self.name()))
    }

    pub async fn find(&self, path: &str) -> Option<Value> {
        self.call("GET", path, None).await.ok()
    }

    pub async fn call(
        &self,
        method: &str,
        path: &str,
        object: Option<&Value>,
    ) -> Result<Value, String> {
        let body = object.map_or_else(Vec::new, |object| object.to_string().into_bytes());
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(body).expect("a request");
        self.client().await.request(request).await.map_err(|error| error.to_string())
    }

    /// Of the server that the proxy leads to.
    pub async fn audit_log(&self) -> PathBuf {
        let api = self.api.lock().await;
        api.as_ref().expect("there is one until the end").logs().join("audit.log")
    }

    /// Another API server of the same cluster, with further flags. The proxy does not lead to it.
    pub async fn another_server(&self, etcd: &Etcd, flags: &[String]) -> (ApiServer, Access) {
        let flags = [&self.profile.flags[..], flags].concat();
        let signing = &self.profile.signing;
        let token = &self.admin.token;
        let api = launch(etcd, &self.profile, &self.ca, token, signing, &flags).await;
        let api = api.unwrap_or_else(|why| panic!("{why}"));
        let access = self.admin.through(&format!("https://{}", api.address()));
        (api, access)
    }

    /// Signs with another key from now on, as after a rotation: a new server takes over, and the old one ends in
    /// order. It accepts tokens of both keys.
    pub async fn rotate(&self, etcd: &Etcd, signing: &SigningKey) {
        let flags = &self.profile.flags[..];
        let token = &self.admin.token;
        let new = launch(etcd, &self.profile, &self.ca, token, signing, flags).await;
        let new = new.unwrap_or_else(|why| panic!("{why}"));
        self.switch.lead_to(new.address());
        let old = self.api.lock().await.replace(new);
        if let Some(old) = old {
            old.stop().await;
        }
    }
}

async fn launch(
    etcd: &Etcd,
    profile: &Profile,
    ca: &Authority,
    admin_token: &str,
    signing: &SigningKey,
    flags: &[String],
) -> Result<ApiServer, String> {
    let mut public_keys = vec![profile.signing.public_pem(), signing.public_pem()];
    public_keys.extend(profile.public_keys.iter().cloned());
    let mut seen = BTreeSet::new();
    public_keys.retain(|key| seen.insert(key.clone()));
    let launch = Launch {
        cluster: profile.name,
        issuer: &profile.issuer,
        signing,
        public_keys: &public_keys,
        serving: &ca.issue("127.0.0.1"),
        admin_token,
        flags,
    };
    ApiServer::start(etcd, &launch).await
}

/// The answer to a request, whatever its code.
pub struct RawAnswer {
    pub code: u16,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
}

impl RawAnswer {
    /// The body, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Sends a request with this access by a connection of its own, and takes any answer.
pub async fn ask(access: &Access, request: http::Request<Vec<u8>>) -> kube::Result<RawAnswer> {
    ask_by(&access.client_without_retries().await, request).await
}

/// The same, by a connection that is there already.
pub async fn ask_by(client: &Client, request: http::Request<Vec<u8>>) -> kube::Result<RawAnswer> {
    let (head, body) = request.into_parts();
    let response = client.send(http::Request::from_parts(head, Body::from(body))).await?;
    let (head, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body).await?.to_bytes().to_vec();
    Ok(RawAnswer { code: head.status.as_u16(), headers: head.headers, body })
}
