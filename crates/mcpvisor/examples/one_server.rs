//! One server in this process: configure it, call it, shut it down.
//!
//! `cargo run -p mcpvisor --example one_server`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use mcpvisor::{Runtime, ServerConfig, Transport};
use serde_json::json;

#[derive(Clone)]
struct Greeter;

#[tool_router]
impl Greeter {
    #[tool(description = "Says hello")]
    async fn hello(&self) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("hello")]))
    }
}

#[tool_handler]
impl ServerHandler for Greeter {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ServerConfig::new("greeter", Transport::in_process(Greeter))?;
    let runtime = Runtime::builder().server(server).start().await?;
    runtime.ready(Duration::from_secs(5)).await?;

    let greeter = runtime.server("greeter")?;
    println!("tools: {}", greeter.catalog().tools.len());
    let result = greeter.call_tool("hello", json!({})).await?;
    println!("answer: {}", serde_json::to_string(&result.content)?);

    let report = runtime.shutdown(Duration::from_secs(5)).await;
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}
