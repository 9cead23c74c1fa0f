//! Runs the same kubectl commands against two servers and compares their output.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::{pair, toolbox};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

const TIMEOUT: Duration = Duration::from_secs(5);

/// kubectl for one server.
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: tempfile::TempDir,
}

/// Output of kubectl.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub success: bool,
    pub out: String,
    pub err: String,
}

impl Kubectl {
    pub fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        let cache = tempfile::tempdir().expect("a folder");
        Self { kubeconfig: kubeconfig.into(), cache }
    }

    /// Runs a command line, in which single quotes keep words together.
    pub async fn run(&self, folder: &Path, line: &str) -> Output {
        let output = self.command(folder, line).output().await.expect("kubectl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Output {
            success: output.status.success(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    fn start(&self, folder: &Path, line: &str) -> Child {
        self.command(folder, line).stdout(Stdio::piped()).spawn().expect("kubectl runs")
    }

    fn command(&self, folder: &Path, line: &str) -> Command {
        let mut command =
            Command::new(toolbox().unwrap_or_else(|why| panic!("{why}")).join("kubectl"));
        command
            .current_dir(folder)
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.cache.path())
            .args(words(line))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// Commands of one script, in a namespace that they create.
pub struct Script {
    pub name: &'static str,
    /// Manifests, by name.
    pub files: Vec<(&'static str, String)>,
    /// Command lines without `kubectl`. A line with `!` must fail, one with `&` runs in the
    /// background until the end of the script.
    pub lines: &'static str,
}

impl Script {
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.lines.lines().map(str::trim).filter(|line| !line.is_empty())
    }

    /// All differences.
    pub async fn compare(&self, left: &Kubectl, right: &Kubectl) -> Vec<String> {
        let folder = self.write_files();
        let mut differences = Vec::new();
        let mut beside = Vec::new();
        for line in self.commands() {
            if let Some(line) = line.strip_prefix('&') {
                let start = |kubectl: &Kubectl| Beside::start(kubectl.start(folder.path(), line));
                beside.push((line, start(left), start(right)));
                // kubectl does not report when its watch is open.
                tokio::time::sleep(Duration::from_millis(700)).await;
                continue;
            }
            let (line, fails) = match line.strip_prefix("! ") {
                Some(line) => (line, true),
                None => (line, false),
            };
            let (one, two) =
                tokio::join!(left.run(folder.path(), line), right.run(folder.path(), line));
            if one.success == fails {
                differences.push(format!("{}: unexpected of kubectl {line}: {one}", self.name));
            }
            self.note(line, &one.normalised(), &two.normalised(), &mut differences);
        }
        for (line, left, right) in beside {
            let start = Instant::now();
            while left.lines() != right.lines() && start.elapsed() < TIMEOUT {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.note(line, &left.output(), &right.output(), &mut differences);
        }
        differences
    }

    fn note(&self, line: &str, left: &Output, right: &Output, differences: &mut Vec<String>) {
        if left != right {
            differences.push(format!(
                "{}: kubectl {line}\n--- left\n{left}\n--- right\n{right}",
                self.name
            ));
        }
    }

    fn write_files(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in &self.files {
            std::fs::write(folder.path().join(name), content).expect("a manifest is written");
        }
        let pair = pair::issued("shop.example.com");
        std::fs::write(folder.path().join("tls.crt"), &pair.certificate).expect("written");
        testkit::suite::write_private(&folder.path().join("tls.key"), &pair.key);
        folder
    }
}

/// A background command.
struct Beside {
    heard: std::sync::Arc<std::sync::Mutex<String>>,
    reading: tokio::task::JoinHandle<()>,
}

impl Beside {
    fn start(mut child: Child) -> Self {
        let heard = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let note = heard.clone();
        let reading = tokio::spawn(async move {
            let mut out = child.stdout.take().expect("a pipe");
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer).await {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                note.lock().expect("no panic").push_str(&text);
            }
        });
        Self { heard, reading }
    }

    fn lines(&self) -> usize {
        self.heard.lock().expect("no panic").lines().count()
    }

    fn output(&self) -> Output {
        let out = self.heard.lock().expect("no panic").clone();
        Output { success: true, out, err: String::new() }.normalised()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The process is killed with its task.
        self.reading.abort();
    }
}

impl Output {
    /// Removes what differs between servers: ages, times, uids, versions, tokens, and column widths.
    pub fn normalised(&self) -> Self {
        Self { success: self.success, out: normalise(&self.out), err: normalise(&self.err) }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.success { "" } else { "(failed)\n" };
        write!(f, "{how}{}{}", self.out, self.err)
    }
}

fn normalise(text: &str) -> String {
    // Log lines of kubectl itself, which depend on timing.
    let is_log = |line: &&str| match line.as_bytes() {
        [b'E' | b'W' | b'I', date @ ..] => date.iter().take(4).all(u8::is_ascii_digit),
        _ => false,
    };
    let lines = text.lines().filter(|line| !is_log(line));
    let mut lines: Vec<String> = lines.map(normal_line).collect();
    // Several errors are in the order of a Go map.
    if lines.iter().filter(|line| line.starts_with("* ")).count() > 1 {
        lines.sort();
    }
    lines.concat()
}

fn normal_line(line: &str) -> String {
    let indent = &line[..line.len() - line.trim_start().len()];
    if line.trim_start().starts_with("Resource Version:") {
        return format!("{indent}Resource Version: NUMBER\n");
    }
    // The real server quotes the whole object, including managedFields.
    if let Some((before, _)) = line.split_once("patch: Invalid value: ") {
        return format!("{before}patch: Invalid value\n");
    }
    let words: Vec<String> = line.split_whitespace().map(normal_word).collect();
    format!("{indent}{}\n", words.join(" "))
}

fn normal_word(word: &str) -> String {
    let bare = word.trim_matches(|letter: char| "\",()'".contains(letter));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_age = bare.len() > 1 && bare.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(is_digits);
    let is_uid = bare.len() == 36 && bare.bytes().filter(|byte| *byte == b'-').count() == 4;
    let made = match bare {
        _ if is_age => "AGE",
        _ if is_uid => "UID",
        _ if bare.starts_with("eyJ") => "TOKEN",
        _ if bare.len() == 20 && chrono::DateTime::parse_from_rfc3339(bare).is_ok() => "TIME",
        // In YAML and JSON they are quoted.
        _ if word.contains('"') && is_digits(bare) => "NUMBER",
        _ => return word.to_owned(),
    };
    word.replace(bare, made)
}

fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.trim().chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("one word at least").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
