//! A limit of requests per time: a token bucket.
//!
//! The bucket holds up to `burst` tokens and is refilled evenly. A request takes one token. If there is
//! none, it reserves the next one that will be there, so that requests are served in order. Sleeping until
//! then is up to the caller.

use std::time::{Duration, Instant};

/// The longest time between two tokens, so that clock arithmetic cannot overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// A limit of requests per time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Time in which one token is added.
    interval: Duration,
    /// Tokens in a full bucket.
    burst: u32,
}

impl RateLimit {
    /// Allows `requests` in every `period`, all of them at once if none were made before. Zero requests
    /// count as one.
    pub fn new(requests: u32, period: Duration) -> Self {
        let requests = requests.max(1);
        Self {
            interval: (period / requests).min(MAX_INTERVAL),
            burst: requests,
        }
    }
}

/// The tokens of one client.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    limit: RateLimit,
    /// When the bucket will be full, if no token is taken until then. `None` while it is full.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(limit: RateLimit) -> Self {
        let full_at = None;
        Self { limit, full_at }
    }

    /// Takes a token, which is there after the returned time. Takes none, and returns that time as an
    /// error, if it is longer than `within`.
    pub fn take(&mut self, now: Instant, within: Duration) -> Result<Duration, Duration> {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let wait = self.wait(now, full_at);
        if wait > within {
            return Err(wait);
        }
        self.full_at = full_at.checked_add(self.limit.interval);
        Ok(wait)
    }

    /// Returns a token that was not used.
    pub fn give_back(&mut self) {
        let interval = self.limit.interval;
        self.full_at = self.full_at.and_then(|at| at.checked_sub(interval));
    }

    /// The time until the next token, in a bucket that will be full at this time.
    fn wait(&self, now: Instant, full_at: Instant) -> Duration {
        let missing = full_at.saturating_duration_since(now);
        let others = self.limit.interval.saturating_mul(self.limit.burst - 1);
        missing.saturating_sub(others)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_burst_is_free_and_further_requests_come_one_per_interval() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(RateLimit::new(3, seconds(30)));
        let waits: Vec<_> = (0..6).map(|_| bucket.take(now, LONG).unwrap()).collect();
        let expected = [0, 0, 0, 10, 20, 30].map(seconds);
        assert_eq!(waits, expected);
        // Two intervals after the last reservation, two tokens are there.
        let later = now + seconds(50);
        let waits: Vec<_> = (0..3).map(|_| bucket.take(later, LONG).unwrap()).collect();
        assert_eq!(waits, [0, 0, 10].map(seconds));
    }

    #[test]
    fn a_request_that_cannot_wait_takes_nothing_and_learns_the_wait() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(RateLimit::new(1, seconds(10)));
        assert_eq!(bucket.take(now, seconds(0)), Ok(seconds(0)));
        for _ in 0..3 {
            assert_eq!(bucket.take(now, seconds(9)), Err(seconds(10)));
        }
        assert_eq!(bucket.take(now, seconds(10)), Ok(seconds(10)));
        bucket.give_back();
        assert_eq!(bucket.take(now, seconds(10)), Ok(seconds(10)));
    }

    #[test]
    fn extreme_limits_do_not_overflow() {
        let now = Instant::now();
        for (requests, period) in [(0, Duration::MAX), (u32::MAX, Duration::ZERO)] {
            let mut bucket = TokenBucket::new(RateLimit::new(requests, period));
            for _ in 0..1_000 {
                let _ = bucket.take(now, Duration::MAX);
            }
            bucket.give_back();
        }
    }

    proptest! {
        /// In any period, at most the burst and the refill are granted.
        #[test]
        fn no_window_has_more_than_the_limit(
            requests in 1_u32..20,
            steps in prop::collection::vec(0_u64..2_000, 1..200),
        ) {
            let period = seconds(10);
            let mut now = Instant::now();
            let mut bucket = TokenBucket::new(RateLimit::new(requests, period));
            let mut granted = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                if let Ok(wait) = bucket.take(now, seconds(5)) {
                    granted.push(now + wait);
                }
            }
            for (index, start) in granted.iter().enumerate() {
                let in_window = granted[index..].iter().take_while(|at| **at < *start + period);
                prop_assert!(in_window.count() <= 2 * requests as usize);
            }
            prop_assert!(granted.is_sorted());
        }
    }
}
