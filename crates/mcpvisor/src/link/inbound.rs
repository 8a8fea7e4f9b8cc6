//! Messages from the server, and events about them.

use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{ErrorData, RequestId, ServerNotification, ServerRequest, ServerResult};

/// A message from the server, or an event that the link derives from its messages.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// The reply to a pending request.
    Response {
        /// The request.
        id: CallId,
        /// The result, or the error that the server returned.
        result: Result<ServerResult, ErrorData>,
    },
    /// A pending request was answered with an error that may mean that its session is lost.
    PossibleSessionLoss {
        /// The request.
        id: CallId,
        /// The error that the server returned.
        error: ErrorData,
    },
    /// A reply to a pending request that cannot be decoded.
    Unreadable {
        /// The request.
        id: CallId,
        /// Why it cannot be decoded.
        problem: String,
    },
    /// A single pending request failed; the link stays open.
    Failed {
        /// The request.
        id: CallId,
        /// The kind of failure.
        failure: RequestFailure,
        /// The HTTP status, if any.
        status: Option<u16>,
        /// The error in the response body, if any.
        error: Option<ErrorData>,
        /// A message for people.
        message: String,
    },
    /// The server reports that the session is lost. Pending requests get their own event.
    SessionGone {
        /// What the server reported.
        message: String,
    },
    /// A request from the server.
    Request {
        /// The server's id of the request.
        id: RequestId,
        /// The request.
        request: ServerRequest,
    },
    /// A notification.
    Notification(ServerNotification),
    /// Input that belongs to no request: a banner, garbage, an unknown or missing id. It is counted
    /// and never fatal.
    Stray {
        /// A description with an excerpt.
        problem: String,
    },
    /// Unsolicited messages that were dropped undecoded because they exceeded the rate or size
    /// limit.
    Dropped {
        /// Dropped requests and notifications.
        messages: u64,
        /// Dropped strays.
        strays: u64,
        /// List changes among the dropped notifications. These are never lost.
        changed_lists: Vec<ListKind>,
        /// The first few dropped requests, to be answered with an error, so that the server does
        /// not wait for them forever.
        requests: Vec<(RequestId, RejectReason)>,
    },
    /// Notifications may have been missed, because the server's stream was interrupted.
    #[cfg(feature = "http")]
    NotificationsMissed,
}

#[cfg(any(feature = "stdio", feature = "http"))]
impl Inbound {
    /// The pending request that this message answers.
    pub(super) fn answers(&self) -> Option<CallId> {
        match self {
            Self::Response { id, .. }
            | Self::PossibleSessionLoss { id, .. }
            | Self::Unreadable { id, .. }
            | Self::Failed { id, .. } => Some(*id),
            _ => None,
        }
    }
}

/// Why a request from the server was rejected undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "stdio", feature = "http")),
    allow(dead_code, reason = "in-process messages have no limits")
)]
pub(crate) enum RejectReason {
    /// The request is too large.
    TooLarge,
    /// Too many messages arrived at once.
    TooMany,
}
