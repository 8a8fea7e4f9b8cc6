//! The server's end of an in-process connection.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use mcpvisor_core::Generation;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use tokio::sync::mpsc;

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
