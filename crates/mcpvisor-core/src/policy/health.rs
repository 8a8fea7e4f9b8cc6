//! Counts of consecutive soft failures.
//!
//! Calls and discovery are counted apart, so that a working tool does not hide a broken listing.
//! What is a soft failure, and the ping that decides at the threshold, is left to the machine.

/// The consecutive soft failures of one connection.
#[derive(Debug, Clone)]
pub struct Health {
    threshold: u32,
    calls: u32,
    discovery: u32,
}

impl Health {
    /// Nothing failed yet. A threshold of 0 is taken as 1.
    pub fn new(threshold: u32) -> Self {
        Self {
            threshold: threshold.max(1),
            calls: 0,
            discovery: 0,
        }
    }

    /// Takes another threshold; what failed stays counted.
    pub fn reconfigure(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
    }

    /// A call was answered, be it with an error of the server's.
    pub fn call_answered(&mut self) {
        self.calls = 0;
    }

    /// A call failed softly; true when the threshold is reached.
    pub fn call_failed(&mut self) -> bool {
        self.calls = self.calls.saturating_add(1);
        self.calls >= self.threshold
    }

    /// A listing was answered, be it with an error of the server's.
    pub fn discovery_answered(&mut self) {
        self.discovery = 0;
    }

    /// A listing failed softly; true when the threshold is reached.
    pub fn discovery_failed(&mut self) -> bool {
        self.discovery = self.discovery.saturating_add(1);
        self.discovery >= self.threshold
    }

    /// Forgets all failures: the connection is new, or a ping was answered.
    pub fn reset(&mut self) {
        self.calls = 0;
        self.discovery = 0;
    }

    /// The calls that failed since one was answered.
    pub fn call_failures(&self) -> u32 {
        self.calls
    }

    /// The listings that failed since one was answered.
    pub fn discovery_failures(&self) -> u32 {
        self.discovery
    }

    /// Changes the threshold; the counts stay. 0 is taken as 1.
    pub fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
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
        assert!(health.call_failed(), "and stays reached");
    }

    #[test]
    fn a_working_tool_does_not_hide_a_broken_listing() {
        let mut health = Health::new(2);
        assert!(!health.discovery_failed());
        health.call_answered();
        assert!(health.discovery_failed());
    }

    #[test]
    fn a_working_listing_does_not_hide_broken_calls() {
        let mut health = Health::new(2);
        assert!(!health.call_failed());
        health.discovery_answered();
        assert!(health.call_failed());
    }

    #[test]
    fn a_success_after_recovery_clears_the_counts() {
        let mut health = Health::new(2);
        health.call_failed();
        health.discovery_failed();
        health.reset();
        assert_eq!(
            (health.call_failures(), health.discovery_failures()),
            (0, 0)
        );
        health.call_failed();
        health.discovery_failed();
        health.call_answered();
        health.discovery_answered();
        assert_eq!(
            (health.call_failures(), health.discovery_failures()),
            (0, 0)
        );
    }

    #[test]
    fn a_threshold_of_zero_needs_a_failure_still() {
        let mut health = Health::new(0);
        assert_eq!(health.call_failures(), 0);
        assert!(health.call_failed());
        health.set_threshold(2);
        assert!(health.call_failed());
    }
}
