//! The link to a child process: its pipes, its state and the [`Link`] implementation.
//!
//! One task drives the link by polling: writing, reading and watching for the exit happen in the
//! same future, so messages keep the order of the calls. Two things run outside it: a task reads
//! stderr, which must be drained even while the link is not polled, and a blocking thread decodes
//! large lines.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ServerName};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::Sleep;

use super::child::ChildProcess;
use super::command::StdioCommand;
use super::resolve;
use super::stderr_drain::StderrDrain;
use crate::link::limits::MessageLimits;
use crate::link::lines::{InputPoll, LineInput, Outbox};
use crate::link::{DownKind, Inbound, Link, LinkDown, OpenFailure, PendingRequests, StderrRing};

/// How long to wait for the remaining signs of the end (exit, closed stdout, failed write) after
/// the first one, to deliver the last output and learn the exit code. The timeout also bounds the
/// wait for a grandchild that holds the pipes.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// A running child and the pipes to it.
#[derive(Debug)]
pub(crate) struct StdioLink {
    pub(super) process: ChildProcess,
    /// `None` once it is closed or a write failed.
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stderr: StderrDrain,
    outbox: Outbox,
    pub(super) input: LineInput<ChildStdout>,
    pub(super) state: LinkState,
}

#[derive(Debug)]
pub(super) enum LinkState {
    Open,
    /// The first sign of the end was seen.
    Ending {
        reason: LinkDown,
        drain_timer: Pin<Box<Sleep>>,
    },
    /// No more messages will come.
    Down(LinkDown),
}

impl StdioLink {
    /// Starts the server. Must be called within a tokio runtime. Cancel-safe: a dropped call leaves
    /// no process behind.
    pub(crate) async fn open(
        command: &StdioCommand,
        stderr: Arc<StderrRing>,
        limits: MessageLimits,
        server: &ServerName,
    ) -> Result<Self, OpenFailure> {
        resolve::check(command)?;
        let (process, pipes) = ChildProcess::start(command).await?;
        tracing::debug!(%server, pid = %process.group.pid(), "started the process");
        Ok(Self {
            process,
            stdin: Some(pipes.stdin),
            stderr: StderrDrain::start(pipes.stderr, stderr),
            outbox: Outbox::default(),
            input: LineInput::new(pipes.stdout, limits),
            state: LinkState::Open,
        })
    }

    /// Writes as much as the pipe accepts.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) {
        let Some(stdin) = self.stdin.as_mut().filter(|_| !self.outbox.is_empty()) else {
            return;
        };
        if let Poll::Ready(Err(error)) = self.outbox.poll_write(cx, stdin) {
            self.stdin = None;
            self.begin_end(LinkDown::new(
                DownKind::WriteFailed,
                format!("the process no longer reads its stdin: {error}"),
            ));
        }
    }

    /// Records a sign of the end. The first reason is kept; only an exit replaces it.
    pub(super) fn begin_end(&mut self, reason: LinkDown) {
        if matches!(self.state, LinkState::Open) {
            self.state = LinkState::Ending {
                reason,
                drain_timer: Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)),
            };
        }
    }

    /// Waits for the next message, and for the end of the link once stdout is drained.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        ready!(self.poll_resume(cx));
        let polled = self.input.poll(cx, pending);
        self.note_input_end();
        match polled {
            InputPoll::Message(inbound) => Poll::Ready(Ok(inbound)),
            InputPoll::Busy => {
                // The exit is watched meanwhile, so that the rest of the group is killed at once.
                let _ = self.process.poll_exit(cx);
                Poll::Pending
            }
            InputPoll::Drained => self.poll_end(cx),
        }
    }

    /// Waits while the CPU quota is exhausted. The last output of a child that exited is read
    /// without a pause.
    fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.state, LinkState::Open)
            && self.input.poll_resume(cx).is_pending()
            && self.process.poll_exit(cx).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Records the end of stdout, or that the server violated the transport: then further output is
    /// ignored.
    pub(super) fn note_input_end(&mut self) {
        if let Some(end) = self.input.take_end() {
            let reason = match end {
                Ok(()) => "the process closed its stdout".to_owned(),
                Err(error) => format!("cannot read the stdout of the process: {error}"),
            };
            self.begin_end(LinkDown::new(DownKind::Closed, reason));
        }
        if let Some(problem) = self.input.take_violation() {
            self.state = LinkState::Down(LinkDown::new(DownKind::Broken, problem));
        }
    }

    /// Waits for the end. A pending drop report is delivered first.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Inbound, LinkDown>> {
        let down = ready!(self.poll_down(cx));
        self.input.stop();
        Poll::Ready(self.input.gate.take_report().ok_or(down))
    }

    /// Waits until the exit and the end of both pipes were seen, or the drain timer fired.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if let LinkState::Down(down) = &self.state {
            return Poll::Ready(down.clone());
        }
        let exit = self.process.poll_exit(cx).map(LinkDown::clone);
        let complete =
            exit.is_ready() && self.input.is_at_end() && self.stderr.poll_end(cx).is_ready();
        if let Poll::Ready(exit) = exit {
            self.begin_end(exit.clone());
            if let LinkState::Ending { reason, .. } = &mut self.state {
                *reason = exit;
            }
        }
        let LinkState::Ending {
            reason,
            drain_timer,
        } = &mut self.state
        else {
            return Poll::Pending;
        };
        if !complete {
            ready!(drain_timer.as_mut().poll(cx));
        }
        let down = reason.clone();
        self.state = LinkState::Down(down.clone());
        Poll::Ready(down)
    }
}

impl Link for StdioLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        self.outbox.push(&message)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        _keep_copy: bool,
    ) -> Result<u64, String> {
        match request {
            Some(request) => self.outbox.push_request(id, request),
            None => Err("the request was already sent".to_owned()),
        }
    }

    fn sent(&self) -> u64 {
        self.outbox.written()
    }

    fn withdraw(&mut self, from: u64) {
        self.outbox.withdraw(from);
    }

    fn has_capacity(&self) -> bool {
        self.outbox.has_capacity()
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        self.poll_write(cx);
        if let Poll::Ready(report) = self.input.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        let polled = self.poll_input(cx, pending);
        // Registers the timer of drops that this poll recorded.
        if polled.is_pending()
            && let Poll::Ready(report) = self.input.gate.poll_report(cx)
        {
            return Poll::Ready(Ok(report));
        }
        polled
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        let taken = self.input.take_buffered(pending);
        self.note_input_end();
        taken
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        self.run_close_sequence(grace).await
    }
}
