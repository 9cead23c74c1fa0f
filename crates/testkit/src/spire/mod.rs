//! Real SPIRE: servers started with the configuration of a ConfigMap, and commands of
//! administrators.
//!
//! - [`SpireServer`]: a running server; [`Launch`] for more options;
//! - [`Names`]: host names for loopback addresses;
//! - [`SpireAgent`]: an agent of a server, with its workloads;
//! - [`ControllerManager`]: spire-controller-manager beside a server;
//! - [`Pebble`]: an ACME server;
//! - [`web`]: an independent client for https_web.

// Used by several test binaries, none of which uses everything.
#![allow(dead_code, unused_imports)]

mod agent;
mod conf;
mod manager;
mod names;
mod pebble;
pub mod web;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tied::{self, Tied};
use crate::{Pair, http, pair, scratch_folder, suite, toolbox};

pub use self::agent::{Credentials, SpireAgent};
use self::conf::{Ports, mapped};
pub use self::manager::ControllerManager;
pub use self::names::Names;
pub use self::pebble::Pebble;

/// Attempts, because another process can take a free port first.
const ATTEMPTS: usize = 5;
const UP_WITHIN: Duration = Duration::from_secs(60);

/// A server to start.
pub struct Launch {
    name: String,
    conf: Value,
    federation_port: Option<u16>,
    metrics_port: Option<u16>,
    serving: Option<Pair>,
    trusted: Option<String>,
    proxy: Vec<(String, String)>,
    kubeconfig: Option<PathBuf>,
}

impl Launch {
    /// Named `name` in the logs, with the content of `server.conf`.
    pub fn new(name: &str, conf: Value) -> Self {
        Self {
            name: name.to_owned(),
            conf,
            federation_port: None,
            metrics_port: None,
            serving: None,
            trusted: None,
            proxy: Vec::new(),
            kubeconfig: None,
        }
    }

    /// Resolves its peers with these names.
    pub fn through(mut self, names: &Names) -> Self {
        self.proxy = names.environment();
        self
    }

    /// Attests nodes of a cluster and publishes its bundle there, with this kubeconfig.
    pub fn in_cluster(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// Uses this port for the bundle endpoint.
    pub fn federating_at(mut self, port: u16) -> Self {
        self.federation_port = Some(port);
        self
    }

    /// Uses this port for metrics.
    pub fn metrics_at(mut self, port: u16) -> Self {
        self.metrics_port = Some(port);
        self
    }

    /// The pair in the files of `serving_cert_file`.
    pub fn serving(mut self, pair: &Pair) -> Self {
        self.serving = Some(pair.clone());
        self
    }

    /// Replaces the machine's CAs, for https_web and ACME, by these in PEM.
    pub fn trusting(mut self, authorities: &str) -> Self {
        self.trusted = Some(authorities.to_owned());
        self
    }

    /// Starts it and waits until it answers.
    pub async fn start(self) -> SpireServer {
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            let mut server = SpireServer::prepare(&self);
            server.run();
            match server.until_up().await {
                Ok(()) => return server,
                Err(why) => failure = why,
            }
            if !failure.contains("address already in use") {
                break;
            }
        }
        panic!("SPIRE server {}: {failure}", self.name)
    }
}

/// A running server. It ends with the test, and its files are removed.
pub struct SpireServer {
    process: Option<Tied>,
    /// Declared after the process: keeps the folder for restarts.
    _keeper: Tied,
    folder: PathBuf,
    log: PathBuf,
    trust_domain: String,
    federates: bool,
    ports: Ports,
    environment: Vec<(String, String)>,
    kubeconfig: Option<PathBuf>,
}

impl SpireServer {
    /// Starts a server with the content of `server.conf`.
    pub async fn start(name: &str, conf: Value) -> Self {
        Launch::new(name, conf).start().await
    }

    /// Validates a `server.conf` with the real server. Only `serving_cert_file` is mapped, because
    /// the server reads it. Plugins are not validated.
    pub async fn validate(conf: &Value) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut conf = conf.clone();
        if conf::map_serving_certificate(&mut conf, folder.path()) {
            write_pair(folder.path(), &pair::issued("endpoint.test"));
        }
        let file = folder.path().join("server.conf");
        suite::write_private(&file, &format!("{conf:#}"));
        let mut command = tokio::process::Command::new(program("spire-server"));
        command.args(["validate", "-config"]).arg(&file);
        output_of(command).await.map(|_| ())
    }

    fn prepare(launch: &Launch) -> Self {
        let folder = scratch_folder().expect("a folder");
        suite::private_folder(&folder.join("data"));
        let ports = Ports::choose(launch.federation_port, launch.metrics_port);
        let conf = mapped(launch.conf.clone(), &folder, ports, launch.kubeconfig.as_deref());
        suite::write_private(&folder.join("server.conf"), &format!("{conf:#}"));
        let mut environment = launch.proxy.clone();
        if let Some(authorities) = &launch.trusted {
            let file = folder.join("trusted.pem");
            suite::write_private(&file, authorities);
            environment.push(("SSL_CERT_FILE".to_owned(), file.display().to_string()));
        }
        let number = suite::next_number();
        let server = Self {
            process: None,
            _keeper: keeper_of(&folder),
            log: suite::subfolder("spire").join(format!("{}-{number}.log", launch.name)),
            trust_domain: conf["server"]["trust_domain"].as_str().unwrap_or_default().to_owned(),
            federates: conf.pointer("/server/federation/bundle_endpoint").is_some(),
            folder,
            ports,
            environment,
            kubeconfig: launch.kubeconfig.clone(),
        };
        if let Some(pair) = &launch.serving {
            server.serve(pair);
        }
        server
    }

    fn run(&mut self) {
        let mut command = tied::command(&program("spire-server"), &self.log, None);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command.envs(self.environment.iter().cloned());
        command.args(["run", "-config"]).arg(self.folder.join("server.conf"));
        self.process = Some(Tied::spawn(command).expect("spire-server starts"));
    }

    async fn until_up(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            if self.process.as_mut().is_none_or(|it| it.exit_code().is_some()) {
                return Err(format!("ended while starting\n{}", self.log_tail()));
            }
            if is_ready(self.ports.health, "/ready").await
                && (!self.federates || is_open(self.federation_address()).await)
            {
                return Ok(());
            }
            if start.elapsed() > UP_WITHIN {
                return Err(format!("was not up in time\n{}", self.log_tail()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops it. Its data stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again with its data, at the same address.
    pub async fn start_again(&mut self) {
        self.stop();
        self.run();
        self.until_up().await.unwrap_or_else(|why| panic!("SPIRE server: {why}"));
    }

    /// The same with another `server.conf`, like a rollout of a StatefulSet.
    pub async fn start_again_with(&mut self, conf: Value) {
        let conf = mapped(conf, &self.folder, self.ports, self.kubeconfig.as_deref());
        suite::write_private(&self.folder.join("server.conf"), &format!("{conf:#}"));
        self.start_again().await;
    }

    /// Address of its bundle endpoint.
    pub fn federation_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.federation))
    }

    pub fn pid(&self) -> i32 {
        self.process.as_ref().expect("it runs").pid()
    }

    /// Address for agents.
    pub fn agent_port(&self) -> u16 {
        self.ports.api
    }

    /// Its API socket, for a controller manager.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Replaces the files of `serving_cert_file`.
    pub fn serve(&self, pair: &Pair) {
        write_pair(&self.folder, pair);
    }

    /// Its own SPIFFE bundle document.
    pub async fn bundle_show(&self) -> Value {
        parsed(&self.ask(&["bundle", "show", "-format", "spiffe"]).await)
    }

    /// Its bundles of other trust domains, by trust domain.
    pub async fn bundle_list(&self) -> BTreeMap<String, Value> {
        let listed = parsed(&self.ask(&["bundle", "list", "-output", "json"]).await);
        let bundles = listed["bundles"].as_array().cloned().unwrap_or_default();
        let by_name =
            |bundle: Value| (bundle["trust_domain"].as_str().unwrap_or("").into(), bundle);
        bundles.into_iter().map(by_name).collect()
    }

    /// Its SPIFFE bundle document of another trust domain.
    pub async fn bundle_of(&self, trust_domain: &str) -> Option<Value> {
        let id = format!("spiffe://{trust_domain}");
        let shown = self.try_ask(&["bundle", "list", "-id", &id, "-format", "spiffe"]).await;
        shown.ok().map(|text| parsed(&text))
    }

    /// Sets the bundle of another trust domain.
    pub async fn bundle_set(&self, trust_domain: &str, document: &Value) {
        self.bundle_set_text(trust_domain, &document.to_string()).await;
    }

    /// The same with an unchanged document.
    pub async fn bundle_set_text(&self, trust_domain: &str, document: &str) {
        let file = self.folder.join(format!("bundle-{}.json", suite::next_number()));
        suite::write_private(&file, document);
        let id = format!("spiffe://{trust_domain}");
        let path = file.display().to_string();
        self.ask(&["bundle", "set", "-id", &id, "-format", "spiffe", "-path", &path]).await;
    }

    /// Refreshes a peer's bundle now, or says why it can't.
    pub async fn refresh(&self, trust_domain: &str) -> Result<(), String> {
        let id = format!("spiffe://{trust_domain}");
        self.try_ask(&["federation", "refresh", "-id", &id]).await.map(|_| ())
    }

    /// Relationships that were made through its API, such as a controller manager's.
    pub async fn relationships(&self) -> Vec<Value> {
        let listed = parsed(&self.ask(&["federation", "list", "-output", "json"]).await);
        listed["federation_relationships"].as_array().cloned().unwrap_or_default()
    }

    /// A certificate of its trust domain.
    pub async fn mint(&self, spiffe_id: &str) -> Pair {
        let folder = tempfile::tempdir_in(&self.folder).expect("a folder");
        let into = folder.path().display().to_string();
        self.ask(&["x509", "mint", "-spiffeID", spiffe_id, "-write", &into]).await;
        let read = |name| fs::read_to_string(folder.path().join(name)).expect("what was minted");
        let key = read("key.pem");
        suite::register_key(&key);
        Pair { certificate: read("svid.pem"), key, authority: read("bundle.pem") }
    }

    /// Makes a new authority that signs from now on. The old one stays in the bundle.
    pub async fn rotate(&self) {
        let x509 = ["localauthority", "x509"];
        let prepared = self.ask(&[&x509[..], &["prepare", "-output", "json"]].concat()).await;
        let prepared = parsed(&prepared);
        let id = prepared["prepared_authority"]["authority_id"].as_str();
        let id = id.unwrap_or_else(|| panic!("no authority was prepared: {prepared}"));
        self.ask(&[&x509[..], &["activate", "-authorityID", id]].concat()).await;
    }

    /// Creates an entry for a workload that gets the bundles of other trust domains, or returns the
    /// server's error.
    pub async fn entry_create(&self, federates_with: &[&str]) -> Result<Value, String> {
        let number = suite::next_number();
        let parent = format!("spiffe://{}/agent", self.trust_domain);
        let id = format!("spiffe://{}/workload-{number}", self.trust_domain);
        let selector = format!("unix:uid:{number}");
        let others: Vec<String> =
            federates_with.iter().map(|it| format!("spiffe://{it}")).collect();
        let mut arguments = vec!["entry", "create", "-output", "json", "-parentID", &parent];
        arguments.extend(["-spiffeID", &id, "-selector", &selector]);
        for other in &others {
            arguments.extend(["-federatesWith", other]);
        }
        let answer = parsed(&self.try_ask(&arguments).await?);
        let result = &answer["results"][0];
        match result["status"]["code"].as_i64() {
            Some(0) => Ok(result["entry"].clone()),
            _ => Err(result["status"]["message"].to_string()),
        }
    }

    /// Runs a command of the server's command line. Panics with its error output.
    pub async fn ask(&self, arguments: &[&str]) -> String {
        self.try_ask(arguments).await.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs a command of the server's command line.
    pub async fn try_ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = tokio::process::Command::new(program("spire-server"));
        command.args(arguments).arg("-socketPath").arg(self.socket());
        output_of(command).await
    }
}

fn write_pair(folder: &Path, pair: &Pair) {
    suite::write_private(&folder.join("tls.crt"), &pair.certificate);
    suite::write_private(&folder.join("tls.key"), &pair.key);
}

/// A program of the toolbox.
fn program(name: &str) -> PathBuf {
    toolbox().unwrap_or_else(|why| panic!("{why}")).join(name)
}

/// Removes the folder when the test process has ended.
fn keeper_of(folder: &Path) -> Tied {
    let mut command = tied::command(Path::new("sleep"), Path::new("/dev/null"), Some(folder));
    command.arg("infinity");
    Tied::spawn(command).expect("sleep starts")
}

async fn output_of(mut command: tokio::process::Command) -> Result<String, String> {
    let output = command.kill_on_drop(true).output().await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{}{text}", String::from_utf8_lossy(&output.stderr)))
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

async fn is_open(address: SocketAddr) -> bool {
    tokio::net::TcpStream::connect(address).await.is_ok()
}

/// Whether a health check on loopback succeeds.
async fn is_ready(port: u16, path: &'static str) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let asking = move || http::get(address, path, Duration::from_secs(2));
    matches!(tokio::task::spawn_blocking(asking).await, Ok(Ok((200, _))))
}
