//! Replies to pending requests, and requests that failed without one.

use mcpvisor_core::machine::{Fault, FaultClass, MAX_FAULT_MESSAGE, truncate_text};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, CredentialRevision, SessionEvidence};
use rmcp::ErrorData;
use rmcp::model::ServerResult;

use super::client_settings::ChangeEnd;
use super::event_loop::Session;
use super::input_rounds::RequiredInput;
use super::pending::{InternalFailure, Requester};
use crate::api::reply::Failure;
use crate::connection::{era, faults};
use crate::link::{FailedRequest, Link};
use crate::server::call::Call;
use crate::server::message::FailedCall;

impl<L: Link> Session<'_, L> {
    pub(super) fn on_response(&mut self, id: CallId, result: Result<ServerResult, ErrorData>) {
        let Some(request) = self.pending.remove(id) else {
            // The call was cancelled.
            return;
        };
        let mut result = match result {
            Err(error) if self.is_era_change(&request, &error) => {
                return self.on_era_change(id, request, error);
            }
            result => result,
        };
        let end = match &result {
            Ok(_) => ChangeEnd::Confirmed,
            Err(_) => ChangeEnd::Failed,
        };
        self.setting_ended(id, end);
        match request.requester {
            Requester::Caller(call) if self.modern.is_some() => {
                self.on_modern_response(call, result);
            }
            Requester::Caller(call) => self.on_legacy_response(call, result),
            Requester::Internal(reply) => {
                match &mut result {
                    Ok(page) => self.on_page_listed(page),
                    Err(_) => self.on_listing_failed(request.reply_kind),
                }
                let _ = reply.send(result.map_err(InternalFailure::Error));
            }
            Requester::Listen => self.on_listen_request_ended(id, &result),
            Requester::SessionCheck => self.end_session_check(),
        }
    }

    /// Handles the answer to a call, which may require that a person opens a URL first.
    fn on_legacy_response(&mut self, call: Box<Call>, result: Result<ServerResult, ErrorData>) {
        if let Err(error) = &result
            && let Some(required) = RequiredInput::of_error(error)
            && self.input_rounds.can_open_urls(&call)
        {
            return self.collect_input(call, required);
        }
        self.batch.finish(call, result.map_err(Failure::Error));
    }

    pub(super) fn on_unreadable(&mut self, id: CallId, problem: String) {
        let Some(request) = self.pending.remove(id) else {
            return;
        };
        self.setting_ended(id, ChangeEnd::Failed);
        let mut problem = self.task.slot.redact(problem).into_owned();
        // It may quote the unreadable text.
        truncate_text(&mut problem, MAX_FAULT_MESSAGE);
        match request.requester {
            Requester::Caller(call) => self.batch.finish_unreadable(call, problem),
            Requester::Internal(reply) => {
                self.on_listing_failed(request.reply_kind);
                let _ = reply.send(Err(InternalFailure::Unreadable(problem)));
            }
            Requester::Listen => {
                self.on_listen_request_ended(id, &Err(ErrorData::internal_error(problem, None)));
            }
            Requester::SessionCheck => self.end_session_check(),
        }
    }

    /// A request failed while the link stays up. The machine decides whether a call is retried.
    pub(super) fn on_request_failure(&mut self, id: CallId, failed: FailedRequest) {
        let (failure, status) = (failed.failure, failed.status);
        let Some(request) = self.pending.remove(id) else {
            return;
        };
        self.setting_ended(id, ChangeEnd::Failed);
        let message = self.task.slot.redact(failed.message).into_owned();
        if failure == RequestFailure::Denied && self.is_era_change_status(&request, status) {
            let error = ErrorData::invalid_request(message, None);
            return self.on_era_change(id, request, error);
        }
        let class = faults::request_failure_class(failure, status);
        let lost = failure == RequestFailure::SessionLost;
        if let RequestFailure::Unauthorized { credential } = failure
            && matches!(
                request.requester,
                Requester::Internal(_) | Requester::Listen
            )
        {
            self.report_unauthorized(credential, &message);
        }
        match request.requester {
            Requester::Caller(mut call) => {
                if lost {
                    let error = failed.error.map(|error| self.task.slot.redact_error(error));
                    call.note_refusal(error);
                }
                if failure == RequestFailure::Denied && era::status_may_mean_other_era(status) {
                    self.check_era();
                }
                if matches!(
                    failure,
                    RequestFailure::NotWritten | RequestFailure::ConnectTimedOut
                ) {
                    call.reply.set_written(false);
                }
                self.batch.summary.failed.push(FailedCall {
                    call,
                    failure,
                    fault: Fault::new(class, message).with_scopes(failed.scopes),
                });
            }
            Requester::Listen => {
                self.on_listen_request_ended(id, &Err(ErrorData::internal_error(message, None)));
            }
            Requester::SessionCheck if lost => {
                return self.session_checked(SessionEvidence::Certain);
            }
            Requester::SessionCheck => self.end_session_check(),
            Requester::Internal(reply) => {
                if lost {
                    self.report_session_lost(&message);
                }
                self.on_listing_failed(request.reply_kind);
                let fault = Fault::new(class, message);
                let _ = reply.send(Err(InternalFailure::Failed { failure, fault }));
            }
        }
        if lost {
            self.session_lost();
        }
    }

    /// Reports a refused credential, apart from any call.
    pub(super) fn report_unauthorized(&mut self, credential: CredentialRevision, message: &str) {
        let message = self.task.slot.redact(message);
        let fault = Fault::new(FaultClass::Authorization, message);
        self.batch.summary.unauthorized = Some(Box::new((credential, fault)));
    }

    /// Reports the loss of the session, apart from any call.
    pub(super) fn report_session_lost(&mut self, message: &str) {
        let message = self.task.slot.redact(message);
        let fault = Fault::new(FaultClass::SessionExpired, message);
        self.batch.report_session_lost(fault);
    }
}
