//! The messages to a server's actor: requests in the imperative, facts in the past tense.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "http")]
use mcpvisor_core::machine::RenewalFailure;
use mcpvisor_core::machine::{CallEnd, ConnectionEnd, Fault};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, ClientId, CredentialRevision, Generation, ListKind};
use rmcp::model::{LoggingLevel, ServerPeerInfo};
use tokio::sync::oneshot;

use super::call::Call;
use super::list_processing::{ProcessedList, RefilteredTools, ReplyWhenPublished};
use crate::api::error::ControlError;
use crate::catalog::ListItems;

/// A message to a [`super::actor::ServerActor`].
#[derive(Debug)]
pub(crate) enum ServerMessage {
    /// Run this request.
    Call(Box<Call>),
    /// The caller dropped this request.
    CallerGone(CallId),
    /// A client cancels all of its requests.
    CancelClient(ClientId),
    /// Enable the server.
    Enable(ControlReply),
    /// Disable the server.
    Disable(ControlReply),
    /// Replace the connection.
    Reconnect(ControlReply),
    /// Apply the config that is in the slot now.
    Reconfigure {
        /// What has to happen to the connection.
        update: ConnectionUpdate,
        /// Answered when the tools are published by the new rules.
        reply: ControlReply,
    },
    /// Approve held tools.
    Approve {
        /// Only this one; all of them if none is named.
        tool: Option<String>,
        /// Only a definition with this hash, if there is one.
        hash: Option<String>,
        /// Answered when the approval is saved and published.
        reply: ApproveReply,
    },
    /// The approvals changed, by this process or another.
    ApprovalsChanged(Option<ReplyWhenPublished>),
    /// Another instance of the pool logs from this level on.
    AdoptLogLevel(LoggingLevel),
    /// A caller reports that this connection does not work.
    ReportBroken(Generation),
    /// Close for good, then stop.
    Shutdown(Duration),
    /// The supervisor grants the connect permit.
    PermitGranted,
    /// It has a place for a connection: [`super::places`].
    PlaceGranted,
    /// Another client needs a connection: sleep, unless this one is in use.
    GiveWay,
    /// A connection task reports an event.
    Connection {
        /// The connection.
        generation: Generation,
        /// The event.
        event: ConnectionEvent,
    },
    /// A list was fetched, or could not be.
    ListFetched {
        /// The connection that it was fetched on.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// Who it belongs to: [`ServerSlot::catalog_owner`](super::slot::ServerSlot).
        owner: String,
        /// The items, and how long they stay valid if the server says so.
        result: Result<(ListItems, Option<Duration>), FetchFailure>,
    },
    /// A large fetched list was processed off the actor's thread.
    ListProcessed(Box<ProcessedList>),
    /// Many tools were filtered again off the actor's thread.
    ToolsRefiltered(Box<RefilteredTools>),
    /// A reader used expired lists: fetch them again.
    RefreshExpiredLists,
    /// A check of a connection ended.
    CheckEnded {
        /// The connection that was checked.
        generation: Generation,
        /// Why it failed; none if the server answered.
        failure: Option<Fault>,
    },
    /// Another credential is in use.
    #[cfg(feature = "http")]
    CredentialChanged,
    /// The credential has expired, and nothing renews it.
    #[cfg(feature = "http")]
    CredentialExpired,
    /// A login that could not be saved was saved or replaced, or fails for another reason.
    #[cfg(feature = "http")]
    UnsavedLoginChanged,
    /// A renewal of the credential ended.
    #[cfg(feature = "http")]
    RenewalEnded(Result<CredentialRevision, RenewalFailure>),
    /// A deadline of the machine may have passed.
    Tick,
    /// Panic, to test that other servers are not affected.
    Crash,
}

/// With ractor's cluster feature every message type states whether it is serializable; this one is
/// not.
#[cfg(feature = "cluster")]
impl ractor::Message for ServerMessage {}

/// What a changed config requires of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionUpdate {
    /// No change.
    None,
    /// Send new headers.
    Headers,
    /// Connect again: the transport changed.
    Reconnect,
    /// Only forget the era of the server: the connection is closed anyway.
    ForgetEra,
}

/// Receives the names of the approved tools.
pub(crate) type ApproveReply = oneshot::Sender<Result<Vec<String>, ControlError>>;

/// Receives the outcome of a control request.
pub(crate) type ControlReply = oneshot::Sender<Result<(), ControlError>>;

/// An event of a connection task.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// The first byte arrived.
    FirstByte,
    /// The handshake is done.
    Up {
        /// The server's part of the handshake.
        info: Arc<ServerPeerInfo>,
        /// The lists that it offers.
        lists: Vec<ListKind>,
    },
    /// A batch of messages arrived.
    Inbound(InboundSummary),
    /// The connection broke or was closed; its unanswered calls are returned.
    Lost {
        /// Why.
        fault: Fault,
        /// The unanswered calls, and whether any part of each may have reached the server.
        returned: Vec<(Box<Call>, bool)>,
    },
    /// The task has ended and released everything.
    Ended(ConnectionEnd),
}

/// What a batch of inbound messages means to the machine.
#[derive(Debug, Default)]
pub(crate) struct InboundSummary {
    /// Answered calls.
    pub(crate) ended: Vec<(CallId, CallEnd)>,
    /// Failed calls, which are returned.
    pub(crate) failed: Vec<FailedCall>,
    /// The server reports that the session is lost, or that it no longer speaks its version.
    pub(crate) session_lost: Option<Fault>,
    /// The server refused this credential for something other than a call.
    pub(crate) unauthorized: Option<Box<(CredentialRevision, Fault)>>,
    /// Calls that made progress.
    pub(crate) progressed: Vec<CallId>,
    /// Lists that changed.
    pub(crate) changed: Vec<ListKind>,
    /// Subscriptions and log levels that the server confirmed.
    pub(crate) confirmed: Vec<ConfirmedSetting>,
    /// Invalid or unexpected messages.
    pub(crate) strays: u64,
    /// Messages dropped unread because they exceeded the rate or size limit.
    pub(crate) dropped_flood: u64,
    /// Requests of the server that were declined because several clients may have caused them.
    pub(crate) ambiguous_requests: u64,
    /// Anything was received.
    pub(crate) received: bool,
}

/// A call that failed while its connection stays open.
#[derive(Debug)]
pub(crate) struct FailedCall {
    pub(crate) call: Box<Call>,
    pub(crate) failure: RequestFailure,
    pub(crate) fault: Fault,
}

/// A session setting that the server confirmed; restored on the next connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfirmedSetting {
    /// It sends updates of this resource.
    Subscribed(String),
    /// It no longer sends them.
    Unsubscribed(String),
    /// It logs from this level on.
    LogLevel(LoggingLevel),
}

/// Why a list could not be fetched.
#[derive(Debug)]
pub(crate) enum FetchFailure {
    /// The server answered with an error.
    Refused(String),
    /// The server demands another credential, or more scopes.
    Unauthorized(String),
    /// No answer, or an invalid one.
    Failed(String),
}
