//! A real SPIRE agent. It proves itself with the token of its Pod, as on a node, and gives workloads
//! what the entries of its server say.

use std::path::PathBuf;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{SpireServer, keeper_of, output_of, parsed, program};
use crate::support::tied::{self, Tied};
use crate::support::{eventually, scratch_folder, suite};

/// Attestation, a first look at the entries, and a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// A running agent. It ends with the test, and its files with it.
pub struct SpireAgent {
    process: Tied,
    _keeper: Tied,
    folder: PathBuf,
    log: PathBuf,
}

/// What an agent is given to start with.
pub struct Credentials<'a> {
    /// The cluster's name in the server's configuration.
    pub cluster: &'a str,
    /// A token of its Pod.
    pub token: &'a str,
    /// The authorities that it knows its server by, as PEM.
    pub bundle: &'a str,
}

/// What a workload was given.
pub struct Identity {
    pub id: String,
    /// The authorities of other trust domains, one DER certificate after the other, by trust domain.
    pub federated: Vec<(String, Vec<u8>)>,
}

impl SpireAgent {
    /// Starts an agent and waits until its server knows it.
    pub async fn start(server: &SpireServer, credentials: Credentials<'_>) -> Self {
        let folder = scratch_folder().expect("a folder");
        suite::private_folder(&folder.join("data"));
        let file = |name: &str| folder.join(name);
        suite::write_private(&file("token"), credentials.token);
        suite::write_private(&file("bundle.pem"), credentials.bundle);
        let plugin = |name: &str, data: Value| json!([{ name: { "plugin_data": data } }]);
        let attestor = json!({ "cluster": credentials.cluster, "token_path": file("token") });
        let conf = json!({
            "agent": {
                "data_dir": file("data"),
                "log_level": "DEBUG",
                "server_address": "127.0.0.1",
                "server_port": server.agent_port(),
                "socket_path": file("agent.sock"),
                "trust_bundle_path": file("bundle.pem"),
                "trust_domain": server.trust_domain(),
            },
            "plugins": {
                "KeyManager": plugin("memory", json!({})),
                "NodeAttestor": plugin("k8s_psat", attestor),
                "WorkloadAttestor": plugin("unix", json!({})),
            },
        });
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

    /// What a process of this user gets, or why it gets nothing.
    pub async fn identity(&self) -> Result<Identity, String> {
        let mut command = tokio::process::Command::new(program("spire-agent"));
        command.args(["api", "fetch", "x509", "-output", "json", "-socketPath"]).arg(self.socket());
        let answer = parsed(&output_of(command).await?);
        // The answer has a key in it: nothing but these parts leaves this function.
        let id = answer["svids"][0]["spiffe_id"].as_str().ok_or("no SVID in the answer")?;
        let federated = answer["federated_bundles"].as_object().cloned().unwrap_or_default();
        let decoded = |(name, value): (String, Value)| {
            let text = value.as_str().unwrap_or_default();
            STANDARD.decode(text).map(|der| (name, der)).map_err(|error| error.to_string())
        };
        let federated = federated.into_iter().map(decoded).collect::<Result<_, _>>()?;
        Ok(Identity { id: id.to_owned(), federated })
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("agent.sock")
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
