//! What is said to a server's actor: requests in the imperative, facts in the past tense.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::machine::{CallEnd, ConnectionEnd, Fault};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, Generation, ListKind};
use rmcp::model::{LoggingLevel, ServerPeerInfo};
use tokio::sync::oneshot;

use super::approve::{ApproveReply, Approved};
use super::call::Call;
use super::list_processing::{Judging, Looked};
use crate::api::error::ControlError;
use crate::catalog::Listed;

/// A message to a [`super::actor::ServerActor`].
#[derive(Debug)]
pub(crate) enum ServerMessage {
    /// Run this request.
    Call(Box<Call>),
    /// The caller of this request is gone.
    CallerGone {
        /// Which request.
        call: CallId,
    },
    /// Switch on.
    Enable {
        /// Answered at once.
        reply: ControlReply,
    },
    /// Switch off.
    Disable {
        /// Answered when it is off.
        reply: ControlReply,
    },
    /// Replace the connection.
    Reconnect {
        /// Answered at once, refused if disabled.
        reply: ControlReply,
    },
    /// The config changed: go on with the new one.
    Reconfigure {
        /// What the connection cannot go on with.
        renew: ConnectionUpdate,
        /// Answered at once.
        reply: ControlReply,
    },
    /// Approve tools that are held back.
    Approve {
        /// Which one; all of them if none is named.
        tool: Option<String>,
        /// Only a definition with this hash; any if there is none.
        hash: Option<String>,
        /// Answered when it is kept.
        reply: ApproveReply,
    },
    /// What is approved changed, by this process or another.
    PinsChanged {
        /// Who asked for it, and hears of it when callers see it.
        approved: Option<Approved>,
    },
    /// This connection does not work, says a caller.
    ReportBroken {
        /// The connection that the caller used.
        generation: Generation,
    },
    /// Close for good, then stop.
    Shutdown {
        /// All steps together.
        limit: Duration,
    },
    /// The governor lets this server connect.
    PermitGranted,
    /// A connection says something.
    Connection {
        /// Which connection.
        generation: Generation,
        /// What.
        event: ConnectionEvent,
    },
    /// A list was fetched, or could not be.
    ListFetched {
        /// The connection that was asked.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// What came of it.
        result: Result<Listed, FetchFailure>,
        /// How long the server says it is good.
        good_for: Option<Duration>,
    },
    /// A large list that was fetched was looked at.
    ListLooked(Box<Looked>),
    /// A large list was judged by other rules.
    ToolsJudged(Box<Judging>),
    /// Somebody reads lists that are no longer good.
    ListsUsed,
    /// A check of a connection ended.
    CheckEnded {
        /// The connection that was checked.
        generation: Generation,
        /// Why it failed; nothing if an answer came.
        failure: Option<Fault>,
    },
    /// A deadline of the machine's may have passed.
    Tick,
    /// Panic, to show that nobody else notices.
    Crash,
}

/// With ractor's cluster feature a message says whether it can leave the process. This one cannot.
#[cfg(feature = "cluster")]
impl ractor::Message for ServerMessage {}

/// What of a connection another config replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionUpdate {
    /// Nothing.
    None,
    /// The headers that it sends.
    Headers,
    /// The connection itself: the server is reached in another way.
    Reconnect,
    /// The connection, which is closed anyway: only what was learned of the server is forgotten.
    ForgetEra,
}

/// Where the outcome of a wish goes.
pub(crate) type ControlReply = oneshot::Sender<Result<(), ControlError>>;

/// What a connection task says.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// The first byte arrived.
    FirstByte,
    /// The handshake is done.
    Up {
        /// What the server said of itself.
        info: Arc<ServerPeerInfo>,
        /// The lists that it has.
        lists: Vec<ListKind>,
    },
    /// A batch of messages arrived.
    Inbound(InboundSummary),
    /// The connection broke or was told to close; what it had not answered comes back.
    Lost {
        /// Why.
        fault: Fault,
        /// The requests without an answer, and whether any of it may have reached the server.
        returned: Vec<(Box<Call>, bool)>,
    },
    /// The task is done; nothing of it is left.
    Ended(ConnectionEnd),
}

/// What one batch of inbound messages means to the machine.
#[derive(Debug, Default)]
pub(crate) struct InboundSummary {
    /// Calls that were answered.
    pub(crate) ended: Vec<(CallId, CallEnd)>,
    /// Calls that met trouble of their own, and come back.
    pub(crate) failed: Vec<FailedCall>,
    /// The server says that the session is gone, or that it no longer speaks its version.
    pub(crate) session_gone: Option<Fault>,
    /// Calls that made progress.
    pub(crate) progressed: Vec<CallId>,
    /// Lists that changed.
    pub(crate) changed: Vec<ListKind>,
    /// Subscriptions and log levels that the server confirmed.
    pub(crate) confirmed: Vec<ConfirmedSetting>,
    /// Messages that made no sense.
    pub(crate) strays: u64,
    /// Messages that came too many at once, and were dropped unread.
    pub(crate) dropped_flood: u64,
    /// Anything arrived at all.
    pub(crate) heard: bool,
}

/// A call that met trouble of its own while its connection lives.
#[derive(Debug)]
pub(crate) struct FailedCall {
    pub(crate) call: Box<Call>,
    pub(crate) trouble: RequestFailure,
    pub(crate) fault: Fault,
}

/// What a server agreed to keep doing, so that it can be restored on the next connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfirmedSetting {
    /// It reports changes of this resource.
    Subscribed(String),
    /// It no longer does.
    Unsubscribed(String),
    /// It logs from this level on.
    LogLevel(LoggingLevel),
}

/// Why a list could not be fetched.
#[derive(Debug)]
pub(crate) enum FetchFailure {
    /// The server answered with an error.
    Refused(String),
    /// No answer, or one that makes no sense.
    Failed(String),
}
