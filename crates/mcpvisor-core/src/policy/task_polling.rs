//! When the status of a task is polled again.

use std::time::Duration;

/// Shortest interval, whatever the server suggests.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Longest interval, whatever the server suggests.
pub const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The first interval if the server suggests none. It doubles with every poll.
pub const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// The longest interval if the server suggests none.
pub const MAX_OWN_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a failed poll. It doubles with every failure in a row.
pub const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause after a failed poll.
pub const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// The delay before the next poll: the interval that the server suggests, or one of our own that
/// grows with the number of polls; longer after failures in a row.
pub fn delay(suggested: Option<Duration>, polls: u32, failures: u32) -> Duration {
    let own = || doubled(FIRST_INTERVAL, polls, MAX_OWN_INTERVAL);
    let interval = suggested.unwrap_or_else(own);
    let interval = interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
    match failures.checked_sub(1) {
        Some(more) => interval.max(doubled(FAILURE_PAUSE, more, MAX_FAILURE_PAUSE)),
        None => interval,
    }
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    // Far beyond the longest.
    const MAX_SHIFT: u32 = 16;
    first.saturating_mul(1 << times.min(MAX_SHIFT)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_interval_of_the_server_is_kept_within_bounds() {
        assert_eq!(delay(Some(ms(700)), 0, 0), ms(700));
        assert_eq!(delay(Some(ms(700)), 100, 0), ms(700), "it does not grow");
        assert_eq!(delay(Some(ms(0)), 0, 0), MIN_INTERVAL);
        assert_eq!(delay(Some(Duration::MAX), 0, 0), MAX_INTERVAL);
    }

    #[test]
    fn without_an_interval_of_the_server_polls_become_rarer() {
        let delays: Vec<Duration> = (0..6).map(|polls| delay(None, polls, 0)).collect();
        assert_eq!(delays, [250, 500, 1_000, 2_000, 4_000, 5_000].map(ms));
        assert_eq!(delay(None, u32::MAX, 0), MAX_OWN_INTERVAL);
    }

    #[test]
    fn failures_in_a_row_lengthen_the_delay_but_never_shorten_it() {
        assert_eq!(delay(Some(ms(100)), 0, 1), ms(500));
        assert_eq!(delay(Some(ms(100)), 0, 3), ms(2_000));
        assert_eq!(delay(Some(ms(100)), 0, u32::MAX), MAX_FAILURE_PAUSE);
        assert_eq!(delay(Some(ms(90_000)), 0, 3), ms(90_000));
    }
}
