//! Somebody who runs `trustplane federation`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Access, spire::Names, suite};

use crate::side::Side;

/// An administrator of several clusters, each a context.
pub struct Administrator {
    kubeconfig: PathBuf,
    environment: Vec<(String, String)>,
}

/// Exit code, standard output and error.
pub struct Output {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Administrator {
    pub fn of(sides: &[(&str, &Side)], names: &Names) -> Self {
        let entry = |(name, side): &(&str, &Side)| {
            let Access { url, authority, token } = side.stage.cluster.admin_access();
            let authority =
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority);
            (
                json!({ "name": name, "cluster": { "server": url, "certificate-authority-data": authority } }),
                json!({ "name": name, "user": { "token": token } }),
                json!({ "name": name, "context": { "cluster": name, "user": name } }),
            )
        };
        let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
        for (cluster, user, context) in sides.iter().map(entry) {
            clusters.push(cluster);
            users.push(user);
            contexts.push(context);
        }
        let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": clusters, "users": users, "contexts": contexts, "current-context": sides[0].0 });
        let path =
            sides[0].1.stage.cluster.scratch().join(format!("{}.contexts", suite::next_number()));
        suite::write_private(&path, &config.to_string());
        Self { kubeconfig: path, environment: names.environment() }
    }

    pub async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_trustplane"));
        command.env("KUBECONFIG", &self.kubeconfig).envs(self.environment.iter().cloned());
        command
            .arg("federation")
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Output {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Runs it at a terminal, where somebody answers the question with these words. Both outputs are
    /// one there.
    pub async fn run_at_terminal(&self, arguments: &[&str], answer: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_trustplane");
        let line = format!("stty cols 200; {program} federation {}", arguments.join(" "));
        let mut command = tokio::process::Command::new("sh");
        command.env("KUBECONFIG", &self.kubeconfig).envs(self.environment.iter().cloned());
        command
            .args(["-c", r#"echo "$1" | script -qefc "$2" /dev/null"#, "sh", answer, &line])
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.expect("a shell");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        Output { code: output.status.code().unwrap_or(-1), out, err: String::new() }
    }

    /// As the manual says: the fingerprint from one side, the bundle to the other.
    pub async fn bootstrap(&self, from: &str, to: &str) {
        let asked = self.run(&["bootstrap", from, to]).await;
        assert_eq!(asked.code, 2, "nobody could be asked: {}", asked.err);
        assert!(asked.err.contains("nothing was changed"), "{}", asked.err);
        let wrong = self.run(&["bootstrap", from, to, "--yes", "--fingerprint", "00"]).await;
        assert_eq!(wrong.code, 2, "{}{}", wrong.out, wrong.err);
        let shown = self.run(&["fingerprint", from, "-o", "json"]).await;
        assert_eq!(shown.code, 0, "{}", shown.err);
        let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
        let fingerprint = shown["fingerprint"].as_str().expect("a fingerprint");
        let done = self.run(&["bootstrap", from, to, "--yes", "--fingerprint", fingerprint]).await;
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    }

    /// Exports the bundle of the one cluster that is reached. Answers the file and its fingerprint.
    pub async fn export(&self, name: &str) -> (PathBuf, String) {
        let file = self.kubeconfig.with_extension(name);
        let path = file.display().to_string();
        let made = self.run(&["export", "--out", &path, "-o", "json"]).await;
        assert_eq!(made.code, 0, "{}{}", made.out, made.err);
        let page: Value = serde_json::from_str(&made.out).expect("JSON");
        let fingerprint = page["fingerprint"].as_str().expect("a fingerprint").to_owned();
        assert!(made.err.contains("over another channel"), "{}", made.err);
        (file, fingerprint)
    }

    /// Imports a file by this fingerprint.
    pub async fn import(&self, file: &Path, fingerprint: &str, flags: &[&str]) -> Output {
        let file = file.display().to_string();
        let arguments = ["import", &file, "--fingerprint", fingerprint];
        self.run(&[&arguments, flags].concat()).await
    }

    /// Imports a file that is refused with these words.
    pub async fn import_refused(&self, file: &Path, fingerprint: &str, words: &str) {
        let said = self.import(file, fingerprint, &["--yes"]).await;
        assert_eq!(said.code, 2, "{}{}", said.out, said.err);
        assert!(
            said.err.contains("nothing was changed") && said.err.contains(words),
            "{}",
            said.err
        );
        println!("{}", said.err.trim());
    }
}

/// A file beside this one, with this content.
pub fn beside(file: &Path, name: &str, content: &str) -> PathBuf {
    let path = file.with_extension(name);
    std::fs::write(&path, content).expect("a file");
    path
}
