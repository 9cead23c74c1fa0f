//! A real SPIRE agent. It attests with the token of its Pod, as on a node, or with a join token of its
//! server, and serves the server's entries to workloads.

use std::path::PathBuf;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{SpireServer, keeper_of, output_of, parsed, program};
use crate::tied::{self, Tied};
use crate::{eventually, scratch_folder, suite};

/// Enough for attestation and the first sync on a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// A running agent. It ends with the test, and its files are removed.
pub struct SpireAgent {
    process: Tied,
    _keeper: Tied,
    folder: PathBuf,
    log: PathBuf,
}

/// Credentials of an agent at its server.
pub struct Credentials<'a> {
    /// The cluster's name in the server's configuration.
    pub cluster: &'a str,
    /// Token of its Pod.
    pub token: &'a str,
    /// The server's bundle, in PEM.
    pub bundle: &'a str,
}

/// SPIFFE ID and bundles of a workload.
pub struct Identity {
    pub id: String,
    /// Bundles of other trust domains: concatenated DER certificates by trust domain.
    pub federated: Vec<(String, Vec<u8>)>,
}

impl SpireAgent {
    /// Starts an agent and waits until its server knows it.
    pub async fn start(server: &SpireServer, credentials: Credentials<'_>) -> Self {
        let attestor = json!({ "k8s_psat": { "plugin_data": { "cluster": credentials.cluster } } });
        let conf = json!({
            "agent": { "log_level": "DEBUG", "trust_domain": server.trust_domain() },
            "plugins": {
                "KeyManager": [{ "memory": { "plugin_data": {} } }],
                "NodeAttestor": [attestor],
            },
        });
        Self::start_from(conf, server, credentials).await
    }

    /// The same with an `agent.conf`, with its paths and ports mapped.
    pub async fn start_from(
        mut conf: Value,
        server: &SpireServer,
        credentials: Credentials<'_>,
    ) -> Self {
        let folder = scratch_folder().expect("a folder");
        let token = folder.join("token");
        suite::write_private(&token, credentials.token);
        conf["plugins"]["NodeAttestor"][0]["k8s_psat"]["plugin_data"]["token_path"] = json!(token);
        Self::run(conf, server, credentials.bundle, folder).await
    }

    /// Starts an agent without a cluster. Processes of this user get the SVID with this ID, and the
    /// bundles of these trust domains.
    pub async fn start_for(server: &SpireServer, id: &str, federates_with: &[&str]) -> Self {
        let token = parsed(&server.ask(&["token", "generate", "-output", "json"]).await);
        let token = token["value"].as_str().expect("a token");
        let parent = format!("spiffe://{}/spire/agent/join_token/{token}", server.trust_domain());
        let this_user = format!("unix:uid:{}", rustix::process::getuid().as_raw());
        let mut entry = vec!["entry", "create", "-parentID", &parent, "-spiffeID", id];
        entry.extend(["-selector", &this_user]);
        let others: Vec<_> = federates_with.iter().map(|it| format!("spiffe://{it}")).collect();
        for other in &others {
            entry.extend(["-federatesWith", other]);
        }
        server.ask(&entry).await;
        let conf = json!({
            "agent": {
                "log_level": "DEBUG",
                "trust_domain": server.trust_domain(),
                "join_token": token,
                // So that a test does not wait for what has changed at the server.
                "experimental": { "sync_interval": "1s" },
            },
            "plugins": {
                "KeyManager": [{ "memory": { "plugin_data": {} } }],
                "NodeAttestor": [{ "join_token": { "plugin_data": {} } }],
            },
        });
        let bundle = server.ask(&["bundle", "show"]).await;
        let folder = scratch_folder().expect("a folder");
        Self::run(conf, server, &bundle, folder).await
    }

    /// Without a kubelet, workloads are identified by their user.
    async fn run(mut conf: Value, server: &SpireServer, bundle: &str, folder: PathBuf) -> Self {
        suite::private_folder(&folder.join("data"));
        let file = |name: &str| folder.join(name);
        suite::write_private(&file("bundle.pem"), bundle);
        let agent = &mut conf["agent"];
        agent["data_dir"] = json!(file("data"));
        agent["server_address"] = json!("127.0.0.1");
        agent["server_port"] = json!(server.agent_port());
        agent["socket_path"] = json!(file("agent.sock"));
        agent["trust_bundle_path"] = json!(file("bundle.pem"));
        conf["plugins"]["WorkloadAttestor"] = json!([{ "unix": { "plugin_data": {} } }]);
        // On a node it has its own port.
        conf.as_object_mut().expect("sections").remove("health_checks");
        suite::write_private(&file("agent.conf"), &format!("{conf:#}"));
        let number = suite::next_number();
        let log =
            suite::subfolder("spire").join(format!("{}-agent-{number}.log", server.trust_domain()));
        let mut command = tied::command(&program("spire-agent"), &log, None);
        command.args(["run", "-config"]).arg(file("agent.conf"));
        let process = Tied::spawn(command).expect("spire-agent starts");
        let mut agent = Self { process, _keeper: keeper_of(&folder), folder, log };
        eventually(UP_WITHIN, "the agent is attested", async || {
            if agent.process.exit_code().is_some() {
                panic!("the agent ended while starting\n{}", agent.log());
            }
            if agent.socket().exists() { Ok(()) } else { Err(agent.log()) }
        })
        .await;
        agent
    }

    /// The identity of a process of this user, or why it gets none.
    pub async fn identity(&self) -> Result<Identity, String> {
        let mut command = tokio::process::Command::new(program("spire-agent"));
        command.args(["api", "fetch", "x509", "-output", "json", "-socketPath"]).arg(self.socket());
        let answer = parsed(&output_of(command).await?);
        // The answer holds a key, so only these parts are returned.
        let id = answer["svids"][0]["spiffe_id"].as_str().ok_or("no SVID in the answer")?;
        let federated = answer["federated_bundles"].as_object().cloned().unwrap_or_default();
        let decoded = |(name, value): (String, Value)| {
            let text = value.as_str().unwrap_or_default();
            STANDARD.decode(text).map(|der| (name, der)).map_err(|error| error.to_string())
        };
        let federated = federated.into_iter().map(decoded).collect::<Result<_, _>>()?;
        Ok(Identity { id: id.to_owned(), federated })
    }

    /// Path of the Workload API's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("agent.sock")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
