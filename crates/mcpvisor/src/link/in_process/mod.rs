//! Links to servers that live in this process, over typed channels and without any JSON.
//!
//! The channels are unbounded: what travels to the server is bounded by the admission of calls, and
//! what comes back is code of the same program, which can exhaust its memory without our help.

#[cfg(feature = "in-process")]
mod service;

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

#[cfg(feature = "in-process")]
pub(crate) use self::service::serve_made;
use super::{DownKind, Inbound, Link, LinkDown, PendingRequests, request_id};

/// How long a server that closed its channel may take to end, so that its panic can be told.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The server's end of an in-process connection.
///
/// The connection lasts until the server's future ends or drops `outgoing`, or until `incoming` has
/// no more messages because the client closed it.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerEnd {
    /// What the client says.
    pub incoming: mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
    /// What the server says.
    pub outgoing: mpsc::UnboundedSender<ServerJsonRpcMessage>,
    /// Which connection of this server it is.
    pub generation: Generation,
}

/// Runs the server's end of one connection; called once per generation.
pub(crate) type ServeFn = Arc<dyn Fn(ServerEnd) -> BoxFuture<'static, ()> + Send + Sync>;

/// Serves each connection with a function of the server's end.
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
    /// Until it is closed.
    outgoing: Option<mpsc::UnboundedSender<ClientJsonRpcMessage>>,
    incoming: mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
    server: Server,
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
            // The closure runs in the task, so that its panic is the server's own.
            server: Server {
                task: tokio::spawn(async move { serve(end).await }),
                ended: None,
                last_words: None,
            },
            pushed: 0,
            sent: 0,
        }
    }

    /// Hands a message to the server, or back when the server is gone: nothing is sent any more
    /// then, and `next` says so.
    fn give(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
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
            // A handler of the ended server may still hold its sender, so the channel may not end.
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
        let _ = self.give(message);
        Ok(position)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        keep: bool,
    ) -> Result<u64, String> {
        let given = if keep {
            request.clone()
        } else {
            request.take()
        };
        let given = given.ok_or_else(|| "the request is gone".to_owned())?;
        let position = self.pushed;
        let unsent = self.give(ClientJsonRpcMessage::request(given, request_id(id)));
        if let Some(JsonRpcMessage::Request(unsent)) = unsent {
            // It was not sent, so it may be sent on another connection.
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
        // The incoming end stays open, so that a last reply is no error to the server.
        self.outgoing = None;
        if tokio::time::timeout(grace.stdin, self.server.end())
            .await
            .is_ok()
        {
            return Ok(());
        }
        self.server.task.abort();
        self.server.end().await;
        Err("the server did not end by itself and was aborted".to_owned())
    }
}

/// The server's task; aborted when dropped.
#[derive(Debug)]
struct Server {
    task: JoinHandle<()>,
    ended: Option<LinkDown>,
    last_words: Option<Pin<Box<Sleep>>>,
}

impl Server {
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

    /// Why the server sends nothing more: it ended, or it let go of its channel.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if self.poll_end(cx).is_pending() {
            let last_words = self
                .last_words
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(LAST_WORDS)));
            ready!(last_words.as_mut().poll(cx));
        }
        Poll::Ready(
            self.ended.clone().unwrap_or_else(|| {
                LinkDown::new(DownKind::Closed, "the server closed its channel")
            }),
        )
    }
}

impl Drop for Server {
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
    match super::call_id(id).filter(|id| pending.reply_kind(*id).is_some()) {
        Some(id) => Inbound::Response { id, result },
        None => Inbound::Stray {
            problem: format!("a reply to {id}, which nothing waits for"),
        },
    }
}

#[cfg(test)]
mod tests;
