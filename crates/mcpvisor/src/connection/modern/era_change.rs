//! Detects that the server changed its era during a connection.
//!
//! Over HTTP an upgrade or a rollback is enough: the address stays, and the next request reaches a
//! server that does not speak the negotiated version. The connection is then replaced, and the next
//! one negotiates again.

use std::time::{Duration, Instant};

use mcpvisor_core::CallId;
use mcpvisor_core::machine::{Fault, FaultClass};
use mcpvisor_core::retry::RequestFailure;
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ErrorCode, PingRequest};
use tokio::sync::oneshot;

use crate::api::reply::Failure;
use crate::connection::era;
use crate::connection::session::Session;
use crate::connection::session::pending::{InternalRequest, PendingRequest, Requester};
use crate::link::{Link, PendingRequests as _, ReplyKind};
use crate::server::actor::now;
use crate::server::message::FailedCall;

/// The least time between two checks of the era.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The last check whether the server still speaks the modern era.
#[derive(Debug, Clone, Copy)]
pub(super) struct EraCheck {
    at: Instant,
    request: CallId,
}

impl<L: Link> Session<'_, L> {
    /// Whether an error shows that the server changed its era.
    pub(crate) fn is_era_change(&self, request: &PendingRequest, error: &ErrorData) -> bool {
        era::refuses_version(error, &self.version)
            || self.is_discover(request) && era::denies_discovery(error)
    }

    /// The same for a request that was refused with a status alone.
    pub(crate) fn is_era_change_status(
        &self,
        request: &PendingRequest,
        status: Option<u16>,
    ) -> bool {
        self.is_discover(request) && era::status_may_mean_other_era(status)
    }

    fn is_discover(&self, request: &PendingRequest) -> bool {
        self.modern.is_some() && request.reply_kind == ReplyKind::Discover
    }

    /// A server that changed its era refused a request. The connection is replaced; the request may
    /// be sent again on the next one.
    pub(crate) fn on_era_change(&mut self, id: CallId, request: PendingRequest, error: ErrorData) {
        let slot = &self.task.slot;
        era::forget(slot);
        let reason = slot.redact(&*error.message);
        let message = format!("no longer speaks {}: {reason}", self.version);
        let fault = Fault::new(FaultClass::IncompatibleVersion, message);
        self.batch.report_session_lost(fault.clone());
        match request.requester {
            Requester::Caller(call) if call.request.is_some() => {
                let failure = RequestFailure::SessionLost;
                self.batch.summary.failed.push(FailedCall {
                    call,
                    failure,
                    fault,
                });
            }
            Requester::Caller(call) => self.batch.finish(call, Err(Failure::Error(error))),
            Requester::Listen => self.on_listen_request_ended(id, &Err(error)),
            Requester::SessionCheck => self.end_session_check(),
            // For an internal request, the connection counts as ended.
            Requester::Internal(_) => self.on_listing_failed(request.reply_kind),
        }
    }

    /// Sends a ping that shows whether the server still speaks the modern era. Called after an
    /// error that a legacy server would give to every modern request.
    pub(crate) fn check_era(&mut self) {
        let at = now();
        let Some(modern) = &mut self.modern else {
            return;
        };
        let is_recent = modern.era_check.is_some_and(|check| {
            let unanswered = self.pending.reply_kind(check.request).is_some();
            unanswered || at.saturating_duration_since(check.at) < MIN_CHECK_INTERVAL
        });
        if is_recent {
            return;
        }
        let id = self.task.slot.calls.next_id();
        modern.era_check = Some(EraCheck { at, request: id });
        let request = ClientRequest::PingRequest(PingRequest::default());
        // The reply is checked for an era change when it arrives; no receiver is needed.
        let (reply, _) = oneshot::channel();
        self.start_internal(InternalRequest { id, request, reply });
    }
}

/// Whether a legacy server may give this error to every modern request.
pub(super) fn may_mean_era_change(error: &ErrorData) -> bool {
    /// "Server error": many legacy servers answer it when the session is missing.
    const SERVER_ERROR: ErrorCode = ErrorCode(-32000);
    matches!(
        error.code,
        ErrorCode::INVALID_REQUEST | ErrorCode::METHOD_NOT_FOUND | SERVER_ERROR
    )
}
