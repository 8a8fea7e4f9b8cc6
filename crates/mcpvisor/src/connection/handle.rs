//! The server actor's handle to a connection: its command queue.

use std::sync::Arc;

use mcpvisor_core::machine::Outcome;
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ClientId, Generation, LogSeverity};
use rmcp::model::ClientRequest;
use tokio::sync::{mpsc, oneshot, watch};

use super::session::pending::{InternalReply, InternalRequest};
#[cfg(feature = "http")]
use crate::auth::Authorization;
#[cfg(feature = "http")]
use crate::link::http::HttpEndpoint;
use crate::server::active_config::ActiveConfig;
use crate::server::call::Call;
use crate::server::message::OutgoingNotification;
use crate::server::slot::ServerSlot;

/// A command from the actor to its connection task. Dropping the sender closes the connection.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send this call.
    Start(Box<Call>),
    /// Cancel a call or an internal request at the server, and answer it.
    Abandon {
        /// The request to cancel.
        call: CallId,
        /// What its caller gets.
        outcome: Box<Outcome>,
    },
    /// A client ended: the server learns what no client wants any more.
    ReleaseClient(ClientId),
    /// Clients set these log levels at another instance of the pool.
    AdoptLogLevels(Vec<(ClientId, LogSeverity)>),
    /// Send a notification.
    Notify(Box<OutgoingNotification>),
    /// Send an internal request.
    Internal(Box<InternalRequest>),
    /// Use the headers of this endpoint from now on.
    #[cfg(feature = "http")]
    UpdateHeaders(Box<HttpEndpoint>),
    /// Use this credential from now on.
    #[cfg(feature = "http")]
    UpdateAuthorization(Authorization),
    /// Close the connection.
    Close,
}

/// The actor's handle of its connection task. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    pub(crate) generation: Generation,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) slot: Arc<ServerSlot>,
    pub(super) grace: watch::Sender<CloseSettings>,
    /// The config that the connection was opened with.
    pub(crate) config: Arc<ActiveConfig>,
}

impl ConnectionHandle {
    /// Queues a command, or returns it if the connection accepts no more.
    pub(crate) fn send(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|error| error.0)
    }

    /// Closes the connection. A second call replaces the grace periods of the first.
    pub(crate) fn close(&self, grace: CloseSettings) {
        let _ = self.grace.send(grace);
        let _ = self.commands.send(Command::Close);
    }

    /// A sender of internal requests that does not keep the connection open.
    pub(crate) fn internal_requests(&self) -> InternalRequestSender {
        InternalRequestSender {
            commands: self.commands.downgrade(),
            slot: Arc::clone(&self.slot),
        }
    }
}

/// Sends internal requests while the connection is open.
#[derive(Debug, Clone)]
pub(crate) struct InternalRequestSender {
    commands: mpsc::WeakUnboundedSender<Command>,
    /// Allocates the ids.
    slot: Arc<ServerSlot>,
}

impl InternalRequestSender {
    /// Sends a request and waits for its reply. `None`: the connection ended first. Dropping the
    /// future cancels the request at the server.
    pub(crate) async fn request(&self, request: ClientRequest) -> Option<InternalReply> {
        self.send(request)?.reply().await
    }

    /// Queues a request. Commands sent after this call are processed after it.
    pub(crate) fn send(&self, request: ClientRequest) -> Option<SentRequest<'_>> {
        let (sender, reply) = oneshot::channel();
        let id = self.slot.calls.next_id();
        let internal = InternalRequest {
            id,
            request,
            reply: sender,
        };
        let commands = self.commands.upgrade()?;
        commands.send(Command::Internal(Box::new(internal))).ok()?;
        Some(SentRequest {
            id: Some(id),
            commands: &self.commands,
            reply,
        })
    }
}

/// An internal request that was sent. Dropping it before its reply cancels the request.
pub(crate) struct SentRequest<'a> {
    /// `None` once the request has ended.
    id: Option<CallId>,
    commands: &'a mpsc::WeakUnboundedSender<Command>,
    reply: oneshot::Receiver<InternalReply>,
}

impl SentRequest<'_> {
    /// Waits for the reply. `None`: the connection ended first.
    pub(crate) async fn reply(mut self) -> Option<InternalReply> {
        let reply = (&mut self.reply).await.ok();
        self.id = None;
        reply
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.id
            && let Some(commands) = self.commands.upgrade()
        {
            let outcome = Box::new(Outcome::Cancelled);
            let _ = commands.send(Command::Abandon { call, outcome });
        }
    }
}
