//! However a test process ends, what it started ends with it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::{Cluster, eventually, tied};

/// The test that is started as a process of its own, and what tells it how to end.
const CHILD: &str = "no_orphans::the_servers_of_a_cluster_run_while_its_tests_do";
const ENDING: &str = "HARNESS_CHILD_ENDS_BY";

#[tokio::test]
async fn no_process_survives_a_panic() {
    let mut child = TestProcess::start("panic");
    assert_eq!(child.process.wait().expect("it ends").code(), Some(101), "a failed test run");
    child.has_left_nothing().await;
}

#[tokio::test]
async fn no_process_survives_ctrl_c() {
    let child = TestProcess::start("waiting");
    // A terminal sends it to the whole group.
    rustix::process::kill_process_group(child.pid(), Signal::INT).expect("it runs");
    child.has_left_nothing().await;
}

#[tokio::test]
async fn no_process_survives_kill_9() {
    let child = TestProcess::start("waiting");
    rustix::process::kill_process(child.pid(), Signal::KILL).expect("it runs");
    child.has_left_nothing().await;
}

#[tokio::test]
async fn no_command_survives_the_death_of_its_keeper() {
    let mut command = tied::command(Path::new("sleep"), Path::new("/dev/null"), None);
    command.arg("300");
    let sleeper = tied::Tied::spawn(command).expect("sleep starts");
    let keeper = Pid::from_raw(sleeper.keeper_pid() as i32).expect("a process id");

    rustix::process::kill_process(keeper, Signal::KILL).expect("it runs");

    until_gone(&[sleeper.pid()], &[]).await;
}

/// This very test binary once more, with an API server of its own.
struct TestProcess {
    process: Child,
    servers: Vec<i32>,
    folders: Vec<PathBuf>,
    /// Its audit log and keys go there, and away with it.
    _suite: tempfile::TempDir,
}

impl TestProcess {
    fn start(ending: &str) -> Self {
        let suite = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", CHILD, "--nocapture"]);
        command.env(ENDING, ending).env("TRUSTPLANE_SUITE", suite.path());
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (mut servers, mut folders) = (Vec::new(), Vec::new());
        for line in output.lines().map_while(Result::ok) {
            match line.split_once('=') {
                Some(("process", pid)) => servers.push(pid.parse().expect("a process id")),
                Some(("folder", path)) => folders.push(PathBuf::from(path)),
                _ if line == "started" => break,
                _ => {}
            }
        }
        assert_eq!(
            (servers.len(), folders.len()),
            (4, 2),
            "the child did not start its API server"
        );
        Self { process, servers, folders, _suite: suite }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    async fn has_left_nothing(mut self) {
        let _ = self.process.wait();
        until_gone(&self.servers, &self.folders).await;
    }
}

async fn until_gone(processes: &[i32], folders: &[PathBuf]) {
    eventually(Duration::from_secs(10), "no process and no folder is left", async || {
        let alive: Vec<&i32> = processes.iter().filter(|pid| tied::is_alive(**pid)).collect();
        let left: Vec<&PathBuf> = folders.iter().filter(|path| path.exists()).collect();
        if alive.is_empty() && left.is_empty() {
            Ok(())
        } else {
            Err(format!("processes {alive:?}, folders {left:?}"))
        }
    })
    .await;
}

/// By itself a test of the harness; the tests above start it as a process of its own and end that.
#[tokio::test]
async fn the_servers_of_a_cluster_run_while_its_tests_do() {
    let cluster = Cluster::get().await;
    assert!(cluster.process_ids().into_iter().all(tied::is_alive));
    assert!(cluster.folders().iter().all(|folder| folder.exists()));
    let Ok(ending) = std::env::var(ENDING) else { return };
    for pid in cluster.process_ids() {
        println!("process={pid}");
    }
    for folder in cluster.folders() {
        println!("folder={}", folder.display());
    }
    println!("started");
    if ending == "panic" {
        panic!("as asked");
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
}
