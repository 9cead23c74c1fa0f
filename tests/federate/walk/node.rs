//! What the nodes of a cluster would do with the Pods of the page: run the controller from its
//! Deployment, the SPIRE server from what that renders, the agent from its ConfigMap, and the workload
//! from its Pod. Paths, ports and hosts are mapped.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    Controller, Launch, eventually, free_port,
    spire::{Credentials, Names, SpireAgent},
    stage::{NAMESPACE, Stage},
    suite,
    tied::{self, Tied},
    toolbox,
};

use super::machine::Pod;
use crate::{
    side::{self, Side, server_conf},
    workload::{NODE, node_with_agent},
};

const SOON: Duration = Duration::from_secs(60);

/// A cluster in which nothing runs yet.
pub struct Site {
    letter: &'static str,
    site: side::Site,
}

/// A cluster in which everything runs.
pub struct Node {
    letter: &'static str,
    pub side: Side,
    agent: Option<SpireAgent>,
    /// The uid of the node's object.
    uid: String,
    workload: Option<(Tied, PathBuf)>,
    proxy: String,
}

impl Site {
    pub async fn of(letter: &'static str, stage: Stage) -> Self {
        Self { letter, site: side::Site::of(stage).await }
    }

    pub fn stage(&self) -> &Stage {
        &self.site.stage
    }

    /// Starts what the objects that are there ask for.
    pub async fn run(self, names: &Names) -> Node {
        let metrics = free_port().expect("a free port");
        let controller = controller(self.stage(), metrics, names).await;
        let mut side = self.site.with_controller(controller, metrics, names, None).await;
        side.start_manager().await;
        let proxy = names.environment()[0].1.trim_start_matches("http://").to_owned();
        let node = Node {
            letter: self.letter,
            side,
            agent: None,
            uid: String::new(),
            workload: None,
            proxy,
        };
        node.side.stage.run_pod().await;
        node
    }
}

/// The program with the arguments of its Deployment, a port of its own, and the SPIRE server's metrics where
/// they are here.
async fn controller(stage: &Stage, metrics: u16, names: &Names) -> Controller {
    let arguments = object(stage, &["-n", "trustplane", "deployment", "trustplane-federate"]).await;
    let arguments = &arguments["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array().expect("arguments").iter().filter_map(Value::as_str);
    let here = |argument| match argument {
        "--listen=[::]:8080" => "--listen=127.0.0.1:0",
        other => other,
    };
    let metrics = format!("--server-metrics-url=http://127.0.0.1:{metrics}/metrics");
    let arguments: Vec<&str> = arguments.map(here).chain([&*metrics]).collect();
    let kubeconfig = stage.cluster.kubeconfig(&stage.account().await);
    let launch = Launch::exactly("walk", &arguments, kubeconfig)
        .env("POD_NAMESPACE", "trustplane")
        .env("POD_NAME", "trustplane-federate-0");
    let launch = names.environment().iter().fold(launch, |it, (name, value)| it.env(name, value));
    let mut controller = launch.start();
    controller.ready().await;
    controller
}

async fn object(stage: &Stage, which: &[&str]) -> Value {
    let text = stage.cluster.kubectl(&[&["get", "-o", "json"], which].concat()).await;
    serde_json::from_str(&text.expect("an object")).expect("JSON")
}

impl Node {
    /// `spire-server-0`, and the server's own command line in it.
    pub fn server_pod(&self) -> Pod {
        let program = program("spire-server");
        let command =
            format!("exec {program} \"$@\" -socketPath {}", self.side.spire.socket().display());
        let programs = BTreeMap::from([("spire-server", command)]);
        Pod { place: (self.letter, "spire-server-0"), programs }
    }

    /// `greeter`, with OpenSSL in it.
    pub fn workload_pod(&self) -> Pod {
        let folder = &self.workload.as_ref().expect("it runs").1;
        let command = format!(
            r#"for argument; do
  shift
  set -- "$@" "$(printf %s "$argument" | sed 's|^/svid|{}|')"
done
exec openssl "$@" -proxy {}"#,
            folder.display(),
            self.proxy
        );
        Pod { place: (self.letter, "greeter"), programs: BTreeMap::from([("openssl", command)]) }
    }

    /// Replaces the server's Pod by one with the newest configuration, which has no peers.
    pub async fn roll_out(&mut self) {
        let stage = &self.side.stage;
        let conf = eventually(SOON, "the configuration lists no peer", async || {
            let conf = server_conf(stage).await;
            let peers = conf["server"]["federation"]["federates_with"].clone();
            let listed = peers.as_object().is_some_and(|it| !it.is_empty());
            if listed { Err(peers) } else { Ok(conf) }
        })
        .await;
        self.side.spire.start_again_with(conf).await;
        self.side.stage.run_pod().await;
    }

    /// Starts the agent from the ConfigMap of the page's DaemonSet.
    pub async fn start_agent(&mut self) {
        let stage = &self.side.stage;
        let map = object(stage, &["-n", NAMESPACE, "configmap", "spire-agent"]).await;
        let conf = map["data"]["agent.conf"].as_str().expect("a configuration");
        let conf: Value = serde_json::from_str(conf).expect("JSON");
        let bundle = object(stage, &["-n", NAMESPACE, "configmap", "spire-bundle"]).await;
        let (uid, token) = node_with_agent(&stage.admin).await;
        let credentials = Credentials {
            cluster: "",
            token: &token,
            bundle: bundle["data"]["bundle.crt"].as_str().expect("a published bundle"),
        };
        self.agent = Some(SpireAgent::start_from(conf, &self.side.spire, credentials).await);
        self.uid = uid;
        let generation = object(stage, &["-n", NAMESPACE, "daemonset", "spire-agent"]).await;
        let status = json!({
            "observedGeneration": generation["metadata"]["generation"], "currentNumberScheduled": 1,
            "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1,
            "numberAvailable": 1, "updatedNumberScheduled": 1,
        });
        self.report(&["-n", NAMESPACE, "daemonset", "spire-agent"], &status).await;
    }

    /// Writes a status, in place of the kubelet and of the controllers of the cluster.
    async fn report(&self, which: &[&str], status: &Value) {
        let status = json!({ "status": status }).to_string();
        let patch = ["patch", "--subresource=status", "--type=merge", "-p", &status];
        self.side.stage.cluster.kubectl(&[&patch, which].concat()).await.expect("a status");
    }

    fn id(&self) -> String {
        format!("spiffe://{}/ns/demo/sa/greeter", self.side.stage.trust_domain)
    }

    /// Does the scheduler's part, and waits until the Pod has an entry by its ClusterSPIFFEID.
    pub async fn until_entry(&self) {
        self.schedule().await;
        let id = self.id();
        eventually(SOON, "the Pod has an entry", async || {
            let shown = self.side.spire.ask(&["entry", "show", "-spiffeID", &id]).await;
            if shown.contains("k8s:pod-uid") { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    async fn schedule(&self) {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": "greeter" },
            "target": { "apiVersion": "v1", "kind": "Node", "name": NODE },
        });
        let path = "/api/v1/namespaces/demo/pods/greeter/binding";
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(binding.to_string().into_bytes()).expect("a request");
        let bound: Result<Value, _> = self.side.stage.admin.request(request).await;
        bound.expect("the Pod is bound to the node");
    }

    /// Does the kubelet's part in the end of a Pod: its containers end, and then it may go.
    pub async fn end_pod(&self) {
        let stage = &self.side.stage;
        eventually(SOON, "the Pod is being deleted", async || {
            let pod = object(stage, &["-n", "demo", "pod", "greeter"]).await;
            let deleted = pod["metadata"]["deletionTimestamp"].is_string();
            if deleted { Ok(()) } else { Err(pod["metadata"].clone()) }
        })
        .await;
        let now = ["delete", "-n", "demo", "pod", "greeter", "--force", "--grace-period=0"];
        stage.cluster.kubectl(&now).await.expect("the Pod goes");
    }

    /// Runs the containers of the Pod one after the other. What the agent gives to processes of this user
    /// is what the entry of the Pod says.
    pub async fn start_workload(&mut self, names: &Names, federates: bool) {
        let stage = &self.side.stage;
        if federates {
            stage.apply(&self.static_entry()).await;
        } else {
            self.workload = None;
            self.schedule().await;
        }
        let pod = object(stage, &["-n", "demo", "pod", "greeter"]).await;
        let folder = stage.cluster.scratch().join(format!("svid-{}", suite::next_number()));
        suite::private_folder(&folder);
        self.init(&pod["spec"]["initContainers"][0], &folder, federates).await;
        let port = free_port().expect("a free port");
        let command = words(&pod["spec"]["containers"][0]["command"]);
        let log = suite::subfolder("spire").join(format!("greeter-{}.log", suite::next_number()));
        let mut process = tied::command(Path::new(&command[0]), &log, None);
        process.args(command[1..].iter().map(|word| {
            let word = word.replace("/svid/", &format!("{}/", folder.display()));
            word.replace("8443", &port.to_string())
        }));
        let process = Tied::spawn(process).expect("the container starts");
        let address = ([127, 0, 0, 1], port).into();
        eventually(SOON, "the workload listens", async || {
            let open = tokio::net::TcpStream::connect(address).await;
            open.map(drop).map_err(|error| {
                format!("{error}: {}", fs::read_to_string(&log).unwrap_or_default())
            })
        })
        .await;
        names.point(&format!("greeter-demo.apps.cluster-{}.example.com", self.letter), address);
        self.workload = Some((process, folder));
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        self.report(&["-n", "demo", "pod", "greeter"], &ready).await;
    }

    /// The init container, which is tried again until it is done.
    async fn init(&self, container: &Value, folder: &Path, federates: bool) {
        let socket = self.agent.as_ref().expect("an agent").socket();
        let command = words(&container["command"]);
        let arguments: Vec<String> = command[1..]
            .iter()
            .map(|word| match &**word {
                "/run/spire/agent-sockets/agent.sock" => socket.display().to_string(),
                "/svid" => folder.display().to_string(),
                other => other.to_owned(),
            })
            .collect();
        eventually(SOON, "the agent gives the workload its identity", async || {
            let mut fetch = tokio::process::Command::new(program("spire-agent"));
            let output = fetch.args(&arguments).kill_on_drop(true).output().await;
            let output = output.map_err(|error| error.to_string())?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            // An agent knows of a changed entry some seconds later than its server.
            let federated = folder.join("federated_bundle.0.0.pem");
            match (federates, federated.exists()) {
                (true, true) | (false, false) => Ok(()),
                (true, false) => Err("no bundle of the other trust domain".to_owned()),
                (false, true) => {
                    fs::remove_file(federated).expect("a file");
                    Err("still a bundle of the other trust domain".to_owned())
                }
            }
        })
        .await;
        suite::register_key(&fs::read_to_string(folder.join("svid.0.key")).expect("a key"));
    }

    /// The identity of the page's Pod, for a process of this user.
    fn static_entry(&self) -> Value {
        let (trust_domain, name) =
            (&self.side.stage.trust_domain, format!("cluster-{}", self.letter));
        let other = if self.letter == "a" { "cluster-b" } else { "cluster-a" };
        json!({
            "apiVersion": "spire.spiffe.io/v1alpha1",
            "kind": "ClusterStaticEntry",
            "metadata": { "name": "greeter" },
            "spec": {
                "spiffeID": self.id(),
                "parentID": format!("spiffe://{trust_domain}/spire/agent/k8s_psat/{name}/{}", self.uid),
                "selectors": [format!("unix:uid:{}", rustix::process::getuid().as_raw())],
                "federatesWith": [format!("{other}.example.com")],
            },
        })
    }

    /// What the page does to the ClusterSPIFFEID, for that entry.
    pub async fn unfederate_entry(&self) {
        let remove = json!([{ "op": "remove", "path": "/spec/federatesWith" }]).to_string();
        let patch = ["patch", "clusterstaticentry", "greeter", "--type=json", "-p", &remove];
        self.side.stage.cluster.kubectl(&patch).await.expect("the entry changes");
    }

    /// Waits until SPIRE is told of nothing that the SpireServer does not list.
    pub async fn until_matching(&self) {
        let stage = &self.side.stage;
        stage.until_condition("TrustMatchesSpec", "True", "OnlyListedTrustDomains").await;
    }
}

fn program(name: &str) -> String {
    toolbox().unwrap_or_else(|why| panic!("{why}")).join(name).display().to_string()
}

fn words(list: &Value) -> Vec<String> {
    let words = list.as_array().expect("words").iter().filter_map(Value::as_str);
    words.map(str::to_owned).collect()
}
