//! However `make stack` ends, nothing of it is left.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use testkit::tied;

use crate::stack::stay::{PLACE, UP};

const GONE_WITHIN: Duration = Duration::from_secs(20);
/// etcd, API server, two controllers, HAProxy with its worker, two replicas and their keepers.
const FEWEST_PROCESSES: usize = 12;

/// Starts a stack as `make stack` does, ends it with this signal, and looks for processes and folders.
pub async fn nothing_is_left_after(signal: Signal) -> Result<(), String> {
    let looking = move || look(signal).map_err(|error| error.to_string());
    tokio::task::spawn_blocking(looking).await.map_err(|error| error.to_string())?
}

fn look(signal: Signal) -> anyhow::Result<()> {
    let outside = tempfile::tempdir()?;
    let home = outside.path().join("stack");
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--stack")
        .env(PLACE, &home)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let started = until_up(&mut child);
    let processes = descendants(child.id() as i32);
    let mut folders = folders_of(&processes);
    folders.insert(home);
    let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
    child.wait()?;
    anyhow::ensure!(started, "the stack did not start");
    anyhow::ensure!(processes.len() >= FEWEST_PROCESSES, "only {} processes", processes.len());
    anyhow::ensure!(folders.len() >= 3, "only the folders {folders:?}");
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let alive: Vec<_> = processes.iter().filter(|pid| tied::is_alive(**pid)).collect();
        let left: Vec<_> = folders.iter().filter(|path| path.exists()).collect();
        if alive.is_empty() && left.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "after {signal:?} there are still processes {alive:?} and folders {left:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the child says that the stack is up, rather than ending.
fn until_up(child: &mut Child) -> bool {
    let Some(output) = child.stdout.take() else { return false };
    BufReader::new(output).lines().map_while(Result::ok).any(|line| line == UP)
}

/// All processes that stem from this one.
fn descendants(ancestor: i32) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name stands in parentheses and may hold any character; state and parent follow.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (HashSet::new(), vec![ancestor]);
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            found.insert(*child);
            open.push(*child);
        }
    }
    found
}

/// Folders that their keepers remove.
fn folders_of(processes: &HashSet<i32>) -> HashSet<PathBuf> {
    let arguments = processes.iter().map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').map(str::to_owned).collect::<Vec<_>>()
    });
    let removed = arguments.filter_map(|arguments| {
        let flag = arguments.iter().position(|argument| argument == "--remove")?;
        arguments.get(flag + 1).map(PathBuf::from)
    });
    removed.collect()
}
