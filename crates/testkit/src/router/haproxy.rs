//! The HAProxy process: its files, their validation, and reloads without lost connections.
//!
//! It runs as master and worker. On SIGUSR2 the master starts a new worker, which takes the listening
//! sockets over from the old one; that one finishes its connections and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::plan::{CONFIGURATION, Files};
use crate::suite;
use crate::tied::{self, Tied};

const STARTED_WITHIN: Duration = Duration::from_secs(10);
const RELOADED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const MASTER_SOCKET: &str = "master.sock";

/// Path of HAProxy, or one line about how to install it.
pub fn program() -> Result<PathBuf, String> {
    // Debian installs it in /usr/sbin.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join("haproxy"))
        .find(|file| file.is_file())
        .ok_or_else(|| "haproxy is missing: apt-get install haproxy".to_owned())
}

/// A running HAProxy.
pub struct HaProxy {
    process: Tied,
    program: PathBuf,
    folder: PathBuf,
    /// The files in the folder.
    files: Files,
}

/// Number of reloads, and of failed ones.
#[derive(Clone, Copy, PartialEq)]
struct Reloads {
    all: u32,
    failed: u32,
}

impl HaProxy {
    /// Starts it with these files. The folder is removed when HAProxy ends.
    pub async fn start(folder: &Path, files: Files, log: &Path) -> Result<Self, String> {
        let program = program()?;
        write(folder, &Files::default(), &files);
        check(&program, folder).await?;
        let mut command = tied::command(&program, log, Some(folder));
        command.arg("-W").arg("-f").arg(folder.join(CONFIGURATION));
        command.arg("-S").arg(format!("{},mode,600", folder.join(MASTER_SOCKET).display()));
        let process = Tied::spawn(command).map_err(|error| format!("haproxy: {error}"))?;
        let mut haproxy = Self { process, program, folder: folder.to_owned(), files };
        let deadline = Instant::now() + STARTED_WITHIN;
        while haproxy.reloads().await.is_none() {
            if haproxy.process.exit_code().is_some() || Instant::now() > deadline {
                return Err(format!("HAProxy did not start; see {}", log.display()));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(haproxy)
    }

    /// Whether HAProxy has already accepted or refused these files.
    pub fn has(&self, files: &Files) -> bool {
        self.files == *files
    }

    /// Makes HAProxy serve these files. If it refuses them, it keeps the old ones.
    pub async fn load(&mut self, files: Files) -> Result<(), String> {
        write(&self.folder, &self.files, &files);
        self.files = files;
        check(&self.program, &self.folder).await?;
        self.reload().await?;
        remove_old_pairs(&self.folder, &self.files);
        Ok(())
    }

    async fn reload(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + RELOADED_WITHIN;
        let before = self.reloads_before(deadline).await?;
        self.process.signal(Signal::USR2);
        loop {
            let now = self.reloads_before(deadline).await?;
            if now.failed > before.failed {
                return Err("the reload failed".to_owned());
            }
            if now.all > before.all {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn reloads_before(&self, deadline: Instant) -> Result<Reloads, String> {
        while Instant::now() < deadline {
            if let Some(reloads) = self.reloads().await {
                return Ok(reloads);
            }
            sleep(LOOK_AGAIN).await;
        }
        Err("the reload was not done in time".to_owned())
    }

    /// From the master's socket; None while it is not listening.
    async fn reloads(&self) -> Option<Reloads> {
        let asking = async {
            let mut master = UnixStream::connect(self.folder.join(MASTER_SOCKET)).await.ok()?;
            master.write_all(b"show proc\n").await.ok()?;
            // Otherwise it waits for more.
            master.shutdown().await.ok()?;
            let mut answer = String::new();
            master.read_to_string(&mut answer).await.ok()?;
            parse(&answer)
        };
        timeout(Duration::from_secs(2), asking).await.ok().flatten()
    }
}

/// The master's line: `1162  master  5 [failed: 0]  0d00h02m07s  2.6.12`.
fn parse(answer: &str) -> Option<Reloads> {
    let line = answer.lines().find(|line| line.split_whitespace().nth(1) == Some("master"))?;
    let all = line.split_whitespace().nth(2)?.parse().ok()?;
    let failed = line.split("[failed:").nth(1)?.split(']').next()?.trim().parse().ok()?;
    Some(Reloads { all, failed })
}

/// Validates the files with HAProxy itself.
async fn check(program: &Path, folder: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("-c").arg("-f").arg(folder.join(CONFIGURATION)).kill_on_drop(true);
    let output = command.output().await.map_err(|error| format!("haproxy -c: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // The first alert names the file; later ones only summarise.
    let alert = errors.lines().find(|line| line.starts_with("[ALERT]"));
    Err(alert.unwrap_or(errors.trim()).to_owned())
}

/// Writes changed files, each atomically.
fn write(folder: &Path, before: &Files, after: &Files) {
    let changed = after.iter().filter(|(name, content)| before.get(name) != Some(content));
    for (name, content) in changed {
        let unfinished = folder.join(format!(".{name}"));
        suite::write_private(&unfinished, content);
        fs::rename(&unfinished, folder.join(name)).expect("a file of HAProxy's can be replaced");
    }
}

/// Removes unused pairs.
fn remove_old_pairs(folder: &Path, files: &Files) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".pem") && files.get(&name).is_none() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
