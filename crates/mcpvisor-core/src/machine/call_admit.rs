//! The calls of one server: how each enters, runs and ends, with its one outcome.
//!
//! Every call that enters leaves exactly once: answered by its connection, resolved here, or
//! forgotten because its caller left. The order in the waiting line is [`crate::policy::admission`]'s.

use super::call_table::{Call, Place};
use super::fault::{Fault, FaultClass};
use super::io::{CallEnd, Effect, NewCall, NotSent, Outcome};
use super::state::{AfterTeardown, Attempt, State, TeardownPhase};
use super::{Machine, Now, later};
use crate::ids::{CallId, Generation};
use crate::policy::admission::Entry;
use crate::policy::retry::Known;

impl Machine {
    pub(super) fn call(&mut self, now: Now, new: NewCall) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        let (open, until) = match &self.state {
            State::Connected(live) => (live.is_open(), None),
            State::Connecting(_) | State::Sleeping(_) => (false, None),
            State::Reconnecting(_) => (false, Some(until)),
            State::Disconnected(_) if self.settings.budget.wake_on_call => (false, Some(until)),
            State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => {
                let reason = self.closed_reason();
                self.resolve(new.call, Outcome::NotSent(reason));
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
            Entry::Start => self.start_new(now, new),
            Entry::Wait => {
                self.keep(new, Place::Line { until });
                self.wake(now);
            }
            Entry::Replace { evicted } => {
                self.calls.remove(evicted);
                self.resolve(evicted, Outcome::Busy);
                self.keep(new, Place::Line { until });
                self.wake(now);
            }
            Entry::Full => {
                self.resolve(new.call, Outcome::Busy);
                // There may be no line at all: it wakes for the next one.
                self.wake(now);
            }
        }
    }

    /// Why nothing can be sent in this state.
    fn closed_reason(&self) -> NotSent {
        match &self.state {
            State::Disabling(teardown) if teardown.then == AfterTeardown::Stop => NotSent::Stopping,
            State::Disabling(_) | State::Disabled => NotSent::Disabled,
            State::PermanentlyFailed(failure) => NotSent::Failed(failure.clone()),
            State::Disconnected(_) => NotSent::Parked(self.last_fault.clone()),
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Sleeping(_) => NotSent::NoConnection(self.last_fault.clone()),
        }
    }

    /// Why nothing can come of waiting, in a state where that is so.
    pub(super) fn closed(&self) -> Option<NotSent> {
        match &self.state {
            State::Connected(_)
            | State::Connecting(_)
            | State::Reconnecting(_)
            | State::Sleeping(_) => None,
            State::Disconnected(_)
            | State::Disabling(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => Some(self.closed_reason()),
        }
    }

    fn keep(&mut self, new: NewCall, place: Place) {
        let call = Call {
            client: new.client,
            safety: new.safety,
            wish: new.wish,
            is_tool: new.is_tool,
            deadline: new.deadline,
            idle: new.idle,
            retries: 0,
            known: Known::NotSent,
            session_lost: false,
            place,
        };
        self.calls.insert(new.call, call);
    }

    fn start_new(&mut self, now: Now, new: NewCall) {
        let Some(generation) = self.open_generation() else {
            return;
        };
        let call = new.call;
        let place = Place::Flight {
            generation,
            started: now.at,
            idle_until: later(now.at, new.idle),
        };
        self.keep(new, place);
        self.emit(Effect::StartCall {
            call,
            generation,
            before: Known::NotSent,
        });
    }

    /// The connection that takes calls now.
    pub(super) fn open_generation(&self) -> Option<Generation> {
        match &self.state {
            State::Connected(live) if live.is_open() => Some(live.generation),
            State::Connected(_)
            | State::Connecting(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed(_) => None,
        }
    }

    /// Starts waiting calls while there is room; not those whose time was up while a tick was late.
    pub(super) fn admit(&mut self, now: Now) {
        let Some(generation) = self.open_generation() else {
            return;
        };
        while let Some((client, id)) = self.admission.next() {
            let Some(call) = self.calls.get(id) else {
                self.admission.finish(client);
                continue;
            };
            if call.deadline <= now.at {
                self.admission.finish(client);
                self.expire_one(now, id);
                continue;
            }
            let before = call.known;
            let idle_until = later(now.at, call.idle);
            self.calls.move_to(
                id,
                Place::Flight {
                    generation,
                    started: now.at,
                    idle_until,
                },
            );
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
        let Some(call) = self.calls.get(id).filter(|c| c.flies_on(generation)) else {
            // Answered after it was given up, or by a connection that is no longer current.
            self.heard(now, generation);
            return;
        };
        self.admission.finish(call.client);
        self.calls.remove(id);
        self.answered(now, generation, end);
        self.after_flight(now);
    }

    /// A place became free: the next call starts, or a drained connection is closed.
    pub(super) fn after_flight(&mut self, now: Now) {
        let empty = self.admission.in_flight() == 0;
        match &self.state {
            State::Connected(_) => self.admit(now),
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                if let Attempt::Draining {
                    generation, next, ..
                } = *attempt
                    && empty
                {
                    self.close_drained(now, generation, next);
                }
            }
            State::Disabling(teardown) => {
                if let TeardownPhase::Draining { generation, .. } = teardown.phase
                    && empty
                {
                    self.close_teardown(now, generation);
                }
            }
            State::Sleeping(_) | State::Disabled | State::PermanentlyFailed(_) => {}
        }
    }

    pub(super) fn call_left(&mut self, now: Now, id: CallId) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        match call.place {
            Place::Line { .. } => {
                self.admission.remove(call.client, id);
                self.emit(Effect::DropCall { call: id });
            }
            Place::Held { .. } | Place::Paused { .. } => self.emit(Effect::DropCall { call: id }),
            Place::Flight { generation, .. } => {
                self.abandon(now, id, &call, generation, Outcome::Cancelled);
            }
        }
    }

    fn abandon(
        &mut self,
        now: Now,
        id: CallId,
        call: &Call,
        generation: Generation,
        outcome: Outcome,
    ) {
        self.emit(Effect::Abandon {
            call: id,
            generation,
            outcome,
        });
        self.admission.finish(call.client);
        self.after_flight(now);
    }

    pub(super) fn call_undelivered(&mut self, now: Now, generation: Generation, id: CallId) {
        let Some(call) = self.calls.get(id).filter(|c| c.flies_on(generation)) else {
            return;
        };
        let (client, sent) = (call.client, call.sent());
        self.admission.finish(client);
        if let Some(live) = self.live(generation) {
            live.deaf = true;
        }
        self.requeue(now, id, client, sent);
        self.after_flight(now);
    }

    pub(super) fn progressed(&mut self, now: Now, generation: Generation, id: CallId) {
        self.heard(now, generation);
        let Some(call) = self.calls.get(id) else {
            return;
        };
        if let Place::Flight {
            generation: ours,
            started,
            ..
        } = call.place
            && ours == generation
        {
            let idle_until = later(now.at, call.idle);
            self.calls.move_to(
                id,
                Place::Flight {
                    generation,
                    started,
                    idle_until,
                },
            );
        }
    }

    pub(super) fn expire_calls(&mut self, now: Now) {
        while let Some(id) = self.calls.overdue(now.at) {
            self.expire_one(now, id);
        }
    }

    fn expire_one(&mut self, now: Now, id: CallId) {
        if let Some(call) = self.calls.remove(id) {
            self.expire(now, id, &call);
        }
    }

    fn expire(&mut self, now: Now, id: CallId, call: &Call) {
        let over = call.deadline <= now.at;
        match call.place {
            Place::Flight {
                generation,
                started,
                ..
            } => {
                let outcome = Outcome::Deadline {
                    sent: true,
                    idle: !over,
                };
                self.abandon(now, id, call, generation, outcome);
                if now.at.duration_since(started) >= self.settings.timeouts.idle {
                    self.call_timed_out(now, generation, started);
                }
            }
            Place::Paused { generation, .. } if !over => {
                self.calls.insert(id, call.clone());
                self.pause_over(now, id, generation);
            }
            Place::Line { .. } | Place::Held { .. } | Place::Paused { .. } => {
                self.admission.remove(call.client, id);
                let outcome = if over {
                    Outcome::Deadline {
                        sent: call.sent(),
                        idle: false,
                    }
                } else {
                    let unsent = NotSent::NoConnection(self.last_fault.clone());
                    outcome_of(call.known, self.fault_or_lost(), unsent)
                };
                self.resolve(id, outcome);
            }
        }
    }

    pub(super) fn fault_or_lost(&self) -> Fault {
        self.last_fault
            .clone()
            .unwrap_or_else(|| Fault::new(FaultClass::ConnectionLost, "the connection was lost"))
    }

    pub(super) fn resolve(&mut self, call: CallId, outcome: Outcome) {
        self.emit(Effect::Resolve { call, outcome });
    }
}

/// What a caller is told of a call with which nothing more is done.
pub(super) fn outcome_of(known: Known, fault: Fault, unsent: NotSent) -> Outcome {
    match known {
        Known::NotSent => Outcome::NotSent(unsent),
        Known::Unknown => Outcome::Unknown(fault),
        Known::Refused => Outcome::Refused(fault),
        Known::Answered => Outcome::Answered(fault),
    }
}
