//! Runs rmcp's own server on the server's end of the channels.

use std::future::{Future, ready};
use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{RoleServer, serve_server};
use rmcp::transport::Transport;

use super::{ServeFn, ServerEnd};

/// Serves each connection with a service that is made for it.
pub(crate) fn serve_made<S>(make: impl Fn() -> S + Send + Sync + 'static) -> ServeFn
where
    S: rmcp::Service<RoleServer>,
{
    Arc::new(move |end| Box::pin(serve(make(), end)))
}

/// Runs until the client is gone. When this future is dropped, so is rmcp's guard, which cancels
/// the loop that rmcp spawned; a handler that ignores its cancellation token outlives both.
async fn serve<S: rmcp::Service<RoleServer>>(service: S, end: ServerEnd) {
    match serve_server(service, ServiceEnd(end)).await {
        Ok(running) => match running.waiting().await {
            Ok(reason) => tracing::debug!(?reason, "in-process server ended"),
            Err(error) => tracing::warn!(%error, "in-process server failed"),
        },
        Err(error) => tracing::debug!(%error, "in-process server had no handshake"),
    }
}

/// The client let go of the connection.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
struct ClientGone;

/// What rmcp's server talks to.
struct ServiceEnd(ServerEnd);

impl Transport<RoleServer> for ServiceEnd {
    type Error = ClientGone;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send + 'static {
        // Sent here and now, not when rmcp polls the future, so that the order is kept.
        ready(self.0.outgoing.send(message).map_err(|_| ClientGone))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.0.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), ClientGone> {
        self.0.incoming.close();
        Ok(())
    }
}
