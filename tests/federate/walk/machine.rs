//! The administrator's machine: a folder with a checkout, a kubeconfig with a context for each cluster,
//! and the programs of the page in the path.
//!
//! Three of them are wrapped. `kubectl exec` needs a kubelet: what it is to run runs here, among the
//! files of the Pod. `trustplane federation` asks a person at a terminal, who says yes
//! at once: what the terminal shows of that comes before the question.
//! And OpenSSL finds hosts by the proxy that stands in for DNS.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;
use serde_json::json;
use testkit::{
    Access, Cluster,
    manual::{Step, Steps, is_as_shown},
    spire::{ControllerManager, Names},
    suite, toolbox,
};

pub struct Machine {
    folder: PathBuf,
    kubeconfig: PathBuf,
    proxy: Vec<(String, String)>,
    /// What the administrators of the one cluster read to those of the other.
    fingerprint: Mutex<String>,
    /// Commands that printed something else than the page says.
    different: Mutex<Vec<String>>,
}

/// A Pod that commands can run in.
pub struct Pod {
    /// The context of its cluster, and its name.
    pub place: (&'static str, &'static str),
    /// Programs in it, and the shell command that each stands for here.
    pub programs: BTreeMap<&'static str, String>,
}

impl Machine {
    pub fn with(clusters: &[(&str, &Cluster)], names: &Names) -> Self {
        let folder = clusters[0].1.scratch().join("checkout");
        let proxy = names.environment();
        let kubeconfig = folder.join("kubeconfig");
        suite::private_folder(&folder.join("bin"));
        suite::write_private(&kubeconfig, &contexts(clusters).to_string());
        for name in ["deploy", "crds"] {
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            symlink(there, folder.join(name)).expect("a link to the checkout");
        }
        let crds = folder.join("spire-controller-manager.crds.yaml");
        symlink(ControllerManager::crds(), crds).expect("a link to SPIRE's CRDs");
        let machine = Self {
            folder,
            kubeconfig,
            proxy,
            fingerprint: Mutex::default(),
            different: Mutex::default(),
        };
        machine.wrap_programs();
        machine
    }

    fn wrap_programs(&self) {
        let kubectl = toolbox().unwrap_or_else(|why| panic!("{why}")).join("kubectl");
        let (kubectl, pods) = (kubectl.display(), self.folder.join("pods"));
        let kubectl = format!(
            r#"case " $* " in
*" exec "*) ;;
*) exec {kubectl} "$@" ;;
esac
pod=
while [ "$1" != -- ]; do
  case $1 in
  --context) context=$2; shift ;;
  -n | -c) shift ;;
  exec | -i) ;;
  *) pod=$1 ;;
  esac
  shift
done
program=$(basename "$2")
shift 2
exec "{}/$context/$pod/$program" "$@"
"#,
            pods.display()
        );
        self.write_program(Path::new("bin/kubectl"), &kubectl);
        let trustplane = env!("CARGO_BIN_EXE_trustplane");
        let trustplane = format!(
            r#"case "$1 $2" in
"federation bootstrap" | "federation import") echo yes | script -qefc "stty cols 100; {trustplane} $*" /dev/null ;;
*) exec {trustplane} "$@" ;;
esac
"#
        );
        self.write_program(Path::new("bin/trustplane"), &trustplane);
    }

    fn write_program(&self, path: &Path, script: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        suite::write_private(&path, &format!("#!/bin/sh\n{script}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a program");
    }

    /// From now on `kubectl exec` finds this Pod.
    pub fn enters(&self, pod: &Pod) {
        let (context, name) = pod.place;
        for (program, command) in &pod.programs {
            let path = Path::new("pods").join(context).join(name).join(program);
            self.write_program(&path, command);
        }
    }

    /// Does what the page says, and compares what is printed.
    pub async fn run(&self, steps: &Steps) {
        for step in &steps.0 {
            match step {
                Step::File { name, content } => self.write(name, content),
                Step::Commands { text, prints } => {
                    let printed = self.shell(text).await;
                    println!("$ {text}\n{printed}");
                    if prints.as_ref().is_some_and(|shown| !is_as_shown(shown, &printed)) {
                        self.different.lock().expect("a list").push(text.clone());
                    }
                }
            }
        }
    }

    /// Commands that printed something else than the page says. What they printed is in the output.
    pub fn different(&self) -> Vec<String> {
        self.different.lock().expect("a list").clone()
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    async fn shell(&self, commands: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let fingerprint = self.fingerprint.lock().expect("a fingerprint").clone();
        let mut shell = tokio::process::Command::new("sh");
        shell
            .args(["-euc", &format!("exec 2>&1\n{commands}")])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env("HOME", &self.folder)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("FINGERPRINT", fingerprint)
            .envs(self.proxy.iter().cloned())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = shell.output().await.expect("a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "$ {commands}\n{printed}");
        self.listen(&printed);
        printed
    }

    /// Notes the last fingerprint that was printed.
    fn listen(&self, printed: &str) {
        let fingerprint = Regex::new(r"\b[0-9a-f]{4}(:[0-9a-f]{4}){15}\b").expect("an expression");
        if let Some(found) = fingerprint.find_iter(printed).last() {
            *self.fingerprint.lock().expect("a fingerprint") = found.as_str().to_owned();
        }
    }
}

fn contexts(clusters: &[(&str, &Cluster)]) -> serde_json::Value {
    let (mut servers, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, cluster) in clusters {
        let Access { url, authority, token } = cluster.admin_access();
        let authority = STANDARD.encode(authority);
        servers.push(json!({ "name": name, "cluster": { "server": url, "certificate-authority-data": authority } }));
        users.push(json!({ "name": name, "user": { "token": token } }));
        contexts.push(json!({ "name": name, "context": { "cluster": name, "user": name } }));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": servers,
        "users": users,
        "contexts": contexts,
        "current-context": clusters[0].0,
    })
}
