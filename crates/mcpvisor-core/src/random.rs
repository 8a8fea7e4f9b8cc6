//! A random number that the caller rolled.
//!
//! The pure part never rolls dice itself, so the same numbers give the same history. Rolling is the
//! driver's business.

/// The largest chance below 1.
const LARGEST: f64 = 1.0 - f64::EPSILON / 2.0;

/// A number from 0 up to, but not including, 1.
///
/// ```
/// use mcpvisor_core::Random;
///
/// assert_eq!(Random::new(0.25).get(), 0.25);
/// assert!(Random::new(7.0).get() < 1.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Random(f64);

impl Random {
    /// The chance that leaves a jittered delay as it is.
    pub const MIDDLE: Self = Self(0.5);

    /// Takes a rolled number; what lies outside is moved to the nearest end, not-a-number to 0.
    pub fn new(rolled: f64) -> Self {
        if rolled >= 0.0 {
            Self(rolled.min(LARGEST))
        } else {
            Self(0.0)
        }
    }

    /// The plain number.
    pub fn get(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_never_below_zero_nor_one() {
        for rolled in [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0] {
            assert_eq!(Random::new(rolled).get(), 0.0, "{rolled}");
        }
        for rolled in [1.0, 2.0, f64::INFINITY] {
            let chance = Random::new(rolled).get();
            assert!(chance < 1.0 && chance > 0.999, "{rolled}");
        }
        assert_eq!(Random::MIDDLE, Random::new(0.5));
    }
}
