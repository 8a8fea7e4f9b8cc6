//! When a connection that could not be opened is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// The wait before the second try, doubling from there.
const FIRST: Duration = Duration::from_millis(50);

/// The longest wait between two tries for a request.
const LONGEST: Duration = Duration::from_secs(1);

/// The longest wait between two tries for the listening stream, for which no caller waits.
const LONGEST_LISTENING: Duration = Duration::from_secs(10);

/// How long a request waits for a connection, as long as a call waits for a reconnect by default.
pub(super) const DIAL_WAIT: Duration = Duration::from_secs(15);

/// How long a connection is tried for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Once.
    None,
    /// For [`DIAL_WAIT`].
    Request,
    /// Until the exchange is given up by its limit or by the deadline of its request.
    Forever,
    /// For ever, and more and more slowly.
    Listening,
}

/// The tries to open one connection.
#[derive(Debug)]
pub(super) struct Redial {
    patience: Patience,
    /// When the first try began.
    since: Option<Instant>,
    failures: u32,
}

impl Redial {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            patience,
            since: None,
            failures: 0,
        }
    }

    /// A try begins.
    pub(super) fn begins(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// There is a connection.
    pub(super) fn done(&mut self) {
        self.since = None;
        self.failures = 0;
    }

    /// When the first try began, until there is a connection.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// A try failed: the wait before the next one, if there is to be one.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let longest = match self.patience {
            Patience::None => return None,
            Patience::Request if now - since >= DIAL_WAIT => return None,
            Patience::Request | Patience::Forever => LONGEST,
            Patience::Listening => LONGEST_LISTENING,
        };
        let wait = FIRST * 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        Some(wait.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(patience: Patience, tries: usize) -> Vec<Option<u128>> {
        let mut redial = Redial::new(patience);
        let now = Instant::now();
        redial.begins(now);
        let waits = (0..tries).map(|_| redial.failed(now).map(|wait| wait.as_millis()));
        waits.collect()
    }

    #[test]
    fn tries_follow_more_and_more_slowly_up_to_a_bound() {
        let requests = [50, 100, 200, 400, 800, 1_000, 1_000].map(Some);
        assert_eq!(waits(Patience::Request, 7), requests);
        assert_eq!(waits(Patience::Listening, 60)[59], Some(10_000));
        assert_eq!(waits(Patience::None, 1), [None]);
    }

    #[test]
    fn a_request_is_given_up_in_time_and_a_stream_never() {
        let (begun, later) = (Instant::now(), Instant::now() + DIAL_WAIT);
        let after = |patience| {
            let mut redial = Redial::new(patience);
            redial.begins(begun);
            redial.failed(later).is_some()
        };
        assert!(!after(Patience::Request));
        assert!(after(Patience::Forever));
        assert!(after(Patience::Listening));
    }

    #[test]
    fn a_connection_ends_the_count() {
        let mut redial = Redial::new(Patience::Request);
        let now = Instant::now();
        redial.begins(now);
        redial.failed(now);
        redial.done();
        redial.begins(now + DIAL_WAIT);
        assert_eq!(redial.failed(now + DIAL_WAIT), Some(FIRST));
    }
}
