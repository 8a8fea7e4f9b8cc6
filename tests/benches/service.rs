//! The server that both sides call: three small tools, the same type over a pipe and in-process.
//!
//! Independent of the client.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio_pipes;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

use crate::Outcome;

/// A server with the tools `echo` (its `text`), `sleep` (for `ms`) and `pid`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchServer;

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        Tool::new("echo", "gives the text back", schema("text", "string")),
        Tool::new("sleep", "answers after a while", schema("ms", "integer")),
        Tool::new("pid", "names its process", schema("any", "string")),
    ]
});

fn schema(argument: &str, kind: &str) -> Arc<JsonObject> {
    let schema = json!({ "type": "object", "properties": { argument: { "type": kind } } });
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

impl ServerHandler for BenchServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut arguments = request.arguments.unwrap_or_default();
        let text = match request.name.as_ref() {
            "echo" => match arguments.remove("text") {
                Some(Value::String(text)) => text,
                _ => return Err(ErrorData::invalid_params("text is missing", None)),
            },
            "sleep" => {
                let millis = arguments.get("ms").and_then(Value::as_u64).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                "slept".to_owned()
            }
            "pid" => std::process::id().to_string(),
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Serves on stdin and stdout until the client disconnects.
pub(crate) async fn serve_stdio() -> Outcome<()> {
    BenchServer.serve(stdio_pipes()).await?.waiting().await?;
    Ok(())
}
