//! A person's machine: a folder in which the commands of a page are typed, with its programs in the path.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
};

use regex::Regex;
use testkit::{
    at, eventually,
    manual::{Step, Steps, is_as_shown},
    suite,
    tied::{self, Tied},
    toolbox,
};

use crate::stage::PATIENCE;

/// Where `trustplane` asks a person at a terminal, one says yes at once. The folder has a checkout.
pub struct Machine {
    pub folder: PathBuf,
    kubeconfig: PathBuf,
    /// Where the join service listens.
    pub server: String,
    /// The ID of the active CA, as it was printed last.
    active_ca: Mutex<String>,
    /// Commands that printed something else than the page says.
    different: Mutex<Vec<String>>,
}

impl Machine {
    pub fn new(folder: PathBuf, kubeconfig: PathBuf, server: String) -> Self {
        suite::private_folder(&folder.join("bin"));
        for name in ["deploy", "crds"] {
            symlink(at(name), folder.join(name)).expect("a link to the checkout");
        }
        let toolbox = toolbox().unwrap_or_else(|why| panic!("{why}"));
        for name in ["kubectl", "spire-agent"] {
            let link = folder.join("bin").join(name);
            symlink(toolbox.join(name), link).expect("a link to the toolbox");
        }
        let program = env!("CARGO_BIN_EXE_trustplane");
        let trustplane = format!(
            r#"#!/bin/sh
case "$*" in
"spiffe accept "* | *" --revoke "*) echo yes | script -qefc "stty cols 100; {program} $*" /dev/null ;;
*) exec {program} "$@" ;;
esac
"#
        );
        let wrapper = folder.join("bin/trustplane");
        suite::write_private(&wrapper, &trustplane);
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o700)).expect("a program");
        let (active_ca, different) = (Mutex::default(), Mutex::default());
        Self { folder, kubeconfig, server, active_ca, different }
    }

    /// Does what the page says, and compares what is printed.
    pub async fn run(&self, steps: &Steps) {
        for step in &steps.0 {
            match step {
                Step::File { name, content } => {
                    let path = self.folder.join(name);
                    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                    fs::write(path, content).expect("a file");
                }
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

    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        vec![
            ("PATH", format!("{}:{path}", self.folder.join("bin").display())),
            ("HOME", self.folder.display().to_string()),
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("CA", self.active_ca.lock().expect("an ID").clone()),
            ("SERVER", self.server.clone()),
            // The agent's default is a port that others of this machine may have.
            ("TRUSTPLANE_LISTEN", "127.0.0.1:0".to_owned()),
        ]
    }

    /// Runs commands of which the last does not end, as in a terminal of its own.
    pub fn another_terminal(&self, commands: &str, log: &str) -> Tied {
        println!("(another terminal)$ {commands}");
        let log = suite::subfolder("controllers").join(format!("{log}.log"));
        let mut shell = tied::command(Path::new("sh"), &log, None);
        let (before, last) = commands.trim_end().rsplit_once('\n').unwrap_or(("", commands));
        shell.args(["-euc", &format!("{before}\nexec {last}")]).current_dir(&self.folder);
        shell.envs(self.environment());
        Tied::spawn(shell).expect("a shell")
    }

    /// Commands that printed something else than the page says. What they printed is in the output.
    pub fn different(&self) -> Vec<String> {
        self.different.lock().expect("a list").clone()
    }

    /// What they print; all of them must succeed.
    pub async fn shell(&self, commands: &str) -> String {
        // An API server tells of a new kind a moment after it took its CRD.
        let new_kind = "the API server knows a new kind";
        let printed =
            eventually(PATIENCE, new_kind, async || match self.try_shell(commands).await {
                Err(printed) if printed.contains("couldn't find resource") => Err(printed),
                ended => Ok(ended),
            });
        let printed = printed.await.unwrap_or_else(|printed| panic!("$ {commands}\n{printed}"));
        let active = Regex::new(r"CA ([0-9a-f]+)\s+active").expect("an expression");
        if let Some(found) = active.captures_iter(&printed).last() {
            *self.active_ca.lock().expect("an ID") = found[1].to_owned();
        }
        printed
    }

    /// The same; what they print before one of them fails is the error.
    pub async fn try_shell(&self, commands: &str) -> Result<String, String> {
        let mut shell = tokio::process::Command::new("sh");
        shell
            .args(["-euc", &format!("exec 2>&1\n{commands}")])
            .current_dir(&self.folder)
            .envs(self.environment())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = shell.output().await.expect("a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(printed) } else { Err(printed) }
    }
}
