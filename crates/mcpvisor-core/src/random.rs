//! Random numbers as arguments.
//!
//! This crate never generates random numbers, so the same numbers give the same history. The caller
//! generates them.

/// The largest number below 1.
const LARGEST: f64 = 1.0 - f64::EPSILON / 2.0;

/// A random number from 0 up to, but not including, 1.
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
    /// The number that leaves a jittered delay unchanged.
    pub const MIDDLE: Self = Self(0.5);

    /// Clamps a number into the range; not-a-number becomes 0.
    pub fn new(number: f64) -> Self {
        Self(number.clamp(0.0, LARGEST).max(0.0))
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
    fn a_random_number_is_at_least_zero_and_below_one() {
        for number in [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0] {
            assert_eq!(Random::new(number).get(), 0.0, "{number}");
        }
        for number in [1.0, 2.0, f64::INFINITY] {
            let random = Random::new(number).get();
            assert!(random < 1.0 && random > 0.999, "{number}");
        }
        assert_eq!(Random::MIDDLE, Random::new(0.5));
    }
}
