//! A single request that meets trouble while its connection lives.
//!
//! What may be done about it says [`crate::policy::retry::rule`]; here it is done. A connection that is lost
//! with all it held is the business of the modules beside this one.

use super::call_admit::outcome_of;
use super::call_requeue::GiveUp;
use super::call_table::Place;
use super::fault::Fault;
use super::io::{Effect, NotSent};
use super::state::ReconnectTiming;
use super::{Machine, Now, later};
use crate::ids::{CallId, Generation};
use crate::policy::listing::ListKind;
use crate::policy::retry::{self, RequestFailure, RetryAction, RetryDecision};

impl Machine {
    pub(super) fn call_failed(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        trouble: RequestFailure,
        fault: Fault,
    ) {
        let flies = self.calls.get(id).filter(|c| c.flies_on(generation));
        let Some(client) = flies.map(|call| call.client) else {
            self.heard(now, generation);
            if self.calls.get(id).is_none() {
                // Given up while it was on its way back: nobody here answers it.
                self.emit(Effect::DropCall { call: id });
            }
            return;
        };
        if trouble == RequestFailure::NotWritten {
            // The connection cannot take it, so it takes none.
            self.call_undelivered(now, generation, id);
            return;
        }
        self.note_trouble(now, generation, trouble);
        self.admission.finish(client);
        if trouble == RequestFailure::SessionLost && self.is_first_loss(id) {
            self.replace_session(now, generation, &fault);
        }
        self.obey(now, generation, id, trouble, fault);
        self.after_flight(now);
    }

    /// Notes that the session of a call was lost; whether that is the first time.
    fn is_first_loss(&mut self, id: CallId) -> bool {
        let call = self.calls.get_mut(id);
        call.is_some_and(|call| !std::mem::replace(&mut call.session_lost, true))
    }

    /// What the trouble of one request says about its connection.
    fn note_trouble(&mut self, now: Now, generation: Generation, trouble: RequestFailure) {
        if trouble == RequestFailure::ConnectTimedOut {
            // The server was not asked, so nothing was heard of it.
            return;
        }
        self.heard(now, generation);
        if self.live(generation).is_none() {
            return;
        }
        let counts = match trouble {
            // A server that fails or wants a person is asked with a ping whether it still works.
            RequestFailure::WriteFailed
            | RequestFailure::ConnectionLost
            | RequestFailure::ServerFault
            | RequestFailure::Unauthorized
            | RequestFailure::Unreadable => true,
            RequestFailure::NotWritten
            | RequestFailure::ConnectTimedOut
            | RequestFailure::SessionLost
            | RequestFailure::Busy { .. }
            | RequestFailure::Denied
            | RequestFailure::DeadlinePassed
            | RequestFailure::Cancelled
            | RequestFailure::Answered
            | RequestFailure::MethodGone => false,
        };
        if counts && self.health.call_failed() {
            self.suspect(now, generation);
        }
    }

    fn obey(
        &mut self,
        now: Now,
        generation: Generation,
        id: CallId,
        trouble: RequestFailure,
        fault: Fault,
    ) {
        let settings = &self.settings;
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let ruling = retry::rule(trouble, call.safety, call.wish, call.retries, settings);
        let RetryDecision { known, decision } = ruling;
        call.learn(known);
        let (client, known, deadline) = (call.client, call.known, call.deadline);
        match decision {
            RetryAction::Retry => self.line_up(now, id, generation),
            RetryAction::ReconnectThenRetry => self.requeue(now, id, client, true),
            RetryAction::RetryAfter(pause) if later(now.at, pause) < deadline => {
                let until = later(now.at, pause);
                self.pause(id, until, generation);
            }
            // Waiting beyond its deadline, and authorization that needs a person, help nobody.
            RetryAction::RetryAfter(_) | RetryAction::RefreshThenRetry | RetryAction::Fail => {
                self.calls.remove(id);
                let unsent = NotSent::NoConnection(Some(fault.clone()));
                self.resolve(id, outcome_of(known, fault, unsent));
            }
        }
    }

    /// A pause asked for on a connection ends there, or on a later one.
    fn pause(&mut self, id: CallId, until: std::time::Instant, generation: Generation) {
        match self.closed() {
            Some(reason) => self.give_up(id, &GiveUp(reason)),
            None => self.calls.move_to(id, Place::Paused { until, generation }),
        }
    }

    /// Its pause is over.
    pub(super) fn pause_over(&mut self, now: Now, id: CallId, generation: Generation) {
        self.line_up(now, id, generation);
        self.admit(now);
    }

    /// Back to the front of the line. On the connection that it was sent on its tool is the same; on
    /// a later one that has to be known first.
    fn line_up(&mut self, now: Now, id: CallId, generation: Generation) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let client = call.client;
        let same = !call.is_tool || self.open_generation() == Some(generation);
        match self.discovery.was_fetched(ListKind::Tools) {
            _ if self.open_generation().is_none() => self.requeue(now, id, client, true),
            Some(false) if !same => self.requeue(now, id, client, true),
            None if !same => {
                let reason = NotSent::NoConnection(self.last_fault.clone());
                self.give_up(id, &GiveUp(reason));
            }
            Some(_) | None => {
                self.admission.enter_front(client, id);
                self.calls.move_to(id, Place::Line { until: None });
            }
        }
    }

    /// A request of the runtime's own, or a stream, was told that the session is gone.
    pub(super) fn session_gone(&mut self, now: Now, generation: Generation, fault: Fault) {
        self.heard(now, generation);
        self.replace_session(now, generation, &fault);
    }

    /// One new session for all who were told: whoever comes after the first finds it under way.
    fn replace_session(&mut self, now: Now, generation: Generation, fault: &Fault) {
        if let Some(live) = self.live(generation).cloned() {
            self.last_fault = Some(fault.clone());
            self.replace(now, &live, true, ReconnectTiming::Paced);
        }
    }
}
