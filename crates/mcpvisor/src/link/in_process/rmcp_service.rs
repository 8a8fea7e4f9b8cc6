//! Serves an in-process connection with an rmcp service.

use std::borrow::Cow;
use std::future::{Future, ready};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ProtocolVersion, ServerConfig,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, serve_server};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

use super::{ServeFn, ServerEnd};

/// Serves each connection with a new service.
pub(crate) fn serve_made<S>(make: impl Fn() -> S + Send + Sync + 'static) -> ServeFn
where
    S: rmcp::Service<RoleServer>,
{
    Arc::new(move |end| Box::pin(serve(make(), end)))
}

/// Runs until the client closes the connection. Dropping this future drops rmcp's guard, which
/// cancels the loop that rmcp spawned, and ours, which cancels the handlers.
async fn serve<S: rmcp::Service<RoleServer>>(service: S, end: ServerEnd) {
    let ended = CancellationToken::new();
    let _ended = ended.clone().drop_guard();
    let guarded = Guarded { service, ended };
    match serve_server(guarded, ServiceEnd(end)).await {
        Ok(running) => match running.waiting().await {
            Ok(reason) => tracing::debug!(?reason, "in-process server ended"),
            Err(error) => tracing::warn!(%error, "in-process server failed"),
        },
        Err(error) => tracing::debug!(%error, "in-process server failed its handshake"),
    }
}

/// A service whose handlers reply even if they panic, and are cancelled with their connection. rmcp
/// runs each handler in its own task, which it neither watches nor cancels.
struct Guarded<S> {
    service: S,
    ended: CancellationToken,
}

impl<S: rmcp::Service<RoleServer>> rmcp::Service<RoleServer> for Guarded<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        // The handler may panic before it returns its future.
        let handled = async { self.service.handle_request(request, context).await };
        let handled = AssertUnwindSafe(handled).catch_unwind();
        tokio::select! {
            biased;
            handled = handled => handled.unwrap_or_else(|_| {
                tracing::warn!("a handler of an in-process server panicked");
                Err(ErrorData::internal_error("the handler panicked", None))
            }),
            () = self.ended.cancelled() => Err(ErrorData::internal_error("the connection ended", None)),
        }
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tokio::select! {
            biased;
            handled = self.service.handle_notification(notification, context) => handled,
            () = self.ended.cancelled() => Ok(()),
        }
    }

    fn get_info(&self) -> ServerConfig {
        self.service.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.service.supported_protocol_versions()
    }
}

/// The client closed the connection.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
struct ClientGone;

/// The transport of rmcp's server.
struct ServiceEnd(ServerEnd);

impl Transport<RoleServer> for ServiceEnd {
    type Error = ClientGone;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send + 'static {
        // Sends now, not when rmcp polls the future, to preserve the order.
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
