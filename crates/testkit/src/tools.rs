//! Tools of installers and operators.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Servers, at, eventually, suite, temporary_folder, toolbox, trustplane_binary};

/// The text of a file of the repository.
pub fn text_of(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A folder with these files for one test, inside the repository because kustomize demands it.
pub fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let path = temporary_folder().join(name);
    let _ = fs::remove_dir_all(&path);
    for (file, content) in files {
        let file = path.join(file);
        fs::create_dir_all(file.parent().expect("it is in the folder")).expect("a folder");
        fs::write(file, content).expect("a file");
    }
    path
}

/// Standard output of the command, or all of its output if it fails.
pub fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// Like [`output`], with standard input.
pub fn answer(command: &mut Command, question: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(question.as_bytes()).expect("the question is taken");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{command:?} gave up");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tool(name: &str) -> Command {
    let folder = toolbox().unwrap_or_else(|why| panic!("{why}"));
    Command::new(folder.join(name))
}

/// Manifests that kustomize renders from a folder.
pub fn kustomize(folder: &Path) -> String {
    output(tool("kubectl").arg("kustomize").arg(folder)).unwrap_or_else(|why| panic!("{why}"))
}

/// helm with its own home.
pub fn helm() -> Command {
    let home = temporary_folder().join("helm");
    let mut helm = tool("helm");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, &home);
    }
    helm
}

/// Runs promtool (Debian package prometheus).
pub fn promtool(arguments: &[&str], folder: &Path) -> Result<String, String> {
    output(Command::new("promtool").args(arguments).current_dir(folder)).map_err(|why| {
        match why.strip_prefix("promtool: ") {
            Some(_) => {
                "promtool is missing: run `make needs`, or install Debian's package prometheus"
                    .to_owned()
            }
            None => why,
        }
    })
}

/// A published Go module, or a program built from a folder of the repository.
pub mod go {
    use super::{Command, PathBuf, at, output, temporary_folder};

    /// Builds the program in a folder of the repository.
    pub fn program(folder: &str) -> PathBuf {
        let binary = temporary_folder().join(folder.replace('/', "-"));
        let mut build = Command::new("go");
        // As e2e/toolbox/build does it, so that what both use is compiled once.
        build.args(["build", "-mod=readonly", "-trimpath", "-o"]).arg(&binary).arg(".");
        build.env("CGO_ENABLED", "0").current_dir(at(folder));
        output(&mut build).unwrap_or_else(|why| panic!("{folder} does not build: {why}"));
        binary
    }

    /// Folder of the one module in the go.mod of a folder of the repository.
    pub fn module(folder: &str, path: &str) -> PathBuf {
        let go = |arguments: &[&str]| {
            output(Command::new("go").args(arguments).current_dir(at(folder)))
                .unwrap_or_else(|why| panic!("{folder}: {why}"))
        };
        go(&["mod", "download", path]);
        PathBuf::from(go(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", path]).trim())
    }
}

/// An empty API server, and its administrator's tools.
pub struct EmptyCluster {
    servers: Servers,
    kubeconfig: PathBuf,
}

impl EmptyCluster {
    pub async fn start(name: &str) -> Self {
        let servers = Servers::start(name).await.unwrap_or_else(|why| panic!("{why}"));
        let kubeconfig = servers.admin_kubeconfig();
        Self { servers, kubeconfig }
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let cache = self.servers.scratch.join("kubectl-cache");
        let mut kubectl = tool("kubectl");
        kubectl.env("KUBECONFIG", &self.kubeconfig).arg("--cache-dir").arg(cache).args(arguments);
        output(&mut kubectl)
    }

    pub fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        output(helm().env("KUBECONFIG", &self.kubeconfig).args(arguments))
    }

    /// Waits until `trustplane check` succeeds, because permissions are in force a moment after
    /// they are granted.
    pub async fn passes_check(&self) {
        eventually(Duration::from_secs(30), "trustplane check is content", async || {
            let failed = self.failed_checks();
            if failed.is_empty() { Ok(()) } else { Err(failed) }
        })
        .await;
    }

    /// Failed lines of `trustplane check`, without those that need a kubelet.
    fn failed_checks(&self) -> Vec<Value> {
        let mut check = Command::new(trustplane_binary());
        check.args(["check", "--installed", "-o", "json"]).env("KUBECONFIG", &self.kubeconfig);
        // Always fails, because no Pod runs here.
        let printed = output(&mut check).expect_err("no replica is ready");
        let found: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{printed}"));
        let lines = found["lines"].as_array().expect("lines");
        let needs_pods = |line: &Value| {
            let check = line["check"].as_str().unwrap_or_default();
            ["deployment", "lease", "authority-bundle"].iter().any(|it| check.ends_with(it))
        };
        assert!(lines.iter().any(needs_pods), "{printed}");
        let failed = lines.iter().filter(|line| line["result"] == "failed" && !needs_pods(line));
        failed.cloned().collect()
    }

    /// Applies one object.
    pub fn apply(&self, object: &Value) {
        let file = self.servers.scratch.join(format!("{}.json", suite::next_number()));
        suite::write_private(&file, &object.to_string());
        let file = file.to_str().expect("a path is text");
        self.kubectl(&["apply", "-f", file]).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Applies manifests twice on the server's side, and checks that the second time changes
    /// nothing.
    pub fn accepts(&self, manifests: &str) {
        let file = self.servers.scratch.join(format!("{}.yaml", suite::next_number()));
        suite::write_private(&file, manifests);
        let file = file.to_str().expect("a path is text");
        let apply = ["apply", "--server-side", "-f", file];
        self.kubectl(&apply).unwrap_or_else(|why| panic!("{why}"));
        if manifests.contains("kind: CustomResourceDefinition") {
            // The API server changes the status of a new one until it serves it.
            let served = ["wait", "--for=condition=Established", "crd", "--all"];
            self.kubectl(&served).unwrap_or_else(|why| panic!("{why}"));
        }
        assert_eq!(self.kubectl(&["diff", "--server-side", "-f", file]).as_deref(), Ok(""));
    }
}
