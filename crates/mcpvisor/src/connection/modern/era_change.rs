//! A server that was exchanged behind a live connection, for one of another era.
//!
//! Over HTTP that takes no more than an upgrade or a rollback: the address stays, and the next
//! request meets a server that does not speak the version of the connection. Such a connection is
//! replaced, and the next one asks anew what the server speaks.

use std::time::{Duration, Instant};

use mcpvisor_core::machine::{Fault, FaultClass};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, SessionEvidence};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ErrorCode, PingRequest};
use tokio::sync::oneshot;

use crate::api::reply::Failure;
use crate::connection::era;
use crate::connection::pending::{Entry, Holder, InternalRequest};
use crate::connection::session::Session;
use crate::link::{Link, PendingRequests as _, ReplyKind};
use crate::server::actor::now;
use crate::server::message::FailedCall;

/// A server that gives reason to doubt is asked no more often.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// The last time that a modern server was asked whether it still is one.
#[derive(Debug, Clone, Copy)]
pub(in crate::connection) struct Doubt {
    at: Instant,
    question: CallId,
}

impl<L: Link> Session<'_, L> {
    /// Whether an error shows that another server answers now.
    pub(in crate::connection) fn is_swapped(&self, entry: &Entry, error: &ErrorData) -> bool {
        era::refuses_version(error, &self.version)
            || self.asks_for_the_era(entry) && era::denies_discovery(error)
    }

    /// The same for a request that was refused with a status alone.
    pub(in crate::connection) fn is_swapped_by(&self, entry: &Entry, status: Option<u16>) -> bool {
        self.asks_for_the_era(entry) && era::may_be_another(status)
    }

    fn asks_for_the_era(&self, entry: &Entry) -> bool {
        self.modern.is_some() && entry.reply_kind == ReplyKind::Discover
    }

    /// The request was refused by a server that does not speak our version any more. The connection
    /// is replaced; what was refused may be sent again on the next one.
    pub(in crate::connection) fn swapped(&mut self, id: CallId, entry: Entry, error: ErrorData) {
        let slot = &self.task.slot;
        era::forget(slot);
        let said = slot.redact(&*error.message);
        let message = format!("does not speak {} any more: {said}", self.version);
        let fault = Fault::new(FaultClass::IncompatibleVersion, message);
        self.observed.session_lost.get_or_insert(fault.clone());
        match entry.holder {
            Holder::Caller(call) if call.request.is_some() => {
                self.aliases.remove(&call.id);
                let trouble = RequestFailure::SessionLost;
                self.observed.failed.push(FailedCall {
                    call,
                    trouble,
                    fault,
                });
            }
            Holder::Caller(call) => self.finish(call, Err(Failure::Error(error))),
            Holder::Listen => self.listen_ended(id, &Err(error)),
            Holder::SessionCheck => self.session_checked(SessionEvidence::None),
            // For the runtime's own requests the connection has ended.
            Holder::Internal(_) => self.not_listed(entry.reply_kind),
        }
    }

    /// A modern server answered a caller with an error that one of another era would give to
    /// everything: it is asked whether it still is a modern one.
    pub(in crate::connection) fn doubt(&mut self) {
        let at = now();
        let Some(modern) = &mut self.modern else {
            return;
        };
        let asked = modern.doubt.is_some_and(|doubt| {
            let unanswered = self.pending.reply_kind(doubt.question).is_some();
            unanswered || at.saturating_duration_since(doubt.at) < ASK_EVERY
        });
        if asked {
            return;
        }
        let question = self.task.slot.calls.next_id();
        modern.doubt = Some(Doubt { at, question });
        let request = ClientRequest::PingRequest(PingRequest {
            method: Default::default(),
            extensions: Default::default(),
        });
        // What it answers is looked at when it comes; nobody waits for it.
        let (answer, _) = oneshot::channel();
        self.start_own(InternalRequest {
            id: question,
            request,
            answer,
        });
    }
}

/// Whether an error may be one that a server of another era gives to everything.
pub(in crate::connection) fn is_doubtful(error: &ErrorData) -> bool {
    /// "Server error", which is what many say where a session is missing.
    const SERVER_ERROR: ErrorCode = ErrorCode(-32000);
    matches!(
        error.code,
        ErrorCode::INVALID_REQUEST | ErrorCode::METHOD_NOT_FOUND | SERVER_ERROR
    )
}
