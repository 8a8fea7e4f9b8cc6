//! The input side of the link: reads stdout, splits it into lines and decodes them, within limits
//! on size, rate and CPU time.

use std::future::Future as _;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::line_buffer::{EndlessLine, Frame};
use super::link::{LinkState, StdioLink};
use crate::link::codec::decode::{Decoded, decode, decode_oversized};
use crate::link::codec::weigh::{LimitCheck, check_limits, check_limits_inline};
use crate::link::cpu_quota::cpu_time;
use crate::link::limits::format_bytes;
use crate::link::{DownKind, Inbound, LinkDown, PendingRequests};

/// Lines decoded per poll before yielding, so that a child that never pauses does not starve other
/// tasks of the thread.
const LINES_PER_POLL: usize = 256;

/// Bytes per read, which also bounds the lines per read.
const READ_BYTES: usize = 64 * 1024;

/// The cost of a read, in lines.
const LINES_PER_READ: usize = 16;

impl StdioLink {
    /// Waits for the next message, and for the end of the link once stdout is drained.
    pub(super) fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        ready!(self.poll_resume(cx));
        self.measured(
            |link| link.poll_messages(cx, pending),
            |polled| match polled {
                Poll::Ready(Ok(inbound)) => Some(inbound),
                _ => None,
            },
        )
    }

    /// Returns a message that was already read, without waiting.
    pub(super) fn take_buffered(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        self.measured(
            |link| link.take_message(pending, &mut { LINES_PER_POLL }),
            Option::as_ref,
        )
    }

    fn poll_messages(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        let mut budget = LINES_PER_POLL;
        while budget > 0 {
            let mut taken = self.take_message(pending, &mut budget);
            let was_blocking = self.blocking_decode.is_some();
            if was_blocking {
                taken = ready!(self.poll_blocking_decode(cx));
            }
            if let Some(inbound) = taken {
                return Poll::Ready(Ok(inbound));
            }
            // The buffer may hold more lines.
            if was_blocking || budget == 0 {
                continue;
            }
            budget = budget.saturating_sub(LINES_PER_READ);
            // A link that is down stops reading, so its buffer stays bounded.
            let down = matches!(self.state, LinkState::Down(_));
            if down || self.poll_read(cx) != Poll::Ready(true) {
                return self.poll_end(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
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

    /// Waits while the CPU quota is exhausted. The last output of a child that exited is read
    /// without a pause.
    fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.state, LinkState::Open)
            && self.meter.poll_resume(cx).is_pending()
            && self.process.poll_exit(cx).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Reads once. True means that there may be a line to take, also at the end of stdout: the last
    /// line may lack its newline.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(stdout) = self.stdout.as_mut() else {
            return Poll::Ready(false);
        };
        let reason = match ready!(self.lines.poll_fill(cx, stdout, READ_BYTES)) {
            Ok(0) => "the process closed its stdout".to_owned(),
            Ok(_) => {
                self.consumed = true;
                return Poll::Ready(true);
            }
            Err(error) => format!("cannot read the stdout of the process: {error}"),
        };
        self.stdout = None;
        self.begin_end(LinkDown::new(DownKind::Closed, reason));
        Poll::Ready(true)
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
        while *budget > 0
            && self.blocking_decode.is_none()
            && !matches!(self.state, LinkState::Down(_))
        {
            *budget -= 1;
            let max_bytes = self.limits.get().max_bytes;
            self.lines.set_max_bytes(max_bytes);
            let taken = match self.lines.next() {
                Ok(Some(Frame::Line(line))) => self.decode(line, pending, false),
                Ok(Some(Frame::Oversized(line))) => {
                    let problem = line_too_long(max_bytes);
                    let fits = |bytes| self.gate.capacity().fits(bytes);
                    let Some(decoded) = decode_oversized(&line, &problem, pending, fits) else {
                        self.break_link(problem);
                        return None;
                    };
                    self.gate.admit(decoded, &mut self.ready)
                }
                Ok(None) if self.stdout.is_none() => {
                    let rest = self.lines.take_rest();
                    if rest.is_empty() {
                        return None;
                    }
                    self.decode(rest, pending, true)
                }
                Ok(None) => return None,
                Err(EndlessLine(length)) => {
                    self.break_link(line_too_long(length));
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
    /// newline because stdout ended.
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

    /// Waits for the blocking thread, and watches for the exit meanwhile.
    fn poll_blocking_decode(&mut self, cx: &mut Context<'_>) -> Poll<Option<Inbound>> {
        let Some(decode) = &mut self.blocking_decode else {
            return Poll::Ready(None);
        };
        let Poll::Ready(result) = Pin::new(decode).poll(cx) else {
            let _ = self.process.poll_exit(cx);
            return Poll::Pending;
        };
        self.blocking_decode = None;
        Poll::Ready(match result {
            Ok((decoded, cpu_time)) => {
                if !decoded.is_reply() {
                    self.quota.charge(cpu_time);
                }
                self.gate.admit(decoded, &mut self.ready)
            }
            Err(error) => {
                self.break_link(format!("cannot decode a line: {error}"));
                None
            }
        })
    }
}

fn line_too_long(limit: usize) -> String {
    format!("a line is longer than {}", format_bytes(limit))
}

/// Decodes a line. A last line that is not valid JSON was cut off when the child died, so it does
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
