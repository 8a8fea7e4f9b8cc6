//! Rate-limits unsolicited messages and reports what was dropped.
//!
//! Replies bypass the gate. Drops are reported in one message per interval, so the cost of a flood
//! to the receiver does not depend on its rate.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::ListKind;
use tokio::time::{Instant, Sleep};

use super::codec::Decoded;
use super::inbound::{DropReport, Inbound};

/// Tokens in a full bucket: the largest burst of small messages.
pub(crate) const BURST: u32 = 2_000;

/// The bucket regains one token per interval: 1,000 per second.
pub(crate) const REFILL_INTERVAL: Duration = Duration::from_millis(1);

/// Memory of a message per token, so that the memory of queued messages is bounded too. Nearly
/// every message costs one token.
const BYTES_PER_TOKEN: usize = 16 * 1024;

/// The interval between drop reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Rejected requests listed per report. Each listed request is answered, so more of them would
/// cause a flood of answers.
const MAX_REPORTED_REQUESTS: usize = 16;

/// The gate of one connection.
#[derive(Debug, Default)]
pub(crate) struct FloodGate {
    bucket: TokenBucket,
    /// Messages dropped since the last report, and the timer of the next one.
    drops: Option<(DropReport, Pin<Box<Sleep>>)>,
    /// Tokens that a request costs in addition to its size.
    request_tokens: u32,
}

impl FloodGate {
    /// Charges additional tokens per request, because answering one costs more than reading it.
    #[cfg(feature = "http")]
    pub(crate) fn with_request_tokens(tokens: u32) -> Self {
        Self {
            request_tokens: tokens,
            ..Self::default()
        }
    }

    /// The capacity available now.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity(self.bucket.available(Instant::now().into_std()))
    }

    /// Admits a decoded message, or records it as dropped for the next report. Returns the first
    /// message of a batch and queues the others in `rest`.
    pub(crate) fn admit(
        &mut self,
        decoded: Decoded,
        rest: &mut VecDeque<Inbound>,
    ) -> Option<Inbound> {
        match decoded {
            Decoded::Empty => None,
            Decoded::Reply(inbound) => Some(inbound),
            Decoded::Unsolicited(inbound, bytes) => {
                let is_request = matches!(inbound, Inbound::Request { .. });
                let additional = if is_request { self.request_tokens } else { 0 };
                let tokens = token_cost(bytes).saturating_add(additional);
                self.bucket.take(Instant::now().into_std(), tokens);
                Some(inbound)
            }
            Decoded::Dropped(changed_lists) => {
                self.record_drop(changed_lists);
                None
            }
            Decoded::RejectedRequest(id, reason) => {
                let drops = self.drops();
                drops.messages += 1;
                if drops.requests.len() < MAX_REPORTED_REQUESTS {
                    drops.requests.push((id, reason));
                }
                None
            }
            Decoded::DroppedNoise => {
                self.drops().strays += 1;
                None
            }
            Decoded::Batch(messages) => {
                let mut first = None;
                for message in messages {
                    let admitted = self.admit(message, rest);
                    push_in_order(admitted, &mut first, rest);
                }
                first
            }
        }
    }

    /// Records a dropped message. List changes are not lost: the report carries them.
    fn record_drop(&mut self, changed_lists: &[ListKind]) {
        let drops = self.drops();
        if changed_lists.is_empty() {
            drops.messages += 1;
        }
        for list in changed_lists {
            if !drops.changed_lists.contains(list) {
                drops.changed_lists.push(*list);
            }
        }
    }

    fn drops(&mut self) -> &mut DropReport {
        let (report, _) = self.drops.get_or_insert_with(|| {
            let timer = tokio::time::sleep(REPORT_INTERVAL);
            (DropReport::default(), Box::pin(timer))
        });
        report
    }

    /// Waits until a report is due; pending forever while nothing was dropped.
    pub(crate) fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<Inbound> {
        let Some((_, timer)) = &mut self.drops else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(cx));
        self.take_report().map_or(Poll::Pending, Poll::Ready)
    }

    /// Takes the report before it is due.
    pub(crate) fn take_report(&mut self) -> Option<Inbound> {
        let (report, _) = self.drops.take()?;
        Some(Inbound::Dropped(report))
    }
}

/// Stores a message in `first`, or queues it in `rest` if there is a first one.
pub(crate) fn push_in_order(
    message: Option<Inbound>,
    first: &mut Option<Inbound>,
    rest: &mut VecDeque<Inbound>,
) {
    match first {
        Some(_) => rest.extend(message),
        None => *first = message,
    }
}

/// Tokens available for an unsolicited message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity(u32);

impl Capacity {
    /// Whether a message that takes `bytes` of memory is within the capacity.
    pub(crate) fn fits(self, bytes: usize) -> bool {
        token_cost(bytes) <= self.0
    }
}

/// Rounds the memory of a message up to whole tokens, in bytes.
pub(crate) fn round_up_to_tokens(bytes: usize) -> usize {
    (bytes / BYTES_PER_TOKEN + 1) * BYTES_PER_TOKEN
}

fn token_cost(bytes: usize) -> u32 {
    // Message limits keep the size far below saturation.
    u32::try_from(bytes / BYTES_PER_TOKEN + 1).unwrap_or(u32::MAX)
}

/// A token bucket that refills with time.
#[derive(Debug, Default)]
struct TokenBucket {
    /// When the bucket is full again; `None` before the first use.
    full_at: Option<std::time::Instant>,
}

impl TokenBucket {
    fn available(&self, now: std::time::Instant) -> u32 {
        let refill = self.time_to_refill(now).as_nanos();
        let used = refill.div_ceil(REFILL_INTERVAL.as_nanos());
        BURST.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    fn take(&mut self, now: std::time::Instant, tokens: u32) {
        self.full_at = Some(now + self.time_to_refill(now) + REFILL_INTERVAL * tokens);
    }

    fn time_to_refill(&self, now: std::time::Instant) -> Duration {
        self.full_at.map_or(Duration::ZERO, |full_at| {
            full_at.saturating_duration_since(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rmcp::model::RequestId;

    use super::*;
    use crate::link::RejectReason;

    #[tokio::test]
    async fn a_report_lists_a_few_rejected_requests_and_counts_all() {
        let mut gate = FloodGate::default();
        for number in 0..1_000 {
            let request =
                Decoded::RejectedRequest(RequestId::Number(number), RejectReason::TooMany);
            assert!(gate.admit(request, &mut VecDeque::new()).is_none());
        }
        let Some(Inbound::Dropped(report)) = gate.take_report() else {
            panic!("there is no report");
        };
        let requests = report.requests;
        assert_eq!(report.messages, 1_000);
        assert_eq!(requests.len(), MAX_REPORTED_REQUESTS);
        assert_eq!(requests[0], (RequestId::Number(0), RejectReason::TooMany));
    }

    /// Takes single tokens until the bucket is empty; returns how many there were.
    fn drain(bucket: &mut TokenBucket, now: Instant) -> u32 {
        let mut taken = 0;
        while bucket.available(now) > 0 {
            bucket.take(now, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_burst_is_admitted_and_then_a_steady_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::default();
        assert_eq!(drain(&mut bucket, start), BURST);
        assert_eq!(drain(&mut bucket, start + REFILL_INTERVAL / 2), 0);
        assert_eq!(drain(&mut bucket, start + REFILL_INTERVAL), 1);
        assert_eq!(drain(&mut bucket, start + Duration::from_secs(1)), 999);
    }

    #[test]
    fn a_pause_refills_one_burst_and_no_more() {
        let start = Instant::now();
        let mut bucket = TokenBucket::default();
        drain(&mut bucket, start);
        let later = start + Duration::from_secs(3_600);
        assert_eq!(drain(&mut bucket, later), BURST);
    }

    #[test]
    fn a_large_message_takes_many_tokens() {
        let now = Instant::now();
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.available(now), BURST);
        bucket.take(now, BURST - 1);
        assert_eq!(bucket.available(now), 1);
    }

    #[test]
    fn a_clock_that_stops_or_goes_back_refills_nothing() {
        let now = Instant::now() + REFILL_INTERVAL;
        let mut bucket = TokenBucket::default();
        drain(&mut bucket, now);
        assert_eq!(drain(&mut bucket, now - REFILL_INTERVAL), 0);
    }
}
