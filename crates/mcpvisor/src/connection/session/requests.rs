//! Requests on their way to the server: calls, internal requests and cancellations.

use mcpvisor_core::CallId;
use mcpvisor_core::machine::{Fault, Outcome};
use mcpvisor_core::retry::RequestFailure;
use rmcp::model::ClientJsonRpcMessage;

use super::client_settings::ChangeEnd;
use super::event_loop::Session;
use super::pending::{InternalFailure, InternalRequest, Requester};
use crate::api::reply::Failure;
use crate::connection::faults;
use crate::link::{Link, ReplyKind, may_call_back};
use crate::server::actor::now;
use crate::server::call::Call;
use crate::server::message::{NotifyFailure, OutgoingNotification};

impl<L: Link> Session<'_, L> {
    pub(super) fn start_call(&mut self, call: Box<Call>) {
        match self.prepare_call(call) {
            Some(call) => self.send_call(call.id, call),
            None => self.flush(),
        }
    }

    /// Sends a call. The id on the wire is the call's own id or, if it is sent again, a new one.
    pub(crate) fn send_call(&mut self, id: CallId, mut call: Box<Call>) {
        let reply_kind = match &call.request {
            // The caller gets the input that the server requires as it is.
            Some(_) if call.capabilities.is_some() && self.modern.is_some() => ReplyKind::Raw,
            Some(request) => ReplyKind::of(request),
            None => ReplyKind::Any,
        };
        if !self.link.has_capacity() {
            self.setting_ended(id, ChangeEnd::Failed);
            self.batch
                .finish_locally(call, Err(Failure::SendBufferFull));
            return self.flush();
        }
        let may_require_input = call.request.as_ref().is_some_and(may_call_back)
            && (self.modern.is_some() || self.input_rounds.can_open_urls(&call));
        let keep = call.keep_request || may_require_input;
        match self.link.push_request(id, &mut call.request, keep) {
            Ok(position) => {
                call.reply.set_sent();
                self.pending
                    .insert(id, reply_kind, position, Requester::Caller(call));
            }
            Err(problem) => {
                self.setting_ended(id, ChangeEnd::Failed);
                self.batch
                    .finish_locally(call, Err(Failure::InvalidRequest(problem)));
                self.flush();
            }
        }
    }

    pub(crate) fn start_internal(&mut self, request: InternalRequest) {
        let Some(request) = self.prepare_internal(request) else {
            return;
        };
        let InternalRequest { id, request, reply } = request;
        let reply_kind = ReplyKind::of(&request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => {
                self.pending
                    .insert(id, reply_kind, position, Requester::Internal(reply));
            }
            Err(problem) => {
                self.setting_ended(id, ChangeEnd::Failed);
                let failure = RequestFailure::NotWritten;
                let class = faults::request_failure_class(failure, None);
                let fault = Fault::new(class, self.task.slot.redact(problem));
                let _ = reply.send(Err(InternalFailure::Failed { failure, fault }));
            }
        }
    }

    pub(super) fn send_notification(&mut self, notification: OutgoingNotification) {
        let OutgoingNotification {
            notification,
            reply,
        } = notification;
        let sent = if self.link.has_capacity() {
            let message = ClientJsonRpcMessage::notification(notification);
            let pushed = self.link.push(message).map(drop);
            pushed.map_err(NotifyFailure::Invalid)
        } else {
            Err(NotifyFailure::NotRead)
        };
        let _ = reply.send(sent);
    }

    /// Cancels a request at the server and answers its caller.
    pub(super) fn abandon(&mut self, call: CallId, outcome: Outcome) {
        if let Some(call) = self.take_held_call(call) {
            call.reply.send(Err(Failure::Outcome(outcome)));
            return;
        }
        if self.abandon_parked(call) {
            return;
        }
        let id = self.pending.wire_id(call);
        // The answer may have arrived in the meantime.
        let Some(request) = self.pending.remove(id) else {
            return;
        };
        let written = self.link.cancel(id, cancel_reason(&outcome));
        let is_caller = matches!(request.requester, Requester::Caller(_));
        self.setting_ended(
            id,
            match written && is_caller {
                true => ChangeEnd::Abandoned,
                false => ChangeEnd::Failed,
            },
        );
        match request.requester {
            Requester::Caller(mut call) => {
                if written {
                    let abandoned = &mut self.server_requests.abandoned;
                    abandoned.push(call.answerer(), now());
                }
                call.reply.set_written(written);
                let outcome = if written { outcome } else { not_sent(outcome) };
                call.reply.send(Err(Failure::Outcome(outcome)));
            }
            Requester::Internal(_) => {
                self.on_listing_failed(request.reply_kind);
                self.flush();
            }
            Requester::Listen | Requester::SessionCheck => {}
        }
    }
}

fn cancel_reason(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Deadline { idle: true, .. } => "no progress in time",
        Outcome::Deadline { idle: false, .. } => "deadline passed",
        Outcome::Cancelled => "cancelled by the caller",
        _ => "abandoned",
    }
}

/// The outcome of a call that turns out not to have been written.
fn not_sent(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Deadline { idle, .. } => Outcome::Deadline { sent: false, idle },
        outcome => outcome,
    }
}
