//! Counts of consecutive soft failures.
//!
//! Calls and listings are counted separately, so that a working tool does not hide a broken listing. The
//! machine decides what is a soft failure, and sends the ping when the threshold is reached.

/// The consecutive soft failures of one connection.
#[derive(Debug, Clone, Default)]
pub struct Health {
    threshold: u32,
    calls: u32,
    listings: u32,
}

impl Health {
    /// No failures yet. A threshold of 0 counts as 1.
    pub fn new(threshold: u32) -> Self {
        Self {
            threshold: threshold.max(1),
            ..Self::default()
        }
    }

    /// Changes the threshold; the counts stay.
    pub fn reconfigure(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
    }

    /// A call was answered, with a result or an error of the server.
    pub fn call_answered(&mut self) {
        self.calls = 0;
    }

    /// A call failed softly; true when the threshold is reached.
    pub fn call_failed(&mut self) -> bool {
        self.calls = self.calls.saturating_add(1);
        self.calls >= self.threshold
    }

    /// A listing was answered, with a result or an error of the server.
    pub fn listing_answered(&mut self) {
        self.listings = 0;
    }

    /// A listing failed softly; true when the threshold is reached.
    pub fn listing_failed(&mut self) -> bool {
        self.listings = self.listings.saturating_add(1);
        self.listings >= self.threshold
    }

    /// Clears the counts: the connection is new, or a ping was answered.
    pub fn reset(&mut self) {
        self.calls = 0;
        self.listings = 0;
    }

    /// Failed calls since one was answered.
    #[cfg(test)]
    pub(crate) fn call_failures(&self) -> u32 {
        self.calls
    }

    /// Failed listings since one was answered.
    #[cfg(test)]
    pub(crate) fn listing_failures(&self) -> u32 {
        self.listings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_reached_by_consecutive_failures_only() {
        let mut health = Health::new(3);
        assert!(!health.call_failed());
        assert!(!health.call_failed());
        health.call_answered();
        assert!(!health.call_failed());
        assert!(!health.call_failed());
        assert!(health.call_failed());
        assert!(health.call_failed(), "it stays reached");
    }

    #[test]
    fn a_working_tool_does_not_hide_a_broken_listing() {
        let mut health = Health::new(2);
        assert!(!health.listing_failed());
        health.call_answered();
        assert!(health.listing_failed());
    }

    #[test]
    fn a_working_listing_does_not_hide_broken_calls() {
        let mut health = Health::new(2);
        assert!(!health.call_failed());
        health.listing_answered();
        assert!(health.call_failed());
    }

    #[test]
    fn a_success_after_recovery_clears_the_counts() {
        let mut health = Health::new(2);
        health.call_failed();
        health.listing_failed();
        health.reset();
        assert_eq!((health.call_failures(), health.listing_failures()), (0, 0));
        health.call_failed();
        health.listing_failed();
        health.call_answered();
        health.listing_answered();
        assert_eq!((health.call_failures(), health.listing_failures()), (0, 0));
    }

    #[test]
    fn a_threshold_of_zero_counts_as_one() {
        let mut health = Health::new(0);
        assert_eq!(health.call_failures(), 0);
        assert!(health.call_failed());
        health.reconfigure(2);
        assert!(health.call_failed());
    }
}
