//! The real spire-controller-manager, beside a server and with a real API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{SpireServer, is_ready, keeper_of, program};
use crate::tied::{self, Tied};
use crate::{eventually, free_port, scratch_folder, suite, toolbox};

/// A running controller manager. It ends with the test.
pub struct ControllerManager {
    process: Tied,
    _keeper: Tied,
    log: PathBuf,
}

impl ControllerManager {
    /// Starts it with this configuration, with paths and ports mapped, and the account of the
    /// kubeconfig.
    pub async fn start(
        name: &str,
        mut conf: Value,
        server: &SpireServer,
        kubeconfig: &Path,
    ) -> Self {
        let health = free_port().expect("a free port");
        conf["spireServerSocketPath"] = json!(server.socket());
        // Not needed here.
        conf["metrics"]["bindAddress"] = json!("0");
        conf["health"]["healthProbeBindAddress"] = json!(format!("127.0.0.1:{health}"));
        let folder = scratch_folder().expect("a folder");
        let file = folder.join("controller-manager-config.yaml");
        suite::write_private(&file, &conf.to_string());
        let number = suite::next_number();
        let log = suite::subfolder("spire").join(format!("{name}-manager-{number}.log"));

        let mut command = tied::command(&program("spire-controller-manager"), &log, None);
        command
            .arg("--config")
            .arg(&file)
            .env("KUBECONFIG", kubeconfig)
            // Its webhook's certificate needs a Pod.
            .env("ENABLE_WEBHOOKS", "false");
        let process = Tied::spawn(command).expect("spire-controller-manager starts");
        let mut manager = Self { process, _keeper: keeper_of(&folder), log };
        eventually(Duration::from_secs(60), "the controller manager is ready", async || {
            if manager.process.exit_code().is_some() {
                panic!("the controller manager ended while starting\n{}", manager.log());
            }
            if is_ready(health, "/readyz").await { Ok(()) } else { Err(manager.log()) }
        })
        .await;
        manager
    }

    /// File with its CustomResourceDefinitions.
    pub fn crds() -> PathBuf {
        toolbox().unwrap_or_else(|why| panic!("{why}")).join("spire-controller-manager.crds.yaml")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
