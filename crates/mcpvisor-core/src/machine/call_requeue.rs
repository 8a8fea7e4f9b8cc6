//! Calls that wait: for a connection, for a place on it, or to be sent again after one was lost.
//!
//! What a connection had not answered comes back here. It is sent again where that is safe, and has its
//! outcome otherwise.

use super::call_admit::outcome_of;
use super::call_table::{Call, Place};
use super::fault::Fault;
use super::io::{Effect, NotSent, Outcome, ReturnedCall};
use super::{Machine, Now, later};
use crate::ids::{CallId, ClientId, Generation};
use crate::policy::listing::FetchOutcome;
use crate::policy::retry::{self, Known, RequestFailure, RetryAction};

/// Why calls that wait are given up; those that were sent before get *outcome unknown* instead.
pub(super) struct GiveUp(pub(super) NotSent);

impl Machine {
    /// Puts a call back into the line, or gives it up where nothing can come of waiting.
    pub(super) fn requeue(&mut self, now: Now, id: CallId, client: ClientId, sent: bool) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        if let Some(reason) = self.closed() {
            self.give_up(id, &GiveUp(reason));
            return;
        }
        let is_tool = self.calls.get(id).is_some_and(|c| c.is_tool);
        if is_tool && sent {
            self.calls.move_to(id, Place::Held { until });
        } else {
            self.admission.enter_front(client, id);
            self.calls.move_to(id, Place::Line { until: Some(until) });
        }
    }

    /// Takes back what a connection had not answered: retries what is safe, answers the rest.
    pub(super) fn take_back(
        &mut self,
        now: Now,
        generation: Generation,
        fault: &Fault,
        returned: &[ReturnedCall],
    ) {
        self.let_go(returned);
        let in_flight = self.calls.select(|call| call.flies_on(generation));
        if in_flight.is_empty() {
            return;
        }
        self.admission.lose_all();
        // Newest first, since each goes to the front.
        for id in in_flight.into_iter().rev() {
            match returned.iter().find(|r| r.call == id) {
                Some(found) => self.take_back_one(now, *found, fault),
                // Its reply was dropped with the connection task and has answered by itself.
                None => drop(self.calls.remove(id)),
            }
        }
    }

    /// A call that was given up while it was on its way back has nobody here who answers it.
    pub(super) fn let_go(&mut self, returned: &[ReturnedCall]) {
        for ReturnedCall { call, .. } in returned {
            if self.calls.get(*call).is_none() {
                self.emit(Effect::DropCall { call: *call });
            }
        }
    }

    /// A connection ended without giving back what it held: the replies were dropped with its task
    /// and have answered by themselves.
    pub(super) fn lose_flight(&mut self, generation: Generation) {
        let in_flight = self.calls.select(|call| call.flies_on(generation));
        if !in_flight.is_empty() {
            self.admission.lose_all();
        }
        for id in in_flight {
            self.calls.remove(id);
        }
    }

    fn take_back_one(&mut self, now: Now, returned: ReturnedCall, fault: &Fault) {
        let id = returned.call;
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let trouble = if returned.written {
            RequestFailure::ConnectionLost
        } else {
            RequestFailure::NotWritten
        };
        let ruling = retry::rule(
            trouble,
            call.safety,
            call.wish,
            call.retries,
            &self.settings,
        );
        if returned.written {
            call.learn(Known::Unknown);
        }
        let (client, sent) = (call.client, call.sent());
        match ruling.decision {
            RetryAction::Retry => self.requeue(now, id, client, sent),
            RetryAction::RetryAfter(_)
            | RetryAction::ReconnectThenRetry
            | RetryAction::RefreshThenRetry
            | RetryAction::Fail => {
                self.calls.remove(id);
                self.resolve(id, Outcome::Unknown(fault.clone()));
            }
        }
    }

    /// Connected: what waits for the connection now only waits for a place.
    pub(super) fn release_waiting(&mut self, now: Now) {
        for id in self
            .calls
            .select(|call| matches!(call.place, Place::Line { .. }))
        {
            self.calls.move_to(id, Place::Line { until: None });
        }
        self.admit(now);
    }

    /// The connection is gone: what waits for a place now waits for the reconnect, and a tool that
    /// was found unchanged has to be looked at again on the next connection.
    pub(super) fn limit_waiting(&mut self, now: Now) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        for id in self
            .calls
            .select(|call| matches!(call.place, Place::Line { .. }))
        {
            let Some(call) = self.calls.get(id) else {
                continue;
            };
            if call.is_tool && call.sent() {
                self.admission.remove(call.client, id);
                self.calls.move_to(id, Place::Held { until });
            } else {
                self.calls.move_to(id, Place::Line { until: Some(until) });
            }
        }
    }

    /// The tools of this connection are known, or will not be: retried tool calls go on or end.
    pub(super) fn release_held(&mut self, now: Now, generation: Generation, outcome: FetchOutcome) {
        let held = self
            .calls
            .select(|call| matches!(call.place, Place::Held { .. }));
        for id in held.into_iter().rev() {
            match outcome {
                FetchOutcome::Fetched => {
                    if let Some(call) = self.calls.get(id) {
                        self.admission.enter_front(call.client, id);
                    }
                    self.calls.move_to(id, Place::Line { until: None });
                }
                FetchOutcome::Refused | FetchOutcome::Failed => {
                    let reason = GiveUp(NotSent::NoConnection(self.last_fault.clone()));
                    self.give_up(id, &reason);
                }
            }
        }
        if self.open_generation() == Some(generation) {
            self.admit(now);
        }
    }

    /// Answers every call that waits.
    pub(super) fn give_up_waiting(&mut self, reason: &GiveUp) {
        for id in self.calls.select(Call::is_waiting) {
            self.give_up(id, reason);
        }
    }

    pub(super) fn give_up(&mut self, id: CallId, reason: &GiveUp) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        self.admission.remove(call.client, id);
        let outcome = outcome_of(call.known, self.fault_or_lost(), reason.0.clone());
        self.resolve(id, outcome);
    }
}
