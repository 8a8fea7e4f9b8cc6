//! The link to a child process: its pipes, its state and the [`Link`] implementation.
//!
//! One task drives the link by polling: writing, reading and watching for the exit happen in the
//! same future, so messages keep the order of the calls. Two things run outside it: a task reads
//! stderr, which must be drained even while the link is not polled, and a blocking thread decodes
//! large lines.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ServerName};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::child::ChildProcess;
use super::command::StdioCommand;
use super::line_buffer::LineBuffer;
use super::outbox::Outbox;
use super::resolve;
use super::stderr_drain::StderrDrain;
use crate::link::codec::Decoded;
use crate::link::cpu_quota::{CpuMeter, CpuQuota};
use crate::link::flood_gate::FloodGate;
use crate::link::limits::MessageLimits;
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
    /// `None` once it ended.
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: StderrDrain,
    outbox: Outbox,
    pub(super) limits: MessageLimits,
    pub(super) lines: LineBuffer,
    /// A large line that another thread decodes. No other line is decoded meanwhile, which keeps
    /// the order of messages and bounds memory.
    /// A large line that is decoded on a blocking thread, which returns the CPU time that it took.
    /// Dropping this does not stop the thread; its result is discarded.
    pub(super) blocking_decode: Option<JoinHandle<(Decoded, Duration)>>,
    pub(super) gate: FloodGate,
    /// The remaining messages of a batch.
    pub(super) ready: VecDeque<Inbound>,
    pub(super) quota: CpuQuota,
    pub(super) meter: CpuMeter,
    /// Input was consumed since the last measurement.
    pub(super) consumed: bool,
    /// The last input was not a reply, so the CPU time of the next input is measured.
    pub(super) measuring: bool,
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
        let quota = CpuQuota::default();
        Ok(Self {
            process,
            stdin: Some(pipes.stdin),
            stdout: Some(pipes.stdout),
            stderr: StderrDrain::start(pipes.stderr, stderr),
            outbox: Outbox::default(),
            lines: LineBuffer::new(limits.get().max_bytes),
            limits,
            blocking_decode: None,
            gate: FloodGate::default(),
            ready: VecDeque::new(),
            meter: CpuMeter::new(&quota),
            quota,
            consumed: false,
            measuring: false,
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

    /// Ends the link because the server violated the transport; further output is ignored.
    pub(super) fn break_link(&mut self, problem: String) {
        self.state = LinkState::Down(LinkDown::new(DownKind::Broken, problem));
    }

    /// Waits for the end. A pending drop report is delivered first.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Inbound, LinkDown>> {
        let down = ready!(self.poll_down(cx));
        Poll::Ready(self.gate.take_report().ok_or(down))
    }

    /// Waits until the exit and the end of both pipes were seen, or the drain timer fired.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if let LinkState::Down(down) = &self.state {
            return Poll::Ready(down.clone());
        }
        let exit = self.process.poll_exit(cx).map(LinkDown::clone);
        let complete =
            exit.is_ready() && self.stdout.is_none() && self.stderr.poll_end(cx).is_ready();
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
        if let Poll::Ready(report) = self.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        let polled = self.poll_input(cx, pending);
        // Registers the timer of drops that this poll recorded.
        if polled.is_pending()
            && let Poll::Ready(report) = self.gate.poll_report(cx)
        {
            return Poll::Ready(Ok(report));
        }
        polled
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        self.take_buffered(pending)
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        self.run_close_sequence(grace).await
    }
}
