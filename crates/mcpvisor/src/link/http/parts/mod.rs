//! What both HTTP links are made of: exchanges, held requests, queued messages, the decoder, and the
//! headers of the session.

pub(crate) mod exchanges;
pub(crate) mod message_queue;
pub(crate) mod message_reader;
pub(crate) mod polling;
pub(crate) mod request_hold;
pub(crate) mod session;

use http::StatusCode;
use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;

use super::exchange::event::HttpRefusal;
use super::exchange::outgoing::Purpose;
use super::refusal;
use crate::auth::{Challenge, ServerAuth};
use crate::link::{FailedRequest, Inbound, LinkDown};

/// The end of a link.
#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) reason: LinkDown,
    /// Requests that were not sent because of that. The connection task collects them with the
    /// others.
    pub(crate) unsent: Vec<CallId>,
}

impl Down {
    pub(crate) fn new(reason: LinkDown) -> Self {
        Self {
            reason,
            unsent: Vec::new(),
        }
    }
}

/// Learns from a refusal what the server demands. A refused credential is reported here unless a
/// request carries the report.
pub(crate) fn note_refusal(
    auth: &ServerAuth,
    purpose: Purpose,
    refusal: &HttpRefusal,
) -> Option<Inbound> {
    if refusal.proof.is_some() {
        // The server says nothing about the token.
        return None;
    }
    let challenge = refusal.challenge.as_ref()?;
    auth.note_challenge(Challenge::clone(challenge));
    let is_reported = matches!(
        purpose,
        Purpose::Request(_) | Purpose::Post(_) | Purpose::DeleteSession
    );
    let unauthorized = refusal.status == StatusCode::UNAUTHORIZED;
    (unauthorized && !is_reported).then(|| Inbound::Unauthorized {
        credential: refusal.credential,
        message: refusal::describe(refusal),
    })
}

/// A request whose outcome is unknown.
pub(crate) fn server_fault(id: CallId, message: &str) -> Inbound {
    let failed = FailedRequest::new(RequestFailure::ServerFault, message);
    Inbound::Failed { id, failed }
}
