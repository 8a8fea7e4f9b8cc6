//! How long an idle HTTP connection may be reused.
//!
//! A server cannot announce the close of an idle connection. A request that is written while the close is
//! on its way is lost, and its outcome is unknown. So a connection is reused only while the server
//! certainly keeps it open. The sockets belong to the link.

use std::time::{Duration, Instant};

/// The idle time assumed for a server that announces none. It is the default of uvicorn and Node, and the
/// shortest in wide use.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(5);

/// The longest idle time of a connection that is reused, whatever the server announces.
pub const MAX_REUSE: Duration = Duration::from_secs(60);

/// The largest safety margin below the server's idle time on a fast connection. A slow round trip needs
/// more.
pub const MAX_MARGIN: Duration = Duration::from_secs(1);

/// How long an early close is remembered. A restarting server closes connections early too, and may keep
/// the next ones longer.
pub const EARLY_CLOSE_MEMORY: Duration = Duration::from_secs(600);

/// What is known about the idle connections of one server.
///
/// ```
/// use mcpvisor_core::keep_alive::KeepAlive;
/// use std::time::{Duration, Instant};
///
/// let (now, round_trip) = (Instant::now(), Duration::from_millis(60));
/// let mut server = KeepAlive::default();
/// assert_eq!(server.reuse_for(None, round_trip, now), Duration::from_secs(4));
/// server.closed_after(Duration::from_secs(3), now);
/// assert_eq!(server.reuse_for(None, round_trip, now), Duration::from_secs(2));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// The shortest idle time after which the server closed a connection, and when that was seen.
    learned: Option<(Duration, Instant)>,
}

impl KeepAlive {
    /// How long a connection with this round trip may be idle and still be reused.
    ///
    /// `announced` is the server's `Keep-Alive: timeout`.
    pub fn reuse_for(
        &self,
        announced: Option<Duration>,
        round_trip: Duration,
        now: Instant,
    ) -> Duration {
        let idle = announced.unwrap_or(DEFAULT_IDLE).min(MAX_REUSE);
        let idle = self.learned(now).map_or(idle, |learned| learned.min(idle));
        // The server's idle time starts when it sends its last byte and ends when our next one arrives.
        let margin = MAX_MARGIN.min(idle / 2).max(2 * round_trip);
        idle.saturating_sub(margin)
    }

    /// The server closed a connection that was idle for this long.
    pub fn closed_after(&mut self, idle: Duration, now: Instant) {
        let shortest = self.learned(now).map_or(idle, |learned| learned.min(idle));
        self.learned = Some((shortest, now));
    }

    /// Whether an early close is still remembered.
    pub fn is_learned(&self, now: Instant) -> bool {
        self.learned(now).is_some()
    }

    fn learned(&self, now: Instant) -> Option<Duration> {
        let (idle, at) = self.learned?;
        (now.saturating_duration_since(at) < EARLY_CLOSE_MEMORY).then_some(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::from_millis(1);

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_server_that_announces_nothing_is_trusted_for_four_seconds() {
        let server = KeepAlive::default();
        let now = Instant::now();
        assert_eq!(server.reuse_for(None, NEAR, now), secs(4));
        assert_eq!(
            server.reuse_for(None, Duration::from_millis(60), now),
            secs(4)
        );
    }

    #[test]
    fn an_announced_time_is_honoured_with_a_margin_and_up_to_a_limit() {
        let server = KeepAlive::default();
        let now = Instant::now();
        let reuse = |announced| server.reuse_for(Some(secs(announced)), NEAR, now);
        assert_eq!(reuse(5), secs(4));
        assert_eq!(reuse(30), secs(29));
        assert_eq!(reuse(3_600), MAX_REUSE - MAX_MARGIN);
        assert_eq!(reuse(1), Duration::from_millis(500));
        assert_eq!(reuse(0), Duration::ZERO);
    }

    #[test]
    fn the_margin_covers_a_slow_round_trip() {
        let server = KeepAlive::default();
        let now = Instant::now();
        assert_eq!(server.reuse_for(None, secs(1), now), secs(3));
        assert_eq!(server.reuse_for(None, secs(9), now), Duration::ZERO);
    }

    #[test]
    fn an_early_close_overrides_a_longer_announced_time() {
        let mut server = KeepAlive::default();
        let now = Instant::now();
        server.closed_after(secs(3), now);
        assert_eq!(server.reuse_for(None, NEAR, now), secs(2));
        assert_eq!(server.reuse_for(Some(secs(30)), NEAR, now), secs(2));
        server.closed_after(secs(20), now);
        assert_eq!(server.reuse_for(None, NEAR, now), secs(2), "the shortest");
        server.closed_after(secs(1), now);
        assert_eq!(
            server.reuse_for(None, NEAR, now),
            Duration::from_millis(500)
        );
    }

    #[test]
    fn a_late_close_never_lengthens_the_time() {
        let mut server = KeepAlive::default();
        let now = Instant::now();
        server.closed_after(secs(50), now);
        assert_eq!(server.reuse_for(None, NEAR, now), secs(4));
    }

    #[test]
    fn an_early_close_is_forgotten_after_a_while() {
        let mut server = KeepAlive::default();
        let now = Instant::now();
        server.closed_after(Duration::ZERO, now);
        assert_eq!(server.reuse_for(None, NEAR, now), Duration::ZERO);
        let later = now + EARLY_CLOSE_MEMORY;
        assert!(!server.is_learned(later));
        assert_eq!(server.reuse_for(None, NEAR, later), secs(4));
        server.closed_after(secs(2), later);
        assert_eq!(
            server.reuse_for(None, NEAR, later),
            secs(1),
            "a new one counts"
        );
    }
}
