//! `clock`: an in-process server, reached over typed channels.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rmcp::model::CallToolResult;
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use serde_json::json;

#[derive(Debug, Clone)]
pub(crate) struct Clock {
    started: Instant,
}

#[tool_router]
impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// Tell the time.
    #[tool(annotations(read_only_hint = true))]
    async fn now(&self) -> CallToolResult {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        CallToolResult::structured(json!({
            "unix_seconds": since.as_secs(),
            "uptime_ms": self.started.elapsed().as_millis() as u64,
        }))
    }
}

#[tool_handler(name = "clock", version = "1.0.0")]
impl ServerHandler for Clock {}
