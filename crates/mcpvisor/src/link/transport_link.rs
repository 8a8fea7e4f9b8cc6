//! The trait that every transport implements.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ProtocolVersion};

use super::outgoing::cancel_notification;
use super::{Inbound, LinkDown, PendingRequests};
#[cfg(feature = "http")]
use crate::auth::Authorization;

/// One open connection to one server. Implement this for a new transport, and open the link where
/// the connection task is spawned (`connection/task.rs`).
///
/// One connection task owns the link: it pushes messages, waits for inbound ones and closes the
/// link at the end. Dropping a link without [`Link::close`] kills the other side.
pub(crate) trait Link: Send {
    /// Queues a message in order, without waiting. Returns its position in the outgoing stream, in
    /// whatever unit [`Link::sent`] counts.
    ///
    /// The error says why the message can never be sent.
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String>;

    /// Queues a request under its id. A link that writes bytes leaves the request in place, so that
    /// a retry needs no copy. A link that sends the message itself takes it, and leaves a copy only
    /// if `keep_copy` is set.
    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        keep_copy: bool,
    ) -> Result<u64, String>;

    /// The end of the sent part of the outgoing stream: messages at lower positions were sent, at
    /// least in part.
    fn sent(&self) -> u64;

    /// Whether any part of a pending request may have reached the server.
    fn is_written(&self, _id: CallId, position: u64) -> bool {
        position < self.sent()
    }

    /// Discards unsent messages at this position and after. Their callers were answered that
    /// nothing was sent, so they must not be sent later. The default is right only for a link
    /// without a queue.
    fn withdraw(&mut self, _from: u64) {}

    /// Whether another request can be queued now.
    fn has_capacity(&self) -> bool {
        true
    }

    /// Whether the transport exists only in the legacy era.
    fn is_legacy(&self) -> bool {
        false
    }

    /// Sets the protocol version that both sides agreed on.
    fn set_protocol_version(&mut self, _version: &ProtocolVersion) {}

    /// Replaces the headers of the endpoint; the next request carries the new ones.
    #[cfg(feature = "http")]
    fn update_endpoint(&mut self, _endpoint: &super::http::HttpEndpoint) {}

    /// Uses this credential for requests from now on.
    #[cfg(feature = "http")]
    fn update_authorization(&mut self, _authorization: Authorization) {}

    /// Stops waiting for the reply to a request, without notifying the server.
    fn forget(&mut self, _id: CallId) {}

    /// Cancels a pending request at the server, which may have answered it already. Returns whether
    /// any part of the request may have reached the server, or still will.
    fn cancel(&mut self, id: CallId, reason: &str) -> bool {
        // If the notification cannot be sent, the connection is ending and cancels the request.
        let _ = self.push(cancel_notification(id, reason));
        true
    }

    /// Writes queued messages and polls for the next inbound one. After an error, every further
    /// call returns that error.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>>;

    /// Writes queued messages and waits for the next inbound one. Cancel-safe: all state lives in
    /// `self`.
    fn next(
        &mut self,
        pending: &impl PendingRequests,
    ) -> impl Future<Output = Result<Inbound, LinkDown>> + Send {
        poll_fn(move |cx| self.poll_next(cx, pending))
    }

    /// Returns an inbound message that already arrived, without waiting, so that the caller can
    /// process messages in batches.
    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound>;

    /// Closes the link within the grace periods, by force if the other side does not end itself.
    /// Cancel-safe: it may be called again with other grace periods.
    ///
    /// The error says what was not clean: that a process had to be killed, for example, but not the
    /// exit code of a process.
    fn close(&mut self, grace: CloseSettings) -> impl Future<Output = Result<(), String>> + Send;
}
