//! When a connection that could not be opened is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// Delay before the second attempt. It doubles with every further one.
const FIRST_DELAY: Duration = Duration::from_millis(50);

/// Longest delay between two attempts for a request.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Longest delay between two attempts for the server stream, which no caller waits for.
const MAX_STREAM_DELAY: Duration = Duration::from_secs(10);

/// How long a request waits for a connection. Equals the default wait of a call for a reconnect.
pub(crate) const DIAL_WAIT: Duration = Duration::from_secs(15);

/// How long to keep dialling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedialPolicy {
    /// One attempt.
    Once,
    /// For [`DIAL_WAIT`].
    Request,
    /// Until the timeout of the exchange or the deadline of its request.
    UntilCancelled,
    /// Without end, with longer delays.
    ServerStream,
}

/// The attempts to open one connection.
#[derive(Debug)]
pub(crate) struct Redial {
    policy: RedialPolicy,
    /// When the first attempt began, until there is a connection.
    pub(crate) since: Option<Instant>,
    failures: u32,
}

impl Redial {
    pub(crate) fn new(policy: RedialPolicy) -> Self {
        Self {
            policy,
            since: None,
            failures: 0,
        }
    }

    pub(crate) fn begin_attempt(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn connected(&mut self) {
        self.since = None;
        self.failures = 0;
    }

    /// Records a failed attempt. Returns the delay before the next one, or `None` to give up.
    pub(crate) fn next_delay(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let max = match self.policy {
            RedialPolicy::Once => return None,
            RedialPolicy::Request if now - since >= DIAL_WAIT => return None,
            RedialPolicy::Request | RedialPolicy::UntilCancelled => MAX_DELAY,
            RedialPolicy::ServerStream => MAX_STREAM_DELAY,
        };
        let delay = FIRST_DELAY * 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        Some(delay.min(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(policy: RedialPolicy, attempts: usize) -> Vec<Option<u128>> {
        let mut redial = Redial::new(policy);
        let now = Instant::now();
        redial.begin_attempt(now);
        let delays = (0..attempts).map(|_| redial.next_delay(now).map(|delay| delay.as_millis()));
        delays.collect()
    }

    #[test]
    fn delays_double_up_to_a_limit() {
        let requests = [50, 100, 200, 400, 800, 1_000, 1_000].map(Some);
        assert_eq!(delays(RedialPolicy::Request, 7), requests);
        assert_eq!(delays(RedialPolicy::ServerStream, 60)[59], Some(10_000));
        assert_eq!(delays(RedialPolicy::Once, 1), [None]);
    }

    #[test]
    fn a_request_gives_up_after_the_dial_wait_and_a_stream_never() {
        let (started, later) = (Instant::now(), Instant::now() + DIAL_WAIT);
        let retries = |policy| {
            let mut redial = Redial::new(policy);
            redial.begin_attempt(started);
            redial.next_delay(later).is_some()
        };
        assert!(!retries(RedialPolicy::Request));
        assert!(retries(RedialPolicy::UntilCancelled));
        assert!(retries(RedialPolicy::ServerStream));
    }

    #[test]
    fn a_connection_resets_the_delay() {
        let mut redial = Redial::new(RedialPolicy::Request);
        let now = Instant::now();
        redial.begin_attempt(now);
        redial.next_delay(now);
        redial.connected();
        redial.begin_attempt(now + DIAL_WAIT);
        assert_eq!(redial.next_delay(now + DIAL_WAIT), Some(FIRST_DELAY));
    }
}
