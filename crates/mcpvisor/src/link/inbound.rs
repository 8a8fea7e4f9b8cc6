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
        /// How it failed.
        failed: FailedRequest,
    },
    /// The server reports that the session is lost. Pending requests get their own event.
    SessionGone {
        /// What the server reported.
        message: String,
    },
    /// The server refused the credential of a message or a stream.
    #[cfg(feature = "http")]
    Unauthorized {
        /// The credential.
        credential: mcpvisor_core::CredentialRevision,
        /// What the server reported.
        message: String,
    },
    /// A request from the server.
    Request {
        /// The server's id of the request.
        id: RequestId,
        /// The request.
        request: ServerRequest,
        /// The pending request that it belongs to, if the transport shows it.
        cause: Option<CallId>,
    },
    /// A notification.
    Notification {
        /// The notification.
        notification: ServerNotification,
        /// The pending request that it belongs to, if the transport shows it.
        cause: Option<CallId>,
    },
    /// Input that belongs to no request: a banner, garbage, an unknown or missing id. It is counted
    /// and never fatal.
    Stray {
        /// A description with an excerpt.
        problem: String,
    },
    /// Unsolicited messages were dropped.
    Dropped(DropReport),
    /// Notifications may have been missed, because the server's stream was interrupted.
    #[cfg(feature = "http")]
    NotificationsMissed,
}

impl Inbound {
    /// Notes that the message came in the response to this request.
    #[cfg(feature = "http")]
    pub(super) fn set_cause(&mut self, request: CallId) {
        if let Self::Request { cause, .. } | Self::Notification { cause, .. } = self {
            *cause = Some(request);
        }
    }

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

/// How a single request failed.
#[derive(Debug)]
pub(crate) struct FailedRequest {
    /// The kind of failure.
    pub(crate) failure: RequestFailure,
    /// The HTTP status, if any.
    pub(crate) status: Option<u16>,
    /// The error in the response body, if any.
    pub(crate) error: Option<ErrorData>,
    /// A message for people.
    pub(crate) message: String,
    /// The scopes that the request lacked.
    pub(crate) scopes: Vec<String>,
}

impl FailedRequest {
    /// A failure without a response.
    pub(crate) fn new(failure: RequestFailure, message: impl Into<String>) -> Self {
        Self {
            failure,
            status: None,
            error: None,
            message: message.into(),
            scopes: Vec::new(),
        }
    }
}

impl FailedRequest {
    /// Whether the server is busy or demands a credential, which shows nothing else about it.
    pub(crate) fn is_busy_or_unauthorized(&self) -> bool {
        matches!(
            self.failure,
            RequestFailure::Unauthorized { .. } | RequestFailure::Busy { .. }
        ) || self.status == Some(401)
    }
}

/// Unsolicited messages that were dropped undecoded because they exceeded the rate or size limit.
#[derive(Debug, Default)]
pub(crate) struct DropReport {
    /// Dropped requests and notifications.
    pub(crate) messages: u64,
    /// Dropped strays.
    pub(crate) strays: u64,
    /// List changes among the dropped notifications. These are never lost.
    pub(crate) changed_lists: Vec<ListKind>,
    /// The first few dropped requests, to be answered with an error, so that the server does not
    /// wait for them forever.
    pub(crate) requests: Vec<(RequestId, RejectReason)>,
}

/// Why a request from the server was rejected undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The request is too large.
    TooLarge,
    /// Too many messages arrived at once.
    TooMany,
}
