//! Growing delays between attempts.
//!
//! This is the only file that uses the `backoff` crate, and only as a calculator: it never sleeps, and
//! its own clock and random numbers do not affect the result. [`crate::policy::budget`] limits how many
//! attempts may happen.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

use crate::random::Random;
use crate::settings::BackoffSettings;

/// The shortest delay, whatever the settings say: a delay of zero is a hot loop.
pub const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// The longest delay, whatever the settings say, so that adding it to a moment never overflows.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A position in a sequence of growing delays.
///
/// ```
/// use mcpvisor_core::{Random, backoff::Backoff, settings::BackoffSettings};
///
/// let mut backoff = Backoff::new(&BackoffSettings::default());
/// assert_eq!(backoff.next_delay(Random::MIDDLE).as_millis(), 500);
/// assert_eq!(backoff.next_delay(Random::MIDDLE).as_millis(), 1_000);
/// backoff.reset();
/// assert_eq!(backoff.next_delay(Random::MIDDLE).as_millis(), 500);
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    curve: ExponentialBackoff,
    jitter: f64,
}

impl Backoff {
    /// The start of the sequence.
    pub fn new(settings: &BackoffSettings) -> Self {
        let initial = settings.initial.clamp(SHORTEST_DELAY, LONGEST_DELAY);
        // A multiplier below 1 (or not a number) would shrink the delays towards a hot loop.
        let multiplier = settings.multiplier.max(1.0);
        let curve = ExponentialBackoffBuilder::new()
            .with_initial_interval(initial)
            .with_multiplier(multiplier)
            .with_max_interval(settings.max.clamp(initial, LONGEST_DELAY))
            .with_randomization_factor(0.0)
            // The default gives up 15 minutes after construction.
            .with_max_elapsed_time(None)
            .build();
        Self {
            curve,
            // `clamp` lets not-a-number through; `max` makes 0 of it.
            jitter: settings.jitter.clamp(0.0, 1.0).max(0.0),
        }
    }

    /// The delay before the next attempt. The one after it is longer, up to the maximum.
    pub fn next_delay(&mut self, random: Random) -> Duration {
        let interval = self.curve.current_interval;
        // Only to advance: the result has a jitter of the crate's own random number.
        let _ = self.curve.next_backoff();
        let share = 1.0 + self.jitter * (2.0 * random.get() - 1.0);
        interval
            .mul_f64(share)
            .clamp(SHORTEST_DELAY, self.curve.max_interval)
    }

    /// Returns to the start of the sequence.
    pub fn reset(&mut self) {
        self.curve.reset();
    }

    /// Applies new settings and keeps the current delay, within their bounds.
    pub fn reconfigure(&mut self, settings: &BackoffSettings) {
        let position = self.curve.current_interval;
        *self = Self::new(settings);
        self.curve.current_interval =
            position.clamp(self.curve.initial_interval, self.curve.max_interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> BackoffSettings {
        BackoffSettings {
            initial: Duration::from_millis(500),
            multiplier: 2.0,
            max: Duration::from_secs(30),
            jitter: 0.2,
            ..BackoffSettings::default()
        }
    }

    fn delays(backoff: &mut Backoff, random: f64, count: usize) -> Vec<u128> {
        (0..count)
            .map(|_| backoff.next_delay(Random::new(random)).as_millis())
            .collect()
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(&settings());
        assert_eq!(
            delays(&mut backoff, 0.5, 9),
            [
                500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000
            ]
        );
    }

    #[test]
    fn jitter_shortens_and_lengthens_but_never_exceeds_the_maximum() {
        let mut low = Backoff::new(&settings());
        assert_eq!(delays(&mut low, 0.0, 2), [400, 800]);
        let mut high = Backoff::new(&settings());
        let delays = delays(&mut high, 1.0, 8);
        assert!((599..=600).contains(&delays[0]), "{delays:?}");
        assert_eq!(delays[6..], [30_000, 30_000]);
    }

    #[test]
    fn the_same_random_numbers_give_the_same_delays() {
        let numbers = [0.1, 0.9, 0.3, 0.0, 0.7, 0.5, 0.2];
        let trace = || {
            let mut backoff = Backoff::new(&settings());
            numbers.map(|number| backoff.next_delay(Random::new(number)))
        };
        assert_eq!(trace(), trace());
    }

    #[test]
    fn reset_returns_to_the_first_delay() {
        let mut backoff = Backoff::new(&settings());
        delays(&mut backoff, 0.5, 5);
        backoff.reset();
        assert_eq!(delays(&mut backoff, 0.5, 2), [500, 1_000]);
    }

    #[test]
    fn settings_that_would_spin_or_overflow_are_limited() {
        let mut spinning = Backoff::new(&BackoffSettings {
            initial: Duration::ZERO,
            multiplier: 0.0,
            max: Duration::ZERO,
            jitter: f64::NAN,
            ..settings()
        });
        assert_eq!(delays(&mut spinning, 0.0, 3), [1, 1, 1]);

        let mut endless = Backoff::new(&BackoffSettings {
            initial: Duration::MAX,
            multiplier: f64::INFINITY,
            max: Duration::MAX,
            jitter: 9.0,
            ..settings()
        });
        for _ in 0..3 {
            assert_eq!(endless.next_delay(Random::new(1.0)), LONGEST_DELAY);
        }
    }

    #[test]
    fn new_settings_keep_the_current_delay_within_their_bounds() {
        let mut backoff = Backoff::new(&settings());
        delays(&mut backoff, 0.5, 3);
        backoff.reconfigure(&BackoffSettings {
            multiplier: 3.0,
            ..settings()
        });
        assert_eq!(delays(&mut backoff, 0.5, 2), [4_000, 12_000]);
        backoff.reconfigure(&BackoffSettings {
            max: Duration::from_secs(2),
            ..settings()
        });
        assert_eq!(delays(&mut backoff, 0.5, 2), [2_000, 2_000]);
    }
}
