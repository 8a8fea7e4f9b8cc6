//! Handles the end of a slot's actor: restarts it after a crash, or removes the slot.

use std::time::Duration;

use mcpvisor_core::ServerInstance;
use mcpvisor_core::machine::StateName;
use ractor::{ActorId, ActorProcessingErr, ActorRef};

use super::supervisor::SupervisorState;
use super::{CloseOutcome, ServerClosed, SupervisorMessage};
use crate::api::events::EventKind;
use crate::server::connection_lock::is_taken;
use crate::server::slot::{Mailbox, ServerSlot};

/// Pause before the restart of an actor whose server has no budget left, so that one that crashes
/// on every message does not spin.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

impl SupervisorState {
    /// An actor panicked: restarts it, on the budget of its server.
    pub(super) async fn actor_crashed(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        actor: ActorId,
        problem: &ActorProcessingErr,
    ) {
        let Some(id) = self.actors.remove(&actor) else {
            return;
        };
        self.permits.governor.release(&id);
        let Some(child) = self.children.get_mut(&id) else {
            return;
        };
        tracing::error!(server = %id, %problem, "the server's actor crashed");
        child.actor = None;
        child.slot.mailbox.send_replace(Mailbox::Starting);
        let (generation, parked) = {
            let mut state = child.slot.restart_state();
            state.restarts += 1;
            // The machine of the new actor counts the restart against the budget.
            (state.durable.generation, state.durable.budget.is_parked())
        };
        let problem = problem.to_string();
        child
            .slot
            .emit(generation, EventKind::ActorRestarted { problem });
        if self.shutdown.is_some() || child.removed {
            // A crash while closing: the connection closes by itself.
            child.slot.connection_lock.force_close();
            self.remove_child(&id);
        } else if parked {
            restart_after_pause(myself, id);
        } else {
            self.start(myself, &id).await;
        }
    }

    pub(super) fn actor_stopped(&mut self, actor: ActorId) {
        if let Some(id) = self.actors.remove(&actor) {
            self.permits.governor.release(&id);
            self.remove_child(&id);
        }
    }

    /// Removes a child for good and publishes its end.
    pub(super) fn remove_child(&mut self, id: &ServerInstance) {
        let Some(child) = self.children.remove(id) else {
            return;
        };
        let slot = &child.slot;
        let how = {
            // It stays in the slot, where it is read when the supervisor is gone too.
            let mut state = slot.restart_state();
            state.closed.get_or_insert(CloseOutcome::Forced).clone()
        };
        self.note_closing(slot);
        slot.forget_client_slot();
        let from = slot.published.status().state;
        slot.publish_end();
        let generation = slot.generation();
        // An actor that crashed or was killed did not emit this.
        if from != StateName::Disabled {
            let changed = EventKind::StateChanged {
                from,
                to: StateName::Disabled,
                fault: None,
            };
            slot.emit(generation, changed);
        }
        match &mut self.shutdown {
            Some(shutdown) => {
                slot.mailbox.send_replace(Mailbox::Gone);
                shutdown.closed.push(ServerClosed {
                    server: id.server.clone(),
                    instance: id.instance,
                    how,
                });
            }
            None if slot.is_main() => {
                slot.mailbox.send_replace(Mailbox::Removed);
                slot.emit(generation, EventKind::Removed);
                self.update_registry();
            }
            None => {
                slot.mailbox.send_replace(Mailbox::Removed);
                slot.emit(generation, EventKind::InstanceRemoved);
                self.permits.governor.set_fleet(self.children.len());
            }
        }
        if self.slots_of(&id.server).next().is_none() {
            let removals = self.removals.remove(&id.server);
            for reply in removals.into_iter().flatten() {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// The connection of a crashed actor closes by itself and may outlive its server. A new server
    /// of the same name waits for it.
    fn note_closing(&mut self, slot: &ServerSlot) {
        self.closing.retain(|_, locks| {
            locks.retain(is_taken);
            !locks.is_empty()
        });
        let taken = slot.connection_lock.taken();
        if !taken.is_empty() {
            let locks = self.closing.entry(slot.name().clone()).or_default();
            locks.extend(taken);
        }
    }
}

pub(super) fn restart_after_pause(supervisor: &ActorRef<SupervisorMessage>, slot: ServerInstance) {
    let message = || SupervisorMessage::RestartActor(slot);
    drop(supervisor.send_after(RESTART_PAUSE, message));
}
