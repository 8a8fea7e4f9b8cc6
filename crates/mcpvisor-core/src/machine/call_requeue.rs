//! Calls that wait for a connection, and calls that a lost connection gives back.
//!
//! What a connection had not answered is sent again where that is safe, and gets its outcome otherwise.

use super::call_admit::outcome_of;
use super::call_table::{CallPlace, TrackedCall};
use super::fault::Fault;
use super::io::{Effect, NotSent, Outcome, ReturnedCall};
use super::{Machine, Now, later};
use crate::ids::{CallId, Generation};
use crate::policy::listing::FetchOutcome;
use crate::policy::retry::{Known, RequestFailure, RetryAction};

impl Machine {
    /// Puts a call back into the queue, or fails it in a state where no connection will come.
    pub(super) fn requeue(&mut self, now: Now, id: CallId) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        if let Some(reason) = self.rejection() {
            self.fail_call(id, &reason);
            return;
        }
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let place = call.place_until(until);
        if matches!(place, CallPlace::Queued { .. }) {
            self.admission.enter_front(call.request.client, id);
        }
        self.calls.move_to(id, place);
    }

    /// Handles the calls that a lost connection had not answered: retries what is safe, fails the rest.
    pub(super) fn recover_calls(
        &mut self,
        now: Now,
        generation: Generation,
        fault: &Fault,
        returned: &[ReturnedCall],
    ) {
        self.drop_untracked(returned);
        let in_flight = self.calls.select(|call| call.is_in_flight_on(generation));
        if in_flight.is_empty() {
            return;
        }
        self.admission.lose_all();
        // Newest first, since each goes to the front of the queue.
        for id in in_flight.into_iter().rev() {
            match returned.iter().find(|returned| returned.call == id) {
                Some(found) => self.recover_call(now, *found, fault),
                // The connection task dropped its reply, which answered the caller.
                None => drop(self.calls.remove(id)),
            }
        }
    }

    /// Drops calls that were given up while the connection was giving them back.
    pub(super) fn drop_untracked(&mut self, returned: &[ReturnedCall]) {
        for ReturnedCall { call, .. } in returned {
            if self.calls.get(*call).is_none() {
                self.emit(Effect::DropCall { call: *call });
            }
        }
    }

    /// Forgets the calls of a connection that ended without giving them back: the connection task
    /// dropped their replies, which answered the callers.
    pub(super) fn forget_in_flight(&mut self, generation: Generation) {
        let in_flight = self.calls.select(|call| call.is_in_flight_on(generation));
        if !in_flight.is_empty() {
            self.admission.lose_all();
        }
        for id in in_flight {
            self.calls.remove(id);
        }
    }

    fn recover_call(&mut self, now: Now, returned: ReturnedCall, fault: &Fault) {
        let id = returned.call;
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let failure = if returned.written {
            RequestFailure::ConnectionLost
        } else {
            RequestFailure::NotWritten
        };
        let decision = call.decide_retry(failure, &self.settings);
        if returned.written {
            call.record_failed_send(Known::Unknown);
        }
        match decision.action {
            RetryAction::Retry => self.requeue(now, id),
            RetryAction::RetryAfter(_) | RetryAction::ReconnectThenRetry | RetryAction::Fail => {
                self.calls.remove(id);
                self.resolve(id, Outcome::Unknown(fault.clone()));
            }
        }
    }

    /// Connected: the limit of waiting for a reconnect no longer applies, and queued calls start.
    pub(super) fn resume_queued_calls(&mut self, now: Now) {
        for id in self.calls.select(TrackedCall::is_queued) {
            self.calls.move_to(id, CallPlace::Queued { until: None });
        }
        self.start_queued_calls(now);
    }

    /// The connection is gone: queued calls wait for the reconnect for a limited time. A tool that was
    /// found unchanged has to be compared again on the next connection.
    pub(super) fn limit_reconnect_wait(&mut self, now: Now) {
        let until = later(now.at, self.settings.timeouts.reconnect_wait);
        for id in self.calls.select(TrackedCall::is_queued) {
            let Some(call) = self.calls.get(id) else {
                continue;
            };
            let place = call.place_until(until);
            if matches!(place, CallPlace::AwaitingTools { .. }) {
                self.admission.remove(call.request.client, id);
            }
            self.calls.move_to(id, place);
        }
    }

    /// The tools of this connection were listed, or cannot be: queues or fails the retries of tool calls.
    pub(super) fn release_tool_retries(
        &mut self,
        now: Now,
        generation: Generation,
        outcome: FetchOutcome,
    ) {
        let held = self.calls.select(TrackedCall::awaits_tools);
        for id in held.into_iter().rev() {
            match outcome {
                FetchOutcome::Fetched => {
                    if let Some(call) = self.calls.get(id) {
                        self.admission.enter_front(call.request.client, id);
                    }
                    self.calls.move_to(id, CallPlace::Queued { until: None });
                }
                FetchOutcome::Refused | FetchOutcome::Failed => {
                    let reason = NotSent::NoConnection(self.last_fault.clone());
                    self.fail_call(id, &reason);
                }
            }
        }
        if self.accepting_generation() == Some(generation) {
            self.start_queued_calls(now);
        }
    }

    pub(super) fn fail_waiting_calls(&mut self, reason: &NotSent) {
        for id in self.calls.select(TrackedCall::is_waiting) {
            self.fail_call(id, reason);
        }
    }

    /// Fails a waiting call. `reason` applies if it was never sent; otherwise its outcome is what is
    /// known from sending it.
    pub(super) fn fail_call(&mut self, id: CallId, reason: &NotSent) {
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        self.admission.remove(call.request.client, id);
        let outcome = outcome_of(call.known, self.last_fault_or_lost(), reason.clone());
        self.resolve(id, outcome);
    }
}
