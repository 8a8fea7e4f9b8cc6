//! What survives a crash of the actor.

use super::state::{PermanentFailure, StateName};
use crate::ids::Generation;
use crate::policy::budget::ReconnectBudget;
use crate::settings::ServerSettings;

/// What survives a crash of the actor. It lives with the supervisor's child spec.
#[derive(Debug, Clone)]
pub struct Durable {
    /// An actor of this server ran before.
    pub started: bool,
    /// The last generation that was used.
    pub generation: Generation,
    /// Connects and actor restarts so far.
    pub budget: ReconnectBudget,
    /// The server was connected since it was configured or enabled.
    pub met: bool,
    /// The first attempt since it was configured, enabled or woken is over: it connected or failed.
    pub tried: bool,
    /// The last connection had proven itself.
    pub proven: bool,
    /// What a restarted actor should be.
    pub wanted: DesiredState,
    /// It sleeps until the next call.
    pub asleep: bool,
}

/// What a server should be, as far as people decide it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DesiredState {
    /// Connected.
    Enabled,
    /// Switched off.
    Disabled,
    /// Connected, but a person has to act first.
    Failed(PermanentFailure),
}

impl Durable {
    /// A server that was never started.
    pub fn new(settings: &ServerSettings, enabled: bool) -> Self {
        Self {
            started: false,
            generation: Generation::NONE,
            budget: ReconnectBudget::new(&settings.backoff, &settings.budget),
            met: false,
            tried: false,
            proven: false,
            wanted: if enabled {
                DesiredState::Enabled
            } else {
                DesiredState::Disabled
            },
            asleep: false,
        }
    }

    /// The state of a server before its actor first runs, with which its chain of events begins.
    pub fn first_state(&self, settings: &ServerSettings) -> StateName {
        match self.wanted {
            DesiredState::Enabled if settings.rest.lazy => StateName::Sleeping,
            DesiredState::Enabled => StateName::Connecting,
            DesiredState::Disabled => StateName::Disabled,
            DesiredState::Failed(_) => StateName::PermanentlyFailed,
        }
    }
}
