//! Processes that can't outlive the test process: `e2e/tied` ends its command as soon as our end of
//! a pipe is closed, which the kernel does whenever we end.

use std::io::{BufRead, BufReader, Error, Result};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::at;

/// A running command. Dropping it kills the command and waits until it is gone.
pub struct Tied {
    tied: Child,
    pid: Pid,
    held: Option<ChildStdin>,
    code: Option<i32>,
}

/// A command for [`Tied::spawn`] with output appended to `log`. The folder `remove` is removed when
/// the command has ended.
pub fn command(program: &Path, log: &Path, remove: Option<&Path>) -> Command {
    let mut command = Command::new(at("e2e/tied"));
    // Killed with SIGKILL, because nothing has to be saved.
    command.arg("--now").arg("--log").arg(log);
    if let Some(folder) = remove {
        command.arg("--remove").arg(folder);
    }
    command.arg(program);
    command
}

impl Tied {
    /// Starts a command of [`command`] in its own process group, so that Ctrl-C reaches only the
    /// test process.
    pub fn spawn(mut command: Command) -> Result<Self> {
        let mut tied =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let held = tied.stdin.take();
        let mut first_line = String::new();
        if let Some(output) = tied.stdout.take() {
            BufReader::new(output).read_line(&mut first_line)?;
        }
        let pid = first_line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| {
            Error::other(format!("e2e/tied did not say a process id but {first_line:?}"))
        })?;
        Ok(Self { tied, pid, held, code: None })
    }

    /// Process id of the command itself.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Process id of the `e2e/tied` that watches over the command.
    pub fn keeper_pid(&self) -> u32 {
        self.tied.id()
    }

    /// Sends a signal to the command, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        // Once tied has reaped the command, its process id may be reused.
        if self.exit_code().is_none() {
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// The command's exit code (128 plus the number of a signal), if it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        if self.code.is_none() {
            self.code =
                self.tied.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1));
        }
        self.code
    }

    /// Waits until the command has ended.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        let deadline = tokio::time::Instant::now() + within;
        while self.exit_code().is_none() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.exit_code()
    }

    /// Kills the command and waits until it and its folder are gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.held = None;
        if self.code.is_none() {
            self.code = self.tied.wait().ok().map(|status| status.code().unwrap_or(-1));
        }
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a process with this id runs. A zombie does not.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The state follows the name, which is in parentheses and may hold any character.
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}
