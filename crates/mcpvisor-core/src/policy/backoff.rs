//! The curve of delays between tries.
//!
//! This is the only file that knows the `backoff` crate, which serves as a calculator alone: it
//! never sleeps, and the random number and the clock that it asks have no influence on what leaves
//! here. How often tries may happen is the business of [`crate::policy::budget`].

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

use crate::random::Random;
use crate::settings::BackoffSettings;

/// No delay is shorter, whatever the settings say: a delay of zero is a hot loop.
pub const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// No delay is longer, whatever the settings say, so that a moment plus a delay always exists.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A position on a growing curve of delays.
///
/// ```
/// use mcpvisor_core::{Backoff, Random, settings::BackoffSettings};
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
    /// The beginning of the curve.
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
            // Not `clamp`, which lets not-a-number through.
            jitter: if settings.jitter > 0.0 {
                settings.jitter.min(1.0)
            } else {
                0.0
            },
        }
    }

    /// The delay before the next try; the one after it is longer, up to the maximum.
    pub fn next_delay(&mut self, chance: Random) -> Duration {
        let interval = self.curve.current_interval;
        // Only to advance: its own answer is jittered by a random number of its own.
        let _ = self.curve.next_backoff();
        let share = 1.0 + self.jitter * (2.0 * chance.get() - 1.0);
        interval
            .mul_f64(share)
            .clamp(SHORTEST_DELAY, self.curve.max_interval)
    }

    /// Back to the beginning of the curve.
    pub fn reset(&mut self) {
        self.curve.reset();
    }

    /// Takes new settings and stays at about the same position, within their bounds.
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

    fn delays(backoff: &mut Backoff, chance: f64, count: usize) -> Vec<u128> {
        (0..count)
            .map(|_| backoff.next_delay(Random::new(chance)).as_millis())
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
    fn jitter_spreads_to_both_sides_and_never_beyond_the_maximum() {
        let mut low = Backoff::new(&settings());
        assert_eq!(delays(&mut low, 0.0, 2), [400, 800]);
        let mut high = Backoff::new(&settings());
        let delays = delays(&mut high, 1.0, 8);
        assert!((599..=600).contains(&delays[0]), "{delays:?}");
        assert_eq!(delays[6..], [30_000, 30_000]);
    }

    #[test]
    fn the_same_chances_give_the_same_delays() {
        let chances = [0.1, 0.9, 0.3, 0.0, 0.7, 0.5, 0.2];
        let trace = || {
            let mut backoff = Backoff::new(&settings());
            chances.map(|chance| backoff.next_delay(Random::new(chance)))
        };
        assert_eq!(trace(), trace());
    }

    #[test]
    fn reset_begins_the_curve_again() {
        let mut backoff = Backoff::new(&settings());
        delays(&mut backoff, 0.5, 5);
        backoff.reset();
        assert_eq!(delays(&mut backoff, 0.5, 2), [500, 1_000]);
    }

    #[test]
    fn settings_that_would_spin_or_overflow_are_bounded() {
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
    fn new_settings_keep_the_position_within_their_bounds() {
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
