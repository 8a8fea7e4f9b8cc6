//! The link to an in-process server.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, Generation};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use tokio::sync::mpsc;

use super::server_end::{ServeFn, ServerEnd};
use super::server_task::ServerTask;
use crate::link::outgoing::{call_id, request_id};
use crate::link::{Inbound, Link, LinkDown, PendingRequests};

/// The client's end of an in-process connection, and the server's task.
#[derive(Debug)]
pub(crate) struct ChannelLink {
    /// `None` once it is closed.
    outgoing: Option<mpsc::UnboundedSender<ClientJsonRpcMessage>>,
    incoming: mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
    server: ServerTask,
    pushed: u64,
    sent: u64,
}

impl ChannelLink {
    /// Starts the server's task.
    pub(crate) fn open(serve: &ServeFn, generation: Generation) -> Self {
        let (outgoing, server_incoming) = mpsc::unbounded_channel();
        let (server_outgoing, incoming) = mpsc::unbounded_channel();
        let end = ServerEnd {
            incoming: server_incoming,
            outgoing: server_outgoing,
            generation,
        };
        let serve = Arc::clone(serve);
        Self {
            outgoing: Some(outgoing),
            incoming,
            // The closure is called within the task, so that its panic ends only the server.
            server: ServerTask::spawn(async move { serve(end).await }),
            pushed: 0,
            sent: 0,
        }
    }

    /// Sends a message, or returns it if the server is gone; `next` reports the end then.
    fn send(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        self.pushed += 1;
        let Some(outgoing) = &self.outgoing else {
            return Some(message);
        };
        match outgoing.send(message) {
            Ok(()) => {
                self.sent = self.pushed;
                None
            }
            Err(unsent) => Some(unsent.0),
        }
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        let mut received = self.incoming.poll_recv(cx);
        if received.is_pending() && self.server.poll_end(cx).is_ready() {
            // A handler of the ended server may still hold a sender, so the channel may stay open.
            received = Poll::Ready(self.incoming.try_recv().ok());
        }
        if let Some(message) = ready!(received) {
            return Poll::Ready(Ok(inbound(message, pending)));
        }
        self.server.poll_down(cx).map(Err)
    }
}

impl Link for ChannelLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        let position = self.pushed;
        let _ = self.send(message);
        Ok(position)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        keep_copy: bool,
    ) -> Result<u64, String> {
        let sent = if keep_copy {
            request.clone()
        } else {
            request.take()
        };
        let sent = sent.ok_or_else(|| "the request was already sent".to_owned())?;
        let position = self.pushed;
        let unsent = self.send(ClientJsonRpcMessage::request(sent, request_id(id)));
        if let Some(JsonRpcMessage::Request(unsent)) = unsent {
            // It may be sent on another connection.
            *request = Some(unsent.request);
        }
        Ok(position)
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn next(
        &mut self,
        pending: &impl PendingRequests,
    ) -> impl Future<Output = Result<Inbound, LinkDown>> + Send {
        poll_fn(|cx| self.poll_next(cx, pending))
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        let message = self.incoming.try_recv().ok()?;
        Some(inbound(message, pending))
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        // `incoming` stays open, so that sending a last reply does not fail.
        self.outgoing = None;
        if tokio::time::timeout(grace.stdin, self.server.end())
            .await
            .is_ok()
        {
            return Ok(());
        }
        self.server.abort();
        self.server.end().await;
        Err("the server did not end and was aborted".to_owned())
    }
}

fn inbound(message: ServerJsonRpcMessage, pending: &impl PendingRequests) -> Inbound {
    match message {
        JsonRpcMessage::Response(response) => reply(&response.id, Ok(response.result), pending),
        JsonRpcMessage::Error(error) => match error.id {
            Some(id) => reply(&id, Err(error.error), pending),
            None => Inbound::Stray {
                problem: format!("an error without an id: {}", error.error.message),
            },
        },
        JsonRpcMessage::Request(request) => Inbound::Request {
            id: request.id,
            request: request.request,
        },
        JsonRpcMessage::Notification(notification) => {
            Inbound::Notification(notification.notification)
        }
    }
}

fn reply(
    id: &RequestId,
    result: Result<ServerResult, ErrorData>,
    pending: &impl PendingRequests,
) -> Inbound {
    match call_id(id).filter(|id| pending.reply_kind(*id).is_some()) {
        Some(id) => Inbound::Response { id, result },
        None => Inbound::Stray {
            problem: format!("a reply to {id}, which is not pending"),
        },
    }
}
