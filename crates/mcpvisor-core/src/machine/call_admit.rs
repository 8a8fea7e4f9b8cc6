//! The calls of one server: how each one enters, runs and ends with its one outcome.
//!
//! Every call that enters leaves exactly once: answered by its connection, resolved here, or dropped
//! because its caller cancelled it. The order of the queue is up to [`crate::policy::admission`].

use super::call_table::{CallPlace, TrackedCall};
use super::fault::{Fault, FaultClass};
use super::io::{CallEnd, Effect, NewCall, NotSent, Outcome};
use super::state::{AfterTeardown, Attempt, State, TeardownPhase};
use super::{Machine, Now, later};
use crate::ids::{CallId, Generation};
use crate::policy::admission::AdmitOutcome;
use crate::policy::retry::Known;

impl Machine {
    pub(super) fn admit_call(&mut self, now: Now, new: NewCall) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        let (open, until) = match &self.state {
            State::Connected(live) => {
                let open = live.accepts_calls() && !self.authorization.holds_calls();
                (open, None)
            }
            State::Connecting(_) | State::Sleeping(_) => (false, None),
            State::Reconnecting(_) => (false, Some(until)),
            State::Disconnected(_) if self.settings.budget.wake_on_call => (false, Some(until)),
            State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed { .. } => {
                if let Some(reason) = self.rejection() {
                    self.resolve(new.call, Outcome::NotSent(reason));
                }
                return;
            }
        };
        if new.deadline <= now.at {
            let outcome = Outcome::Deadline {
                sent: false,
                idle: false,
            };
            self.resolve(new.call, outcome);
            return;
        }
        match self
            .admission
            .enter(new.client, new.call, new.priority, open)
        {
            AdmitOutcome::InFlight => {
                self.start_new_call(now, new);
                return;
            }
            AdmitOutcome::Queued => self.track(new, CallPlace::Queued { until }),
            AdmitOutcome::QueuedInsteadOf { evicted } => {
                self.calls.remove(evicted);
                self.resolve(evicted, Outcome::Busy);
                self.track(new, CallPlace::Queued { until });
            }
            AdmitOutcome::QueueFull => self.resolve(new.call, Outcome::Busy),
        }
        // Also with a full queue, which may have no capacity at all: the next call finds it awake.
        self.wake_for_call(now);
    }

    /// Why calls are not queued in this state; nothing if they are.
    pub(super) fn rejection(&self) -> Option<NotSent> {
        match &self.state {
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Sleeping(_) => None,
            State::Disabling(teardown) if teardown.then == AfterTeardown::Stop => {
                Some(NotSent::Stopping)
            }
            State::Disabling(_) | State::Disabled => Some(NotSent::Disabled),
            State::PermanentlyFailed { failure, .. } => Some(NotSent::Failed(failure.clone())),
            State::Disconnected(_) => Some(NotSent::Parked(self.last_fault.clone())),
        }
    }

    fn track(&mut self, new: NewCall, place: CallPlace) {
        let id = new.call;
        let call = TrackedCall {
            request: new,
            retries: 0,
            known: Known::NotSent,
            session_lost: false,
            place,
        };
        self.calls.insert(id, call);
    }

    fn start_new_call(&mut self, now: Now, new: NewCall) {
        let Some(generation) = self.accepting_generation() else {
            return;
        };
        let call = new.call;
        let place = CallPlace::in_flight(generation, now.at, new.idle);
        self.track(new, place);
        self.emit(Effect::StartCall {
            call,
            generation,
            before: Known::NotSent,
        });
    }

    /// The connection that accepts calls now.
    pub(super) fn accepting_generation(&self) -> Option<Generation> {
        match &self.state {
            State::Connected(live) if live.accepts_calls() => Some(live.generation),
            State::Connected(_)
            | State::Connecting(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed { .. } => None,
        }
    }

    /// Starts queued calls up to the limit of calls in flight, unless they wait for a credential. A
    /// call whose deadline passed while a tick was late is not started.
    pub(super) fn start_queued_calls(&mut self, now: Now) {
        let Some(generation) = self.accepting_generation() else {
            return;
        };
        if self.authorization.holds_calls() {
            return;
        }
        while let Some((client, id)) = self.admission.next() {
            let Some(call) = self.calls.get(id) else {
                self.admission.finish(client);
                continue;
            };
            if call.request.deadline <= now.at {
                self.admission.finish(client);
                self.expire_call(now, id);
                continue;
            }
            let before = call.known;
            let place = CallPlace::in_flight(generation, now.at, call.request.idle);
            self.calls.move_to(id, place);
            self.emit(Effect::StartCall {
                call: id,
                generation,
                before,
            });
        }
    }

    pub(super) fn call_ended(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        end: CallEnd,
    ) {
        let Some(call) = self.calls.in_flight_on(id, generation) else {
            // It was given up before, or the connection is no longer current.
            self.note_received(now, generation);
            return;
        };
        self.admission.finish(call.request.client);
        self.calls.remove(id);
        self.note_call_end(now, generation, end);
        self.after_flight(now);
    }

    /// A call is no longer in flight: starts the next one, or closes a drained connection.
    pub(super) fn after_flight(&mut self, now: Now) {
        let drained = self.admission.in_flight() == 0;
        match &self.state {
            State::Connected(_) => self.start_queued_calls(now),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                if drained && matches!(attempt, Attempt::Draining { .. }) {
                    self.finish_replace_drain(now);
                }
            }
            State::Disabling(teardown) => {
                if drained && matches!(teardown.phase, TeardownPhase::Draining { .. }) {
                    self.finish_teardown_drain(now);
                }
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed { .. } => {}
        }
    }

    pub(super) fn call_cancelled(&mut self, now: Now, id: CallId) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        match call.place {
            CallPlace::Queued { .. }
            | CallPlace::AwaitingTools { .. }
            | CallPlace::AwaitingCredential { .. }
            | CallPlace::Paused { .. } => {
                self.admission.remove(call.request.client, id);
                self.emit(Effect::DropCall { call: id });
            }
            CallPlace::InFlight { generation, .. } => {
                self.abandon(now, id, &call, generation, Outcome::Cancelled);
            }
        }
    }

    fn abandon(
        &mut self,
        now: Now,
        id: CallId,
        call: &TrackedCall,
        generation: Generation,
        outcome: Outcome,
    ) {
        self.emit(Effect::Abandon {
            call: id,
            generation,
            outcome,
        });
        self.admission.finish(call.request.client);
        self.after_flight(now);
    }

    pub(super) fn call_undelivered(&mut self, now: Now, generation: Generation, id: CallId) {
        let Some(call) = self.calls.in_flight_on(id, generation) else {
            return;
        };
        self.admission.finish(call.request.client);
        if let Some(live) = self.live(generation) {
            live.is_ending = true;
        }
        self.requeue(now, id);
        self.after_flight(now);
    }

    pub(super) fn call_progressed(&mut self, now: Now, generation: Generation, id: CallId) {
        self.note_received(now, generation);
        let Some(call) = self.calls.get(id) else {
            return;
        };
        if let CallPlace::InFlight {
            generation: ours,
            started,
            ..
        } = call.place
            && ours == generation
        {
            let place = CallPlace::InFlight {
                generation,
                started,
                idle_until: later(now.at, call.request.idle),
            };
            self.calls.move_to(id, place);
        }
    }

    pub(super) fn expire_calls(&mut self, now: Now) {
        let calls = self.calls.len();
        while let Some(id) = self.calls.first_timed_out(now.at) {
            self.expire_call(now, id);
        }
        if calls != self.calls.len() {
            self.note_call_activity(now.at);
        }
    }

    fn expire_call(&mut self, now: Now, id: CallId) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        let is_overdue = call.request.deadline <= now.at;
        match call.place {
            CallPlace::InFlight {
                generation,
                started,
                ..
            } => {
                let outcome = Outcome::Deadline {
                    sent: true,
                    idle: !is_overdue,
                };
                self.abandon(now, id, &call, generation, outcome);
                if now.at.duration_since(started) >= self.settings.timeouts.idle {
                    self.call_timed_out(now, generation, started);
                }
            }
            CallPlace::Paused { generation, .. } if !is_overdue => {
                self.calls.insert(id, call);
                self.end_pause(now, id, generation);
            }
            CallPlace::Queued { .. }
            | CallPlace::AwaitingTools { .. }
            | CallPlace::AwaitingCredential { .. }
            | CallPlace::Paused { .. } => {
                self.admission.remove(call.request.client, id);
                let outcome = if is_overdue {
                    Outcome::Deadline {
                        sent: call.was_sent(),
                        idle: false,
                    }
                } else {
                    let not_sent = NotSent::NoConnection(self.last_fault.clone());
                    outcome_of(call.known, self.last_fault_or_lost(), not_sent)
                };
                self.resolve(id, outcome);
            }
        }
    }

    pub(super) fn last_fault_or_lost(&self) -> Fault {
        self.last_fault
            .clone()
            .unwrap_or_else(|| Fault::new(FaultClass::ConnectionLost, "the connection was lost"))
    }

    pub(super) fn resolve(&mut self, call: CallId, outcome: Outcome) {
        self.emit(Effect::Resolve { call, outcome });
    }
}

/// The outcome of a call that is given up: `not_sent` if it never left, else what is known of it.
pub(super) fn outcome_of(known: Known, fault: Fault, not_sent: NotSent) -> Outcome {
    match known {
        Known::NotSent => Outcome::NotSent(not_sent),
        Known::Unknown => Outcome::Unknown(fault),
        Known::Refused => Outcome::Refused(fault),
        Known::Answered => Outcome::Answered(fault),
    }
}
