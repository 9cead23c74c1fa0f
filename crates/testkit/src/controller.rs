//! The `trustplane` binary as a process with its own account, as in deploy/base.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::tied::{self, Tied};
use crate::{http, suite, trustplane_binary};

const START_WITHIN: Duration = Duration::from_secs(30);
const END_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How to start a controller.
pub struct Launch {
    name: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    kubeconfig: PathBuf,
    program: PathBuf,
    pages: Option<SocketAddr>,
}

impl Launch {
    /// `trustplane inject` for all namespaces. It needs its own cluster, because these include the
    /// namespaces of other tests.
    pub fn everywhere(cluster: &Cluster) -> Self {
        Self::new("everywhere", cluster.account_kubeconfig())
    }

    /// `trustplane inject` for one namespace.
    pub fn within(namespace: &Namespace) -> Self {
        let name = namespace.name();
        Self::new(name, namespace.server().controller_kubeconfig()).flags(&["--namespace", name])
    }

    fn new(name: &str, kubeconfig: PathBuf) -> Self {
        let arguments = ["inject", "--listen", "127.0.0.1:0", "--log-format", "json"];
        // Backtraces and trace logs, to check that even the most verbose log holds no key.
        Self::exactly(name, &arguments, kubeconfig)
            .env("RUST_LOG", "trace")
            .env("RUST_BACKTRACE", "1")
    }

    /// The program with these arguments only. They must choose a free port and JSON logs, or
    /// [`Launch::pages_at`] says which port.
    pub fn exactly(name: &str, arguments: &[&str], kubeconfig: PathBuf) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let program = trustplane_binary().to_owned();
        let (name, environment, pages) = (name.to_owned(), Vec::new(), None);
        Self { name, arguments, environment, kubeconfig, program, pages }
    }

    /// Another program, such as an earlier version.
    pub fn program(self, program: PathBuf) -> Self {
        Self { program, ..self }
    }

    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Another kubeconfig, such as one through a proxy.
    pub fn kubeconfig(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, ..self }
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The environment variables of the image.
    pub fn image_environment(self) -> Self {
        let lines = include_str!("../../../Containerfile").lines();
        let variables =
            lines.filter_map(|line| line.strip_prefix("ENV ")).flat_map(str::split_whitespace);
        let variables = variables.filter_map(|variable| variable.split_once('='));
        variables.fold(self, |launch, (name, value)| launch.env(name, value))
    }

    /// Where its pages are, for a program that listens in several places.
    pub fn pages_at(self, address: SocketAddr) -> Self {
        Self { pages: Some(address), ..self }
    }

    /// Starts it without waiting.
    pub fn start(self) -> Controller {
        let name = format!("{}.{}", self.name, suite::next_number());
        let log = suite::subfolder("controllers").join(format!("{name}.log"));
        let mut command = tied::command(&self.program, &log, None);
        // The environment of the tests may hold settings of trustplane.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("TRUSTPLANE_") {
                command.env_remove(variable);
            }
        }
        command.env("KUBECONFIG", &self.kubeconfig);
        command.envs(self.environment).args(self.arguments);
        let process = Tied::spawn(command).expect("the controller starts");
        Controller { name, log, process, address: self.pages }
    }
}

/// A running controller. Dropping it kills it.
pub struct Controller {
    name: String,
    log: PathBuf,
    process: Tied,
    address: Option<SocketAddr>,
}

impl Controller {
    /// Starts one for a namespace and waits until it is ready.
    pub async fn start(namespace: &Namespace, flags: &[&str]) -> Self {
        let mut controller = Launch::within(namespace).flags(flags).start();
        controller.ready().await;
        controller
    }

    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Peak resident memory, in MiB.
    pub fn peak_memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_else(|_| panic!("the controller ended\n{}", tail(&self.log)));
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        let kibibytes: f64 = kibibytes.expect("Linux counts what is resident");
        kibibytes / 1024.0
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it is ready.
    pub async fn ready(&mut self) {
        let address = self.address().await;
        let log = self.log.clone();
        eventually(START_WITHIN, "the controller is ready", async || {
            match get(address, "/readyz").await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", tail(&log))),
            }
        })
        .await;
    }

    /// Status code and body of one of its pages.
    pub async fn page(&mut self, path: &'static str) -> (u16, String) {
        let address = self.address().await;
        get(address, path).await.unwrap_or_else(|error| {
            panic!("{path} of the controller: {error}\n{}", tail(&self.log))
        })
    }

    /// Its metrics, as text.
    pub async fn metrics(&mut self) -> String {
        self.page("/metrics").await.1
    }

    /// Its address, which it logs because it takes any free port.
    pub async fn address(&mut self) -> SocketAddr {
        if self.address.is_none() {
            let (log, process) = (self.log.clone(), &mut self.process);
            let found =
                eventually(START_WITHIN, "the controller says where it listens", async || {
                    if let Some(code) = process.exit_code() {
                        panic!("the controller ended with code {code}\n{}", tail(&log));
                    }
                    listening_address(&log).ok_or_else(|| tail(&log))
                });
            self.address = Some(found.await);
        }
        self.address.expect("found above")
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill9(&mut self) {
        self.process.kill();
    }

    /// Stops it with SIGTERM, as a kubelet does. Returns its exit code and how long it took.
    pub async fn terminate(&mut self) -> (i32, Duration) {
        self.keep_metrics();
        let start = Instant::now();
        self.process.signal(Signal::TERM);
        let code = self.process.ended(END_WITHIN).await;
        (
            code.unwrap_or_else(|| panic!("the controller ignores SIGTERM\n{}", tail(&self.log))),
            start.elapsed(),
        )
    }

    /// Pauses it (SIGSTOP) or continues it (SIGCONT), like a node that hangs.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        self.process.ended(within).await
    }

    fn keep_metrics(&mut self) {
        let Some(address) = self.address.or_else(|| listening_address(&self.log)) else {
            return;
        };
        if let Ok((200, metrics)) = http::get(address, "/metrics", Duration::from_secs(1)) {
            suite::write_private(
                &suite::subfolder("metrics").join(format!("{}.prom", self.name)),
                &metrics,
            );
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.process.exit_code().is_none() {
            self.keep_metrics();
        }
    }
}

async fn get(address: SocketAddr, path: &'static str) -> std::io::Result<(u16, String)> {
    let answer = tokio::task::spawn_blocking(move || http::get(address, path, ANSWER_WITHIN)).await;
    answer.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)))
}

/// The field `address` of the log line `listening`.
fn listening_address(log: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().find_map(|line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let fields = entry.get("fields").unwrap_or(&entry);
        (fields["message"] == "listening")
            .then(|| fields["address"].as_str()?.parse().ok())
            .flatten()
    })
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!(
        "last lines of {}:\n{}",
        log.display(),
        lines[lines.len().saturating_sub(20)..].join("\n")
    )
}
