//! Handles the events of a connection task.

use mcpvisor_core::machine::{Attempt, Fault, ReturnedCall, State};
use mcpvisor_core::{Generation, Input};

use super::actor::ServerState;
use super::call::Call;
use super::message::{
    ConfirmedSetting, ConnectionEvent, FailedCall, InboundSummary, ServerMessage,
};

impl ServerState {
    pub(super) fn connection_event(&mut self, generation: Generation, event: ConnectionEvent) {
        match event {
            ConnectionEvent::FirstByte => self.step(Input::FirstByte { generation }),
            ConnectionEvent::Up { info, lists } => {
                self.step(Input::ConnectionUp { generation, lists });
                // A connection that came up too late is ignored.
                if self.is_current(generation) {
                    self.slot.published.peer_info.store(Some(info));
                    self.draft.mark_changed();
                }
            }
            ConnectionEvent::Inbound(summary) => self.inbound(generation, summary),
            ConnectionEvent::Lost { fault, returned } => self.lost(generation, fault, returned),
            ConnectionEvent::Ended(end) => {
                if self.connection_of(generation).is_some() {
                    self.connection = None;
                }
                self.step(Input::ConnectionEnded { generation, end });
            }
        }
    }

    fn inbound(&mut self, generation: Generation, summary: InboundSummary) {
        // Confirmations count while the connection drains or closes: their callers were answered.
        let current = self.machine.current_generation() == Some(generation);
        self.draft.count_dropped(&summary);
        for call in summary.progressed {
            self.step(Input::CallProgressed { generation, call });
        }
        for list in summary.changed {
            self.step(Input::ListChanged { generation, list });
        }
        if current {
            self.confirm(summary.confirmed);
        }
        let no_call_ended = summary.ended.is_empty() && summary.failed.is_empty();
        if no_call_ended && summary.received {
            self.step(Input::MessageReceived { generation });
        }
        for failed in summary.failed {
            self.call_failed(generation, failed);
        }
        if let Some(refused) = summary.unauthorized {
            let (credential, fault) = *refused;
            self.step(Input::Unauthorized {
                generation,
                credential,
                fault,
            });
        }
        if let Some(fault) = summary.session_lost {
            self.step(Input::SessionLost { generation, fault });
        }
        for (call, end) in summary.ended {
            self.step(Input::CallEnded {
                generation,
                call,
                end,
            });
        }
    }

    /// A call failed while its connection stays open.
    fn call_failed(&mut self, generation: Generation, failed: FailedCall) {
        let FailedCall {
            call,
            failure,
            fault,
        } = failed;
        let id = call.id;
        self.waiting_calls.insert(id, call);
        self.step(Input::CallFailed {
            generation,
            call: id,
            failure,
            fault,
        });
    }

    /// Stores what has to be restored on the next connection.
    fn confirm(&mut self, confirmed: Vec<ConfirmedSetting>) {
        if confirmed.is_empty() {
            return;
        }
        let mut log_level = None;
        let mut state = self.slot.restart_state();
        for setting in confirmed {
            match setting {
                ConfirmedSetting::Subscribed(uri) => drop(state.session.subscriptions.insert(uri)),
                ConfirmedSetting::Unsubscribed(uri) => {
                    state.session.subscriptions.remove(&uri);
                }
                ConfirmedSetting::LogLevel(level) => {
                    state.session.log_level = Some(level);
                    log_level = Some(level);
                }
            }
        }
        drop(state);
        if let Some(level) = log_level {
            let slot = &self.slot;
            slot.send_to_siblings(|| ServerMessage::AdoptLogLevel(level));
        }
        self.report_subscriptions();
    }

    /// Reports to the machine whether there are subscriptions: a server with some does not sleep.
    pub(super) fn report_subscriptions(&mut self) {
        let active = !self.slot.restart_state().session.subscriptions.is_empty();
        self.step(Input::SubscriptionsChanged { active });
    }

    /// Whether the runtime itself is closing the connection.
    fn is_closing(&self) -> bool {
        match self.machine.state() {
            State::Disabling(_) | State::Sleeping(_) => true,
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => matches!(attempt, Attempt::Closing { .. }),
            State::PermanentlyFailed { closing, .. } => closing.is_some(),
            State::Connected(_) | State::Disabled => false,
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
            self.waiting_calls.insert(call.id, call);
        }
        self.step(Input::ConnectionLost {
            generation,
            fault,
            returned,
        });
    }
}
