//! Starts etcd and kube-apiserver on free loopback ports.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::access::Access;
use crate::tied::{self, Tied};
use crate::{at, http, suite};

/// Attempts, because another process can take a free port first.
const ATTEMPTS: usize = 5;
const READY_WITHIN: Duration = Duration::from_secs(180);
/// Longer than the API server's graceful shutdown.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);

/// Bodies are logged only for Routes and Events, never for Secrets.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  resources: [{group: route.openshift.io}, {group: events.k8s.io}]
- level: Metadata
";

/// A running API server and its store.
pub struct Servers {
    /// Declared first, so that it is dropped before its store.
    pub api: Tied,
    pub etcd: Tied,
    pub url: String,
    /// CA of the server's certificate, in PEM.
    pub authority: String,
    pub admin_token: String,
    /// Folder of the audit log and the servers' own logs.
    pub logs: PathBuf,
    /// Certificates, kubeconfigs and the like; part of `store`, because the API server may be
    /// restarted.
    pub scratch: PathBuf,
    /// Removed when etcd ends.
    pub store: PathBuf,
    ports: Ports,
    flags: Vec<String>,
}

/// Ports that were free when chosen.
#[derive(Clone, Copy)]
struct Ports {
    /// etcd's client port.
    store: u16,
    /// etcd's peer port.
    peers: u16,
    /// Port of the API server.
    secure: u16,
}

/// Folder of the real components, or one line about how to build them.
pub fn toolbox() -> Result<PathBuf, String> {
    // Cached, because the script hashes its sources.
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut script = Command::new(at("e2e/toolbox/build"));
        let output = script.arg("--path").stderr(Stdio::null()).output();
        let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        PathBuf::from(path.unwrap_or_default())
    });
    let complete =
        ["etcd", "kube-apiserver", "kubectl"].iter().all(|name| FOUND.join(name).is_file());
    if complete {
        Ok(FOUND.clone())
    } else {
        Err("toolbox is missing: run `make toolbox`".to_owned())
    }
}

impl Servers {
    /// Starts both and waits until the API server is ready. The folder of its logs starts with `name`.
    pub async fn start(name: &str) -> Result<Self, String> {
        Self::start_with(name, AUDIT_POLICY, None).await
    }

    /// Like [`Servers::start`], with more flags for the API server.
    pub async fn start_with_flags(name: &str, flags: &[&str]) -> Result<Self, String> {
        Self::start_as(name, AUDIT_POLICY, None, flags).await
    }

    /// Like [`Servers::start`], with another audit policy and a copy of earlier [`Servers::data`].
    pub async fn start_with(name: &str, policy: &str, data: Option<&Path>) -> Result<Self, String> {
        Self::start_as(name, policy, data, &[]).await
    }

    async fn start_as(
        name: &str,
        policy: &str,
        data: Option<&Path>,
        flags: &[&str],
    ) -> Result<Self, String> {
        let toolbox = toolbox()?;
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            let mut servers = Self::spawn(name, policy, data, flags, &toolbox)
                .map_err(|error| format!("cannot start the API server: {error}"))?;
            match servers.wait_until_ready().await {
                Ok(()) => return Ok(servers),
                Err(why) => failure = why,
            }
            if !failure.contains("address already in use") {
                break;
            }
        }
        Err(failure)
    }

    fn spawn(
        name: &str,
        policy: &str,
        data: Option<&Path>,
        flags: &[&str],
        toolbox: &Path,
    ) -> std::io::Result<Self> {
        let logs = suite::subfolder(&format!("{name}-{}", suite::next_number()));
        let store = scratch_folder()?;
        let scratch = store.join("api-server");
        suite::private_folder(&scratch);
        if let Some(data) = data {
            suite::copy_folder(data, &store.join("data"))?;
        }
        let ports = Ports { store: free_port()?, peers: free_port()?, secure: free_port()? };
        let etcd = Tied::spawn(etcd_command(toolbox, &logs, &store, ports.store, ports.peers))?;
        let admin_token = random_token()?;
        write_api_files(&scratch, &admin_token, policy)?;
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let api = Tied::spawn(api_command(toolbox, &logs, &scratch, ports, &flags))?;
        Ok(Self {
            api,
            etcd,
            url: format!("https://127.0.0.1:{}", ports.secure),
            authority: String::new(),
            admin_token,
            logs,
            scratch,
            store,
            ports,
            flags,
        })
    }

    /// etcd's data folder.
    pub fn data(&self) -> PathBuf {
        self.store.join("data")
    }

    /// Stops the API server gracefully. Its objects stay in etcd.
    pub async fn stop_api(&mut self) {
        self.api.signal(Signal::TERM);
        if self.api.ended(STOPPED_WITHIN).await.is_none() {
            self.api.kill();
        }
    }

    /// Starts the API server again after [`Servers::stop_api`]: at the same address, with the same
    /// keys and store.
    pub async fn start_api(&mut self) -> Result<(), String> {
        let command = api_command(&toolbox()?, &self.logs, &self.scratch, self.ports, &self.flags);
        self.api = Tied::spawn(command)
            .map_err(|error| format!("cannot start the API server: {error}"))?;
        self.wait_until_ready().await
    }

    /// Compacts etcd to the newest version of each object. Returns the compacted revision.
    pub async fn compact(&self) -> Result<i64, String> {
        // A watch may have seen the newest revision, so a new one is made to compact to.
        let key = json!({ "key": "dHJ1c3RwbGFuZQ==", "value": "MQ==" });
        self.ask_etcd("/v3/kv/put", &key).await?;
        let now = self.ask_etcd("/v3/kv/range", &json!({ "key": "AA==" })).await?;
        // 64-bit numbers are strings in etcd's JSON.
        let revision = &now["header"]["revision"];
        let forget = json!({ "revision": revision, "physical": true });
        self.ask_etcd("/v3/kv/compaction", &forget).await?;
        let revision = revision.as_str().and_then(|text| text.parse().ok());
        revision.ok_or_else(|| format!("etcd named no revision: {now}"))
    }

    async fn ask_etcd(&self, path: &'static str, question: &Value) -> Result<Value, String> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.ports.store));
        let body = question.to_string();
        let asking = move || http::post(address, path, &body, Duration::from_secs(30));
        let answer =
            tokio::task::spawn_blocking(asking).await.map_err(|error| error.to_string())?;
        match answer {
            Ok((200, body)) => serde_json::from_str(&body).map_err(|error| error.to_string()),
            Ok((code, body)) => Err(format!("etcd answered {path} with {code}: {body}")),
            Err(error) => Err(format!("etcd did not answer {path}: {error}")),
        }
    }

    /// An administrator of the API server.
    pub fn admin(&self) -> Access {
        Access {
            url: self.url.clone(),
            authority: self.authority.clone(),
            token: self.admin_token.clone(),
        }
    }

    /// A kubeconfig of that administrator. It is removed when etcd ends.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        let path = self.scratch.join("admin.kubeconfig");
        self.admin().write_kubeconfig(&path);
        path
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            if self.api.exit_code().is_some() || self.etcd.exit_code().is_some() {
                return Err(self.failure("ended while starting"));
            }
            if self.is_ready().await {
                return Ok(());
            }
            if start.elapsed() > READY_WITHIN {
                return Err(self.failure("was not ready in time"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn is_ready(&mut self) -> bool {
        // The server writes its certificate while it starts.
        if self.authority.is_empty() {
            match fs::read_to_string(self.scratch.join("apiserver.crt")) {
                Ok(pem) => self.authority = pem,
                Err(_) => return false,
            }
        }
        let Ok(client) = self.admin().try_client().await else {
            return false;
        };
        let Ok(request) = ::http::Request::get("/readyz").body(Vec::new()) else {
            return false;
        };
        client.request_text(request).await.is_ok_and(|body| body == "ok")
    }

    fn failure(&self, what: &str) -> String {
        let tail = |name: &str| {
            let log = fs::read_to_string(self.logs.join(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        format!(
            "the API server {what}\n--- etcd.log\n{}\n--- kube-apiserver.log\n{}",
            tail("etcd.log"),
            tail("kube-apiserver.log")
        )
    }
}

/// etcd in `store`, with its ports for clients and for peers.
pub(crate) fn etcd_command(
    toolbox: &Path,
    logs: &Path,
    store: &Path,
    clients: u16,
    peers: u16,
) -> Command {
    let mut command = tied::command(&toolbox.join("etcd"), &logs.join("etcd.log"), Some(store));
    command
        .args(["--data-dir".as_ref(), store.join("data").as_os_str()])
        .args([
            "--listen-client-urls",
            &format!("http://127.0.0.1:{clients}"),
            "--advertise-client-urls",
            &format!("http://127.0.0.1:{clients}"),
        ])
        .args([
            "--listen-peer-urls",
            &format!("http://127.0.0.1:{peers}"),
            "--initial-advertise-peer-urls",
            &format!("http://127.0.0.1:{peers}"),
        ])
        .args(["--initial-cluster", &format!("default=http://127.0.0.1:{peers}")])
        .args([
            "--unsafe-no-fsync",
            // Hostile tenants fill more than the default of 2 GiB, history included.
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
            "--heartbeat-interval=50",
            "--election-timeout=250",
        ]);
    command
}

/// Files of the API server. They must survive a restart, or all tokens would be void.
fn write_api_files(scratch: &Path, admin_token: &str, policy: &str) -> std::io::Result<()> {
    let (private, public) = account_keys()?;
    suite::write_private(&scratch.join("accounts.key"), &private);
    suite::write_private(&scratch.join("accounts.pub"), &public);
    suite::write_private(
        &scratch.join("tokens.csv"),
        &format!("{admin_token},admin,admin,\"system:masters\"\n"),
    );
    suite::write_private(&scratch.join("audit-policy.yaml"), policy);
    Ok(())
}

fn api_command(
    toolbox: &Path,
    logs: &Path,
    scratch: &Path,
    ports: Ports,
    flags: &[String],
) -> Command {
    let file = |name: &str| scratch.join(name).display().to_string();
    let mut command =
        tied::command(&toolbox.join("kube-apiserver"), &logs.join("kube-apiserver.log"), None);
    command
        .args(usual_flags(logs, scratch, ports.store, ports.secure))
        .args([
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!("--service-account-signing-key-file={}", file("accounts.key")),
        ])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .args(flags);
    command
}

/// Flags of every API server here: all but those about ServiceAccounts. `scratch` holds its files.
pub(crate) fn usual_flags(logs: &Path, scratch: &Path, store: u16, secure: u16) -> [String; 14] {
    let file = |name: &str| scratch.join(name).display().to_string();
    [
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        format!("--secure-port={secure}"),
        format!("--cert-dir={}", scratch.display()),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        // Otherwise a stopping server waits a minute for its watches.
        "--shutdown-watch-termination-grace-period=2s".into(),
        "--authorization-mode=RBAC".into(),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--audit-policy-file={}", file("audit-policy.yaml")),
        format!("--audit-log-path={}", logs.join("audit.log").display()),
        // Blocking, so that every answered request is in the log; not rotated, because the reader
        // follows one file.
        "--audit-log-mode=blocking".into(),
        "--audit-log-maxsize=100000".into(),
    ]
}

/// A folder that [`tied::command`] removes even if we are killed.
pub fn scratch_folder() -> std::io::Result<PathBuf> {
    let only_us = fs::Permissions::from_mode(0o700);
    let folder =
        tempfile::Builder::new().prefix("trustplane-test-").permissions(only_us).tempdir()?;
    Ok(folder.keep())
}

/// A free port of 127.0.0.1, below the range of ephemeral ports, so that no connection takes it
/// before a slow server listens.
pub fn free_port() -> std::io::Result<u16> {
    const ATTEMPTS: usize = 100;
    let attempt = || {
        let port = fastrand::u16(16_384..32_768);
        TcpListener::bind(("127.0.0.1", port)).map(|_| port)
    };
    (1..ATTEMPTS).find_map(|_| attempt().ok()).map_or_else(attempt, Ok)
}

/// A bearer token of an administrator.
pub(crate) fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    openssl::rand::rand_bytes(&mut bytes)?;
    Ok(hex::encode(bytes))
}

/// Keys that ServiceAccount tokens are signed and verified with.
fn account_keys() -> std::io::Result<(String, String)> {
    let key = EcKey::generate(EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?.as_ref())?;
    let text = |pem: Vec<u8>| String::from_utf8(pem).map_err(std::io::Error::other);
    Ok((text(key.private_key_to_pem()?)?, text(key.public_key_to_pem()?)?))
}
