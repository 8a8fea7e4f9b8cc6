//! The link to an in-process server, the server's end of it, and the task that runs the server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, Generation};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Sleep;

use crate::api::raw::typed_request;
use crate::link::outgoing::{call_id, request_id};
use crate::link::{DownKind, Inbound, Link, LinkDown, PendingRequests};

/// How long to wait for the end of a server that closed its channel, to report a panic.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// The server's end of an in-process connection.
///
/// The connection lasts until the server's future ends or drops `outgoing`, or until `incoming`
/// ends because the client closed it.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerEnd {
    /// Messages from the client.
    pub incoming: mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
    /// Messages to the client.
    pub outgoing: mpsc::UnboundedSender<ServerJsonRpcMessage>,
    /// The generation of this connection.
    pub generation: Generation,
}

/// Runs the server's end of one connection; called once per generation.
pub(crate) type ServeFn = Arc<dyn Fn(ServerEnd) -> BoxFuture<'static, ()> + Send + Sync>;

/// Serves each connection with an async function.
pub(crate) fn serve_fn<F, Fut>(serve: F) -> ServeFn
where
    F: Fn(ServerEnd) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |end| Box::pin(serve(end)))
}

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
            server: ServerTask {
                task: tokio::spawn(async move { serve(end).await }),
                ended: None,
                drain_timer: None,
            },
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
        let mut sent = sent.ok_or_else(|| "the request was already sent".to_owned())?;
        // A service of rmcp knows the protocol's methods only as its types.
        if let ClientRequest::CustomRequest(raw) = &sent
            && let Ok(typed) = typed_request(raw)
        {
            sent = typed;
        }
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
        self.server.task.abort();
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
            cause: None,
        },
        JsonRpcMessage::Notification(notification) => Inbound::Notification {
            notification: notification.notification,
            cause: None,
        },
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

/// The server's task; aborted when dropped.
#[derive(Debug)]
struct ServerTask {
    task: JoinHandle<()>,
    ended: Option<LinkDown>,
    drain_timer: Option<Pin<Box<Sleep>>>,
}

impl ServerTask {
    /// Waits for the task to end.
    async fn end(&mut self) {
        poll_fn(|cx| self.poll_end(cx)).await;
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_none() {
            let result = ready!(Pin::new(&mut self.task).poll(cx));
            self.ended = Some(LinkDown::new(DownKind::Closed, describe_end(result)));
        }
        Poll::Ready(())
    }

    /// Why the server sends no more messages: its task ended, or it dropped its sender.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if self.poll_end(cx).is_pending() {
            let drain_timer = self
                .drain_timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
            ready!(drain_timer.as_mut().poll(cx));
        }
        let closed = || LinkDown::new(DownKind::Closed, "the server closed its channel");
        Poll::Ready(self.ended.clone().unwrap_or_else(closed))
    }
}

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn describe_end(result: Result<(), JoinError>) -> String {
    let Err(error) = result else {
        return "the server ended".to_owned();
    };
    let Ok(panic) = error.try_into_panic() else {
        return "the server was aborted".to_owned();
    };
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => format!("the server panicked: {text}"),
        None => "the server panicked".to_owned(),
    }
}
