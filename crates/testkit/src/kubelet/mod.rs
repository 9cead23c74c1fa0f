//! A kubelet for the Pods that we render: it runs what a kubelet would run, as real processes.
//!
//! ```ignore
//! let node = Kubelet::of(&stage.cluster).await;
//! let stateful_set = stage.object(Component::StatefulSet).await;
//! let mut pod = node.pod(&stateful_set).reaching(names.address()).start().await.expect("it starts");
//! pod.until_ready().await;
//! pod.exec("spire-server", &["/opt/spire/bin/spire-server", "bundle", "show"]).await.expect("a bundle");
//! names.point("a.test", pod.publish(8443).await);
//! ```
//!
//! - **Containers** are processes of the toolbox's programs, at the paths of the official [`images`]:
//!   entrypoint and arguments, environment with `$(NAME)` replaced, work folder, user and groups,
//!   capabilities, a read-only root. libc's folders are bound into that root, read-only: the one thing
//!   that the images do not have, because the toolbox links SPIRE to it. [`process`] does this with
//!   `unshare` and `setpriv`, so it takes root.
//! - **Volumes** come from the API server: ConfigMaps, Secrets and the token of the Pod's account, with
//!   the modes and owners that the kubelet gives them ([`volumes`]). Claims belong to the node, and a
//!   Pod that starts again finds what the last one left.
//! - **The network** of a Pod is its own, so that all Pods have the ports that they ask for. What a Pod
//!   reaches outside of it, and what reaches it from outside, is passed on by the test process: the API
//!   server at its Service's address, what [`PodLaunch::reaching`] names, and what [`Pod::publish`] answers.
//!
//! It refuses everything else, such as other kinds of volumes.

// Used by several test binaries, none of which uses everything.
#![allow(dead_code)]

pub mod images;
mod network;
mod process;
mod volumes;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Pod as PodObject, PodSpec, Probe};
use kube::Client;
use serde_json::Value;

use self::network::Network;
use self::process::Process;
use self::volumes::Account;
use crate::tied::{self, Tied};
use crate::{Cluster, scratch_folder, suite};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// A container that depends on another is restarted until that one runs.
const RESTARTS: usize = 10;

/// Why a kubelet refuses the Pod of a StatefulSet, apart from its volumes.
pub fn refusal(stateful_set: &Value) -> Option<String> {
    let set: StatefulSet = serde_json::from_value(stateful_set.clone()).expect("a StatefulSet");
    let pod = set.spec.template.spec.expect("a Pod");
    pod.containers.iter().find_map(|container| process::user(&pod, container).err())
}

#[derive(Clone)]
pub struct Kubelet(Arc<Node>);

struct Node {
    cluster: Cluster,
    admin: Client,
    folder: PathBuf,
    _keeper: Tied,
}

impl Kubelet {
    /// A node without any Pod.
    pub async fn of(cluster: &Cluster) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "Pods run here as other users and with roots of their own: run this test as root"
        );
        let folder = scratch_folder().expect("a folder");
        let mut keeper = tied::command(Path::new("sleep"), Path::new("/dev/null"), Some(&folder));
        keeper.arg("infinity");
        let keeper = Tied::spawn(keeper).expect("sleep starts");
        let admin = cluster.admin().await;
        Self(Arc::new(Node { cluster: cluster.clone(), admin, folder, _keeper: keeper }))
    }

    /// The first Pod of a StatefulSet.
    pub fn pod(&self, stateful_set: &Value) -> PodLaunch {
        let set: StatefulSet = serde_json::from_value(stateful_set.clone()).expect("a StatefulSet");
        let (metadata, spec) = (set.metadata, set.spec);
        let claims = spec.volume_claim_templates.unwrap_or_default();
        PodLaunch {
            node: self.0.clone(),
            namespace: metadata.namespace.expect("a namespace"),
            name: format!("{}-0", metadata.name.expect("a name")),
            spec: spec.template.spec.expect("a Pod"),
            claims: claims.into_iter().filter_map(|it| it.metadata.name).collect(),
            reaching: Vec::new(),
            trusted: None,
        }
    }

    /// Folder of the claims of a StatefulSet's first Pod.
    pub fn claim(&self, name: &str) -> PathBuf {
        self.0.folder.join("claims").join(name)
    }
}

/// A Pod to start.
pub struct PodLaunch {
    node: Arc<Node>,
    namespace: String,
    name: String,
    spec: PodSpec,
    claims: Vec<String>,
    reaching: Vec<SocketAddr>,
    trusted: Option<String>,
}

impl PodLaunch {
    /// Makes a loopback address of this machine, such as a proxy, reachable for the Pod.
    pub fn reaching(mut self, address: SocketAddr) -> Self {
        self.reaching.push(address);
        self
    }

    /// Replaces the public CAs in the images by these, in PEM.
    pub fn trusting(mut self, authorities: &str) -> Self {
        self.trusted = Some(authorities.to_owned());
        self
    }

    /// Applies OpenShift's `restricted-v2` in a namespace whose user range starts here, or says why
    /// it refuses the Pod.
    pub fn restricted_v2(mut self, first: i64) -> Result<Self, String> {
        const USERS: i64 = 10_000;
        let pod = self.spec.security_context.get_or_insert_default();
        let others = |id: Option<i64>| id.filter(|id| !(first..first + USERS).contains(id));
        if let Some(id) = others(pod.run_as_user).or(others(pod.fs_group)) {
            return Err(format!("{id}: must be in the ranges: [{first}, {}]", first + USERS - 1));
        }
        pod.fs_group.get_or_insert(first);
        let fallback = pod.run_as_user;
        for container in &mut self.spec.containers {
            let context = container.security_context.get_or_insert_default();
            if let Some(id) = others(context.run_as_user) {
                return Err(format!("{id}: must be in the ranges: [{first}, ..]"));
            }
            context.run_as_user = context.run_as_user.or(fallback).or(Some(first));
        }
        Ok(self)
    }

    /// The Pod object.
    pub fn object(&self) -> PodObject {
        let mut pod = PodObject { spec: Some(self.spec.clone()), ..PodObject::default() };
        pod.metadata.name = Some(self.name.clone());
        pod.metadata.namespace = Some(self.namespace.clone());
        pod
    }

    /// Starts its containers, or says why the kubelet refuses it.
    pub async fn start(self) -> Result<Pod, String> {
        let Self { node, namespace, name, spec, claims, reaching, trusted } = self;
        if spec.init_containers.as_ref().is_some_and(|it| !it.is_empty()) {
            return Err("there are no init containers here".to_owned());
        }
        let folder = node.folder.join(format!("{name}-{}", suite::next_number()));
        make_folder(&folder);
        let users = spec.containers.iter().map(|container| process::user(&spec, container));
        let users = users.collect::<Result<Vec<_>, _>>()?;
        let account = Account {
            namespace: namespace.clone(),
            name: spec.service_account_name.clone().unwrap_or_else(|| "default".to_owned()),
            // The Pod's user owns the token, if one is set.
            user: users
                .first()
                .filter(|it| users.iter().all(|user| user.id == it.id))
                .map(|it| it.id),
        };
        let volumes = volumes::make(&node, &folder, &spec, &claims, &account).await?;
        let network = Network::start(&node.cluster, &reaching).await;
        let mut processes = BTreeMap::new();
        for (container, user) in spec.containers.iter().zip(users) {
            let number = suite::next_number();
            let log = suite::subfolder("pods").join(format!("{}-{number}.log", container.name));
            let root = folder.join(format!("root-of-{}", container.name));
            make_folder(&root);
            let mut process = Process::of(container, user, &volumes, &name, root, log)?;
            if let Some(authorities) = &trusted {
                process.trust(&folder, authorities);
            }
            process.start(&network);
            processes.insert(container.name.clone(), process);
        }
        let probes = spec.containers.iter().filter_map(readiness).collect();
        Ok(Pod { processes, probes, volumes, network, node })
    }
}

/// A running Pod. Dropping it stops it.
pub struct Pod {
    processes: BTreeMap<String, Process>,
    /// Container, port and path.
    probes: Vec<(String, u16, String)>,
    volumes: BTreeMap<String, PathBuf>,
    network: Network,
    /// Declared last, because its folder is in use.
    node: Arc<Node>,
}

impl Pod {
    /// Waits until its readiness probes succeed, and restarts containers that end. Panics with the
    /// log of a container that crashes or is not ready in time.
    pub async fn until_ready(&mut self) {
        let start = Instant::now();
        let mut restarts = 0;
        loop {
            let mut waiting = None;
            for (name, process) in &mut self.processes {
                if let Some(code) = process.exit_code() {
                    assert!(
                        restarts < RESTARTS,
                        "container {name} ends again and again, with {code}\n{}",
                        process.log_tail()
                    );
                    restarts += 1;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    process.start(&self.network);
                    waiting = Some(name.clone());
                }
            }
            for (name, port, path) in &self.probes {
                if !self.network.answers(*port, path).await {
                    waiting = Some(name.clone());
                }
            }
            let Some(name) = waiting else { return };
            assert!(
                start.elapsed() < READY_WITHIN,
                "container {name} was not ready in time\n{}",
                self.processes[&name].log_tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a program in a container like `kubectl exec`. Returns its output.
    pub async fn exec(&self, container: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.processes[container].command_of(&self.network, arguments);
        let output =
            command.kill_on_drop(true).output().await.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr) + &text(&output.stdout)),
        }
    }

    /// The log of a container.
    pub fn log(&self, container: &str) -> String {
        self.processes[container].log()
    }

    /// A line of /proc/PID/status of a container, such as `Uid`.
    pub fn status(&self, container: &str, field: &str) -> String {
        let file = format!("/proc/{}/status", self.processes[container].pid());
        let status = fs::read_to_string(file).expect("a process that runs");
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let words: Vec<_> = value.unwrap_or_default().split_whitespace().collect();
        words.join(" ")
    }

    /// Folder of a volume on this machine.
    pub fn volume(&self, name: &str) -> &Path {
        &self.volumes[name]
    }

    /// Makes one of its ports reachable from outside. Returns the address.
    pub async fn publish(&self, port: u16) -> SocketAddr {
        self.network.publish(port).await
    }
}

fn readiness(container: &Container) -> Option<(String, u16, String)> {
    let Probe { http_get: Some(probe), .. } = container.readiness_probe.as_ref()? else {
        return None;
    };
    let ports = container.ports.as_deref().unwrap_or_default();
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String};
    let port = match &probe.port {
        Int(port) => *port,
        String(name) => ports.iter().find(|it| it.name.as_ref() == Some(name))?.container_port,
    };
    let path = probe.path.clone().unwrap_or_else(|| "/".to_owned());
    Some((container.name.clone(), port.try_into().ok()?, path))
}

/// A folder that everybody may enter.
fn make_folder(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a folder of ours");
}
