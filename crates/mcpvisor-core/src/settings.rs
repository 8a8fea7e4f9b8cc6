//! Every knob of one server, with the defaults that the documentation promises.
//!
//! These are plain values: reading them from a file is the library's business, obeying them that
//! of the modules named beside each part.

use std::time::Duration;

use crate::policy::retry::MAX_RETRY_AFTER;

/// The longest duration that is accepted: a year is longer than anything that is waited for, and
/// adding it to a clock never overflows.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// All settings of one server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[derive(Default)]
pub struct ServerSettings {
    /// How long to wait between connects: [`crate::policy::backoff`].
    pub backoff: BackoffSettings,
    /// How often connects may happen: [`crate::policy::budget`].
    pub budget: BudgetSettings,
    /// When soft failures lead to a reconnect: [`crate::policy::health`].
    pub health: HealthSettings,
    /// How many calls run and wait: [`crate::policy::admission`].
    pub admission: AdmissionSettings,
    /// How long things may take.
    pub timeouts: TimeoutSettings,
    /// How a connection is closed.
    pub close: CloseSettings,
    /// What may be retried: [`crate::policy::retry`].
    pub retry: RetrySettings,
    /// How far listings are followed.
    pub listing: ListingSettings,
    /// How large what a server says may be.
    pub messages: MessageSettings,
    /// When it has no connection because nobody needs one.
    pub rest: RestSettings,
}

/// When a server has no connection because nobody needs one.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RestSettings {
    /// Connect at the first call, not at the start.
    pub lazy: bool,
    /// Close the connection after this time without a call, until the next one.
    pub sleep_after: Option<Duration>,
}

/// The curve of delays between connects.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BackoffSettings {
    /// The first delay after the immediate retry.
    pub initial: Duration,
    /// What each delay is multiplied with to get the next, at least 1.
    pub multiplier: f64,
    /// No delay is longer, jitter included.
    pub max: Duration,
    /// The share by which a delay may differ in either direction, 0 to 1.
    pub jitter: f64,
    /// At most one immediate retry of a proven connection within this time.
    pub immediate_every: Duration,
    /// A server's own wish (`Retry-After`) is honoured up to this.
    pub max_retry_after: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            multiplier: 2.0,
            max: Duration::from_secs(30),
            jitter: 0.2,
            immediate_every: Duration::from_secs(5),
            max_retry_after: MAX_RETRY_AFTER,
        }
    }
}

/// How many connects a server may use, and what happens when they are spent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BudgetSettings {
    /// Connects allowed within [`BudgetSettings::within`].
    pub attempts: u32,
    /// The sliding window.
    pub within: Duration,
    /// A connection that stays up this long is proven, as one that answered a caller is.
    pub proven_after: Duration,
    /// The first probe of a parked server comes after this.
    pub first_probe: Duration,
    /// Probes double up to this.
    pub max_probe: Duration,
    /// Whether a call wakes a parked server.
    pub wake_on_call: bool,
    /// Connects that calls cause while the server is parked are at least this far apart.
    pub wake_every: Duration,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            attempts: 10,
            within: Duration::from_secs(300),
            proven_after: Duration::from_secs(30),
            first_probe: Duration::from_secs(30),
            max_probe: Duration::from_secs(300),
            wake_on_call: true,
            wake_every: Duration::from_secs(1),
        }
    }
}

/// When soft failures lead to a reconnect, and how an idle connection is checked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HealthSettings {
    /// Consecutive soft failures before one ping decides.
    pub threshold: u32,
    /// A connection that was silent this long is checked.
    pub keepalive: Duration,
    /// The check must be answered within this.
    pub keepalive_timeout: Duration,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            threshold: 3,
            keepalive: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(10),
        }
    }
}

/// How many calls run and wait at one server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AdmissionSettings {
    /// Calls in flight at once.
    pub in_flight: usize,
    /// Calls that wait for a place or for the connection.
    pub waiting: usize,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            in_flight: 64,
            waiting: 1_024,
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TimeoutSettings {
    /// Opening the transport and the handshake.
    pub connect: Duration,
    /// The hard cap of a call: waiting, connecting, retry and the call itself.
    pub call: Duration,
    /// A call in flight may be silent this long; progress renews it.
    pub idle: Duration,
    /// A call waits this long for a reconnect.
    pub reconnect_wait: Duration,
    /// One page of a listing, or one restored subscription, must be answered within this.
    pub listing: Duration,
}

impl Default for TimeoutSettings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            call: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            reconnect_wait: Duration::from_secs(15),
            listing: Duration::from_secs(30),
        }
    }
}

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CloseSettings {
    /// Calls in flight may finish for this long before a wanted close.
    pub drain: Duration,
    /// A child may take this long to exit once its stdin is closed.
    pub stdin: Duration,
    /// A child may take this long to exit after SIGTERM; then SIGKILL.
    pub terminate: Duration,
}

impl Default for CloseSettings {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(5),
            stdin: Duration::from_secs(2),
            terminate: Duration::from_secs(2),
        }
    }
}

impl CloseSettings {
    /// Settings with these steps, for constants; elsewhere begin with the default.
    pub const fn new(drain: Duration, stdin: Duration, terminate: Duration) -> Self {
        Self {
            drain,
            stdin,
            terminate,
        }
    }

    /// All steps together, at the longest.
    pub fn total(&self) -> Duration {
        self.drain
            .saturating_add(self.stdin)
            .saturating_add(self.terminate)
    }

    /// The same steps, shrunk in proportion so that together they fit into `limit`.
    #[must_use]
    pub fn fit(&self, limit: Duration) -> Self {
        let total = self.total();
        if total <= limit {
            return *self;
        }
        let share = limit.as_secs_f64() / total.as_secs_f64();
        Self {
            drain: self.drain.mul_f64(share),
            stdin: self.stdin.mul_f64(share),
            terminate: self.terminate.mul_f64(share),
        }
    }

    /// The steps that come after the drain, shrunk in proportion so that they fit into `limit`.
    #[must_use]
    pub fn fit_after_drain(&self, limit: Duration) -> Self {
        let after = Self {
            drain: Duration::ZERO,
            ..*self
        };
        Self {
            drain: self.drain,
            ..after.fit(limit)
        }
    }
}

/// What may be retried.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// Believe the server's annotations (read-only, idempotent) about its tools.
    pub trusted: bool,
    /// Tools that may be repeated whatever the server says of them.
    pub idempotent_tools: Vec<String>,
    /// Retry a tool call that was refused because the session expired.
    pub retry_expired_calls: bool,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            trusted: false,
            idempotent_tools: Vec::new(),
            retry_expired_calls: true,
        }
    }
}

/// How far listings are followed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListingSettings {
    /// Pages of one listing.
    pub max_pages: usize,
    /// Items of one listing.
    pub max_items: usize,
    /// The least time between two refreshes of one list.
    pub refresh_every: Duration,
    /// A failed refresh is tried again after this, doubling up to `max_refresh_retry`.
    pub refresh_retry: Duration,
    /// The longest wait before a failed refresh is tried again.
    pub max_refresh_retry: Duration,
    /// Calls wait until the tools were listed on their connection.
    pub before_calls: bool,
}

impl Default for ListingSettings {
    fn default() -> Self {
        Self {
            max_pages: 100,
            max_items: 10_000,
            refresh_every: Duration::from_millis(100),
            refresh_retry: Duration::from_secs(1),
            max_refresh_retry: Duration::from_secs(60),
            before_calls: false,
        }
    }
}

/// How large what a server says may be. Servers in this process are not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSettings {
    /// Bytes of one line, body or event. Reading it takes three times as much memory at the most.
    pub max_bytes: usize,
    /// Objects and lists within each other, the message itself included.
    pub max_depth: usize,
    /// JSON values in one message.
    pub max_values: usize,
    /// Bytes of a program's stderr that are kept, the newest.
    pub stderr_bytes: usize,
}

impl MessageSettings {
    /// The defaults, for constants.
    pub const DEFAULT: Self = Self {
        max_bytes: 16 * 1024 * 1024,
        max_depth: 128,
        max_values: 262_144,
        stderr_bytes: 64 * 1024,
    };

    /// A message may be at least so large: handshakes and listings are.
    pub const LEAST_BYTES: usize = 1024 * 1024;
    /// No message may be larger than this, whatever is wished.
    pub const MOST_BYTES: usize = 256 * 1024 * 1024;
    /// Schemas of tools are nested so deep.
    pub const LEAST_DEPTH: usize = 16;
    /// Nothing that is nested deeper can be read.
    pub const MOST_DEPTH: usize = 128;
    /// A message may have at least so many values.
    pub const LEAST_VALUES: usize = 1_024;
    /// No message may have more values, whatever is wished.
    pub const MOST_VALUES: usize = 16 * 1024 * 1024;
    /// So much of stderr is kept at least: errors show it.
    pub const LEAST_STDERR: usize = 1024;
    /// No more of stderr is kept, whatever is wished.
    pub const MOST_STDERR: usize = 16 * 1024 * 1024;

    /// What reading a message may take in memory, the message included.
    pub fn max_memory(&self) -> usize {
        self.max_bytes.saturating_mul(3)
    }

    fn validate(&self) -> Result<(), InvalidSetting> {
        let sizes = [
            (
                "limits.messageBytes",
                self.max_bytes,
                Self::LEAST_BYTES..=Self::MOST_BYTES,
                "must be between 1048576 (1 MiB) and 268435456 (256 MiB)",
            ),
            (
                "limits.nesting",
                self.max_depth,
                Self::LEAST_DEPTH..=Self::MOST_DEPTH,
                "must be between 16 and 128",
            ),
            (
                "limits.values",
                self.max_values,
                Self::LEAST_VALUES..=Self::MOST_VALUES,
                "must be between 1024 and 16777216",
            ),
            (
                "limits.stderrBytes",
                self.stderr_bytes,
                Self::LEAST_STDERR..=Self::MOST_STDERR,
                "must be between 1024 (1 KiB) and 16777216 (16 MiB)",
            ),
        ];
        let wrong = sizes.iter().find(|(_, size, fits, _)| !fits.contains(size));
        wrong.map_or(Ok(()), |(name, _, _, problem)| {
            Err(InvalidSetting { name, problem })
        })
    }
}

impl Default for MessageSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A setting that would make the runtime misbehave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setting {name} {problem}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// Which setting, as it is written in a config file.
    pub name: &'static str,
    /// What is wrong with it and what to write instead.
    pub problem: &'static str,
}

impl InvalidSetting {
    /// A setting, and what is wrong with it.
    pub fn new(name: &'static str, problem: &'static str) -> Self {
        Self { name, problem }
    }
}

impl ServerSettings {
    /// Refuses settings that would spin, storm or stand still.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let refuse = |name, problem| Err(InvalidSetting::new(name, problem));
        if self.backoff.initial.is_zero() {
            return refuse("reconnect.initialDelay", "must be longer than 0");
        }
        if self.backoff.max < self.backoff.initial {
            return refuse("reconnect.maxDelay", "must be at least initialDelay");
        }
        if !self.backoff.multiplier.is_finite() || self.backoff.multiplier < 1.0 {
            return refuse("reconnect.multiplier", "must be at least 1");
        }
        if !(0.0..=1.0).contains(&self.backoff.jitter) {
            return refuse("reconnect.jitter", "must be between 0 and 1");
        }
        if self.budget.attempts == 0 {
            return refuse("reconnect.attempts", "must be at least 1");
        }
        if self.budget.within.is_zero() {
            return refuse("reconnect.within", "must be longer than 0");
        }
        if self.budget.first_probe.is_zero() {
            return refuse("reconnect.firstProbe", "must be longer than 0");
        }
        if self.health.threshold == 0 {
            return refuse("health.threshold", "must be at least 1");
        }
        if self.health.keepalive.is_zero() {
            return refuse("health.keepalive", "must be longer than 0");
        }
        if self.admission.in_flight == 0 {
            return refuse("limits.inFlight", "must be at least 1");
        }
        if self.timeouts.connect.is_zero() {
            return refuse("timeouts.connect", "must be longer than 0");
        }
        if self.rest.sleep_after.is_some_and(|after| after.is_zero()) {
            return refuse("sleepAfter", "must be longer than 0");
        }
        if self.listing.max_pages == 0 {
            return refuse("limits.pages", "must be at least 1");
        }
        if self.listing.max_items == 0 {
            return refuse("limits.items", "must be at least 1");
        }
        self.messages.validate()?;
        let durations = self.durations();
        let long = durations.iter().find(|(_, it)| *it > MAX_DURATION);
        match long {
            Some((name, _)) => refuse(name, "is longer than a year"),
            None => Ok(()),
        }
    }

    /// Every duration, by the name that it has in a config file.
    fn durations(&self) -> [(&'static str, Duration); 23] {
        let (backoff, budget, timeouts) = (&self.backoff, &self.budget, &self.timeouts);
        [
            ("reconnect.initialDelay", backoff.initial),
            ("reconnect.maxDelay", backoff.max),
            ("reconnect.immediateEvery", backoff.immediate_every),
            ("reconnect.maxRetryAfter", backoff.max_retry_after),
            ("reconnect.within", budget.within),
            ("reconnect.provenAfter", budget.proven_after),
            ("reconnect.firstProbe", budget.first_probe),
            ("reconnect.maxProbe", budget.max_probe),
            ("reconnect.wakeEvery", budget.wake_every),
            ("health.keepalive", self.health.keepalive),
            ("health.keepaliveTimeout", self.health.keepalive_timeout),
            ("timeouts.connect", timeouts.connect),
            ("timeouts.call", timeouts.call),
            ("timeouts.idle", timeouts.idle),
            ("timeouts.reconnectWait", timeouts.reconnect_wait),
            ("timeouts.listing", timeouts.listing),
            ("close.drain", self.close.drain),
            ("close.stdin", self.close.stdin),
            ("close.terminate", self.close.terminate),
            ("listing.refreshEvery", self.listing.refresh_every),
            ("listing.refreshRetry", self.listing.refresh_retry),
            ("listing.maxRefreshRetry", self.listing.max_refresh_retry),
            ("sleepAfter", self.rest.sleep_after.unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_as_documented() {
        let settings = ServerSettings::default();
        settings.validate().unwrap();
        assert_eq!(settings.budget.attempts, 10);
        assert_eq!(settings.timeouts.call, Duration::from_secs(300));
        assert_eq!(settings.close.total(), Duration::from_secs(9));
    }

    #[test]
    fn a_hot_loop_is_refused() {
        let mut settings = ServerSettings::default();
        settings.backoff.initial = Duration::ZERO;
        assert_eq!(
            settings.validate().unwrap_err().name,
            "reconnect.initialDelay"
        );
    }

    /// No file could say it, so what is written down could not be read back.
    #[test]
    fn what_is_longer_than_a_year_is_refused() {
        let mut settings = ServerSettings::default();
        settings.timeouts.call = MAX_DURATION;
        settings.validate().unwrap();
        settings.timeouts.call += Duration::from_nanos(1);
        let refused = settings.validate().unwrap_err();
        let expected = "the setting timeouts.call is longer than a year";
        assert_eq!(refused.to_string(), expected);
        let mut settings = ServerSettings::default();
        settings.rest.sleep_after = Some(Duration::MAX);
        assert_eq!(settings.validate().unwrap_err().name, "sleepAfter");
    }

    #[test]
    fn sizes_of_messages_have_a_least_and_a_most() {
        let mut settings = ServerSettings::default();
        settings.messages.max_bytes = MessageSettings::MOST_BYTES;
        settings.messages.max_depth = MessageSettings::LEAST_DEPTH;
        settings.validate().unwrap();
        settings.messages.max_depth -= 1;
        assert_eq!(settings.validate().unwrap_err().name, "limits.nesting");
        settings.messages.max_bytes += 1;
        assert_eq!(settings.validate().unwrap_err().name, "limits.messageBytes");
    }

    #[test]
    fn a_short_shutdown_shrinks_every_step_in_proportion() {
        let fitted = CloseSettings::default().fit(Duration::from_millis(900));
        assert_eq!(fitted.drain, Duration::from_millis(500));
        assert_eq!(fitted.stdin, Duration::from_millis(200));
        assert_eq!(fitted.terminate, Duration::from_millis(200));
    }
}
