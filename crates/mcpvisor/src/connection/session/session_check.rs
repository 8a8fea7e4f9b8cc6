//! Errors that may mean a lost session, and the ping that decides.
//!
//! An error that mentions a lost session may come from the tool itself. Its call is parked while a
//! ping checks whether the server still knows the session. If the ping is refused because of the
//! session, the loss is certain and is reported to the machine. In all other cases the error is the
//! answer to the call, also if another request reports the loss first: the tool may have run
//! before.

use std::time::Instant;

use mcpvisor_core::machine::{Fault, FaultClass};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, SessionEvidence};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, PingRequest};

use super::client_settings::ChangeEnd;
use super::event_loop::Session;
use super::pending::{InternalFailure, PendingRequest, Requester};
use crate::api::reply::Failure;
use crate::link::{Link, ReplyKind};
use crate::server::actor::now;
use crate::server::message::FailedCall;

/// What is known about the session of a connection.
#[derive(Debug, Default)]
pub(super) struct SessionCheck {
    loss: SessionLoss,
    ping: Option<CheckPing>,
    /// Requests whose error may mean a lost session, until the ping ends.
    parked: Vec<ParkedRequest>,
}

/// How the loss of the session became known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SessionLoss {
    /// The session is not lost.
    #[default]
    None,
    /// Another request was refused by status. This server reports a lost session by status, so an
    /// error that only mentions it is the tool's own.
    Reported,
    /// A ping was refused after such an error: further ones mean the same.
    Confirmed,
}

#[derive(Debug, Clone, Copy)]
struct CheckPing {
    id: CallId,
    due: Instant,
}

#[derive(Debug)]
struct ParkedRequest {
    id: CallId,
    request: PendingRequest,
    error: ErrorData,
}

impl SessionCheck {
    /// When the ping times out, if one is in flight.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ping.map(|ping| ping.due)
    }
}

impl<L: Link> Session<'_, L> {
    /// A request was answered with an error that may mean a lost session.
    pub(super) fn on_possible_session_loss(&mut self, id: CallId, error: ErrorData) {
        if self.session_check.ping.is_some_and(|ping| ping.id == id) {
            self.pending.remove(id);
            return self.session_checked(SessionEvidence::Doubtful);
        }
        let Some(request) = self.pending.remove(id) else {
            return;
        };
        self.setting_ended(id, ChangeEnd::Failed);
        if self.is_era_change(&request, &error) {
            return self.on_era_change(id, request, error);
        }
        let parked = ParkedRequest { id, request, error };
        match self.session_check.loss {
            SessionLoss::Confirmed => self.fail_for_lost_session(parked),
            SessionLoss::Reported => self.answer_parked(parked),
            SessionLoss::None => {
                self.session_check.parked.push(parked);
                if self.session_check.ping.is_none() {
                    self.ping_session();
                }
            }
        }
    }

    fn ping_session(&mut self) {
        let id = self.task.slot.calls.next_id();
        let answer_within = self.task.slot.config().settings.health.keepalive_timeout;
        let request = ClientRequest::PingRequest(PingRequest::default());
        let reply_kind = ReplyKind::of(&request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => {
                let due = now() + answer_within;
                self.session_check.ping = Some(CheckPing { id, due });
                self.pending
                    .insert(id, reply_kind, position, Requester::SessionCheck);
            }
            Err(_) => self.end_session_check(),
        }
    }

    pub(super) fn session_check_timed_out(&mut self) {
        if let Some(ping) = self.session_check.ping {
            self.pending.remove(ping.id);
            self.link.cancel(ping.id, "no answer in time");
        }
        self.end_session_check();
    }

    /// The ping ended with this evidence of a lost session.
    pub(super) fn session_checked(&mut self, evidence: SessionEvidence) {
        if !evidence.confirms_loss() {
            return self.end_session_check();
        }
        if self.session_check.parked.is_empty() {
            // The parked calls that would report the loss were cancelled.
            self.report_session_lost("a ping was refused because of its session");
        }
        self.session_check.loss = SessionLoss::Confirmed;
        for parked in std::mem::take(&mut self.session_check.parked) {
            self.fail_for_lost_session(parked);
        }
        self.end_session_check();
    }

    /// Another request reported the loss of the session. A ping in flight is no longer needed.
    pub(super) fn session_lost(&mut self) {
        if self.session_check.loss == SessionLoss::None {
            self.session_check.loss = SessionLoss::Reported;
        }
        self.end_session_check();
    }

    /// Ends the check without a confirmed loss: the errors of parked requests are their answers.
    pub(crate) fn end_session_check(&mut self) {
        if let Some(ping) = self.session_check.ping.take()
            && self.pending.remove(ping.id).is_some()
        {
            self.link.forget(ping.id);
        }
        for parked in std::mem::take(&mut self.session_check.parked) {
            self.answer_parked(parked);
        }
    }

    fn answer_parked(&mut self, parked: ParkedRequest) {
        let ParkedRequest { request, error, .. } = parked;
        match request.requester {
            Requester::Caller(call) => self.batch.finish(call, Err(Failure::Error(error))),
            Requester::Internal(reply) => drop(reply.send(Err(InternalFailure::Error(error)))),
            // Never parked: a listen request has no session, and the check itself decides.
            Requester::Listen | Requester::SessionCheck => {}
        }
    }

    /// Ends a parked request early, with the answer that the server gave. Returns whether it was
    /// parked.
    pub(super) fn abandon_parked(&mut self, id: CallId) -> bool {
        let mut parked = self.session_check.parked.iter();
        let Some(at) = parked.position(|parked| parked.id == id) else {
            return false;
        };
        let ParkedRequest { request, error, .. } = self.session_check.parked.swap_remove(at);
        if let Requester::Caller(call) = request.requester {
            call.reply.send(Err(Failure::Error(error)));
        }
        true
    }

    fn fail_for_lost_session(&mut self, parked: ParkedRequest) {
        let ParkedRequest { request, error, .. } = parked;
        let message = format!("{} (code {})", error.message, error.code.0);
        let message = self.task.slot.redact(message).into_owned();
        match request.requester {
            Requester::Caller(mut call) => {
                call.note_refusal(Some(error));
                self.batch.summary.failed.push(FailedCall {
                    call,
                    failure: RequestFailure::SessionLost,
                    fault: Fault::new(FaultClass::SessionExpired, message),
                });
            }
            Requester::Internal(reply) => {
                self.report_session_lost(&message);
                let fault = Fault::new(FaultClass::SessionExpired, message);
                let failure = RequestFailure::SessionLost;
                let _ = reply.send(Err(InternalFailure::Failed { failure, fault }));
            }
            Requester::Listen | Requester::SessionCheck => {}
        }
    }
}
