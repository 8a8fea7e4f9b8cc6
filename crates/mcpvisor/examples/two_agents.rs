//! Two agents share one fleet. Each has its own quota and a fair share of the queue.
//!
//! `cargo run -p mcpvisor --example two_agents`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::{Duration, Instant};

use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use mcpvisor::{Client, Runtime, ServerConfig, ServerSettings, Transport};
use serde_json::json;

#[derive(Clone)]
struct Slow;

#[tool_router]
impl Slow {
    #[tool(description = "Takes five milliseconds")]
    async fn work(&self) -> Result<CallToolResult, ErrorData> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]))
    }
}

#[tool_handler]
impl ServerHandler for Slow {}

/// Calls the tool many times concurrently. Returns the duration of the slowest call.
async fn work(agent: Client, calls: usize) -> Result<Duration, mcpvisor::CallError> {
    let Ok(server) = agent.server("slow") else {
        return Ok(Duration::ZERO);
    };
    let mut tasks = Vec::new();
    for _ in 0..calls {
        let server = server.clone();
        tasks.push(tokio::spawn(async move {
            let begin = Instant::now();
            server.call_tool("work", json!({})).await?;
            Ok(begin.elapsed())
        }));
    }
    let mut slowest = Duration::ZERO;
    for task in tasks {
        if let Ok(took) = task.await {
            slowest = slowest.max(took?);
        }
    }
    Ok(slowest)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 4;
    let server = ServerConfig::new("slow", Transport::in_process(Slow))?.settings(settings);
    let runtime = Runtime::builder().server(server).start().await?;
    runtime.ready(Duration::from_secs(5)).await?;

    // The greedy agent queues four hundred calls before the modest one makes four.
    let greedy = runtime.client("greedy").build();
    let modest = runtime.client("modest").quota(4).build();
    let greedy = tokio::spawn(work(greedy, 400));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let modest = work(modest, 4).await?;
    let greedy = greedy.await??;

    println!("slowest call of the greedy agent: {greedy:?}");
    println!("slowest call of the modest agent: {modest:?}");
    assert!(modest * 4 < greedy, "the line is fair between agents");

    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
