//! Grants connect permits: the governor and the timer that wakes it.

use std::time::Instant;

use mcpvisor_core::{ConnectKind, Governor, GovernorSettings, ServerName};
use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::SupervisorMessage;
use crate::server::actor::now;

/// The connect permits of a fleet.
pub(super) struct ConnectPermits {
    governor: Governor<ServerName>,
    timer: Option<PermitTimer>,
}

struct PermitTimer {
    due: Instant,
    task: JoinHandle<()>,
}

impl Drop for PermitTimer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConnectPermits {
    pub(super) fn new(settings: GovernorSettings) -> Self {
        Self {
            governor: Governor::new(settings),
            timer: None,
        }
    }

    pub(super) fn reconfigure(&mut self, settings: GovernorSettings) {
        self.governor.reconfigure(settings);
    }

    pub(super) fn set_fleet_size(&mut self, servers: usize) {
        self.governor.set_fleet(servers);
    }

    pub(super) fn request(&mut self, server: &ServerName, kind: ConnectKind, stdio: bool) {
        self.governor.request(server.clone(), kind, stdio);
    }

    pub(super) fn release(&mut self, server: &ServerName) {
        self.governor.release(server);
    }

    pub(super) fn timer_fired(&mut self) {
        self.timer = None;
    }

    /// Returns the servers that may connect now, and arms the timer for the next ones.
    pub(super) fn grant(&mut self, supervisor: &ActorRef<SupervisorMessage>) -> Vec<ServerName> {
        let granted = self.governor.poll(now());
        self.arm_timer(supervisor);
        granted
    }

    /// A timer that fires early does no harm, so it is replaced only by an earlier one.
    fn arm_timer(&mut self, supervisor: &ActorRef<SupervisorMessage>) {
        let Some(due) = self.governor.next_deadline() else {
            return;
        };
        if self.timer.as_ref().is_some_and(|timer| timer.due <= due) {
            return;
        }
        let supervisor = supervisor.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            let _ = supervisor.send_message(SupervisorMessage::PermitTimerFired);
        });
        self.timer = Some(PermitTimer { due, task });
    }
}
