//! A cluster without nodes: a real API server with our CRDs and deploy/base.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::access::{ACCOUNT, Access};
use crate::audit::AuditLog;
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::servers::{Servers, toolbox};
use crate::test_server::TestServer;
use crate::{at, suite};

static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
static FORBIDDING: OnceLock<Result<Cluster, String>> = OnceLock::new();

/// A handle. The cluster ends when its last clone is dropped.
#[derive(Clone)]
pub struct Cluster(Arc<Parts>);

struct Parts {
    servers: Servers,
    admin: Access,
    account: Access,
    audit: AuditLog,
}

impl Cluster {
    /// The cluster that the tests of this binary share, each in its own namespace. It ends with the
    /// process. No request of our account may be forbidden here: tests/suite_audit.rs checks that.
    pub async fn get() -> Self {
        Self::shared(&SHARED, "api").await
    }

    /// Like [`Cluster::get`], for tests that provoke forbidden requests.
    pub async fn forbidding() -> Self {
        Self::shared(&FORBIDDING, "forbidding").await
    }

    /// A cluster for one test, such as one whose controller watches all namespaces. Its logs are in
    /// the suite's folder under `name`.
    pub async fn start_another(name: &str) -> Self {
        Self::try_start(name).await.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Like [`Cluster::start_another`], with more flags for the API server.
    pub async fn start_with_flags(name: &str, flags: &[&str]) -> Self {
        let servers = Servers::start_with_flags(name, flags).await;
        let started = async { Self::on(servers?).await };
        started.await.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Like [`Cluster::start_another`], with Routes without `.status.certificate`, as in OpenShift.
    pub async fn start_without_certificate_status(name: &str) -> Self {
        let cluster = Self::start_another(name).await;
        let status =
            "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/certificate";
        let patch = json!([{ "op": "remove", "path": status }]).to_string();
        let crd = "customresourcedefinition/routes.route.openshift.io";
        cluster
            .kubectl(&["patch", crd, "--type=json", "-p", &patch])
            .await
            .expect("the CRD can be changed");
        let client = cluster.admin().await;
        let what = "the server has forgotten .status.certificate";
        eventually(Duration::from_secs(30), what, async || {
            let described = get_json(&client, "/openapi/v3/apis/route.openshift.io/v1").await?;
            let route = &described["components"]["schemas"]["io.openshift.route.v1.Route"];
            let status = &route["properties"]["status"]["properties"];
            let forgotten = status["ingress"].is_object() && status["certificate"].is_null();
            if forgotten { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        cluster
    }

    async fn shared(place: &'static OnceLock<Result<Self, String>>, name: &'static str) -> Self {
        // In its own thread and runtime: the first test's runtime ends before the others are done,
        // and all must see a failure to start.
        let start = move || place.get_or_init(|| in_own_runtime(Self::try_start(name))).clone();
        let started = tokio::task::spawn_blocking(start).await.expect("starting does not panic");
        started.unwrap_or_else(|why| panic!("{why}"))
    }

    async fn try_start(name: &str) -> Result<Self, String> {
        Self::on(Servers::start(name).await?).await
    }

    async fn on(servers: Servers) -> Result<Self, String> {
        let (admin, kubeconfig) = (servers.admin(), servers.admin_kubeconfig());
        let (crds, base) = tokio::join!(
            apply_folder(&kubeconfig, "crds"),
            apply_folder(&kubeconfig, "deploy/base"),
        );
        crds?;
        base?;
        let client = admin.client_without_retries().await;
        let (token, ()) =
            tokio::join!(token_of(&client, "trustplane", "trustplane"), until_served(&client));
        let account = admin.with_token(token);
        let audit = AuditLog::following(servers.logs.join("audit.log"));
        Ok(Self(Arc::new(Parts { servers, admin, account, audit })))
    }

    /// An administrator's client, for the runtime of the calling test.
    pub async fn admin(&self) -> Client {
        self.0.admin.client().await
    }

    /// The access behind [`Cluster::admin`].
    pub fn admin_access(&self) -> &Access {
        &self.0.admin
    }

    /// Our own account, with the permissions of deploy/base.
    pub fn account(&self) -> &Access {
        &self.0.account
    }

    /// A kubeconfig for our own account.
    pub fn account_kubeconfig(&self) -> PathBuf {
        self.kubeconfig(&self.0.account)
    }

    /// A kubeconfig for our own account at another address, such as a proxy's.
    pub fn account_kubeconfig_through(&self, url: &str) -> PathBuf {
        self.kubeconfig(&self.0.account.through(url))
    }

    /// A kubeconfig file for any access. It is removed when the cluster ends.
    pub fn kubeconfig(&self, access: &Access) -> PathBuf {
        let path = self.0.servers.scratch.join(format!("{}.kubeconfig", suite::next_number()));
        access.write_kubeconfig(&path);
        path
    }

    /// A real token of any ServiceAccount.
    pub async fn token_of(&self, namespace: &str, account: &str) -> String {
        token_of(&self.admin().await, namespace, account).await
    }

    /// A new namespace.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        TestServer::Real(self.clone()).namespace(prefix).await
    }

    /// The audit log of its API server.
    pub fn audit(&self) -> &AuditLog {
        &self.0.audit
    }

    /// Runs the real kubectl as administrator. Returns its output, or its error output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        kubectl(&self.0.servers.scratch.join("admin.kubeconfig"), arguments).await
    }

    /// Runs commands of the documentation in a shell, as administrator. Returns their output.
    pub async fn shell(&self, commands: &str) -> String {
        let toolbox = toolbox().unwrap_or_else(|why| panic!("{why}"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = tokio::process::Command::new("sh");
        shell
            .args(["-c", &format!("exec 2>&1\n{commands}")])
            .env("PATH", format!("{}:{path}", toolbox.display()))
            .env("HOME", self.scratch())
            .env("KUBECONFIG", self.kubeconfig(self.admin_access()))
            .stdin(Stdio::null());
        let output = shell.output().await.expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Process ids of all processes of this cluster, including `e2e/tied`.
    pub fn process_ids(&self) -> Vec<i32> {
        let Servers { api, etcd, .. } = &self.0.servers;
        vec![api.pid(), etcd.pid(), api.keeper_pid() as i32, etcd.keeper_pid() as i32]
    }

    /// Folders outside the suite's that are removed when the cluster ends.
    pub fn folders(&self) -> [&Path; 2] {
        [&self.0.servers.scratch, &self.0.servers.store]
    }

    /// Its servers, to start further parts beside them.
    pub fn servers(&self) -> &Servers {
        &self.0.servers
    }

    /// Address of the API server.
    pub fn url(&self) -> &str {
        &self.0.servers.url
    }

    /// Holds certificates and kubeconfigs until the cluster ends.
    pub fn scratch(&self) -> &Path {
        &self.0.servers.scratch
    }
}

/// Runs a future to its end on a new runtime.
pub fn in_own_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

async fn apply_folder(kubeconfig: &Path, folder: &str) -> Result<String, String> {
    let folder = at(folder).display().to_string();
    kubectl(kubeconfig, &["apply", "--server-side", "-k", &folder]).await
}

/// Runs the real kubectl. Returns its output, or its error output.
pub async fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> Result<String, String> {
    let cache = kubeconfig.with_extension("cache");
    let mut command = tokio::process::Command::new(toolbox()?.join("kubectl"));
    command
        .env("KUBECONFIG", kubeconfig)
        .arg("--cache-dir")
        .arg(cache)
        .args(arguments)
        .kill_on_drop(true);
    let output = command.output().await.map_err(|error| format!("kubectl: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}

/// A real token of a ServiceAccount, valid for a day.
pub async fn token_of(client: &Client, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec =
        TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &Default::default(), &request).await;
    answer
        .expect("a token for the account")
        .status
        .and_then(|status| status.token)
        .expect("a token in the answer")
}

/// Waits until Routes are served and described, and the permissions of our account are in force,
/// which takes a moment after the installation.
pub async fn until_served(client: &Client) {
    let what = "the Route API is served and described";
    eventually(Duration::from_secs(30), what, async || {
        let described = get_json(client, "/openapi/v3").await?;
        if described["paths"]["apis/route.openshift.io/v1"].is_null() {
            return Err("no Routes in the OpenAPI document".to_owned());
        }
        get_json(client, "/apis/route.openshift.io/v1/routes").await
    })
    .await;
    let routes = json!({ "group": "route.openshift.io", "resource": "routes", "verb": "patch" });
    let leases = json!({ "group": "coordination.k8s.io", "resource": "leases", "verb": "create", "namespace": "trustplane" });
    tokio::join!(until_allowed(client, &routes), until_allowed(client, &leases));
}

/// Waits until our account may do this: a new role is in force a moment after it was accepted.
pub(crate) async fn until_allowed(client: &Client, attributes: &Value) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": { "user": ACCOUNT, "resourceAttributes": attributes },
    });
    eventually(Duration::from_secs(30), "our role is in force", async || {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .expect("a request");
        let answer: Value = client.request(request).await.map_err(|error| error.to_string())?;
        if answer["status"]["allowed"] == true {
            Ok(())
        } else {
            Err(format!("not allowed: {attributes}"))
        }
    })
    .await
}

async fn get_json(client: &Client, path: &str) -> Result<Value, String> {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await.map_err(|error| error.to_string())
}
