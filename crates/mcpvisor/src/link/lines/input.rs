//! The input side of a link: reads a stream, splits it into lines and decodes them, within limits on
//! size, rate and CPU time.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::task::JoinHandle;

use super::line_buffer::{EndlessLine, Frame, LineBuffer};
use crate::link::codec::decode::{Decoded, decode, decode_oversized};
use crate::link::codec::weigh::{LimitCheck, check_limits, check_limits_inline};
use crate::link::cpu_quota::{CpuMeter, CpuQuota, cpu_time};
use crate::link::flood_gate::FloodGate;
use crate::link::limits::{MessageLimits, format_bytes};
use crate::link::{Inbound, PendingRequests};

/// Lines decoded per poll before yielding, so that a server that never pauses does not starve other
/// tasks of the thread.
const LINES_PER_POLL: usize = 256;

/// Bytes per read, which also bounds the lines per read.
const READ_BYTES: usize = 64 * 1024;

/// The cost of a read, in lines.
const LINES_PER_READ: usize = 16;

/// The input of one link.
#[derive(Debug)]
pub(in crate::link) struct LineInput<R> {
    /// `None` once it ended.
    reader: Option<R>,
    /// How the reader ended, until the link takes it.
    end: Option<io::Result<()>>,
    /// How the server violated the transport, until the link takes it.
    violation: Option<String>,
    /// Nothing more is read or decoded.
    is_stopped: bool,
    limits: MessageLimits,
    lines: LineBuffer,
    /// A large line that is decoded on a blocking thread, which returns the CPU time that it took. No
    /// other line is decoded meanwhile, which keeps the order of messages and bounds memory. Dropping
    /// this does not stop the thread; its result is discarded.
    pub(in crate::link) blocking_decode: Option<JoinHandle<(Decoded, Duration)>>,
    pub(in crate::link) gate: FloodGate,
    /// The remaining messages of a batch.
    ready: VecDeque<Inbound>,
    quota: CpuQuota,
    meter: CpuMeter,
    /// Input was consumed since the last measurement.
    consumed: bool,
    /// The last input was not a reply, so the CPU time of the next input is measured.
    measuring: bool,
}

/// The result of polling the input.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is matched where it is created, and never stored"
)]
pub(in crate::link) enum InputPoll {
    /// A message.
    Message(Inbound),
    /// There may be more input. The task is woken.
    Busy,
    /// Nothing can be read now, or ever: the end of the link may be near.
    Drained,
}

impl<R: AsyncRead + Unpin> LineInput<R> {
    pub(in crate::link) fn new(reader: R, limits: MessageLimits) -> Self {
        let quota = CpuQuota::default();
        Self {
            reader: Some(reader),
            end: None,
            violation: None,
            is_stopped: false,
            lines: LineBuffer::new(limits.get().max_bytes),
            limits,
            blocking_decode: None,
            gate: FloodGate::default(),
            ready: VecDeque::new(),
            meter: CpuMeter::new(&quota),
            quota,
            consumed: false,
            measuring: false,
        }
    }

    /// Whether the reader ended.
    pub(in crate::link) fn is_at_end(&self) -> bool {
        self.reader.is_none()
    }

    /// Takes how the reader ended, once.
    pub(in crate::link) fn take_end(&mut self) -> Option<io::Result<()>> {
        self.end.take()
    }

    /// Takes how the server violated the transport, once.
    pub(in crate::link) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// Stops reading and decoding, so that the buffer stays bounded.
    pub(in crate::link) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Waits while the CPU quota is exhausted.
    pub(in crate::link) fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.meter.poll_resume(cx)
    }

    /// Polls the next message.
    pub(in crate::link) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> InputPoll {
        self.measured(
            |input| input.poll_messages(cx, pending),
            |polled| match polled {
                InputPoll::Message(inbound) => Some(inbound),
                InputPoll::Busy | InputPoll::Drained => None,
            },
        )
    }

    /// Returns a message that was already read, without waiting.
    pub(in crate::link) fn take_buffered(
        &mut self,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        self.measured(
            |input| input.take_message(pending, &mut { LINES_PER_POLL }),
            Option::as_ref,
        )
    }

    /// Reads and discards input until the end of the reader.
    pub(in crate::link) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_read(cx)) {
            let _ = self.lines.next();
            self.lines.take_rest();
        }
        Poll::Ready(())
    }

    /// Drops the reader.
    pub(in crate::link) fn close(&mut self) {
        self.stop();
        self.reader = None;
    }

    /// Discards what is buffered. Returns its length.
    #[cfg(test)]
    pub(in crate::link) fn discard_buffered(&mut self) -> usize {
        self.lines.take_rest().len()
    }

    fn poll_messages(&mut self, cx: &mut Context<'_>, pending: &impl PendingRequests) -> InputPoll {
        let mut budget = LINES_PER_POLL;
        while budget > 0 {
            let mut taken = self.take_message(pending, &mut budget);
            let was_blocking = self.blocking_decode.is_some();
            if was_blocking {
                let Poll::Ready(decoded) = self.poll_blocking_decode(cx) else {
                    return InputPoll::Busy;
                };
                taken = decoded;
            }
            if let Some(inbound) = taken {
                return InputPoll::Message(inbound);
            }
            // The buffer may hold more lines.
            if was_blocking || budget == 0 {
                continue;
            }
            budget = budget.saturating_sub(LINES_PER_READ);
            if self.is_stopped || self.poll_read(cx) != Poll::Ready(true) {
                return InputPoll::Drained;
            }
        }
        cx.waker().wake_by_ref();
        InputPoll::Busy
    }

    /// Runs `read` and charges its CPU time to the quota, unless it returned a reply.
    fn measured<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> T,
        message: impl Fn(&T) -> Option<&Inbound>,
    ) -> T {
        let result = if self.measuring {
            let mut meter = std::mem::take(&mut self.meter);
            let result = meter.measure(|| read(self));
            self.meter = meter;
            result
        } else {
            read(self)
        };
        let message = message(&result);
        let is_reply = message.is_some_and(|inbound| inbound.answers().is_some());
        match message {
            Some(_) if is_reply => {
                self.meter.take();
            }
            Some(_) => self.quota.charge_admitted(self.meter.take()),
            None => self.meter.charge_excess(self.lines.unfinished()),
        }
        if std::mem::take(&mut self.consumed) {
            self.measuring = !is_reply;
        }
        result
    }

    /// Reads once. True means that there may be a line to take, also at the end of the stream: the last
    /// line may lack its newline.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(reader) = self.reader.as_mut() else {
            return Poll::Ready(false);
        };
        let end = match ready!(self.lines.poll_fill(cx, reader, READ_BYTES)) {
            Ok(0) => Ok(()),
            Ok(_) => {
                self.consumed = true;
                return Poll::Ready(true);
            }
            Err(error) => Err(error),
        };
        self.reader = None;
        self.end = Some(end);
        Poll::Ready(true)
    }

    /// Ends the input because the server violated the transport.
    fn violated(&mut self, problem: String) {
        self.stop();
        self.violation.get_or_insert(problem);
    }

    /// Takes the next message from the buffer, decoding at most `budget` lines.
    fn take_message(
        &mut self,
        pending: &impl PendingRequests,
        budget: &mut usize,
    ) -> Option<Inbound> {
        if let Some(inbound) = self.ready.pop_front() {
            return Some(inbound);
        }
        while *budget > 0 && self.blocking_decode.is_none() && !self.is_stopped {
            *budget -= 1;
            let max_bytes = self.limits.get().max_bytes;
            self.lines.set_max_bytes(max_bytes);
            let taken = match self.lines.next() {
                Ok(Some(Frame::Line(line))) => self.decode(line, pending, false),
                Ok(Some(Frame::Oversized(line))) => {
                    let problem = line_too_long(max_bytes);
                    let fits = |bytes| self.gate.capacity().fits(bytes);
                    let Some(decoded) = decode_oversized(&line, &problem, pending, fits) else {
                        self.violated(problem);
                        return None;
                    };
                    self.gate.admit(decoded, &mut self.ready)
                }
                Ok(None) if self.reader.is_none() => {
                    let rest = self.lines.take_rest();
                    if rest.is_empty() {
                        return None;
                    }
                    self.decode(rest, pending, true)
                }
                Ok(None) => return None,
                Err(EndlessLine(length)) => {
                    self.violated(line_too_long(length));
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

    /// Decodes a line, on a blocking thread if that would take long. `is_last`: the line has no
    /// newline because the stream ended.
    fn decode(
        &mut self,
        line: Range<usize>,
        pending: &impl PendingRequests,
        is_last: bool,
    ) -> Option<Inbound> {
        let bytes = self.lines.get(line.clone());
        let limits = self.limits.get();
        let Some(limit_check) = check_limits_inline(bytes, &limits) else {
            let capacity = self.gate.capacity();
            let buffer = self.lines.detach();
            let pending = pending.snapshot();
            self.blocking_decode = Some(tokio::task::spawn_blocking(move || {
                let started = cpu_time();
                let line = buffer.get(line).unwrap_or_default();
                let limit_check = check_limits(line, &limits);
                let fits = |bytes| capacity.fits(bytes);
                let decoded = decode_line(line, limit_check, &pending, fits, is_last);
                (decoded, cpu_time().saturating_sub(started))
            }));
            return None;
        };
        let fits = |bytes| self.gate.capacity().fits(bytes);
        let decoded = decode_line(bytes, limit_check, pending, fits, is_last);
        self.gate.admit(decoded, &mut self.ready)
    }

    /// Waits for the blocking thread.
    fn poll_blocking_decode(&mut self, cx: &mut Context<'_>) -> Poll<Option<Inbound>> {
        let Some(decode) = &mut self.blocking_decode else {
            return Poll::Ready(None);
        };
        let result = ready!(Pin::new(decode).poll(cx));
        self.blocking_decode = None;
        Poll::Ready(match result {
            Ok((decoded, cpu_time)) => {
                if !decoded.is_reply() {
                    self.quota.charge(cpu_time);
                }
                self.gate.admit(decoded, &mut self.ready)
            }
            Err(error) => {
                self.violated(format!("cannot decode a line: {error}"));
                None
            }
        })
    }
}

fn line_too_long(limit: usize) -> String {
    format!("a line is longer than {}", format_bytes(limit))
}

/// Decodes a line. A last line that is not valid JSON was cut off when the server died, so it does
/// not count as a reply.
fn decode_line(
    line: &[u8],
    limit_check: LimitCheck,
    pending: &impl PendingRequests,
    fits: impl Fn(usize) -> bool,
    is_last: bool,
) -> Decoded {
    match decode(line, limit_check, pending, fits) {
        Decoded::Reply(Inbound::Unreadable { .. }) if is_last => Decoded::Empty,
        decoded => decoded,
    }
}
