//! Random times, settings and choices, all from one seed.

use std::time::Duration;

use mcpvisor_core::ServerSettings;

/// The random numbers of one history.
#[derive(Debug)]
pub struct TestRng(fastrand::Rng);

impl TestRng {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True with this probability.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    pub fn number(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.0.u64(range)
    }

    pub fn fraction(&mut self) -> f64 {
        self.0.f64()
    }

    /// At most `up_to` milliseconds; short durations are more likely.
    pub fn millis(&mut self, up_to: u64) -> Duration {
        let share = self.0.f64() * self.0.f64();
        Duration::from_micros(((up_to * 1_000) as f64 * share) as u64)
    }

    /// Milliseconds between `from` and `to`, uniformly.
    pub fn between(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.0.u64(from..=to))
    }

    pub fn choose<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.usize(0..of.len())].clone()
    }

    /// Small limits and short times, so that all of them are reached.
    pub fn settings(&mut self) -> ServerSettings {
        let mut settings = ServerSettings::default();
        settings.admission.in_flight = self.0.usize(1..=4);
        settings.admission.waiting = self.0.usize(0..=6);
        settings.backoff.initial = self.between(1, 1_000);
        settings.backoff.max = settings.backoff.initial + self.between(0, 10_000);
        settings.backoff.jitter = self.0.f64() / 2.0;
        settings.backoff.immediate_every = self.between(0, 5_000);
        settings.budget.attempts = self.0.u32(1..=5);
        settings.budget.within = self.between(1_000, 120_000);
        settings.budget.proven_after = self.between(500, 30_000);
        // Even with jitter a probe comes later than a call may wake the server.
        settings.budget.first_probe = self.between(4_000, 10_000);
        settings.budget.max_probe = settings.budget.first_probe + self.between(0, 60_000);
        settings.budget.wake_on_call = self.percent(80);
        settings.budget.wake_every = self.between(100, 2_000);
        settings.health.threshold = self.0.u32(1..=3);
        settings.health.keepalive = self.between(500, 20_000);
        settings.health.keepalive_timeout = self.between(100, 5_000);
        settings.timeouts.connect = self.between(200, 5_000);
        settings.timeouts.idle = self.between(200, 10_000);
        settings.timeouts.reconnect_wait = self.between(100, 15_000);
        settings.listing.before_calls = self.percent(30);
        settings.rest.lazy = self.percent(20);
        settings.rest.sleep_after = self.percent(50).then(|| self.between(500, 20_000));
        settings.close.drain = self.between(0, 3_000);
        settings.close.stdin = self.between(0, 1_000);
        settings.close.terminate = self.between(0, 1_000);
        settings
    }
}
