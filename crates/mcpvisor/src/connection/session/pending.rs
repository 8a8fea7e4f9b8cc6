//! The pending table: the requests of one connection that have no reply yet.

use mcpvisor_core::machine::Fault;
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, CallMap};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ServerResult};
use tokio::sync::oneshot;

use crate::link::{PendingRequests, PendingSnapshot, ReplyKind};
use crate::server::call::Call;

/// What sent a request and gets its reply.
#[derive(Debug)]
pub(crate) enum Requester {
    /// A caller.
    Caller(Box<Call>),
    /// `subscriptions/listen`, the long request for change notifications.
    Listen,
    /// The ping that decides whether the session is lost.
    SessionCheck,
    /// The server actor: a listing, a health check, a restored subscription.
    Internal(oneshot::Sender<InternalReply>),
}

/// The reply to an internal request.
pub(crate) type InternalReply = Result<ServerResult, InternalFailure>;

/// Why an internal request has no result.
#[derive(Debug)]
pub(crate) enum InternalFailure {
    /// The server answered with an error.
    Error(ErrorData),
    /// The reply cannot be read.
    Unreadable(String),
    /// The request failed without a reply.
    Failed {
        /// How it failed.
        failure: RequestFailure,
        /// The fault to show.
        fault: Fault,
    },
}

/// A request of the runtime itself.
#[derive(Debug)]
pub(crate) struct InternalRequest {
    pub(crate) id: CallId,
    pub(crate) request: ClientRequest,
    pub(crate) reply: oneshot::Sender<InternalReply>,
}

#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) reply_kind: ReplyKind,
    /// The position in the outgoing stream.
    pub(crate) position: u64,
    pub(crate) requester: Requester,
}

impl PendingRequest {
    fn call(&self) -> Option<&Call> {
        match &self.requester {
            Requester::Caller(call) => Some(call),
            Requester::Internal(_) | Requester::Listen | Requester::SessionCheck => None,
        }
    }

    /// The id of the call, if the id on the wire is another one.
    fn resent_call(&self, wire_id: CallId) -> Option<CallId> {
        let call = self.call()?.id;
        (call != wire_id).then_some(call)
    }
}

/// All pending requests, by their id on the wire.
#[derive(Debug, Default)]
pub(crate) struct PendingTable {
    by_id: CallMap<PendingRequest>,
    /// The ids on the wire of calls that were sent again, by call.
    resent: CallMap<CallId>,
}

impl PendingTable {
    pub(crate) fn insert(
        &mut self,
        id: CallId,
        reply_kind: ReplyKind,
        position: u64,
        requester: Requester,
    ) {
        let request = PendingRequest {
            reply_kind,
            position,
            requester,
        };
        if let Some(call) = request.resent_call(id) {
            self.resent.insert(call, id);
        }
        self.by_id.insert(id, request);
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<PendingRequest> {
        let request = self.by_id.remove(&id)?;
        if let Some(call) = request.resent_call(id) {
            self.resent.remove(&call);
        }
        Some(request)
    }

    /// The id on the wire of a call or an internal request.
    pub(super) fn wire_id(&self, call: CallId) -> CallId {
        self.resent.get(&call).copied().unwrap_or(call)
    }

    /// The pending call with this id on the wire.
    pub(super) fn call(&self, id: CallId) -> Option<&Call> {
        self.by_id.get(&id)?.call()
    }

    /// All pending calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.by_id.values().filter_map(PendingRequest::call)
    }

    /// All pending calls with their ids on the wire.
    pub(super) fn calls_by_wire_id(&self) -> impl Iterator<Item = (CallId, &Call)> {
        let by_id = self.by_id.iter();
        by_id.filter_map(|(id, request)| Some((*id, request.call()?)))
    }

    /// Whether a request of the runtime itself is pending under this id.
    pub(super) fn is_internal(&self, id: CallId) -> bool {
        let request = self.by_id.get(&id);
        request.is_some_and(|request| request.call().is_none())
    }

    /// Removes all requests, oldest first.
    pub(super) fn drain(&mut self) -> Vec<(CallId, PendingRequest)> {
        let mut requests: Vec<_> = self.by_id.drain().collect();
        requests.sort_unstable_by_key(|(id, _)| *id);
        requests
    }
}

impl PendingRequests for PendingTable {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        self.by_id.get(&id).map(|request| request.reply_kind)
    }

    fn snapshot(&self) -> PendingSnapshot {
        let by_id = self.by_id.iter();
        let pending = by_id.map(|(id, request)| (*id, request.reply_kind));
        PendingSnapshot(pending.collect())
    }
}
