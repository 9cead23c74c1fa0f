//! The real parts: etcd, kube-apiserver, kube-controller-manager, cert-manager, HAProxy, trustplane.
//!
//! ```text
//! client --TLS--> HAProxy --> backend        testkit::router writes HAProxy's files from Routes
//!                    ^
//! cert-manager --> Secret --> trustplane --> Route
//! ```
//!
//! Nothing outlives the process that started the stack, however it ends: see `e2e/tied`.

pub mod checks;
mod replicas;
mod stay;
mod visit;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use testkit::router::Router;
use testkit::router::backend::Backend;
use testkit::{AuditLog, Servers, eventually, kubectl, parts, tied::Tied, toolbox, until_served};
use tokio::sync::Mutex;

use self::replicas::Replicas;
pub use self::stay::stay;

/// A Lease that its holder did not give back is over after 15 s.
const LED_WITHIN: Duration = Duration::from_secs(40);

/// A running stack. Dropping it ends all of its parts, in the order of these fields.
pub struct Stack {
    replicas: Mutex<Replicas>,
    router: Router,
    /// kube-controller-manager and cert-manager.
    _controllers: [Tied; 2],
    backend: Backend,
    servers: Mutex<Servers>,
    client: Client,
    audit: AuditLog,
    kubeconfig: PathBuf,
}

impl Stack {
    /// Starts every part, and waits until trustplane leads. Its logs are in the suite's folder under
    /// `name`. Says in one line what is missing.
    pub async fn start(name: &str) -> Result<Self, String> {
        parts::are_present()?;
        let servers = Servers::start(name).await?;
        let (admin, kubeconfig) = (servers.admin(), servers.admin_kubeconfig());
        let client = admin.client().await;
        let controller_manager = parts::controller_manager(&servers, &kubeconfig)?;
        let backend = Backend::start().await.map_err(|error| format!("the backend: {error}"))?;
        let mut replicas = Replicas::new(admin, servers.scratch.clone());
        let (cert_manager, router) = tokio::try_join!(
            parts::cert_manager(&servers, &kubeconfig),
            installed(&client, &kubeconfig, &mut replicas, &backend, &servers.logs),
        )?;
        let stack = Self {
            replicas: Mutex::new(replicas),
            router,
            _controllers: [controller_manager, cert_manager],
            backend,
            audit: AuditLog::following(servers.logs.join("audit.log")),
            servers: Mutex::new(servers),
            client,
            kubeconfig,
        };
        stack.until_led().await;
        Ok(stack)
    }

    /// A kubeconfig of the administrator, which only we may read.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Where HAProxy serves TLS.
    pub fn router(&self) -> SocketAddr {
        self.router.address()
    }

    /// PEM of what HAProxy serves for hosts that have no certificate.
    pub fn default_certificate(&self) -> String {
        self.router.default_certificate().to_owned()
    }

    /// PEM of what the backend's own certificate verifies with.
    pub fn backend_authority(&self) -> String {
        self.backend.authority().to_owned()
    }

    /// The name in the backend's own certificate.
    pub fn backend_host(&self) -> &str {
        self.backend.host()
    }

    /// The audit log of the API server.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// Runs kubectl as administrator. Returns its output, or what it complained about.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        kubectl(&self.kubeconfig, arguments).await
    }

    /// Runs helm as administrator. Returns its output, or what it complained about.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = tokio::process::Command::new(toolbox()?.join("helm"));
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.kubeconfig.with_extension("helm"));
        }
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments).kill_on_drop(true);
        let output = command.output().await.map_err(|error| format!("helm: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("helm {}: {said}", arguments.join(" ")))
        }
    }

    /// Stops the API server and starts it again, at the same address and with the same store.
    pub async fn restart_api_server(&self) {
        let mut servers = self.servers.lock().await;
        servers.stop_api().await;
        servers.start_api().await.unwrap_or_else(|why| panic!("{why}"));
    }

    /// As [`Stack::restart_api_server`], with a store that has forgotten its history meanwhile: a
    /// watch from before gets 410.
    pub async fn compact_and_restart_api_server(&self) {
        let mut servers = self.servers.lock().await;
        servers.stop_api().await;
        servers.compact().await.unwrap_or_else(|why| panic!("{why}"));
        servers.start_api().await.unwrap_or_else(|why| panic!("{why}"));
    }

    /// The holder of the Lease, if it is a running replica: its Pod's name and, after `_`, more.
    pub async fn leader(&self) -> Option<String> {
        self.replicas.lock().await.leader(&self.client).await
    }

    /// Kills the leader as a node that dies does, and starts another replica in its place, as a
    /// Deployment would. Returns the name it had in the Lease.
    pub async fn kill_leader(&self) -> String {
        let mut replicas = self.replicas.lock().await;
        let leader = replicas.leader(&self.client).await.expect("a replica leads");
        replicas.replace(&leader);
        leader
    }

    /// Starts what Deployment trustplane/trustplane-inject asks for, in place of what ran. Waits until
    /// all replicas are ready and one leads.
    pub async fn redeploy(&self) {
        self.replicas.lock().await.redeploy(&self.client).await;
        self.until_led().await;
    }

    /// Ends all replicas, as scaling the Deployment to none would.
    pub async fn stop_injectors(&self) {
        self.replicas.lock().await.stop().await;
    }

    /// Ends everything, and waits until it is gone.
    pub async fn stop(self) {
        self.stop_injectors().await;
        self.router.stop().await;
    }

    async fn until_led(&self) {
        let replicas = self.replicas.lock().await;
        if replicas.count() == 0 {
            return;
        }
        eventually(LED_WITHIN, "a replica leads", async || {
            replicas.leader(&self.client).await.ok_or("nobody")
        })
        .await;
    }
}

/// Installs trustplane, then starts the replicas and the router, which both need the Route API.
async fn installed(
    client: &Client,
    kubeconfig: &Path,
    replicas: &mut Replicas,
    backend: &Backend,
    logs: &Path,
) -> Result<Router, String> {
    parts::install(kubeconfig).await?;
    until_served(client).await;
    let (router, ()) =
        tokio::join!(Router::start(client.clone(), backend, logs), replicas.redeploy(client));
    router
}
