//! The tools that installers and operators use, run as they would.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Access, Servers, suite, toolbox};

/// The repository.
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A file or folder of the repository.
pub fn at(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

/// The text of a file of the repository.
pub fn text_of(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A folder for one test, inside the repository as kustomize wants it, with these files in it.
pub fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    for (file, content) in files {
        let file = path.join(file);
        fs::create_dir_all(file.parent().expect("it is in the folder")).expect("a folder");
        fs::write(file, content).expect("a file");
    }
    path
}

/// What the command prints, or what it complains about.
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

/// As [`output`], with something to read on standard input.
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

/// What kustomize makes of a folder.
pub fn kustomize(folder: &Path) -> String {
    output(tool("kubectl").arg("kustomize").arg(folder)).unwrap_or_else(|why| panic!("{why}"))
}

/// helm, with a home of its own.
pub fn helm() -> Command {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    let mut helm = tool("helm");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, &home);
    }
    helm
}

/// Runs promtool, which Debian has in its package prometheus.
pub fn promtool(arguments: &[&str], folder: &Path) -> Result<String, String> {
    output(Command::new("promtool").args(arguments).current_dir(folder))
        .map_err(|why| format!("promtool (Debian's package prometheus; `make needs`): {why}"))
}

/// A module of the Go proxy as it was published, or a program made of a folder of ours.
pub mod go {
    use super::{Command, Path, PathBuf, at, output};

    /// Builds the program in a folder of the repository.
    pub fn program(folder: &str) -> PathBuf {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder.replace('/', "-"));
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(&binary).arg(".").current_dir(at(folder));
        output(&mut build).unwrap_or_else(|why| panic!("{folder} does not build: {why}"));
        binary
    }

    /// Where the one module is that the go.mod of a folder of the repository names.
    pub fn module(folder: &str, path: &str) -> PathBuf {
        let go = |arguments: &[&str]| {
            output(Command::new("go").args(arguments).current_dir(at(folder)))
                .unwrap_or_else(|why| panic!("{folder}: {why}"))
        };
        go(&["mod", "download", path]);
        PathBuf::from(go(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", path]).trim())
    }
}

/// An API server with nothing on it, and its administrator's tools.
pub struct EmptyCluster {
    servers: Servers,
    kubeconfig: PathBuf,
}

impl EmptyCluster {
    pub async fn start(name: &str) -> Self {
        let servers = Servers::start(name).await.unwrap_or_else(|why| panic!("{why}"));
        let administrator = Access {
            url: servers.url.clone(),
            authority: servers.authority.clone(),
            token: servers.admin_token.clone(),
        };
        let kubeconfig = servers.scratch.join("admin.kubeconfig");
        administrator.write_kubeconfig(&kubeconfig);
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

    /// Applies manifests twice on the server's side, and insists that the second time changes nothing.
    pub fn accepts(&self, manifests: &str) {
        let file = self.servers.scratch.join(format!("{}.yaml", suite::next_number()));
        suite::write_private(&file, manifests);
        let file = file.to_str().expect("a path is text");
        let apply = ["apply", "--server-side", "-f", file];
        self.kubectl(&apply).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(self.kubectl(&["diff", "--server-side", "-f", file]).as_deref(), Ok(""));
    }
}
