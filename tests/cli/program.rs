//! Runs the built program as somebody would who has a kubeconfig.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::suite;
use tokio::process::Command;
use tokio::time::timeout;

/// Longer than any command takes that is not stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// How it ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the many lines of a log that is as talkative as it can be.
        let said = self.err.lines().filter(|line| line.starts_with("error:"));
        write!(f, "code {}\n{}{}", self.code, self.out, said.collect::<Vec<_>>().join("\n"))
    }
}

impl Ran {
    /// Its output with `-o json`.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The program, without what the environment of the tests would tell it.
pub fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trustplane"));
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TRUSTPLANE_") {
            command.env_remove(variable);
        }
    }
    // As talkative as it can be: what it prints must hold no key even so.
    command.env("KUBECONFIG", kubeconfig).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1");
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("https_proxy");
    command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
    command
}

/// Runs it to its end, and keeps what it printed for the check that looks for keys.
pub async fn trustplane(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    let output = timeout(PATIENCE, command(kubeconfig, arguments).output()).await;
    let output = output.expect("it ends").expect("it starts");
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    let ran = Ran { code: output.status.code().expect("it exits"), out, err };
    let name = format!("{}-{}.log", arguments[0], suite::next_number());
    suite::write_private(
        &suite::subfolder("commands").join(name),
        &format!("{arguments:?}\n{}\n{}", ran.out, ran.err),
    );
    assert!(!ran.out.contains("PRIVATE KEY") && !ran.err.contains("PRIVATE KEY"), "a key is shown");
    assert!(!ran.out.contains('\x1b'), "colours where nobody sees them");
    ran
}
