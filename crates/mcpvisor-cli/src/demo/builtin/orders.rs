//! `orders`: an HTTP server that stores orders, one per line of a file, and can be made to drop its
//! sessions.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::JsonSchema;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::journal::append_line;

/// How often the flag file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub(super) struct Orders {
    /// One order per line.
    pub(super) file: PathBuf,
}

/// The arguments of `place`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Place {
    /// The item, one line.
    item: String,
}

#[tool_router]
impl Orders {
    /// Place an order.
    #[tool(annotations(read_only_hint = false, idempotent_hint = false))]
    async fn place(
        &self,
        Parameters(order): Parameters<Place>,
    ) -> Result<CallToolResult, ErrorData> {
        append_line(&self.file, &order.item).map_err(|error| {
            ErrorData::internal_error(format!("cannot store the order: {error}"), None)
        })?;
        Ok(CallToolResult::structured(json!({
            "placed": order.item,
            "pid": std::process::id(),
        })))
    }
}

#[tool_handler(name = "orders", version = "1.0.0")]
impl ServerHandler for Orders {}

/// Serves over HTTP until stdin closes, which its parent holds open.
pub(super) async fn serve(
    orders: Orders,
    listen: SocketAddr,
    forget_when: Option<PathBuf>,
) -> Result<(), String> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(
        move || Ok(orders.clone()),
        Arc::clone(&sessions),
        StreamableHttpServerConfig::default(),
    );
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| format!("{listen}: {error}"))?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    if let Some(flag) = forget_when {
        tokio::spawn(forget(flag, sessions));
    }
    end_with_parent();
    let served = axum::serve(listener, Router::new().nest_service("/mcp", service)).await;
    served.map_err(|error| error.to_string())
}

/// Drops all sessions whenever the file appears, and removes it. Requests in flight still finish.
async fn forget(flag: PathBuf, sessions: Arc<LocalSessionManager>) {
    let mut forgotten = Vec::new();
    loop {
        if flag.exists() {
            forgotten.push(std::mem::take(&mut *sessions.sessions.write().await));
            let _ = std::fs::remove_file(&flag);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Exits when stdin closes, however the parent ended.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut nothing = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut nothing);
        std::process::exit(0);
    });
}
