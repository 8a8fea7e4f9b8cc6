//! What the machine wants done, and how it is done. Nothing here waits: what takes time is a task that
//! comes back with a message.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mcpvisor_core::machine::{Fault, FaultClass, Outcome};
use mcpvisor_core::retry::Known;
use mcpvisor_core::{CallId, Effect, Generation, Input, ListKind, StateName};

use super::actor::{ServerState, Timer, now};
use super::call::Call;
use super::message::ServerMessage;
use super::restore::Restoring;
use crate::api::events::EventKind;
use crate::api::reply::Failure;
use crate::catalog::{Listed, ServerCatalog};
use crate::connection::{self, Command, ConnectionHandle};
use crate::fleet::{CloseOutcome, SupervisorMessage};
use crate::server::internal_requests;

impl ServerState {
    /// Performs one effect; what the machine must hear of it comes back.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::StartCall {
                call,
                generation,
                before,
            } => return self.start_call(call, generation, before),
            Effect::Resolve { call, outcome } => self.resolve(call, outcome),
            Effect::Abandon { call, outcome, .. } => self.abandon(call, outcome),
            Effect::DropCall { call } => drop(self.calls.remove(&call)),
            Effect::RequestPermit { reconnect } => {
                // A server in this process starts no program and opens no socket: there is nothing
                // to spread when it connects for the first time.
                if !reconnect && self.slot.config().transport.is_in_process() {
                    return Some(Input::PermitGranted);
                }
                self.asked_for_permit = true;
                self.tell_supervisor(SupervisorMessage::PermitWanted {
                    server: self.slot.name().clone(),
                    reconnect,
                });
            }
            Effect::ReleasePermit => {
                if std::mem::take(&mut self.asked_for_permit) {
                    self.tell_supervisor(SupervisorMessage::PermitReturned {
                        server: self.slot.name().clone(),
                    });
                }
            }
            Effect::Open { generation } => {
                tracing::debug!(server = %self.slot.name(), %generation, "connecting");
                self.slot.stderr.start_connection();
                self.connection = Some(connection::spawn(&self.slot, &self.myself, generation));
                self.dirty = true;
            }
            Effect::Close { generation, grace } => {
                if let Some(held) = self.held(generation) {
                    held.close(grace);
                }
            }
            Effect::Check { generation } => self.check(generation),
            Effect::FetchList { generation, list } => self.fetch(generation, list),
            Effect::Restore { generation } => {
                self.restoring = Restoring::of(&self.slot.memory()).map(Arc::new);
                self.to_restore = Some(generation);
            }
            Effect::AttemptFailed {
                attempt,
                fault,
                retry_at,
            } => self.attempt_failed(attempt, fault, retry_at),
            Effect::StateChanged { from, to } => self.state_changed(from, to),
            Effect::SaveDurable => {
                self.slot.memory().durable = self.machine.durable().clone();
                self.dirty = true;
            }
            Effect::Stop => {
                let closed = self
                    .close_problem()
                    .map_or(CloseOutcome::Clean, CloseOutcome::Problem);
                self.slot.memory().closed = Some(closed);
                self.myself.stop(None);
            }
        }
        None
    }

    fn tell_supervisor(&self, message: SupervisorMessage) {
        // A supervisor that is gone takes this actor with it.
        let _ = self.supervisor.send_message(message);
    }

    pub(super) fn held(&self, generation: Generation) -> Option<&ConnectionHandle> {
        self.connection
            .as_ref()
            .filter(|held| held.generation == generation)
    }

    fn start_call(&mut self, id: CallId, generation: Generation, before: Known) -> Option<Input> {
        let mut call = self.calls.remove(&id)?;
        let retried = before != Known::NotSent;
        call.reply.set_before(before);
        if !retried && let Some(failure) = self.held_back(&call, generation) {
            call.reply.send(Err(failure));
            return Some(Input::CallCancelled { call: id });
        }
        if call.tool_name().is_some() {
            let catalog = self.slot.published();
            if retried && let Some(failure) = not_the_same(&call, &catalog, before) {
                call.reply.send(Err(failure));
                return Some(Input::CallCancelled { call: id });
            }
            call.seen.get_or_insert(catalog);
        }
        self.hand_over(call, generation)
    }

    /// Hands a call to its connection, or takes it back if that takes no more.
    fn hand_over(&mut self, call: Box<Call>, generation: Generation) -> Option<Input> {
        let id = call.id;
        if let (Some(restoring), Some(request)) = (&self.restoring, &call.request) {
            restoring.leave_to(request);
        }
        let undelivered = match self.held(generation) {
            Some(held) => held.send(Command::Start(call)).err(),
            None => Some(Command::Start(call)),
        };
        match undelivered {
            Some(Command::Start(call)) => {
                self.calls.insert(id, call);
                Some(Input::CallUndelivered {
                    generation,
                    call: id,
                })
            }
            Some(_) | None => None,
        }
    }

    fn resolve(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        let failure = match (outcome, call.refusal) {
            (Outcome::Refused(_), Some(error)) => Failure::Error(error),
            (outcome, _) => Failure::Outcome(outcome),
        };
        call.reply.send(Err(failure));
    }

    fn abandon(&mut self, call: CallId, outcome: Outcome) {
        if let Some(held) = &self.connection {
            // A connection that takes no more hands its calls back by itself.
            let _ = held.send(Command::Abandon { call, outcome });
        }
    }

    fn check(&mut self, generation: Generation) {
        let Some(held) = self.held(generation) else {
            return;
        };
        tokio::spawn(internal_requests::check(
            held.internal_requests(),
            self.myself.clone(),
            generation,
            self.machine.settings().health.keepalive_timeout,
        ));
    }

    fn fetch(&mut self, generation: Generation, list: ListKind) {
        let Some(held) = self.held(generation) else {
            return;
        };
        let settings = self.machine.settings().clone();
        let fetch = internal_requests::fetch(held.internal_requests(), list, settings);
        let (slot, with) = (Arc::clone(&self.slot), Arc::clone(&held.config));
        let actor = self.myself.clone();
        tokio::spawn(async move {
            let (result, good_for) = fetch.await;
            if let Ok(Listed::Tools(tools)) = &result {
                // What is approved has to be known before the tools are.
                slot.see(tools, &with).await;
            }
            let _ = actor.send_message(ServerMessage::ListFetched {
                generation,
                list,
                result,
                good_for,
            });
        });
    }

    /// Restores what was agreed to, once the calls that waited for the connection are on their way:
    /// what they ask for is newer.
    pub(super) fn restore(&mut self, generation: Generation) {
        let (Some(held), Some(restoring)) = (self.held(generation), &self.restoring) else {
            return;
        };
        tokio::spawn(internal_requests::restore(
            held.internal_requests(),
            Arc::clone(&self.slot),
            Arc::clone(restoring),
        ));
    }

    fn state_changed(&mut self, from: StateName, to: StateName) {
        self.since = SystemTime::now();
        self.dirty = true;
        let generation = self.machine.durable().generation;
        let fault = self.machine.last_fault();
        let fault = fault.filter(|fault| causes(fault, from, to)).cloned();
        let problem = fault.as_ref().map(tracing::field::display);
        tracing::info!(server = %self.slot.name(), %generation, %from, %to, problem, "state changed");
        self.emit(generation, EventKind::StateChanged { from, to, fault });
        self.publish_catalog_for(to);
    }

    fn attempt_failed(&mut self, attempt: u32, fault: Fault, retry_at: Option<Instant>) {
        self.dirty = true;
        let generation = self.machine.durable().generation;
        let retry_in = retry_at.map(|at| at.saturating_duration_since(now()));
        tracing::info!(server = %self.slot.name(), %generation, attempt, %fault, ?retry_in, "attempt failed");
        let failed = EventKind::AttemptFailed {
            attempt,
            fault,
            retry_in,
        };
        self.emit(generation, failed);
    }

    fn close_problem(&self) -> Option<String> {
        self.machine
            .last_fault()
            .filter(|fault| fault.class == FaultClass::Close)
            .map(|fault| fault.message.clone())
    }

    /// Arms the one timer for the machine's next deadline. A timer that fires early only asks
    /// again, so it is left alone unless the deadline came closer.
    pub(super) fn arm(&mut self) {
        let Some(deadline) = self.machine.next_deadline() else {
            return;
        };
        if self
            .timer
            .as_ref()
            .is_some_and(|timer| timer.at <= deadline)
        {
            return;
        }
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(deadline.into()).await;
            let _ = myself.send_message(ServerMessage::Tick);
        });
        self.timer = Some(Timer { at: deadline, task });
    }
}

/// Whether a change of the state follows from the last fault. A recovery does not, nor does what a
/// person or a call asked for.
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

/// Why a call of a tool is not repeated, if the tool is another one than when it was sent. What was
/// not known then, because nothing was listed yet, cannot have changed.
fn not_the_same(call: &Call, now: &ServerCatalog, before: Known) -> Option<Failure> {
    let name = call.tool_name()?;
    if now.held(name).is_some() {
        // It is there, and waits for the approval of a person.
        return Some(Failure::ToolChanged(before));
    }
    let was = call.seen.as_ref()?.tool(name)?;
    match now.tool(name) {
        Some(is) if is == was => None,
        Some(_) => Some(Failure::ToolChanged(before)),
        None => Some(Failure::ToolGone(before)),
    }
}
