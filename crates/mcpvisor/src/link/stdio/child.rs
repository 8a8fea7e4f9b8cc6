//! A child process, from its start to its exit.
//!
//! When the child exits, the rest of its process group is killed, so that its descendants do not
//! outlive the connection. A descendant that left the group (`setsid`) is not killed.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::process::{Signal, WaitStatus};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::command::StdioCommand;
use super::exit_watch::ExitWatch;
use super::process_group::ProcessGroup;
use super::resolve::{explain, resolve};
use super::spawn::{ProcessSpec, SpawnedProcess};
use super::spawner_thread::SPAWNER;
use crate::link::{DownKind, LinkDown, OpenFailure};

/// A child that leads its own process group. Dropping this kills the group.
#[derive(Debug)]
pub(super) struct ChildProcess {
    pub(super) group: ProcessGroup,
    watch: ExitWatch,
    exit: Option<LinkDown>,
}

/// The parent's ends of the three pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ChildProcess {
    /// Starts the command. Must be called within a tokio runtime. Cancel-safe: a dropped call
    /// leaves no process behind.
    pub(super) async fn start(command: &StdioCommand) -> Result<(Self, Pipes), OpenFailure> {
        let command = command.clone();
        let spawned = SPAWNER
            .run(move || spawn_command(&command))
            .await
            .map_err(|error| {
                OpenFailure::transient(format!("cannot start a process: {error}"))
            })??;
        Self::from_spawned(spawned)
            .map_err(|error| OpenFailure::transient(format!("cannot watch the process: {error}")))
    }

    /// Registers the exit watch and the pipes with tokio. An error kills the child.
    fn from_spawned(spawned: SpawnedProcess) -> io::Result<(Self, Pipes)> {
        let process = Self {
            watch: ExitWatch::new(&spawned.group)?,
            group: spawned.group,
            exit: None,
        };
        let pipes = Pipes {
            stdin: ChildStdin::from_std(spawned.stdin)?,
            stdout: ChildStdout::from_std(spawned.stdout)?,
            stderr: ChildStderr::from_std(spawned.stderr)?,
        };
        Ok((process, pipes))
    }

    /// Waits for the child to exit, kills the rest of its group and reaps the child, in this order:
    /// until the child is reaped, the system does not reuse the id of the group.
    pub(super) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<&LinkDown> {
        if self.exit.is_none() {
            ready!(self.watch.poll(cx, &self.group));
            self.group.signal(Signal::KILL);
            self.exit = Some(match self.group.reap() {
                Ok(Some(status)) => describe_exit(status),
                Ok(None) => LinkDown::new(DownKind::Exited, "the process is ending"),
                Err(error) => LinkDown::new(
                    DownKind::Exited,
                    format!("the process exited with an unknown code: {error}"),
                ),
            });
        }
        self.exit.as_ref().map_or(Poll::Pending, Poll::Ready)
    }

    /// Whether no exit was noticed yet.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.exit.is_none()
    }
}

/// Finds the program and starts it. May block as long as the file system does.
fn spawn_command(command: &StdioCommand) -> Result<SpawnedProcess, OpenFailure> {
    let environment = command.environment(std::env::vars_os());
    let spec = ProcessSpec {
        file: resolve(command, &environment)?,
        name: command.program.clone(),
        args: command
            .args
            .iter()
            .map(|arg| arg.expose().clone())
            .collect(),
        environment,
        cwd: command.cwd.clone(),
    };
    spec.spawn()
        .map_err(|error| explain(command, &spec.file, &error))
}

fn describe_exit(status: WaitStatus) -> LinkDown {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => LinkDown::new(
            DownKind::Exited,
            format!("the process exited with code {code}"),
        ),
        (None, Some(signal)) => LinkDown::new(
            DownKind::Killed,
            format!("the process was killed by signal {signal}"),
        ),
        (None, None) => LinkDown::new(DownKind::Exited, "the process ended"),
    }
}
