//! A server is killed during a call and reconnects automatically.
//!
//! `cargo run -p mcpvisor --example crash_and_recovery`
//!
//! The program is its own server: started with `serve`, it serves MCP on its stdin and stdout.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::{Duration, Instant};

use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{ErrorData, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use mcpvisor::{CallError, Runtime, ServerConfig, Transport};
use serde_json::json;

#[derive(Clone)]
struct Fragile;

#[tool_router]
impl Fragile {
    #[tool(description = "Answers with the number of its process")]
    async fn pid(&self) -> Result<CallToolResult, ErrorData> {
        let pid = std::process::id().to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(pid)]))
    }

    #[tool(description = "Dies instead of answering")]
    async fn die(&self) -> Result<CallToolResult, ErrorData> {
        std::process::abort()
    }
}

#[tool_handler]
impl ServerHandler for Fragile {}

fn pid(result: &CallToolResult) -> String {
    let text = result.content.first().and_then(|block| block.as_text());
    text.map(|text| text.text.clone()).unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let stdio = (tokio::io::stdin(), tokio::io::stdout());
        Fragile.serve(stdio).await?.waiting().await?;
        return Ok(());
    }
    let command = Transport::stdio(std::env::current_exe()?).arg("serve");
    let runtime = Runtime::builder()
        .server(ServerConfig::new("fragile", command)?)
        .start()
        .await?;
    let fragile = runtime.server("fragile")?;

    let before = pid(&fragile.call_tool("pid", json!({})).await?);
    println!(
        "generation {}: process {before}",
        fragile.status().generation
    );

    // The call was sent and its outcome is unknown, so it is not retried.
    match fragile.call_tool("die", json!({})).await {
        Err(CallError::OutcomeUnknown { cause, .. }) => println!("outcome unknown: {cause}"),
        other => return Err(format!("expected an unknown outcome, got {other:?}").into()),
    }

    // The next call waits for the new process.
    let begin = Instant::now();
    let after = pid(&fragile.call_tool("pid", json!({})).await?);
    let generation = fragile.status().generation;
    println!(
        "generation {generation}: process {after}, {:?} later",
        begin.elapsed()
    );
    assert_ne!(before, after);

    let report = runtime.shutdown(Duration::from_secs(5)).await;
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}
