//! kube-apiservers that share an etcd, each with a prefix of its own.

use std::{fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use rustix::process::Signal;

use super::{leaks::LOGS, signing_key::SigningKey};
use crate::{
    Access, Pair, eventually, free_port,
    servers::{etcd_command, random_token, scratch_folder, toolbox, usual_flags},
    suite,
    tied::{self, Tied},
};

const READY_WITHIN: Duration = Duration::from_secs(180);
/// Longer than a graceful shutdown.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// Attempts, because another process can take a free port first.
const ATTEMPTS: usize = 5;

/// With bodies, so that a token in any of them is found. What the servers do for themselves is left out.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver]
- level: RequestResponse
  omitManagedFields: true
";

/// A store for all of them.
pub struct Etcd {
    /// Ends with this.
    _process: Tied,
    port: u16,
    /// Removed when etcd ends, so files that must not outlive the tests are put here.
    folder: PathBuf,
}

impl Etcd {
    pub fn start() -> io::Result<Self> {
        let toolbox = toolbox().map_err(io::Error::other)?;
        let logs = suite::subfolder(&format!("{LOGS}etcd-{}", suite::next_number()));
        let folder = scratch_folder()?;
        let (port, peers) = (free_port()?, free_port()?);
        let command = etcd_command(&toolbox, &logs, &folder, port, peers);
        Ok(Self { _process: Tied::spawn(command)?, port, folder })
    }

    /// A folder that only we can read, until etcd ends.
    pub fn private_folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(format!("{name}-{}", suite::next_number()));
        suite::private_folder(&folder);
        folder
    }
}

/// What makes one API server.
pub struct Launch<'a> {
    /// Of the cluster; the prefix in etcd.
    pub cluster: &'a str,
    pub issuer: &'a str,
    /// Signs new tokens.
    pub signing: &'a SigningKey,
    /// Public keys of which tokens are accepted, and which are published.
    pub public_keys: &'a [String],
    /// Of its own certificate.
    pub serving: &'a Pair,
    /// Of the administrator. Two servers of one cluster have the same.
    pub admin_token: &'a str,
    pub flags: &'a [String],
}

/// One kube-apiserver. Dropping it kills it.
pub struct ApiServer {
    process: Tied,
    address: SocketAddr,
    logs: PathBuf,
}

impl ApiServer {
    /// Starts one and waits until it is ready.
    pub async fn start(etcd: &Etcd, launch: &Launch<'_>) -> Result<Self, String> {
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            let started = Self::spawn(etcd, launch);
            let mut server = started.map_err(|error| format!("cannot start a server: {error}"))?;
            match server.ready(launch).await {
                Ok(()) => return Ok(server),
                Err(why) => failure = why,
            }
            if !failure.contains("address already in use") {
                break;
            }
        }
        Err(failure)
    }

    fn spawn(etcd: &Etcd, launch: &Launch<'_>) -> io::Result<Self> {
        let logs = suite::subfolder(&format!("{LOGS}{}-{}", launch.cluster, suite::next_number()));
        let folder = etcd.private_folder(launch.cluster);
        let file = |name: &str| folder.join(name).display().to_string();
        let port = free_port()?;
        let admin = format!("{},admin,admin,\"system:masters\"\n", launch.admin_token);
        for (name, content) in [
            ("tokens.csv", &*admin),
            ("audit-policy.yaml", AUDIT_POLICY),
            ("signing.key", &launch.signing.private_pem()),
            ("serving.crt", &launch.serving.certificate),
            ("serving.key", &launch.serving.key),
        ] {
            suite::write_private(&folder.join(name), content);
        }
        let toolbox = toolbox().map_err(io::Error::other)?;
        let log = logs.join("kube-apiserver.log");
        let mut command = tied::command(&toolbox.join("kube-apiserver"), &log, None);
        command.args(usual_flags(&logs, &folder, etcd.port, port));
        for (number, key) in launch.public_keys.iter().enumerate() {
            let name = format!("{number}.pub");
            suite::write_private(&folder.join(&name), key);
            command.arg(format!("--service-account-key-file={}", file(&name)));
        }
        command
            .arg(format!("--etcd-prefix=/{}", launch.cluster))
            .arg(format!("--service-account-issuer={}", launch.issuer))
            .arg(format!("--service-account-signing-key-file={}", file("signing.key")))
            .arg(format!("--tls-cert-file={}", file("serving.crt")))
            .arg(format!("--tls-private-key-file={}", file("serving.key")))
            .args(launch.flags);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self { process: Tied::spawn(command)?, address, logs })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Folder of its audit log and its own log.
    pub fn logs(&self) -> &PathBuf {
        &self.logs
    }

    /// Stops it as a kubelet does: what is under way is answered, and connections are asked to go.
    pub async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        if self.process.ended(STOPPED_WITHIN).await.is_none() {
            self.process.kill();
        }
    }

    async fn ready(&mut self, launch: &Launch<'_>) -> Result<(), String> {
        let access = Access {
            url: format!("https://{}", self.address),
            authority: launch.serving.authority.clone(),
            token: launch.admin_token.to_owned(),
        };
        let log = self.logs.join("kube-apiserver.log");
        let process = &mut self.process;
        eventually(READY_WITHIN, "an API server is ready", async || {
            if let Some(code) = process.exit_code() {
                return Ok(Err(format!("it ended with code {code}\n{}", tail(&log))));
            }
            let client = access.try_client().await.map_err(|error| error.to_string())?;
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
            match client.request_text(request).await {
                Ok(body) if body == "ok" => Ok(Ok(())),
                _ => Err(tail(&log)),
            }
        })
        .await
    }
}

fn tail(log: &PathBuf) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Of an administrator.
pub(super) fn new_admin_token() -> String {
    random_token().expect("openssl makes random bytes")
}
