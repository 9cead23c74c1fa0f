//! A service that asks by client-go: e2e/review-caller, which says what is printed.

use std::{path::PathBuf, process::Stdio, sync::LazyLock};

use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::member::Member;
use crate::{Access, tools::go};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| go::program("e2e/review-caller"));

/// How client-go writes and reads reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    pub const ALL: [Self; 2] = [Self::Json, Self::Protobuf];
}

/// Where it asks, and as whom.
pub struct Caller {
    url: String,
    ca_file: PathBuf,
    token_file: PathBuf,
}

impl Caller {
    /// Its files are in a folder of the cluster.
    pub fn new(access: &Access, files: &Member) -> Self {
        Self {
            url: access.url.clone(),
            ca_file: files.file("ca.crt", &access.authority),
            token_file: files.file("token", &access.token),
        }
    }

    /// What it prints about a token.
    pub async fn review(&self, encoding: Encoding, token: &str, audiences: &[&str]) -> Value {
        let program = tokio::task::spawn_blocking(|| PROGRAM.clone());
        let mut command = Command::new(program.await.expect("review-caller builds"));
        command.arg(match encoding {
            Encoding::Json => "json",
            Encoding::Protobuf => "protobuf",
        });
        command.args(["--host", &self.url]).arg("--ca-file").arg(&self.ca_file);
        command.arg("--bearer-token-file").arg(&self.token_file);
        command.args(audiences.iter().flat_map(|audience| ["--audience", audience]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut caller = command.spawn().expect("review-caller runs");
        let mut input = caller.stdin.take().expect("it is piped");
        input.write_all(token.as_bytes()).await.expect("the token is taken");
        drop(input);
        let output = caller.wait_with_output().await.expect("it ends");
        serde_json::from_slice(&output.stdout).expect("an answer in JSON")
    }
}
