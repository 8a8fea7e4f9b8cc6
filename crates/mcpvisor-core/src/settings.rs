//! All settings of one server, with their documented defaults.
//!
//! These are plain values. The library reads them from a file; the modules named at each part apply them.

use std::time::Duration;

use crate::policy::connection_places::{DEFAULT_MAX_CONNECTIONS, MAX_CONNECTIONS};
use crate::policy::instance_choice::MAX_INSTANCES;
use crate::policy::retry::MAX_RETRY_AFTER;

/// The longest accepted duration. A year is longer than any useful wait, and adding it to a clock never
/// overflows.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// All settings of one server.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// Delays between connects: [`crate::policy::backoff`].
    pub backoff: BackoffSettings,
    /// The number of connects: [`crate::policy::budget`].
    pub budget: BudgetSettings,
    /// When soft failures lead to a reconnect: [`crate::policy::health`].
    pub health: HealthSettings,
    /// Limits of calls in flight and queued: [`crate::policy::admission`].
    pub admission: AdmissionSettings,
    /// Timeouts.
    pub timeouts: TimeoutSettings,
    /// How a connection is closed.
    pub close: CloseSettings,
    /// What may be retried: [`crate::policy::retry`].
    pub retry: RetrySettings,
    /// Listings: [`crate::policy::listing`].
    pub listing: ListingSettings,
    /// Size limits of messages.
    pub messages: MessageSettings,
    /// When an unused server has no connection.
    pub rest: RestSettings,
    /// How many connections the server has, and which calls use which.
    pub connections: ConnectionSettings,
}

/// How many connections a server has, and which calls use which.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionSettings {
    /// The instances of the server, which share its calls: [`crate::policy::instance_choice`].
    pub instances: usize,
    /// A client stays on one instance.
    pub affinity: bool,
    /// Which clients share a connection.
    pub scope: ConnectionScope,
    /// The connections at once, if each client has its own:
    /// [`crate::policy::connection_places`].
    pub max_connections: usize,
}

/// Which clients share the connections of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ConnectionScope {
    /// All clients share them.
    #[default]
    Shared,
    /// Each client has its own.
    Client,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            instances: 1,
            affinity: false,
            scope: ConnectionScope::Shared,
            max_connections: DEFAULT_MAX_CONNECTIONS,
        }
    }
}

impl ConnectionSettings {
    fn validate(&self) -> Result<(), InvalidSetting> {
        let check = InvalidSetting::unless;
        let instances = (1..=MAX_INSTANCES).contains(&self.instances);
        check(instances, "instances", "must be between 1 and 64")?;
        let max = (1..=MAX_CONNECTIONS).contains(&self.max_connections);
        check(max, "maxConnections", "must be between 1 and 10000")?;
        let pooled = self.instances > 1 && self.scope == ConnectionScope::Client;
        let shared =
            "must be 1 with \"scope\": \"client\", where each client has an instance of its own";
        check(!pooled, "instances", shared)
    }

    /// Whether each client has a connection of its own.
    pub fn is_per_client(&self) -> bool {
        self.scope == ConnectionScope::Client
    }
}

/// How long an unused connection of one client stays open unless `sleepAfter` is set.
pub const CLIENT_SLEEP_AFTER: Duration = Duration::from_secs(5 * 60);

/// When an unused server has no connection.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RestSettings {
    /// Connect at the first call, not at startup.
    pub lazy: bool,
    /// Connect for calls alone: to be enabled, reconnected or reached in another way does not wake it.
    pub on_demand: bool,
    /// Close the connection after this time without a call, until the next one.
    pub sleep_after: Option<Duration>,
}

/// The growing delays between connects.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BackoffSettings {
    /// The first delay after the immediate retry.
    pub initial: Duration,
    /// The factor from each delay to the next, at least 1.
    pub multiplier: f64,
    /// The longest delay, including jitter.
    pub max: Duration,
    /// The random share by which a delay is longer or shorter, 0 to 1.
    pub jitter: f64,
    /// At most one immediate reconnect of a proven connection within this time.
    pub immediate_every: Duration,
    /// The longest `Retry-After` of a server that is honoured.
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

/// The number of connects a server may use, and what happens when they are spent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BudgetSettings {
    /// Connects allowed within [`BudgetSettings::within`].
    pub attempts: u32,
    /// The sliding window.
    pub within: Duration,
    /// A connection is proven when it answers a call, or stays up this long.
    pub proven_after: Duration,
    /// The delay before the first probe of a parked server.
    pub first_probe: Duration,
    /// The longest delay between probes; it doubles up to this.
    pub max_probe: Duration,
    /// Whether a call wakes a parked server.
    pub wake_on_call: bool,
    /// The shortest interval between connects of a parked server that calls cause.
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

/// Limits of the calls of one server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AdmissionSettings {
    /// Calls in flight at once.
    pub in_flight: usize,
    /// Queued calls.
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

/// Timeouts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TimeoutSettings {
    /// Opening the transport and the handshake.
    pub connect: Duration,
    /// The whole call, with queueing, connecting and retry.
    pub call: Duration,
    /// A call in flight without progress.
    pub idle: Duration,
    /// The wait of a call for a reconnect.
    pub reconnect_wait: Duration,
    /// One page of a listing, or one restored subscription.
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
    /// The time for calls in flight to finish before a requested close.
    pub drain: Duration,
    /// The time for a child to exit after its stdin is closed.
    pub stdin: Duration,
    /// The time for a child to exit after SIGTERM, before SIGKILL.
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
    /// Settings with these steps, for constants. Otherwise start from the default.
    pub const fn new(drain: Duration, stdin: Duration, terminate: Duration) -> Self {
        Self {
            drain,
            stdin,
            terminate,
        }
    }

    /// The sum of all steps.
    pub fn total(&self) -> Duration {
        self.drain
            .saturating_add(self.stdin)
            .saturating_add(self.terminate)
    }

    /// The same steps, shortened in proportion so that their sum is at most `limit`.
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

    /// Shortens the steps after the drain in proportion, so that their sum is at most `limit`.
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
    /// Trust the server's annotations of tools (read-only, idempotent).
    pub trusted: bool,
    /// Tools that may be repeated, whatever their annotations.
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

/// Limits and refreshes of listings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListingSettings {
    /// Pages of one listing.
    pub max_pages: usize,
    /// Items of one listing.
    pub max_items: usize,
    /// The shortest interval between two refreshes of one list.
    pub refresh_every: Duration,
    /// The delay before a failed refresh is retried; it doubles up to `max_refresh_retry`.
    pub refresh_retry: Duration,
    /// The longest delay before a failed refresh is retried.
    pub max_refresh_retry: Duration,
    /// Calls wait until the tools are listed on their connection.
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

/// Size limits of messages. They do not apply to servers in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSettings {
    /// Bytes of one line, body or event. Reading it takes at most three times as much memory.
    pub max_bytes: usize,
    /// Nesting of objects and arrays, including the message itself.
    pub max_depth: usize,
    /// JSON values in one message.
    pub max_values: usize,
    /// Bytes of a child's stderr that are kept, the newest.
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

    /// The smallest accepted `max_bytes`: handshakes and listings need it.
    pub const LEAST_BYTES: usize = 1024 * 1024;
    /// The largest accepted `max_bytes`.
    pub const MOST_BYTES: usize = 256 * 1024 * 1024;
    /// The smallest accepted `max_depth`: schemas of tools need it.
    pub const LEAST_DEPTH: usize = 16;
    /// The largest accepted `max_depth`: the JSON parser reads no more.
    pub const MOST_DEPTH: usize = 128;
    /// The smallest accepted `max_values`.
    pub const LEAST_VALUES: usize = 1_024;
    /// The largest accepted `max_values`.
    pub const MOST_VALUES: usize = 16 * 1024 * 1024;
    /// The smallest accepted `stderr_bytes`: errors show it.
    pub const LEAST_STDERR: usize = 1024;
    /// The largest accepted `stderr_bytes`.
    pub const MOST_STDERR: usize = 16 * 1024 * 1024;

    /// Bytes of memory for reading a message, including the message.
    pub fn max_memory(&self) -> usize {
        self.max_bytes.saturating_mul(3)
    }

    fn validate(&self) -> Result<(), InvalidSetting> {
        let bytes = (Self::LEAST_BYTES..=Self::MOST_BYTES).contains(&self.max_bytes);
        let depth = (Self::LEAST_DEPTH..=Self::MOST_DEPTH).contains(&self.max_depth);
        let values = (Self::LEAST_VALUES..=Self::MOST_VALUES).contains(&self.max_values);
        let stderr = (Self::LEAST_STDERR..=Self::MOST_STDERR).contains(&self.stderr_bytes);
        let bytes_range = "must be between 1048576 (1 MiB) and 268435456 (256 MiB)";
        let values_range = "must be between 1024 and 16777216";
        let stderr_range = "must be between 1024 (1 KiB) and 16777216 (16 MiB)";
        let check = InvalidSetting::unless;
        check(bytes, "limits.messageBytes", bytes_range)?;
        check(depth, "limits.nesting", "must be between 16 and 128")?;
        check(values, "limits.values", values_range)?;
        check(stderr, "limits.stderrBytes", stderr_range)
    }
}

impl Default for MessageSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setting {name} {problem}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The setting, as it is written in a config file.
    pub name: &'static str,
    /// What is wrong with it, or what to write instead.
    pub problem: &'static str,
}

impl InvalidSetting {
    /// A setting and what is wrong with it.
    pub fn new(name: &'static str, problem: &'static str) -> Self {
        Self { name, problem }
    }

    /// Checks one setting.
    pub(crate) fn unless(
        valid: bool,
        name: &'static str,
        problem: &'static str,
    ) -> Result<(), Self> {
        match valid {
            true => Ok(()),
            false => Err(Self { name, problem }),
        }
    }

    /// Checks a duration that must not be zero.
    pub(crate) fn unless_positive(name: &'static str, duration: Duration) -> Result<(), Self> {
        Self::unless(!duration.is_zero(), name, "must be longer than 0")
    }

    /// Checks a duration that a config file must be able to express.
    pub(crate) fn unless_short(name: &'static str, duration: Duration) -> Result<(), Self> {
        Self::unless(duration <= MAX_DURATION, name, "is longer than a year")
    }
}

impl ServerSettings {
    /// When an unused connection is closed: as it is set, or the default of connections of one client.
    pub fn sleep_after(&self) -> Option<Duration> {
        let default = self
            .connections
            .is_per_client()
            .then_some(CLIENT_SLEEP_AFTER);
        self.rest.sleep_after.or(default)
    }

    /// Rejects settings that would cause hot loops, connect storms or a standstill.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let (backoff, budget) = (&self.backoff, &self.budget);
        let (check, positive) = (InvalidSetting::unless, InvalidSetting::unless_positive);
        let least_1 = |name, valid| check(valid, name, "must be at least 1");
        let max_delay = "must be at least initialDelay";
        let multiplier = (1.0..f64::INFINITY).contains(&backoff.multiplier);
        let jitter = (0.0..=1.0).contains(&backoff.jitter);
        positive("reconnect.initialDelay", backoff.initial)?;
        check(
            backoff.max >= backoff.initial,
            "reconnect.maxDelay",
            max_delay,
        )?;
        least_1("reconnect.multiplier", multiplier)?;
        check(jitter, "reconnect.jitter", "must be between 0 and 1")?;
        least_1("reconnect.attempts", budget.attempts > 0)?;
        positive("reconnect.within", budget.within)?;
        positive("reconnect.firstProbe", budget.first_probe)?;
        least_1("health.threshold", self.health.threshold > 0)?;
        positive("health.keepalive", self.health.keepalive)?;
        least_1("limits.inFlight", self.admission.in_flight > 0)?;
        positive("timeouts.connect", self.timeouts.connect)?;
        let sleep_after = self.rest.sleep_after;
        sleep_after.map_or(Ok(()), |after| positive("sleepAfter", after))?;
        least_1("limits.pages", self.listing.max_pages > 0)?;
        least_1("limits.items", self.listing.max_items > 0)?;
        self.messages.validate()?;
        self.connections.validate()?;
        let mut durations = self.durations().into_iter();
        durations.try_for_each(|(name, duration)| InvalidSetting::unless_short(name, duration))
    }

    /// Every duration, by its name in a config file.
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
    fn a_hot_loop_is_rejected() {
        let mut settings = ServerSettings::default();
        settings.backoff.initial = Duration::ZERO;
        assert_eq!(
            settings.validate().unwrap_err().name,
            "reconnect.initialDelay"
        );
    }

    /// A config file cannot express it, so a written config could not be read back.
    #[test]
    fn a_duration_longer_than_a_year_is_rejected() {
        let mut settings = ServerSettings::default();
        settings.timeouts.call = MAX_DURATION;
        settings.validate().unwrap();
        settings.timeouts.call += Duration::from_nanos(1);
        let rejected = settings.validate().unwrap_err();
        let expected = "the setting timeouts.call is longer than a year";
        assert_eq!(rejected.to_string(), expected);
        let mut settings = ServerSettings::default();
        settings.rest.sleep_after = Some(Duration::MAX);
        assert_eq!(settings.validate().unwrap_err().name, "sleepAfter");
    }

    #[test]
    fn sizes_of_messages_have_a_minimum_and_a_maximum() {
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
    fn a_short_shutdown_shortens_every_step_in_proportion() {
        let fitted = CloseSettings::default().fit(Duration::from_millis(900));
        assert_eq!(fitted.drain, Duration::from_millis(500));
        assert_eq!(fitted.stdin, Duration::from_millis(200));
        assert_eq!(fitted.terminate, Duration::from_millis(200));
    }
}
