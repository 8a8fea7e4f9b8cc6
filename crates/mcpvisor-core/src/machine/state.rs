//! The states of one server, with their data.
//!
//! The transitions between them are in the modules beside this one.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::action::Action;
use super::fault::Fault;
use super::{Now, later};
use crate::ids::Generation;
use crate::settings::CloseSettings;

/// The name of a state, as JSON and the command line spell it. It is exhaustive on purpose: a new state
/// is a breaking change that every `match` has to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// The first attempt since it was configured, enabled or woken.
    Connecting,
    /// The handshake is done and requests run.
    Connected,
    /// An attempt failed, or a connection was lost or is being replaced.
    Reconnecting,
    /// Calls in flight finish, then the connection is closed.
    Disabling,
    /// Switched off by the user or the config.
    Disabled,
    /// The reconnect budget is spent: parked and probed slowly.
    Disconnected,
    /// Not in use: the next call connects it.
    Sleeping,
    /// Retrying cannot help; the user has to act.
    PermanentlyFailed,
}

impl StateName {
    /// Every state, in the order of the documentation.
    pub const ALL: &'static [Self] = &[
        Self::Connecting,
        Self::Connected,
        Self::Reconnecting,
        Self::Disabling,
        Self::Disabled,
        Self::Disconnected,
        Self::Sleeping,
        Self::PermanentlyFailed,
    ];

    /// The name in snake_case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Disabling => "disabling",
            Self::Disabled => "disabled",
            Self::Disconnected => "disconnected",
            Self::Sleeping => "sleeping",
            Self::PermanentlyFailed => "permanently_failed",
        }
    }

    /// Whether a server in this state publishes its last good catalog.
    pub fn publishes(self) -> bool {
        match self {
            Self::Connecting
            | Self::Connected
            | Self::Reconnecting
            | Self::Disconnected
            | Self::Sleeping => true,
            Self::Disabling | Self::Disabled | Self::PermanentlyFailed => false,
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of one server.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// On the first attempt since it was configured, enabled or woken.
    Connecting(Attempt),
    /// Connected.
    Connected(LiveConnection),
    /// On a later attempt.
    Reconnecting(Attempt),
    /// Parked: the reconnect budget is spent, and the server is probed slowly.
    Disconnected(Attempt),
    /// On the way to [`State::Disabled`], or to the end of the actor.
    Disabling(Teardown),
    /// Without a connection until the next call.
    Sleeping(SleepPhase),
    /// Switched off.
    Disabled,
    /// The user has to act.
    PermanentlyFailed {
        /// What happened, and what to do.
        failure: PermanentFailure,
        /// The connection that is being closed.
        closing: Option<Generation>,
    },
}

/// The phases of a server that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepPhase {
    /// The connection is being closed.
    Closing {
        /// The connection that is being closed.
        generation: Generation,
    },
    /// There is no connection.
    Asleep,
}

impl State {
    /// The name of this state.
    pub fn name(&self) -> StateName {
        match self {
            Self::Connecting(_) => StateName::Connecting,
            Self::Connected(_) => StateName::Connected,
            Self::Reconnecting(_) => StateName::Reconnecting,
            Self::Disconnected(_) => StateName::Disconnected,
            Self::Disabling(_) => StateName::Disabling,
            Self::Sleeping(_) => StateName::Sleeping,
            Self::Disabled => StateName::Disabled,
            Self::PermanentlyFailed { .. } => StateName::PermanentlyFailed,
        }
    }

    /// The attempt of a state that is on its way to a connection.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Connecting(attempt)
            | Self::Reconnecting(attempt)
            | Self::Disconnected(attempt) => Some(attempt),
            Self::Connected(_)
            | Self::Disabling(_)
            | Self::Sleeping(_)
            | Self::Disabled
            | Self::PermanentlyFailed { .. } => None,
        }
    }
}

/// The steps of an attempt to connect. One follows the other, so connects and closes of one server never
/// overlap.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// The old connection finishes its calls in flight before it is closed.
    Draining {
        /// The connection that is being replaced.
        generation: Generation,
        /// It is closed then, even if calls are still in flight.
        until: Instant,
        /// When the next connect follows.
        timing: ReconnectTiming,
    },
    /// The old connection is being closed.
    Closing {
        /// The connection that is being closed.
        generation: Generation,
        /// The next connect comes no sooner.
        retry_at: Instant,
    },
    /// Waiting for the backoff, or for the next probe.
    BackingOff {
        /// A permit is requested then.
        retry_at: Instant,
    },
    /// Waiting for a permit of the connect governor.
    AwaitingPermit,
    /// The connection task opens the transport and performs the handshake.
    Opening {
        /// The connection that is being opened.
        generation: Generation,
        /// The attempt fails if the connection is not up by then.
        deadline: Instant,
    },
}

/// When the connect after a drained connection comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectTiming {
    /// At once: the user asked for it, or a call woke a parked server.
    Now,
    /// As the budget says: the connection failed.
    Paced,
}

/// A connection that is up. Whether it has proven itself is in [`super::Durable::proven`].
#[derive(Debug, Clone, PartialEq)]
pub struct LiveConnection {
    /// Its generation.
    pub generation: Generation,
    /// When it came up.
    pub since: Instant,
    /// When anything last arrived on it.
    pub last_received: Instant,
    /// A check in progress.
    pub check: Option<Check>,
    /// It rejected a call; the report of its loss is on the way.
    pub is_ending: bool,
    /// Its tools have to be listed before it accepts calls.
    pub awaits_tools: bool,
    /// When a call last arrived or ended, or else when it came up.
    pub last_call: Instant,
}

impl LiveConnection {
    pub(super) fn accepts_calls(&self) -> bool {
        !self.is_ending && !self.awaits_tools
    }
}

/// A check in progress: one ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// It must be answered by then.
    pub deadline: Instant,
    /// Why it was sent.
    pub reason: CheckReason,
}

/// Why a connection is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckReason {
    /// It was silent for the keepalive time. Without an answer the transport is dead.
    Idle,
    /// Too many soft failures in a row. Without an answer the server is unhealthy.
    SoftFailures,
}

/// A server that is being disabled or shut down.
#[derive(Debug, Clone, PartialEq)]
pub struct Teardown {
    /// The current phase.
    pub phase: TeardownPhase,
    /// What follows.
    pub then: AfterTeardown,
    /// When it must be over.
    pub close_by: CloseDeadline,
}

/// The time limit of a teardown. A drain that ends early leaves its time to the later steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CloseDeadline {
    /// The time for each step, if there is enough in total.
    pub steps: CloseSettings,
    /// When all steps must be over.
    pub due: Instant,
}

impl CloseDeadline {
    pub(super) fn new(steps: CloseSettings, limit: Duration, now: Now) -> Self {
        Self {
            steps,
            due: later(now.at, steps.total().min(limit)),
        }
    }

    /// When a drain that begins now must end. All steps shrink in proportion.
    pub(super) fn drain_until(&self, now: Now) -> Instant {
        later(now.at, self.steps.fit(self.left(now)).drain)
    }

    /// The time for each step of a close that begins now.
    pub(super) fn close(&self, now: Now) -> CloseSettings {
        self.steps.fit_after_drain(self.left(now))
    }

    pub(super) fn earlier(self, other: Self) -> Self {
        if other.due < self.due { other } else { self }
    }

    fn left(&self, now: Now) -> Duration {
        self.due.saturating_duration_since(now.at)
    }
}

/// The phases of a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeardownPhase {
    /// The connection finishes its calls in flight.
    Draining {
        /// The connection that is being drained.
        generation: Generation,
        /// It is closed then, even if calls are still in flight.
        until: Instant,
    },
    /// The connection is being closed.
    Closing {
        /// The connection that is being closed.
        generation: Generation,
    },
}

/// What follows a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTeardown {
    /// The server stays disabled.
    StayDisabled,
    /// It was enabled meanwhile: connect again.
    Enable,
    /// The server was removed or the runtime shuts down.
    Stop,
}

/// A failure that retrying cannot fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermanentFailure {
    /// What happened.
    pub fault: Fault,
    /// What the user should do about it.
    pub action: Action,
}
