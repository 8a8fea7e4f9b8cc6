//! The quota of a client: how many of its requests run, wait, and start per time.
//!
//! It counts requests of all servers together, before they reach a server. The fair queue of each
//! server is independent of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mcpvisor_core::rate_limit::{RateLimit, TokenBucket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::mutex::lock;
use crate::server::actor::now;

/// The limits of a client; none by default.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QuotaLimits {
    pub(crate) in_flight: Option<usize>,
    pub(crate) waiting: Option<usize>,
    pub(crate) rate: Option<RateLimit>,
}

/// The quota of one client.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    running: Option<Arc<Semaphore>>,
    /// Requests that wait for the quota.
    waiting: AtomicUsize,
    max_waiting: Option<usize>,
    rate: Option<Mutex<TokenBucket>>,
}

/// Why a request gets no quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaRefusal {
    /// The client has this many waiting requests.
    TooManyWaiting(usize),
    /// The next request may start after this time, which is beyond the deadline of this one.
    RateExceeded(Duration),
    /// The deadline passed while it waited.
    Deadline,
}

/// Held by a request while it runs.
#[derive(Debug)]
pub(crate) struct QuotaPermit(
    #[expect(dead_code, reason = "dropping it frees the place")] Option<OwnedSemaphorePermit>,
);

impl Quota {
    pub(crate) fn new(limits: QuotaLimits) -> Self {
        let running = limits.in_flight.map(|requests| {
            let permits = requests.clamp(1, Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        });
        let rate = limits.rate.map(|rate| Mutex::new(TokenBucket::new(rate)));
        Self {
            running,
            waiting: AtomicUsize::new(0),
            max_waiting: limits.waiting,
            rate,
        }
    }

    /// Whether there are no limits.
    pub(crate) fn is_open(&self) -> bool {
        self.running.is_none() && self.rate.is_none()
    }

    /// Waits for a place and for the rate limit, in order of arrival.
    pub(crate) async fn take(&self, deadline: Instant) -> Result<QuotaPermit, QuotaRefusal> {
        let running = self.running.as_ref();
        if let Some(running) = running
            && let Ok(permit) = Arc::clone(running).try_acquire_owned()
            && self.take_token_at_once()
        {
            return Ok(QuotaPermit(Some(permit)));
        }
        if running.is_none() && self.take_token_at_once() {
            return Ok(QuotaPermit(None));
        }
        let _waiting = self.enter_queue()?;
        let permit = match running {
            Some(running) => {
                let permit = Arc::clone(running).acquire_owned();
                let permit = tokio::time::timeout_at(deadline.into(), permit).await;
                // The semaphore is never closed.
                permit.map_err(|_| QuotaRefusal::Deadline)?.ok()
            }
            None => None,
        };
        self.wait_for_token(deadline).await?;
        Ok(QuotaPermit(permit))
    }

    fn take_token_at_once(&self) -> bool {
        let rate = self.rate.as_ref();
        rate.is_none_or(|rate| lock(rate).take(now(), Duration::ZERO).is_ok())
    }

    async fn wait_for_token(&self, deadline: Instant) -> Result<(), QuotaRefusal> {
        let Some(rate) = &self.rate else {
            return Ok(());
        };
        let start = now();
        let within = deadline.saturating_duration_since(start);
        let wait = lock(rate).take(start, within);
        let wait = wait.map_err(QuotaRefusal::RateExceeded)?;
        if !wait.is_zero() {
            let unused = UnusedToken(rate);
            tokio::time::sleep(wait).await;
            std::mem::forget(unused);
        }
        Ok(())
    }

    fn enter_queue(&self) -> Result<Waiting<'_>, QuotaRefusal> {
        let waiting = Waiting(self);
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        match self.max_waiting {
            // Dropping the guard leaves the queue.
            Some(limit) if before >= limit => Err(QuotaRefusal::TooManyWaiting(limit)),
            _ => Ok(waiting),
        }
    }
}

/// Counts a waiting request.
struct Waiting<'q>(&'q Quota);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a reserved token if its request is dropped before it starts.
struct UnusedToken<'r>(&'r Mutex<TokenBucket>);

impl Drop for UnusedToken<'_> {
    fn drop(&mut self) {
        lock(self.0).give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn quota(in_flight: Option<usize>, waiting: Option<usize>, rate: Option<u32>) -> Quota {
        let rate = rate.map(|requests| RateLimit::new(requests, 10 * SECOND));
        Quota::new(QuotaLimits {
            in_flight,
            waiting,
            rate,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_waiting_limit_are_refused_at_once() {
        let quota = quota(Some(1), Some(1), None);
        let due = now() + 10 * SECOND;
        let first = quota.take(due).await.unwrap();
        let mut second = std::pin::pin!(quota.take(due));
        assert!(futures_util::poll!(&mut second).is_pending());
        let third = quota.take(due).await.unwrap_err();
        assert_eq!(third, QuotaRefusal::TooManyWaiting(1));
        drop(first);
        let second = second.await.unwrap();
        // The place in the queue is free again.
        let due = now() + SECOND;
        assert_eq!(quota.take(due).await.unwrap_err(), QuotaRefusal::Deadline);
        drop(second);
        quota.take(due).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_rate_wait_or_learn_how_long_they_would() {
        let quota = quota(None, None, Some(2));
        let start = tokio::time::Instant::now();
        let due = start.into_std() + 6 * SECOND;
        for _ in 0..3 {
            quota.take(due).await.unwrap();
        }
        assert_eq!(start.elapsed().as_secs(), 5);
        let refusal = quota.take(due).await.unwrap_err();
        let QuotaRefusal::RateExceeded(wait) = refusal else {
            panic!("{refusal:?}");
        };
        assert!(wait > 4 * SECOND && wait <= 5 * SECOND, "{wait:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_request_returns_its_token_and_its_place() {
        let quota = quota(Some(4), Some(1), Some(1));
        let due = now() + 60 * SECOND;
        drop(quota.take(due).await.unwrap());
        for _ in 0..5 {
            let mut dropped = Box::pin(quota.take(due));
            assert!(futures_util::poll!(&mut dropped).is_pending());
        }
        let start = tokio::time::Instant::now();
        quota.take(due).await.unwrap();
        assert!(start.elapsed() <= 10 * SECOND, "{:?}", start.elapsed());
    }
}
