//! The link to a server that is a child process and speaks in lines on its stdin and stdout.
//!
//! One task drives all of it by polling: writing, reading and watching for the exit happen in the
//! same future, so nothing is handed from task to task and the order of messages is that of the
//! calls. Only stderr has a task of its own, because it must be read even when nobody waits, and a
//! line that takes long to read is read by a thread for such work, while the link waits for it.

mod blocking_decode;
mod child;
mod command;
mod display;
mod exit;
mod lines;
mod outbox;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;
mod process_group;
mod resolve;
mod spawn;
#[cfg(target_os = "linux")]
mod spawn_linux;
mod spawner_thread;
mod stderr_drain;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ServerName};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rustix::process::Signal;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::Sleep;

use self::blocking_decode::HeavyLine;
use self::child::{Pipes, Process};
pub use self::command::StdioCommand;
#[cfg(feature = "config-files")]
pub(crate) use self::command::is_inherited;
#[cfg(feature = "config-files")]
pub(crate) use self::command::parts::CommandParts;
use self::lines::{Hopeless, Lines, Piece};
use self::outbox::Outbox;
use self::stderr_drain::StderrDrain;
use super::codec::{Decoded, check_limits_inline, decode, decode_oversized};
use super::cpu_quota::{CpuMeter, CpuQuota};
use super::flood_gate::FloodGate;
use super::limits::{MessageLimits, format_bytes};
use super::{DownKind, Inbound, Link, LinkDown, OpenFailure, PendingRequests, StderrRing};

/// After the first sign of the end (exit, closed stdout, failed write) the others are waited for so
/// long: what the child wrote last is still delivered, and its exit code is known. A grandchild that
/// holds the pipes cannot stretch it.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// After so many lines without a message for anyone the thread is left to others for a moment, so
/// that a child that never pauses delays nobody else.
const LINES_IN_A_TURN: usize = 256;

/// So much is read at once, so that what is then taken as lines is bounded too.
const READ: usize = 64 * 1024;

/// A read counts as so many lines.
const LINES_PER_READ: usize = 16;

/// How long a killed child may take to be gone.
const REAP: Duration = Duration::from_secs(1);

/// How long what a child left in its group may take to be gone once it is killed. A signal is sent at
/// once but obeyed when its receiver next runs, and then somebody has to reap it who is not us.
const GROUP_END: Duration = Duration::from_millis(500);

/// A running child and the pipes to it.
#[derive(Debug)]
pub(crate) struct StdioLink {
    process: Process,
    /// Until it is closed or a write fails.
    stdin: Option<ChildStdin>,
    /// Until its end.
    stdout: Option<ChildStdout>,
    stderr: StderrDrain,
    outbox: Outbox,
    bounds: MessageLimits,
    lines: Lines,
    /// A line that is read elsewhere. Nothing else is read meanwhile, so that the order of messages
    /// stays and memory is bounded.
    heavy: Option<HeavyLine>,
    gate: FloodGate,
    /// What came in one line with the message before it.
    ready: VecDeque<Inbound>,
    /// What its input costs.
    pace: CpuQuota,
    work: CpuMeter,
    /// Something was read or taken since that was last looked at.
    consumed: bool,
    /// The last input answered nothing, so the CPU time of the next is measured.
    doubtful: bool,
    end: End,
}

/// How far the end of the link has come.
#[derive(Debug)]
enum End {
    /// There is no sign of it.
    Open,
    /// There was a sign of it.
    Near {
        reason: LinkDown,
        patience: Pin<Box<Sleep>>,
    },
    /// Nothing more will come.
    Down(LinkDown),
}

impl StdioLink {
    /// Starts the server. Must be called within a tokio runtime. Cancel-safe: given up, it leaves no
    /// process behind.
    pub(crate) async fn open(
        command: &StdioCommand,
        stderr: Arc<StderrRing>,
        bounds: MessageLimits,
        server: &ServerName,
    ) -> Result<Self, OpenFailure> {
        resolve::check(command)?;
        let (process, pipes) = Process::start(command).await?;
        tracing::debug!(%server, pid = %process.id(), "started the process");
        let Pipes {
            stdin,
            stdout,
            stderr: errors,
        } = pipes;
        let pace = CpuQuota::default();
        Ok(Self {
            process,
            stdin: Some(stdin),
            stdout: Some(stdout),
            stderr: StderrDrain::start(errors, stderr),
            outbox: Outbox::default(),
            lines: Lines::new(bounds.get().max_bytes),
            bounds,
            heavy: None,
            gate: FloodGate::default(),
            ready: VecDeque::new(),
            work: CpuMeter::new(&pace),
            pace,
            consumed: false,
            doubtful: false,
            end: End::Open,
        })
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
        let polled = self.poll_lines(cx, pending);
        // What was refused just now is told in time, though nothing else may come.
        if polled.is_pending()
            && let Poll::Ready(report) = self.gate.poll_report(cx)
        {
            return Poll::Ready(Ok(report));
        }
        polled
    }

    fn poll_lines(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        ready!(self.poll_resume(cx));
        self.paced(
            |link| link.poll_input(cx, pending),
            |polled| match polled {
                Poll::Ready(Ok(inbound)) => Some(inbound),
                _ => None,
            },
        )
    }

    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        let mut turn = LINES_IN_A_TURN;
        while turn > 0 {
            let mut taken = self.take(pending, &mut turn);
            let was_heavy = self.heavy.is_some();
            if was_heavy {
                taken = ready!(self.poll_heavy(cx));
            }
            if let Some(inbound) = taken {
                return Poll::Ready(Ok(inbound));
            }
            // There may be more lines behind a heavy one, and behind the last of this turn.
            if was_heavy || turn == 0 {
                continue;
            }
            turn = turn.saturating_sub(LINES_PER_READ);
            // A link that is down reads no further: the buffer is bounded by what ended it.
            let down = matches!(self.end, End::Down(_));
            if down || self.poll_read(cx) != Poll::Ready(true) {
                return self.poll_end(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads. The CPU time of input that answers nothing is charged.
    fn paced<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> T,
        message: impl Fn(&T) -> Option<&Inbound>,
    ) -> T {
        let result = if self.doubtful {
            let mut work = std::mem::take(&mut self.work);
            let result = work.count(|| read(self));
            self.work = work;
            result
        } else {
            read(self)
        };
        let message = message(&result);
        let answered = message.is_some_and(is_reply);
        match message {
            Some(_) if answered => {
                self.work.take();
            }
            Some(_) => self.pace.charge_admitted(self.work.take()),
            None => self.work.settle(self.lines.unfinished()),
        }
        if std::mem::take(&mut self.consumed) {
            self.doubtful = !answered;
        }
        result
    }

    /// Waits until the child may be read, if its input has cost too much. The last words of one that
    /// has ended are read without a pause.
    fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.end, End::Open)
            && self.work.poll_resume(cx).is_pending()
            && self.process.poll_exit(cx).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Writes as much as the pipe takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        let Some(stdin) = self.stdin.as_mut().filter(|_| !self.outbox.is_empty()) else {
            return;
        };
        if let Poll::Ready(Err(error)) = self.outbox.poll_write(cx, stdin) {
            self.stdin = None;
            self.near(LinkDown::new(
                DownKind::WriteFailed,
                format!("the process does not read its stdin any more: {error}"),
            ));
        }
    }

    /// Reads once; true means that there may be something to take. That is so at the end of stdout too:
    /// a last line may lack its end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(stdout) = self.stdout.as_mut() else {
            return Poll::Ready(false);
        };
        let reason = match ready!(self.lines.poll_fill(cx, stdout, READ)) {
            Ok(0) => "the process closed its stdout".to_owned(),
            Ok(_) => {
                self.consumed = true;
                return Poll::Ready(true);
            }
            Err(error) => format!("the process's stdout cannot be read: {error}"),
        };
        self.stdout = None;
        self.near(LinkDown::new(DownKind::Closed, reason));
        Poll::Ready(true)
    }

    /// The next message of what was read, if it is among the next few lines.
    fn take(&mut self, pending: &impl PendingRequests, turn: &mut usize) -> Option<Inbound> {
        if let Some(inbound) = self.ready.pop_front() {
            return Some(inbound);
        }
        while *turn > 0 && self.heavy.is_none() && !matches!(self.end, End::Down(_)) {
            *turn -= 1;
            let longest = self.bounds.get().max_bytes;
            self.lines.set_longest(longest);
            let taken = match self.lines.next() {
                Ok(Some(Piece::Line(line))) => self.read(line, pending, false),
                Ok(Some(Piece::TooLong(ends))) => {
                    let room = |bytes| self.gate.capacity().fits(bytes);
                    let Some(decoded) = decode_oversized(&ends, &too_long(longest), pending, room)
                    else {
                        self.break_down(too_long(longest));
                        return None;
                    };
                    self.gate.admit(decoded, &mut self.ready)
                }
                Ok(None) if self.stdout.is_none() => {
                    // A last line that lacks only its end. If it lacks more, the child died writing
                    // it, and nothing of it counts as an answer.
                    let rest = self.lines.take_rest();
                    if rest.is_empty() {
                        return None;
                    }
                    self.read(rest, pending, true)
                }
                Ok(None) => return None,
                Err(Hopeless(length)) => {
                    self.break_down(too_long(length));
                    return None;
                }
            };
            self.consumed = true;
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Reads a line here, or has it read elsewhere, which takes a while.
    fn read(
        &mut self,
        line: Range<usize>,
        pending: &impl PendingRequests,
        is_rest: bool,
    ) -> Option<Inbound> {
        let bytes = self.lines.get(line.clone());
        let bounds = self.bounds.get();
        let Some(limit_check) = check_limits_inline(bytes, &bounds) else {
            let capacity = self.gate.capacity();
            let line = self.lines.detach(line);
            let pending = pending.snapshot();
            self.heavy = Some(HeavyLine::read(line, bounds, pending, capacity, is_rest));
            return None;
        };
        let decoded = decode(bytes, limit_check, pending, |bytes| {
            self.gate.capacity().fits(bytes)
        });
        let decoded = if is_rest {
            without_broken(decoded)
        } else {
            decoded
        };
        self.gate.admit(decoded, &mut self.ready)
    }

    /// Waits for the line that is read elsewhere. The exit is watched meanwhile.
    fn poll_heavy(&mut self, cx: &mut Context<'_>) -> Poll<Option<Inbound>> {
        let Some(heavy) = &mut self.heavy else {
            return Poll::Ready(None);
        };
        let Poll::Ready(read) = heavy.poll(cx) else {
            let _ = self.process.poll_exit(cx);
            return Poll::Pending;
        };
        self.heavy = None;
        Poll::Ready(match read {
            Ok((decoded, work)) => {
                if !decoded.is_reply() {
                    self.pace.charge(work);
                }
                self.gate.admit(decoded, &mut self.ready)
            }
            Err(problem) => {
                self.break_down(problem);
                None
            }
        })
    }

    /// The server broke a rule, and nothing that it says counts any more.
    fn break_down(&mut self, problem: String) {
        self.end = End::Down(LinkDown::new(DownKind::Broken, problem));
    }

    /// Takes note of a sign of the end; the first one counts, except for an exit.
    fn near(&mut self, reason: LinkDown) {
        if matches!(self.end, End::Open) {
            self.end = End::Near {
                reason,
                patience: Box::pin(tokio::time::sleep(LAST_WORDS)),
            };
        }
    }

    /// Waits for the end; what was refused is told before it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Inbound, LinkDown>> {
        let down = ready!(self.poll_down(cx));
        Poll::Ready(self.gate.take_report().ok_or(down))
    }

    /// Waits for the end: exit and both pipes, or the first sign of it and some patience.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if let End::Down(down) = &self.end {
            return Poll::Ready(down.clone());
        }
        let exit = self.process.poll_exit(cx).map(LinkDown::clone);
        let complete =
            exit.is_ready() && self.stdout.is_none() && self.stderr.poll_end(cx).is_ready();
        if let Poll::Ready(exit) = exit {
            self.near(exit.clone());
            if let End::Near { reason, .. } = &mut self.end {
                *reason = exit;
            }
        }
        let End::Near { reason, patience } = &mut self.end else {
            return Poll::Pending;
        };
        if !complete {
            ready!(patience.as_mut().poll(cx));
        }
        let down = reason.clone();
        self.end = End::Down(down.clone());
        Poll::Ready(down)
    }

    /// Ends the child step by step.
    async fn end_process(&mut self, grace: CloseSettings) -> Result<(), String> {
        if self.exits_within(grace.stdin).await {
            return Ok(());
        }
        self.process.signal(Signal::TERM);
        if self.exits_within(grace.terminate).await {
            return Ok(());
        }
        self.process.signal(Signal::KILL);
        if self.exits_within(REAP).await {
            return Err("the process had to be killed".to_owned());
        }
        Err("the process did not even end when it was killed".to_owned())
    }

    /// Waits for the rest of the group, which was killed when the child's exit was noticed. A close in a
    /// hurry does not wait longer for that than for the child.
    async fn group_ends(&self, grace: CloseSettings) {
        let mut pause = Duration::from_micros(500);
        let limit = grace.stdin.saturating_add(grace.terminate).min(GROUP_END);
        let until = tokio::time::Instant::now() + limit;
        while self.process.has_group() && tokio::time::Instant::now() < until {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Waits for the exit, and reads on meanwhile, so that the child is not stuck writing.
    async fn exits_within(&mut self, limit: Duration) -> bool {
        let exit = poll_fn(|cx| {
            while let Poll::Ready(true) = self.poll_read(cx) {
                let _ = self.lines.next();
                self.lines.take_rest();
            }
            self.process.poll_exit(cx).map(drop)
        });
        tokio::time::timeout(limit, exit).await.is_ok()
    }
}

fn is_reply(inbound: &Inbound) -> bool {
    matches!(
        inbound,
        Inbound::Response { .. } | Inbound::Unreadable { .. }
    )
}

fn too_long(limit: usize) -> String {
    format!("a line is longer than {}", format_bytes(limit))
}

/// Nothing that was broken off counts as an answer.
fn without_broken(decoded: Decoded) -> Decoded {
    match decoded {
        Decoded::Reply(Inbound::Unreadable { .. }) => Decoded::Empty,
        whole => whole,
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
        _keep: bool,
    ) -> Result<u64, String> {
        match request {
            Some(request) => self.outbox.push_request(id, request),
            None => Err("the request is gone".to_owned()),
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

    fn next(
        &mut self,
        pending: &impl PendingRequests,
    ) -> impl Future<Output = Result<Inbound, LinkDown>> + Send {
        poll_fn(|cx| self.poll_next(cx, pending))
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        self.paced(
            |link| link.take(pending, &mut { LINES_IN_A_TURN }),
            Option::as_ref,
        )
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        // What the pipe takes at once is still sent, such as cancellations; a child that does not read
        // has had its chance. Calls that were handed back are no longer there.
        poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Ready(())
        })
        .await;
        self.stdin = None;
        let ended = self.end_process(grace).await;
        self.group_ends(grace).await;
        self.stderr.end(LAST_WORDS).await;
        ended
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
