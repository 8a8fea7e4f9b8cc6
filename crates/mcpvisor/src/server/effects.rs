//! Performs the effects of the machine. Nothing here waits: slow work runs in a task that reports
//! back with a message.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mcpvisor_core::machine::{Fault, FaultClass, Outcome};
use mcpvisor_core::retry::Known;
use mcpvisor_core::{CallId, Effect, Generation, Input, ListKind, StateName};

use super::actor::{ServerState, now};
use super::call::Call;
use super::message::ServerMessage;
use crate::api::events::EventKind;
use crate::api::reply::Failure;
use crate::catalog::{ListItems, ServerCatalog};
use crate::connection::{self, Command, ConnectionHandle};
use crate::fleet::{CloseOutcome, SupervisorMessage};
use crate::server::internal_requests;

impl ServerState {
    /// Performs one effect. Returns the input that follows from it, if any.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::StartCall {
                call,
                generation,
                before,
            } => return self.start_call(call, generation, before),
            Effect::Resolve { call, outcome } => self.resolve(call, outcome),
            Effect::Abandon { call, outcome, .. } => self.abandon(call, outcome),
            Effect::DropCall { call } => drop(self.waiting_calls.remove(&call)),
            Effect::RequestPermit { reconnect } => {
                if !self.take_place(reconnect) {
                    return None;
                }
                // A first connect within this process needs no permit: it starts no program and
                // opens no socket.
                if !reconnect && self.slot.config().transport.is_in_process() {
                    return Some(Input::PermitGranted);
                }
                self.request_permit(reconnect);
            }
            Effect::ReleasePermit => {
                self.withdraw_place_request();
                if std::mem::take(&mut self.permit_requested) {
                    self.send_to_supervisor(SupervisorMessage::ReleasePermit(self.slot.id.clone()));
                }
            }
            Effect::Open { generation } => {
                tracing::debug!(server = %self.slot.name(), %generation, "connecting");
                self.slot.stderr.start_connection();
                let place = self.place.held();
                let connection = connection::spawn(&self.slot, &self.myself, generation, place);
                self.connection = Some(connection);
                self.draft.mark_changed();
            }
            Effect::Close { generation, grace } => {
                if let Some(connection) = self.connection_of(generation) {
                    connection.close(grace);
                }
            }
            #[cfg(feature = "http")]
            Effect::RenewCredential { refused } => self.renew_credential(refused),
            #[cfg(not(feature = "http"))]
            Effect::RenewCredential { .. } => {}
            Effect::Check { generation } => self.check(generation),
            Effect::FetchList { generation, list } => self.fetch(generation, list),
            Effect::Restore { generation } => self.prepare_restore(generation),
            Effect::AttemptFailed {
                attempt,
                fault,
                retry_at,
            } => self.attempt_failed(attempt, fault, retry_at),
            Effect::StateChanged { from, to } => self.state_changed(from, to),
            Effect::SaveDurable => {
                self.slot.restart_state().durable = self.machine.durable().clone();
                self.draft.mark_changed();
            }
            Effect::Stop => {
                let fault = self.machine.last_fault();
                let problem = fault.filter(|fault| fault.class == FaultClass::Close);
                let closed = problem.map_or(CloseOutcome::Clean, |fault| {
                    CloseOutcome::Problem(fault.message.clone())
                });
                self.slot.restart_state().closed = Some(closed);
                self.myself.stop(None);
            }
        }
        None
    }

    pub(super) fn request_permit(&mut self, reconnect: bool) {
        self.permit_requested = true;
        self.send_to_supervisor(SupervisorMessage::RequestPermit {
            slot: self.slot.id.clone(),
            reconnect,
        });
    }

    fn send_to_supervisor(&self, message: SupervisorMessage) {
        // Fails only when the supervisor has ended, which ends this actor too.
        let _ = self.supervisor.send_message(message);
    }

    pub(super) fn connection_of(&self, generation: Generation) -> Option<&ConnectionHandle> {
        self.connection
            .as_ref()
            .filter(|connection| connection.generation == generation)
    }

    fn start_call(&mut self, id: CallId, generation: Generation, before: Known) -> Option<Input> {
        let mut call = self.waiting_calls.remove(&id)?;
        let retried = before != Known::NotSent;
        call.reply.set_before(before);
        if !retried && let Some(failure) = self.hold_back(&call, generation) {
            call.reply.send(Err(failure));
            return Some(Input::CallCancelled { call: id });
        }
        if call.tool_name().is_some() {
            let catalog = self.slot.published.catalog();
            if retried && let Some(failure) = tool_changed(&call, &catalog, before) {
                call.reply.send(Err(failure));
                return Some(Input::CallCancelled { call: id });
            }
            call.catalog_at_send.get_or_insert(catalog);
        }
        self.send_call(call, generation)
    }

    /// Passes a call to its connection. It waits again if the connection no longer accepts calls.
    fn send_call(&mut self, call: Box<Call>, generation: Generation) -> Option<Input> {
        let id = call.id;
        self.skip_restore_of(call.request.as_ref());
        let undelivered = match self.connection_of(generation) {
            Some(connection) => connection.send(Command::Start(call)).err(),
            None => Some(Command::Start(call)),
        };
        match undelivered {
            Some(Command::Start(call)) => {
                self.waiting_calls.insert(id, call);
                Some(Input::CallUndelivered {
                    generation,
                    call: id,
                })
            }
            Some(_) | None => None,
        }
    }

    fn resolve(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.waiting_calls.remove(&id) else {
            return;
        };
        let failure = match (outcome, call.refusal) {
            (Outcome::Refused(_), Some(error)) => Failure::Error(error),
            (outcome, _) => Failure::Outcome(outcome),
        };
        call.reply.send(Err(failure));
    }

    fn abandon(&mut self, call: CallId, outcome: Outcome) {
        if let Some(connection) = &self.connection {
            // A connection that no longer accepts commands returns its calls by itself.
            let outcome = Box::new(outcome);
            let _ = connection.send(Command::Abandon { call, outcome });
        }
    }

    fn check(&mut self, generation: Generation) {
        let Some(connection) = self.connection_of(generation) else {
            return;
        };
        tokio::spawn(internal_requests::check(
            connection.internal_requests(),
            self.myself.clone(),
            generation,
            self.machine.settings().health.keepalive_timeout,
        ));
    }

    fn fetch(&mut self, generation: Generation, list: ListKind) {
        let Some(connection) = self.connection_of(generation) else {
            return;
        };
        let settings = self.machine.settings().clone();
        let fetch = internal_requests::fetch(connection.internal_requests(), list, settings);
        let (slot, config) = (Arc::clone(&self.slot), Arc::clone(&connection.config));
        let actor = self.myself.clone();
        let owner = slot.catalog_owner();
        tokio::spawn(async move {
            let result = fetch.await;
            if let Ok((ListItems::Tools(tools), _)) = &result {
                // Approvals have to be known before the tools are published.
                slot.update_approvals(tools, &config).await;
            }
            let _ = actor.send_message(ServerMessage::ListFetched {
                generation,
                list,
                owner,
                result,
            });
        });
    }

    fn state_changed(&mut self, from: StateName, to: StateName) {
        self.draft.since = SystemTime::now();
        self.draft.mark_changed();
        let generation = self.machine.durable().generation;
        let fault = self.machine.last_fault();
        let fault = fault.filter(|fault| causes(fault, from, to)).cloned();
        let problem = fault.as_ref().map(tracing::field::display);
        tracing::info!(server = %self.slot.name(), %generation, %from, %to, problem, "state changed");
        self.draft
            .emit(generation, EventKind::StateChanged { from, to, fault });
        self.publish_catalog_of_state(to);
        #[cfg(feature = "http")]
        self.watch_credential(to);
    }

    fn attempt_failed(&mut self, attempt: u32, fault: Fault, retry_at: Option<Instant>) {
        self.draft.mark_changed();
        let generation = self.machine.durable().generation;
        let retry_in = retry_at.map(|at| at.saturating_duration_since(now()));
        tracing::info!(server = %self.slot.name(), %generation, attempt, %fault, ?retry_in, "attempt failed");
        let failed = EventKind::AttemptFailed {
            attempt,
            fault,
            retry_in,
        };
        self.draft.emit(generation, failed);
    }
}

/// Whether the last fault caused a state change. A recovery has no cause, nor has a change that a
/// person or a call requested.
fn causes(fault: &Fault, from: StateName, to: StateName) -> bool {
    match to {
        StateName::Connecting
        | StateName::Connected
        | StateName::Sleeping
        | StateName::Disabling => false,
        StateName::Disabled => fault.class == FaultClass::Close,
        StateName::Reconnecting => from != StateName::Disconnected,
        StateName::Disconnected | StateName::PermanentlyFailed => true,
    }
}

/// Why a tool call is not retried: its tool changed since it was first sent. A tool that was not
/// listed then cannot have changed.
fn tool_changed(call: &Call, now: &ServerCatalog, before: Known) -> Option<Failure> {
    let name = call.tool_name()?;
    if now.held(name).is_some() {
        // It still exists, but waits for the approval of a person.
        return Some(Failure::ToolChanged(before));
    }
    let at_send = call.catalog_at_send.as_ref()?.tool(name)?;
    match now.tool(name) {
        Some(tool) if tool == at_send => None,
        Some(_) => Some(Failure::ToolChanged(before)),
        None => Some(Failure::ToolGone(before)),
    }
}
