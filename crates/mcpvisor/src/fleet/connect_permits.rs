//! Grants connect permits: the governor and the timer that wakes it.

use mcpvisor_core::{Governor, GovernorSettings, ServerInstance};
use ractor::ActorRef;

use super::SupervisorMessage;
use crate::message_timer::MessageTimer;
use crate::server::actor::now;

/// The connect permits of a fleet.
pub(super) struct ConnectPermits {
    pub(super) governor: Governor<ServerInstance>,
    pub(super) timer: Option<MessageTimer>,
}

impl ConnectPermits {
    pub(super) fn new(settings: GovernorSettings) -> Self {
        Self {
            governor: Governor::new(settings),
            timer: None,
        }
    }

    /// Returns the slots that may connect now, and arms the timer for the next ones.
    pub(super) fn grant(
        &mut self,
        supervisor: &ActorRef<SupervisorMessage>,
    ) -> Vec<ServerInstance> {
        let granted = self.governor.poll(now());
        let due = self.governor.next_deadline();
        let message = || SupervisorMessage::PermitTimerFired;
        MessageTimer::arm(&mut self.timer, supervisor, due, message);
        granted
    }
}
