//! The states of one server, with their data.
//!
//! A state says only what is so. How one state follows another is in the modules beside this one.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::fault::Fault;
use super::{Now, later};
use crate::ids::Generation;
use crate::settings::CloseSettings;

/// The name of a state, as JSON and the command line spell it. There is no variant for states to come:
/// whoever matches on it shall notice a new one, which is a breaking change.
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
    /// Switched off by a person or the config.
    Disabled,
    /// The reconnect budget is spent: parked and probed slowly.
    Disconnected,
    /// Nobody needs it at the moment: the next call connects it.
    Sleeping,
    /// Retrying cannot help; a person has to act.
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
    /// Parked, with slow probes.
    Disconnected(Attempt),
    /// On the way to [`State::Disabled`], or to the end.
    Disabling(Teardown),
    /// Without a connection until the next call.
    Sleeping(SleepPhase),
    /// Switched off.
    Disabled,
    /// A person has to act.
    PermanentlyFailed(PermanentFailure),
}

/// How deep a server sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepPhase {
    /// The connection is being closed.
    Closing {
        /// The connection that is closed.
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
            Self::PermanentlyFailed(_) => StateName::PermanentlyFailed,
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
            | Self::PermanentlyFailed(_) => None,
        }
    }
}

/// Where the way to the next connection stands. One step follows the other, so connects and closes
/// of one server never overlap.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// Calls in flight finish before the old connection is closed.
    Draining {
        /// The connection that is given up.
        generation: Generation,
        /// It is closed then, whatever is still in flight.
        until: Instant,
        /// When the next connect follows.
        next: ReconnectTiming,
    },
    /// The old connection is being closed.
    Closing {
        /// The connection that is closed.
        generation: Generation,
        /// The next connect comes no sooner.
        retry_at: Instant,
    },
    /// The backoff, or the rest before a probe.
    BackingOff {
        /// The next connect is asked for then.
        retry_at: Instant,
    },
    /// The governor of connects was asked.
    AwaitingPermit,
    /// The connection task opens the transport and shakes hands.
    Opening {
        /// The connection that may come.
        generation: Generation,
        /// It has failed if it is not up by then.
        deadline: Instant,
    },
}

/// When the connect after a drained connection comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectTiming {
    /// At once: a person asked, or a call woke a parked server.
    Now,
    /// As the budget says: the connection was found sick.
    Paced,
}

/// A connection that is up.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveConnection {
    /// Its number.
    pub generation: Generation,
    /// Up since then.
    pub since: Instant,
    /// A caller was answered, or it stayed up long enough.
    pub proven: bool,
    /// When anything last arrived on it.
    pub last_heard: Instant,
    /// A check in progress.
    pub check: Option<Check>,
    /// It no longer takes requests; the report of its loss is on the way.
    pub deaf: bool,
    /// Its tools have to be listed before it takes requests.
    pub unlisted: bool,
    /// When it came up, or a call last came or ended.
    pub last_call: Instant,
}

impl LiveConnection {
    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.deaf && !self.unlisted
    }
}

/// One ping in progress.
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
    /// It was silent for the keepalive time. No answer: the transport is dead.
    Idle,
    /// Too many soft failures in a row. No answer: the server is sick.
    Suspicion,
}

/// A server on its way to being switched off.
#[derive(Debug, Clone, PartialEq)]
pub struct Teardown {
    /// How far it is.
    pub phase: TeardownPhase,
    /// What follows.
    pub then: AfterTeardown,
    /// How long it may take.
    pub patience: CloseDeadline,
}

/// How long a teardown may take. A drain that ends early leaves its time to the steps after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CloseDeadline {
    /// How long each step may take, as far as there is time.
    pub steps: CloseSettings,
    /// When all of it must be over.
    pub due: Instant,
}

impl CloseDeadline {
    /// The steps within a limit, from now on.
    pub(super) fn new(steps: CloseSettings, limit: Duration, now: Now) -> Self {
        Self {
            steps,
            due: later(now.at, steps.total().min(limit)),
        }
    }

    /// When a drain that begins now is over: every step shrinks in proportion.
    pub(super) fn drain_until(&self, now: Now) -> Instant {
        later(now.at, self.steps.fit(self.left(now)).drain)
    }

    /// How a close that begins now goes.
    pub(super) fn close(&self, now: Now) -> CloseSettings {
        self.steps.fit_after_drain(self.left(now))
    }

    /// Patience is only ever lost.
    pub(super) fn least(self, other: Self) -> Self {
        if other.due < self.due { other } else { self }
    }

    fn left(&self, now: Now) -> Duration {
        self.due.saturating_duration_since(now.at)
    }
}

/// How far a teardown is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeardownPhase {
    /// Calls in flight finish.
    Draining {
        /// The connection that is given up.
        generation: Generation,
        /// It is closed then, whatever is still in flight.
        until: Instant,
    },
    /// The connection is being closed.
    Closing {
        /// The connection that is closed.
        generation: Generation,
    },
}

/// What follows a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTeardown {
    /// The server stays disabled.
    Stay,
    /// It was enabled meanwhile: connect again.
    Enable,
    /// The server is removed or the runtime ends.
    Stop,
}

/// A failure that retrying cannot mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermanentFailure {
    /// What happened.
    pub fault: Fault,
    /// What a person should do about it.
    pub action: String,
}
