//! One connection to one server, as a stream of messages in each direction.
//!
//! A link knows how messages travel (pipes of a child, channels to a task), keeps their order,
//! bounds what it buffers and says why it ended. What a message means, which call waits for it and
//! when to open the next link is left to the connection task.

#![cfg_attr(
    all(feature = "stdio", not(feature = "http")),
    allow(dead_code, reason = "only a link over HTTP has single failures")
)]

#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) mod codec;
#[cfg(any(feature = "stdio", feature = "http"))]
mod cpu_quota;
#[cfg(any(feature = "stdio", feature = "http"))]
mod flood_gate;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod in_process;
pub(crate) mod limits;
pub(crate) mod stderr_ring;
#[cfg(feature = "stdio")]
pub(crate) mod stdio;

use std::future::Future;

use mcpvisor_core::machine::Action;
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ErrorData, ProtocolVersion, RequestId, ServerNotification, ServerRequest,
    ServerResult,
};

pub(crate) use self::stderr_ring::StderrRing;

/// One open connection.
///
/// It is owned by one task, which pushes, waits for what comes and closes it in the end. Dropping
/// it without [`Link::close`] ends the other side the hard way.
pub(crate) trait Link: Send {
    /// Queues a message, in order; nothing is awaited. Returns its position in the outgoing stream.
    ///
    /// The error says why the message cannot be sent at all.
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String>;

    /// Queues a request under its id. A link that writes bytes leaves the request where it is, so
    /// that it can be repeated without a copy; one that hands the message itself over takes it, and
    /// leaves a copy behind only if it is to be kept.
    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        keep: bool,
    ) -> Result<u64, String>;

    /// Everything pushed at a position below this was handed over, at least in part.
    fn sent(&self) -> u64;

    /// Whether any of a pending request may have reached the server.
    fn is_written(&self, _id: CallId, position: u64) -> bool {
        position < self.sent()
    }

    /// Nothing that was pushed at this position or behind it is written any more. Whoever asks for it
    /// has been told that it was not, and must be right.
    fn withdraw(&mut self, _from: u64) {}

    /// Whether there is room for another request. A link that has none may have some later.
    fn has_capacity(&self) -> bool {
        true
    }

    /// Both sides agreed on a version of the protocol.
    fn set_protocol_version(&mut self, _version: &ProtocolVersion) {}

    /// The headers of the endpoint are others now; the next request carries them.
    #[cfg(feature = "http")]
    fn update_endpoint(&mut self, _endpoint: &http::HttpEndpoint) {}

    /// Nobody waits for the answer to this request any more, and the server need not know.
    fn forget(&mut self, _id: CallId) {}

    /// Gives a pending request up at the server, which may have answered it already. Says whether any
    /// of it may have reached the server, or will.
    fn cancel(&mut self, id: CallId, reason: &str) -> bool {
        // What cannot be written any more needs no cancelling either.
        let _ = self.push(cancel_notification(id, reason));
        true
    }

    /// Writes what is queued and waits for the next message.
    ///
    /// Cancel-safe: all state lives in `self`. After an error, every further wait has that error.
    fn next(
        &mut self,
        pending: &impl PendingRequests,
    ) -> impl Future<Output = Result<Inbound, LinkDown>> + Send;

    /// A message that has arrived already, without waiting, so that the caller can work in batches.
    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound>;

    /// Closes it for good within the grace, by force where the other side does not go by itself.
    /// Cancel-safe: it may be begun again with another grace.
    ///
    /// The error says what was not clean. How a process ended is none, that it had to be killed is.
    fn close(&mut self, grace: CloseSettings) -> impl Future<Output = Result<(), String>> + Send;
}

/// The notification that gives a request up.
pub(crate) fn cancel_notification(id: CallId, reason: &str) -> ClientJsonRpcMessage {
    let param = CancelledNotificationParam::new(Some(request_id(id)), Some(reason.to_owned()));
    let cancelled = CancelledNotification::new(param);
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
}

/// Headers that are sent with one request where there are headers, beside those that the link sends
/// by itself. They travel in the request's extensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestHeaders(pub(crate) Vec<(String, String)>);

/// What kind of result a pending request expects.
///
/// Knowing it saves the decoder from trying every kind in turn, which is most of the work of
/// reading a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// A tool's result.
    CallTool,
    /// A page of tools.
    ListTools,
    /// A page of prompts.
    ListPrompts,
    /// A filled-in prompt.
    GetPrompt,
    /// A page of resources.
    ListResources,
    /// A page of resource templates.
    ListTemplates,
    /// A resource's contents.
    ReadResource,
    /// Proposals for an argument.
    Complete,
    /// The server's side of the handshake.
    Initialize,
    /// Which versions the server speaks.
    Discover,
    /// An acknowledgement, whatever it carries.
    Empty,
    /// Whatever the shape of the result says.
    Any,
}

impl ReplyKind {
    /// What the reply to a request should be.
    pub(crate) fn of(request: &ClientRequest) -> Self {
        match request {
            ClientRequest::CallToolRequest(_) => Self::CallTool,
            ClientRequest::ListToolsRequest(_) => Self::ListTools,
            ClientRequest::ListPromptsRequest(_) => Self::ListPrompts,
            ClientRequest::GetPromptRequest(_) => Self::GetPrompt,
            ClientRequest::ListResourcesRequest(_) => Self::ListResources,
            ClientRequest::ListResourceTemplatesRequest(_) => Self::ListTemplates,
            ClientRequest::ReadResourceRequest(_) => Self::ReadResource,
            ClientRequest::CompleteRequest(_) => Self::Complete,
            ClientRequest::InitializeRequest(_) => Self::Initialize,
            ClientRequest::DiscoverRequest(_) => Self::Discover,
            ClientRequest::PingRequest(_)
            | ClientRequest::SetLevelRequest(_)
            | ClientRequest::SubscribeRequest(_)
            | ClientRequest::UnsubscribeRequest(_) => Self::Empty,
            // Tasks, listening and what rmcp may add: the shape tells.
            _ => Self::Any,
        }
    }
}

/// Knows which requests are unanswered; implemented by the connection's table of pending calls.
pub(crate) trait PendingRequests: Sync {
    /// What the reply to this request should be, or nothing if no such request is pending.
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind>;

    /// All that is pending now, for a reader in another thread.
    #[cfg(any(feature = "stdio", feature = "http"))]
    fn snapshot(&self) -> PendingSnapshot;
}

/// What was pending at one moment. There are as many as calls in flight, so it is searched in order.
#[cfg(any(feature = "stdio", feature = "http"))]
#[derive(Debug, Clone)]
pub(crate) struct PendingSnapshot(pub(crate) Vec<(CallId, ReplyKind)>);

#[cfg(any(feature = "stdio", feature = "http"))]
impl PendingRequests for PendingSnapshot {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        let pending = self.0.iter().find(|(pending, _)| *pending == id);
        pending.map(|(_, kind)| *kind)
    }

    fn snapshot(&self) -> PendingSnapshot {
        self.clone()
    }
}

/// The id of a request on the wire. Calls are counted from 1, so the number never reaches the sign
/// bit.
pub(crate) fn request_id(call: CallId) -> RequestId {
    RequestId::Number(call.0 as i64)
}

/// The call that a reply's id belongs to, if it is one that we could have given: a number, or a
/// number in a string.
fn call_id(id: &RequestId) -> Option<CallId> {
    let number = match id {
        RequestId::Number(number) => u64::try_from(*number).ok()?,
        RequestId::String(text) => text.parse().ok()?,
    };
    Some(CallId(number))
}

/// Something that the server said.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// The answer to a pending request.
    Response {
        /// Which request.
        id: CallId,
        /// Its result, or the error that the server answered.
        result: Result<ServerResult, ErrorData>,
    },
    /// A pending request was answered with an error that may mean that its session is lost.
    PossibleSessionLoss {
        /// Which request.
        id: CallId,
        /// The error that the server answered.
        error: ErrorData,
    },
    /// An answer to a pending request that cannot be read.
    Unreadable {
        /// Which request.
        id: CallId,
        /// What is wrong with it.
        problem: String,
    },
    /// A pending request met trouble of its own; the link lives on.
    Failed {
        /// Which request.
        id: CallId,
        /// What happened to it.
        trouble: RequestFailure,
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// The error in the body, if there was one that can be read.
        error: Option<ErrorData>,
        /// A fragment that says it to a person.
        message: String,
    },
    /// The server says that the session is gone; pending requests hear of it themselves.
    SessionGone {
        /// What it said.
        message: String,
    },
    /// A request of the server to us.
    Request {
        /// The server's own id for it.
        id: RequestId,
        /// What it asks for.
        request: ServerRequest,
    },
    /// A notification.
    Notification(ServerNotification),
    /// Something that belongs to nothing: a banner, garbage, an unknown or missing id. Counted,
    /// never fatal.
    Stray {
        /// What it looks like.
        problem: String,
    },
    /// More came unasked than there is room for. It was not read.
    Dropped {
        /// Requests and notifications that are lost.
        messages: u64,
        /// Noise that nobody will miss.
        strays: u64,
        /// Lists that have changed, which is never lost.
        changed_lists: Vec<ListKind>,
        /// The first few of the requests, so that the server does not wait for them for ever.
        requests: Vec<(RequestId, RejectReason)>,
    },
    /// For a while nobody heard what the server says of its own accord.
    #[cfg(feature = "http")]
    NotificationsMissed,
}

#[cfg(feature = "http")]
impl Inbound {
    /// The request that it is the answer to.
    fn answers(&self) -> Option<CallId> {
        match self {
            Self::Response { id, .. }
            | Self::PossibleSessionLoss { id, .. }
            | Self::Unreadable { id, .. }
            | Self::Failed { id, .. } => Some(*id),
            _ => None,
        }
    }
}

/// Why a request of the server's was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "stdio", feature = "http")),
    allow(dead_code, reason = "in this process nothing is refused")
)]
pub(crate) enum RejectReason {
    /// It is too large.
    TooLarge,
    /// Too much came at once.
    TooMany,
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkDown {
    /// What kind of end it was.
    pub(crate) kind: DownKind,
    /// A fragment that says it to a person, such as "the process exited with code 3".
    pub(crate) message: String,
}

impl LinkDown {
    pub(crate) fn new(kind: DownKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// The kinds of ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DownKind {
    /// The process exited.
    Exited,
    /// The process was killed by a signal.
    Killed,
    /// The server closed its side.
    Closed,
    /// The server cannot be reached.
    Unreachable,
    /// The server no longer takes what is written.
    WriteFailed,
    /// The server broke a rule of the transport, such as the length of a line.
    Broken,
}

/// Why a link could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFailure {
    /// Whether retrying can help.
    pub(crate) class: OpenFailureClass,
    /// A fragment that says it to a person.
    pub(crate) message: String,
    /// What a person should do about it.
    pub(crate) action: Option<Action>,
}

/// The kinds of failures to open a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenFailureClass {
    /// There is no such command.
    CommandNotFound,
    /// The command is there but cannot be run as it is configured.
    NotExecutable,
    /// The address, a header or a certificate cannot be used.
    InvalidAddress,
    /// What proves who we are is missing.
    Unauthorized,
    /// Anything that may be different next time, such as a lack of descriptors or memory.
    Transient,
}
