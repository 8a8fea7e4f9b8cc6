//! What survives a crash of the actor.

use super::state::{PermanentFailure, StateName};
use crate::ids::Generation;
use crate::policy::budget::ReconnectBudget;
use crate::settings::ServerSettings;

/// What survives a crash of the actor. The supervisor stores it with the child spec.
#[derive(Debug, Clone)]
pub struct Durable {
    /// An actor of this server ran before.
    pub started: bool,
    /// The last generation that was used.
    pub generation: Generation,
    /// Connects and actor restarts so far.
    pub budget: ReconnectBudget,
    /// The server was connected at least once since it was configured or enabled.
    pub was_connected: bool,
    /// The first attempt since it was configured, enabled or woken has connected or failed.
    pub first_attempt_over: bool,
    /// The current connection has proven itself. It stays set until the next connect is scheduled, so
    /// that the budget knows how the last connection ended.
    pub proven: bool,
    /// What a restarted actor should bring about.
    pub desired: DesiredState,
    /// The server sleeps until the next call.
    pub asleep: bool,
}

/// The state that the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DesiredState {
    /// Connected.
    Enabled,
    /// Switched off.
    Disabled,
    /// Connected, but the user has to act first.
    Failed(PermanentFailure),
}

impl Durable {
    /// A server that was never started.
    pub fn new(settings: &ServerSettings, enabled: bool) -> Self {
        Self {
            started: false,
            generation: Generation::NONE,
            budget: ReconnectBudget::new(&settings.backoff, &settings.budget),
            was_connected: false,
            first_attempt_over: false,
            proven: false,
            desired: if enabled {
                DesiredState::Enabled
            } else {
                DesiredState::Disabled
            },
            asleep: false,
        }
    }

    /// The state of a server before its actor first runs: the first one that its events report.
    pub fn first_state(&self, settings: &ServerSettings) -> StateName {
        match self.desired {
            DesiredState::Enabled if settings.rest.lazy => StateName::Sleeping,
            DesiredState::Enabled => StateName::Connecting,
            DesiredState::Disabled => StateName::Disabled,
            DesiredState::Failed(_) => StateName::PermanentlyFailed,
        }
    }
}
