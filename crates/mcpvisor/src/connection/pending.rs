//! The requests of one connection that are not answered yet.

use mcpvisor_core::machine::Fault;
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, CallMap};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ServerResult};
use tokio::sync::oneshot;

#[cfg(any(feature = "stdio", feature = "http"))]
use crate::link::PendingSnapshot;
use crate::link::{PendingRequests, ReplyKind};
use crate::server::call::Call;

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum Holder {
    /// A caller of the runtime's.
    Caller(Box<Call>),
    /// The one long request that listens for changes.
    Listen,
    /// The ping that decides whether the session is lost.
    SessionCheck,
    /// The runtime itself: a listing, a check, a restored subscription.
    Internal(oneshot::Sender<InternalReply>),
}

/// What the runtime's own requests get.
pub(crate) type InternalReply = Result<ServerResult, InternalFailure>;

/// Why a request of the runtime's own has no result.
#[derive(Debug)]
pub(crate) enum InternalFailure {
    /// The server answered with an error.
    Error(ErrorData),
    /// The reply cannot be read.
    Unreadable(String),
    /// It met trouble of its own.
    Failed {
        /// What happened to it.
        trouble: RequestFailure,
        /// The same for people.
        fault: Fault,
    },
}

/// A request of the runtime's own.
#[derive(Debug)]
pub(crate) struct InternalRequest {
    pub(crate) id: CallId,
    pub(crate) request: ClientRequest,
    pub(crate) answer: oneshot::Sender<InternalReply>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) reply_kind: ReplyKind,
    /// Where it stands in the outgoing stream.
    pub(crate) position: u64,
    pub(crate) holder: Holder,
}

/// The one table of unanswered requests.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    by_id: CallMap<Entry>,
}

impl Pending {
    pub(crate) fn insert(
        &mut self,
        id: CallId,
        reply_kind: ReplyKind,
        position: u64,
        holder: Holder,
    ) {
        let entry = Entry {
            reply_kind,
            position,
            holder,
        };
        self.by_id.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<Entry> {
        self.by_id.remove(&id)
    }

    pub(crate) fn caller(&self, id: CallId) -> Option<&Call> {
        match &self.by_id.get(&id)?.holder {
            Holder::Caller(call) => Some(call),
            Holder::Internal(_) | Holder::Listen | Holder::SessionCheck => None,
        }
    }

    /// The calls of callers that are unanswered.
    pub(crate) fn callers(&self) -> impl Iterator<Item = &Call> {
        self.by_id.values().filter_map(|entry| match &entry.holder {
            Holder::Caller(call) => Some(&**call),
            Holder::Internal(_) | Holder::Listen | Holder::SessionCheck => None,
        })
    }

    /// Everything that is left, oldest first.
    pub(crate) fn drain(&mut self) -> Vec<(CallId, Entry)> {
        let mut entries: Vec<(CallId, Entry)> = self.by_id.drain().collect();
        entries.sort_unstable_by_key(|(id, _)| *id);
        entries
    }
}

impl PendingRequests for Pending {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        self.by_id.get(&id).map(|entry| entry.reply_kind)
    }

    #[cfg(any(feature = "stdio", feature = "http"))]
    fn snapshot(&self) -> PendingSnapshot {
        let pending = self.by_id.iter();
        PendingSnapshot(pending.map(|(id, entry)| (*id, entry.reply_kind)).collect())
    }
}
