//! Limits the CPU time that unsolicited input of a server can take.
//!
//! The cost of input depends on its kind, the machine and the build, so it is measured. A stream
//! that exceeds the quota is not read for a while; the system's buffers fill up and the server
//! blocks.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep};

/// Unsolicited input may take this fraction of one core: one in 25.
const CORE_FRACTION: u32 = 25;

/// CPU time that unsolicited input may take before it is throttled.
const BURST: Duration = Duration::from_millis(100);

/// Free CPU time per byte of an incomplete message, which may be a reply.
const FREE_PER_BYTE: Duration = Duration::from_nanos(10);

/// Free CPU time per stream, whatever the other streams of the link take.
const FREE_PER_STREAM: Duration = Duration::from_millis(2);

/// A stream that took less CPU time waits only for its own share, so that a flood on another stream
/// does not delay it by much.
const LIGHT_STREAM: Duration = Duration::from_millis(50);

/// Free CPU time per message that the flood gate admits. The gate limits their rate.
const FREE_PER_ADMITTED: Duration = Duration::from_micros(30);

/// CPU time of a wakeup outside the measured code.
const WAKEUP_COST: Duration = Duration::from_micros(25);

/// The CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The CPU quota of one link, shared by its streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuQuota(Arc<Mutex<CpuDebt>>);

impl CpuQuota {
    /// Charges CPU time of unsolicited input.
    pub(crate) fn charge(&self, work: Duration) {
        self.debt().charge(Instant::now(), work);
    }

    /// Charges CPU time of an admitted message beyond its free part.
    pub(crate) fn charge_admitted(&self, work: Duration) {
        self.charge(work.saturating_sub(FREE_PER_ADMITTED));
    }

    fn paused_until(&self) -> Option<Instant> {
        self.debt().paused_until(Instant::now())
    }

    fn debt(&self) -> std::sync::MutexGuard<'_, CpuDebt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CPU time that was used, as the time until it is paid off.
#[derive(Debug, Default)]
struct CpuDebt {
    paid_at: Option<Instant>,
}

impl CpuDebt {
    fn charge(&mut self, now: Instant, work: Duration) {
        let from = self.paid_at.map_or(now, |at| at.max(now));
        self.paid_at = Some(from + work * CORE_FRACTION);
    }

    /// When the debt falls below the burst; `None` if it is below now.
    fn paused_until(&self, now: Instant) -> Option<Instant> {
        let until = self.paid_at?.checked_sub(BURST * CORE_FRACTION)?;
        (until > now).then_some(until)
    }
}

/// Measures the CPU time of one stream, and pauses the stream while the quota is exceeded.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    quota: CpuQuota,
    /// CPU time since the last message.
    uncharged: Duration,
    /// CPU time since the start.
    total: Duration,
    /// The first measurement.
    started: Option<Instant>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl CpuMeter {
    pub(crate) fn new(quota: &CpuQuota) -> Self {
        Self {
            quota: quota.clone(),
            ..Self::default()
        }
    }

    /// Waits until the stream may be read.
    pub(crate) fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pause.is_none() {
            let until = self.paused_until();
            self.pause = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    fn paused_until(&self) -> Option<Instant> {
        let own = self
            .total
            .checked_sub(FREE_PER_STREAM)
            .filter(|own| !own.is_zero())?;
        let until = self.quota.paused_until()?;
        if self.total > LIGHT_STREAM {
            return Some(until);
        }
        let paid_at = self.started? + own * CORE_FRACTION;
        (paid_at > Instant::now()).then(|| until.min(paid_at))
    }

    /// Runs `read` and measures its CPU time.
    pub(crate) fn measure<T>(&mut self, read: impl FnOnce() -> T) -> T {
        self.started.get_or_insert_with(Instant::now);
        let before = cpu_time();
        let result = read();
        let work = cpu_time().saturating_sub(before) + WAKEUP_COST;
        self.uncharged += work;
        self.total += work;
        result
    }

    /// Charges the CPU time beyond the free part of an incomplete message of `unfinished` bytes.
    pub(crate) fn charge_excess(&mut self, unfinished: usize) {
        let bytes = u32::try_from(unfinished).unwrap_or(u32::MAX);
        let free = FREE_PER_BYTE * bytes;
        if self.uncharged > free {
            self.quota.charge(self.uncharged - free);
            self.uncharged = free;
        }
    }

    /// Takes the CPU time of a message. The caller charges it, unless the message is a reply.
    pub(crate) fn take(&mut self) -> Duration {
        std::mem::take(&mut self.uncharged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_free_and_then_a_fraction_of_the_time() {
        let now = Instant::now();
        let mut debt = CpuDebt::default();
        assert_eq!(debt.paused_until(now), None);
        debt.charge(now, BURST);
        assert_eq!(debt.paused_until(now), None);
        debt.charge(now, MS);
        assert_eq!(debt.paused_until(now), Some(now + MS * CORE_FRACTION));
        assert_eq!(debt.paused_until(now + MS * CORE_FRACTION), None);
    }

    #[test]
    fn a_pause_restores_one_burst_and_no_more() {
        let now = Instant::now();
        let mut debt = CpuDebt::default();
        debt.charge(now, 2 * BURST);
        let later = now + Duration::from_secs(3_600);
        debt.charge(later, BURST + MS);
        assert_eq!(debt.paused_until(later), Some(later + MS * CORE_FRACTION));
    }

    #[tokio::test(start_paused = true)]
    async fn a_light_stream_is_read_while_another_stream_floods() {
        let quota = CpuQuota::default();
        let stream = |total| CpuMeter {
            total,
            started: Some(Instant::now()),
            ..CpuMeter::new(&quota)
        };
        quota.charge(2 * BURST);
        let now = Instant::now();
        assert_eq!(stream(FREE_PER_STREAM).paused_until(), None);
        let light = stream(FREE_PER_STREAM + MS).paused_until();
        assert_eq!(light, Some(now + MS * CORE_FRACTION), "its own share");
        let flooding = stream(LIGHT_STREAM + MS).paused_until();
        assert_eq!(flooding, Some(now + BURST * CORE_FRACTION));
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_message_gets_free_cpu_time_for_its_bytes() {
        let quota = CpuQuota::default();
        let mut meter = CpuMeter::new(&quota);
        meter.uncharged = 4 * BURST;
        let bytes = BURST.as_nanos() * 4 / FREE_PER_BYTE.as_nanos();
        meter.charge_excess(usize::try_from(bytes).unwrap());
        assert_eq!(quota.paused_until(), None);
        meter.charge_excess(0);
        assert!(quota.paused_until().is_some());
        assert_eq!(meter.take(), Duration::ZERO);
    }
}
