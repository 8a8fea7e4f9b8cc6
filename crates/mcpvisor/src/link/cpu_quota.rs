//! Bounds the CPU time that a server can cost with input that answers nothing.
//!
//! What such input costs depends on its kind, on the machine and on the build, so it is measured.
//! A stream that has used up its share is not read for a while. The system's buffers fill
//! meanwhile, and the server has to wait.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep};

/// Input that answers nothing may take one part in so many of the time of one core.
const SHARE: u32 = 25;

/// CPU time that such input may take before it is slowed down.
const BURST: Duration = Duration::from_millis(100);

/// CPU time per byte of an unfinished message: it may be an answer.
const PER_BYTE: Duration = Duration::from_nanos(10);

/// CPU time of one stream that is never slowed down, whatever other streams of the link cost.
const FREE_PER_STREAM: Duration = Duration::from_millis(2);

/// A stream that took less than this waits only for what it took itself, so that a flood on another
/// stream does not delay it by much.
const LIGHT_STREAM: Duration = Duration::from_millis(50);

/// CPU time of a message that the gate lets in. The gate bounds how many these are.
const ADMITTED: Duration = Duration::from_micros(30);

/// What a wakeup costs outside of the code that is measured.
const WAKEUP: Duration = Duration::from_micros(25);

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The account of one link, shared by its streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuQuota(Arc<Mutex<Account>>);

impl CpuQuota {
    /// Charges CPU time that answered nothing.
    pub(crate) fn charge(&self, work: Duration) {
        self.account().charge(Instant::now(), work);
    }

    /// Charges CPU time for a message that was let in, beyond what it is worth.
    pub(crate) fn charge_admitted(&self, work: Duration) {
        self.charge(work.saturating_sub(ADMITTED));
    }

    fn paused_until(&self) -> Option<Instant> {
        self.account().paused_until(Instant::now())
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CPU time that was taken, as the time that it takes to earn it.
#[derive(Debug, Default)]
struct Account {
    /// When all of it is earned.
    earned_at: Option<Instant>,
}

impl Account {
    fn charge(&mut self, now: Instant, work: Duration) {
        let from = self.earned_at.map_or(now, |at| at.max(now));
        self.earned_at = Some(from + work * SHARE);
    }

    /// When enough of it is earned again; nothing if that is so now.
    fn paused_until(&self, now: Instant) -> Option<Instant> {
        let until = self.earned_at?.checked_sub(BURST * SHARE)?;
        (until > now).then_some(until)
    }
}

/// What one stream of input costs, and when it is not read because of that.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    pace: CpuQuota,
    /// CPU time since the last message.
    open: Duration,
    /// All CPU time.
    total: Duration,
    /// When it was first counted.
    begun: Option<Instant>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl CpuMeter {
    /// The work of a stream of this link.
    pub(crate) fn new(pace: &CpuQuota) -> Self {
        Self {
            pace: pace.clone(),
            ..Self::default()
        }
    }

    /// Waits until the stream may be read.
    pub(crate) fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.rest.is_none() {
            let until = self.paused_until();
            self.rest = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
        }
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
        }
        Poll::Ready(())
    }

    fn paused_until(&self) -> Option<Instant> {
        let own = self
            .total
            .checked_sub(FREE_PER_STREAM)
            .filter(|own| !own.is_zero())?;
        let until = self.pace.paused_until()?;
        if self.total > LIGHT_STREAM {
            return Some(until);
        }
        let earned = self.begun? + own * SHARE;
        (earned > Instant::now()).then(|| until.min(earned))
    }

    /// Counts the CPU time of reading.
    pub(crate) fn count<T>(&mut self, read: impl FnOnce() -> T) -> T {
        self.begun.get_or_insert_with(Instant::now);
        let begun = cpu_time();
        let result = read();
        let work = cpu_time().saturating_sub(begun) + WAKEUP;
        self.open += work;
        self.total += work;
        result
    }

    /// Nothing came of it yet. What exceeds the worth of the unfinished message is charged.
    pub(crate) fn settle(&mut self, unfinished: usize) {
        let bytes = u32::try_from(unfinished).unwrap_or(u32::MAX);
        let worth = PER_BYTE * bytes;
        if self.open > worth {
            self.pace.charge(self.open - worth);
            self.open = worth;
        }
    }

    /// The CPU time that a message took. It is for the caller to charge it, if it is no answer.
    pub(crate) fn take(&mut self) -> Duration {
        std::mem::take(&mut self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_free_and_then_a_share_of_the_time() {
        let now = Instant::now();
        let mut account = Account::default();
        assert_eq!(account.paused_until(now), None);
        account.charge(now, BURST);
        assert_eq!(account.paused_until(now), None);
        account.charge(now, MS);
        assert_eq!(account.paused_until(now), Some(now + MS * SHARE));
        assert_eq!(account.paused_until(now + MS * SHARE), None);
    }

    #[test]
    fn a_pause_gives_back_a_burst_and_no_more() {
        let now = Instant::now();
        let mut account = Account::default();
        account.charge(now, 2 * BURST);
        let later = now + Duration::from_secs(3_600);
        account.charge(later, BURST + MS);
        assert_eq!(account.paused_until(later), Some(later + MS * SHARE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_took_little_is_read_though_another_one_floods() {
        let pace = CpuQuota::default();
        let stream = |total| CpuMeter {
            total,
            begun: Some(Instant::now()),
            ..CpuMeter::new(&pace)
        };
        pace.charge(2 * BURST);
        let now = Instant::now();
        assert_eq!(stream(FREE_PER_STREAM).paused_until(), None);
        let little = stream(FREE_PER_STREAM + MS).paused_until();
        assert_eq!(little, Some(now + MS * SHARE), "what it took itself");
        let flooding = stream(LIGHT_STREAM + MS).paused_until();
        assert_eq!(flooding, Some(now + BURST * SHARE));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_message_is_worth_its_bytes_and_a_flood_nothing() {
        let pace = CpuQuota::default();
        let mut work = CpuMeter::new(&pace);
        work.open = 4 * BURST;
        let worth_it = BURST.as_nanos() * 4 / PER_BYTE.as_nanos();
        work.settle(usize::try_from(worth_it).unwrap());
        assert_eq!(pace.paused_until(), None);
        work.settle(0);
        assert!(pace.paused_until().is_some());
        assert_eq!(work.take(), Duration::ZERO);
    }
}
