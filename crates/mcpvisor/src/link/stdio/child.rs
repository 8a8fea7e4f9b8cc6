//! A child process, from its start to its end.
//!
//! The group is ended with the child: whatever it started and left in the group must not outlive the
//! connection. What leaves the group (`setsid`) is out of reach.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::process::{Pid, Signal, WaitStatus};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::command::StdioCommand;
use super::exit::ExitWatch;
use super::process_group::Leader;
use super::resolve::{explain, resolve};
use super::spawn::{Image, Newborn};
use super::spawner_thread::PARENT;
use crate::link::{DownKind, LinkDown, OpenFailure, OpenFailureClass};

/// A child that leads its own process group; the group is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    leader: Leader,
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

impl Process {
    /// Starts the command. Must be called within a tokio runtime. Cancel-safe: given up, it leaves
    /// nothing behind.
    pub(super) async fn start(command: &StdioCommand) -> Result<(Self, Pipes), OpenFailure> {
        let transient = |problem: String| OpenFailure {
            class: OpenFailureClass::Transient,
            message: problem,
            action: None,
        };
        let command = command.clone();
        let newborn = PARENT
            .run(move || bear(&command))
            .await
            .map_err(|error| transient(format!("no process can be started: {error}")))??;
        Self::attend(newborn)
            .map_err(|error| transient(format!("the process cannot be attended to: {error}")))
    }

    /// Takes charge of a child that was started. On an error it is killed.
    fn attend(newborn: Newborn) -> io::Result<(Self, Pipes)> {
        let process = Self {
            watch: ExitWatch::new(&newborn.leader)?,
            leader: newborn.leader,
            exit: None,
        };
        let pipes = Pipes {
            stdin: ChildStdin::from_std(newborn.stdin)?,
            stdout: ChildStdout::from_std(newborn.stdout)?,
            stderr: ChildStderr::from_std(newborn.stderr)?,
        };
        Ok((process, pipes))
    }

    /// The process id, which is also that of the group.
    pub(super) fn id(&self) -> Pid {
        self.leader.pid()
    }

    /// Waits for the child to exit, ends the rest of its group and reaps it, in this order: while
    /// the child is not reaped, the number of the group belongs to nobody else.
    pub(super) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<&LinkDown> {
        if self.exit.is_none() {
            ready!(self.watch.poll(cx, &self.leader));
            self.leader.signal(Signal::KILL);
            self.exit = Some(match self.leader.reap() {
                Ok(Some(status)) => describe(status),
                Ok(None) => LinkDown::new(DownKind::Exited, "the process is ending"),
                Err(error) => LinkDown::new(
                    DownKind::Exited,
                    format!("the process is gone and its exit code unknown: {error}"),
                ),
            });
        }
        self.exit.as_ref().map_or(Poll::Pending, Poll::Ready)
    }

    /// Whether somebody is still in the group.
    pub(super) fn has_group(&self) -> bool {
        self.leader.has_group()
    }

    /// Whether no exit was noticed yet.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.exit.is_none()
    }

    /// Sends a signal to the group, as long as the child is there to lead it.
    pub(super) fn signal(&self, signal: Signal) {
        self.leader.signal(signal);
    }
}

/// Finds the program and starts it. May block for as long as a file system does.
fn bear(command: &StdioCommand) -> Result<Newborn, OpenFailure> {
    let environment = command.environment(std::env::vars_os());
    let image = Image {
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
    image
        .start()
        .map_err(|error| explain(command, &image.file, &error))
}

fn describe(status: WaitStatus) -> LinkDown {
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
