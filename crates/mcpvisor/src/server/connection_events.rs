//! What a connection says of itself, and of the requests that it had.

use std::sync::Arc;

use mcpvisor_core::machine::{Attempt, Fault, ReturnedCall, State};
use mcpvisor_core::{Generation, Input};

use super::actor::ServerState;
use super::call::Call;
use super::message::{ConfirmedSetting, ConnectionEvent, FailedCall, InboundSummary};

impl ServerState {
    pub(super) fn connection_event(&mut self, generation: Generation, event: ConnectionEvent) {
        match event {
            ConnectionEvent::FirstByte => self.step(Input::FirstByte { generation }),
            ConnectionEvent::Up { info, lists } => {
                self.step(Input::ConnectionUp { generation, lists });
                // A connection that came up too late has nothing to say about the server.
                if self.is_live(generation) {
                    self.slot.info.store(Some(Arc::clone(&info)));
                    self.info = Some(info);
                    self.dirty = true;
                }
            }
            ConnectionEvent::Inbound(observed) => self.inbound(generation, observed),
            ConnectionEvent::Lost { fault, returned } => self.lost(generation, fault, returned),
            ConnectionEvent::Ended(end) => {
                if self.connection.as_ref().map(|held| held.generation) == Some(generation) {
                    self.connection = None;
                }
                self.step(Input::ConnectionEnded { generation, end });
            }
        }
    }

    fn inbound(&mut self, generation: Generation, observed: InboundSummary) {
        // What was agreed to while the connection drains or closes was agreed to: its caller knows.
        let current = self.machine.current() == Some(generation);
        if observed.strays > 0 || observed.dropped_flood > 0 {
            self.strays += observed.strays;
            self.dropped_flood += observed.dropped_flood;
            self.dirty = true;
        }
        for call in observed.progressed {
            self.step(Input::CallProgressed { generation, call });
        }
        for list in observed.changed {
            self.step(Input::ListChanged { generation, list });
        }
        if current {
            self.confirm(observed.confirmed);
        }
        let silent = observed.ended.is_empty() && observed.failed.is_empty();
        if silent && observed.heard {
            self.step(Input::MessageReceived { generation });
        }
        for failed in observed.failed {
            self.call_failed(generation, failed);
        }
        if let Some(fault) = observed.session_gone {
            self.step(Input::SessionLost { generation, fault });
        }
        for (call, end) in observed.ended {
            self.step(Input::CallEnded {
                generation,
                call,
                end,
            });
        }
    }

    /// A call comes back from a connection that goes on.
    fn call_failed(&mut self, generation: Generation, failed: FailedCall) {
        let FailedCall {
            call,
            trouble,
            fault,
        } = failed;
        let id = call.id;
        self.calls.insert(id, call);
        self.step(Input::CallFailed {
            generation,
            call: id,
            trouble,
            fault,
        });
    }

    /// Remembers what has to be restored on the next connection.
    fn confirm(&mut self, confirmed: Vec<ConfirmedSetting>) {
        if confirmed.is_empty() {
            return;
        }
        let mut memory = self.slot.memory();
        for fact in confirmed {
            match fact {
                ConfirmedSetting::Subscribed(uri) => drop(memory.subscriptions.insert(uri)),
                ConfirmedSetting::Unsubscribed(uri) => drop(memory.subscriptions.remove(&uri)),
                ConfirmedSetting::LogLevel(level) => memory.log_level = Some(level),
            }
        }
        drop(memory);
        self.tell_of_listeners();
    }

    /// A server that somebody listens to does not sleep.
    pub(super) fn tell_of_listeners(&mut self) {
        let active = !self.slot.memory().subscriptions.is_empty();
        self.step(Input::SubscriptionsChanged { active });
    }

    /// Whether the connection is being closed by our own decision.
    fn is_closing(&self) -> bool {
        match self.machine.state() {
            State::Disabling(_) | State::Sleeping(_) => true,
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => matches!(attempt, Attempt::Closing { .. }),
            State::Connected(_) | State::Disabled | State::PermanentlyFailed(_) => false,
        }
    }

    fn lost(&mut self, generation: Generation, fault: Fault, calls: Vec<(Box<Call>, bool)>) {
        let server = self.slot.name();
        if calls.is_empty() && self.is_closing() {
            tracing::debug!(%server, %generation, %fault, "connection closed");
        } else {
            tracing::info!(%server, %generation, %fault, "connection lost");
        }
        let returned = calls
            .iter()
            .map(|(call, written)| ReturnedCall {
                call: call.id,
                written: *written,
            })
            .collect();
        for (call, _) in calls {
            self.calls.insert(call.id, call);
        }
        self.step(Input::ConnectionLost {
            generation,
            fault,
            returned,
        });
    }
}
