//! Starts etcd and kube-apiserver on free loopback ports.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;

use super::access::Access;
use super::suite;
use super::tied::{self, Tied};

/// Another process can take a free port before the server does.
const ATTEMPTS: usize = 5;
const READY_WITHIN: Duration = Duration::from_secs(90);

/// Bodies are logged where a test must know what was written: Routes and Events. Secrets are not.
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
    /// Declared first, so that it ends before the store that it needs.
    pub api: Tied,
    pub etcd: Tied,
    pub url: String,
    /// PEM of what the server's certificate verifies with.
    pub authority: String,
    pub admin_token: String,
    /// Holds the audit log and the servers' own logs.
    pub logs: PathBuf,
    /// Goes when the API server ends.
    pub scratch: PathBuf,
    /// Goes when etcd ends.
    pub store: PathBuf,
}

/// Folder of the real components, or one line that says how to get them.
pub fn toolbox() -> Result<PathBuf, String> {
    // Looked up once: the script hashes its sources.
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/toolbox/build"));
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
        let toolbox = toolbox()?;
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            let mut servers = Self::spawn(name, &toolbox)
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

    fn spawn(name: &str, toolbox: &Path) -> std::io::Result<Self> {
        let logs = suite::subfolder(&format!("{name}-{}", suite::next_number()));
        let (store, scratch) = (scratch_folder()?, scratch_folder()?);
        let (clients, peers, secure) = (free_port()?, free_port()?, free_port()?);
        let etcd = Tied::spawn(etcd_command(toolbox, &logs, &store, clients, peers))?;
        let admin_token = random_token()?;
        let api =
            Tied::spawn(api_command(toolbox, &logs, &scratch, clients, secure, &admin_token)?)?;
        Ok(Self {
            api,
            etcd,
            url: format!("https://127.0.0.1:{secure}"),
            authority: String::new(),
            admin_token,
            logs,
            scratch,
            store,
        })
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
        // The server makes its certificate while it starts.
        if self.authority.is_empty() {
            match fs::read_to_string(self.scratch.join("apiserver.crt")) {
                Ok(pem) => self.authority = pem,
                Err(_) => return false,
            }
        }
        let access = Access {
            url: self.url.clone(),
            authority: self.authority.clone(),
            token: self.admin_token.clone(),
        };
        let Ok(client) = access.try_client().await else {
            return false;
        };
        let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
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

fn etcd_command(toolbox: &Path, logs: &Path, store: &Path, clients: u16, peers: u16) -> Command {
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
            "--log-level=warn",
            "--heartbeat-interval=50",
            "--election-timeout=250",
        ]);
    command
}

fn api_command(
    toolbox: &Path,
    logs: &Path,
    scratch: &Path,
    store: u16,
    secure: u16,
    admin_token: &str,
) -> std::io::Result<Command> {
    let (private, public) = account_keys()?;
    suite::write_private(&scratch.join("accounts.key"), &private);
    suite::write_private(&scratch.join("accounts.pub"), &public);
    suite::write_private(
        &scratch.join("tokens.csv"),
        &format!("{admin_token},admin,admin,\"system:masters\"\n"),
    );
    suite::write_private(&scratch.join("audit-policy.yaml"), AUDIT_POLICY);

    let file = |name: &str| scratch.join(name).display().to_string();
    let mut command = tied::command(
        &toolbox.join("kube-apiserver"),
        &logs.join("kube-apiserver.log"),
        Some(scratch),
    );
    command
        .args([
            format!("--etcd-servers=http://127.0.0.1:{store}"),
            format!("--secure-port={secure}"),
            format!("--cert-dir={}", scratch.display()),
        ])
        .args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
        ])
        .args([
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!("--service-account-signing-key-file={}", file("accounts.key")),
        ])
        .args([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
        ])
        .args([
            format!("--token-auth-file={}", file("tokens.csv")),
            format!("--audit-policy-file={}", file("audit-policy.yaml")),
        ])
        // Blocking: an answered request is in the log. Never rotated: the reader follows one file.
        .args([
            format!("--audit-log-path={}", logs.join("audit.log").display()),
            "--audit-log-mode=blocking".into(),
            "--audit-log-maxsize=100000".into(),
        ]);
    Ok(command)
}

fn scratch_folder() -> std::io::Result<PathBuf> {
    // Not removed by us, who may be killed, but by the e2e/tied that runs the server.
    Ok(tempfile::Builder::new().prefix("trustplane-test-").tempdir()?.keep())
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn random_token() -> std::io::Result<String> {
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
