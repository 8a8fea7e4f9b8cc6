//! A single call that fails while its connection lives.
//!
//! [`crate::policy::retry::decide`] says what may be done; this file does it. Calls of a lost connection
//! are handled in `call_requeue`.

use std::time::Instant;

use super::call_admit::outcome_of;
use super::call_table::CallPlace;
use super::fault::Fault;
use super::io::{Effect, NotSent};
use super::state::ReconnectTiming;
use super::{Machine, Now, later};
use crate::ids::{CallId, Generation};
use crate::policy::listing::ListKind;
use crate::policy::retry::{RequestFailure, RetryAction, RetryDecision};

impl Machine {
    pub(super) fn call_failed(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        failure: RequestFailure,
        fault: Fault,
    ) {
        let Some(call) = self.calls.in_flight_on(id, generation) else {
            self.note_received(now, generation);
            if self.calls.get(id).is_none() {
                // It was given up while the connection was giving it back.
                self.emit(Effect::DropCall { call: id });
            }
            return;
        };
        let client = call.request.client;
        if failure == RequestFailure::NotWritten {
            // A connection that cannot take this call takes no others.
            self.call_undelivered(now, generation, id);
            return;
        }
        self.note_failure(now, generation, failure);
        self.admission.finish(client);
        if failure == RequestFailure::SessionLost && self.is_first_session_loss(id) {
            self.replace_session(now, generation, &fault);
        }
        self.retry_or_fail(now, generation, id, failure, fault);
        self.after_flight(now);
    }

    fn is_first_session_loss(&mut self, id: CallId) -> bool {
        let call = self.calls.get_mut(id);
        call.is_some_and(|call| !std::mem::replace(&mut call.session_lost, true))
    }

    /// Records what the failure of one request says about its connection.
    fn note_failure(&mut self, now: Now, generation: Generation, failure: RequestFailure) {
        if failure == RequestFailure::ConnectTimedOut {
            // The server did not see the request, so nothing was received from it.
            return;
        }
        self.note_received(now, generation);
        if self.live(generation).is_none() {
            return;
        }
        let is_soft_failure = match failure {
            RequestFailure::ConnectionLost
            | RequestFailure::ServerFault
            | RequestFailure::Unauthorized => true,
            RequestFailure::NotWritten
            | RequestFailure::ConnectTimedOut
            | RequestFailure::SessionLost
            | RequestFailure::Busy { .. }
            | RequestFailure::Denied => false,
        };
        if is_soft_failure && self.health.call_failed() {
            self.check_health(now, generation);
        }
    }

    fn retry_or_fail(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        failure: RequestFailure,
        fault: Fault,
    ) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let RetryDecision { known, action } = call.decide_retry(failure, &self.settings);
        call.record_failed_send(known);
        let (known, deadline) = (call.known, call.request.deadline);
        match action {
            RetryAction::Retry => self.queue_retry(now, id, generation),
            RetryAction::ReconnectThenRetry => self.requeue(now, id),
            RetryAction::RetryAfter(pause) if later(now.at, pause) < deadline => {
                self.pause(id, later(now.at, pause), generation);
            }
            // The pause would end after the deadline, or a retry cannot help.
            RetryAction::RetryAfter(_) | RetryAction::Fail => {
                self.calls.remove(id);
                let not_sent = NotSent::NoConnection(Some(fault.clone()));
                self.resolve(id, outcome_of(known, fault, not_sent));
            }
        }
    }

    /// Pauses a call before its retry, which may happen on this connection or a later one.
    fn pause(&mut self, id: CallId, until: Instant, generation: Generation) {
        let place = CallPlace::Paused { until, generation };
        match self.rejection() {
            Some(reason) => self.fail_call(id, &reason),
            None => self.calls.move_to(id, place),
        }
    }

    pub(super) fn end_pause(&mut self, now: Now, id: CallId, generation: Generation) {
        self.queue_retry(now, id, generation);
        self.start_queued_calls(now);
    }

    /// Puts a call that failed on `generation` at the front of the queue. On the same connection its
    /// tool is unchanged; on a later one the tools have to be listed first.
    fn queue_retry(&mut self, now: Now, id: CallId, generation: Generation) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let client = call.request.client;
        let unchanged = !call.request.is_tool || self.accepting_generation() == Some(generation);
        match self.lists.was_fetched(ListKind::Tools) {
            _ if self.accepting_generation().is_none() => self.requeue(now, id),
            Some(false) if !unchanged => self.requeue(now, id),
            None if !unchanged => {
                let reason = NotSent::NoConnection(self.last_fault.clone());
                self.fail_call(id, &reason);
            }
            Some(_) | None => {
                self.admission.enter_front(client, id);
                self.calls.move_to(id, CallPlace::Queued { until: None });
            }
        }
    }

    /// A request of the runtime, or a stream, reported that the session is lost.
    pub(super) fn session_lost(&mut self, now: Now, generation: Generation, fault: Fault) {
        self.note_received(now, generation);
        self.replace_session(now, generation, &fault);
    }

    /// Opens one new session, however many calls report the loss: after the first report the
    /// connection is no longer live.
    fn replace_session(&mut self, now: Now, generation: Generation, fault: &Fault) {
        if self.live(generation).is_some() {
            self.last_fault = Some(fault.clone());
            self.replace_connection(now, generation, true, ReconnectTiming::Paced);
        }
    }
}
