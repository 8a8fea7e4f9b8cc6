//! A fleet of twenty servers, called from many tasks, with its events.
//!
//! `cargo run -p mcpvisor --example many_servers`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use mcpvisor::rmcp::handler::server::wrapper::Parameters;
use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{self, ErrorData, ServerHandler, schemars, tool, tool_handler, tool_router};
use mcpvisor::{Config, EventKind, Runtime, ServerConfig, StateName, Transport};
use serde_json::json;

#[derive(Clone)]
struct Adder(i64);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    number: i64,
}

#[tool_router]
impl Adder {
    #[tool(description = "Adds its own number")]
    async fn add(
        &self,
        Parameters(Number { number }): Parameters<Number>,
    ) -> Result<CallToolResult, ErrorData> {
        let sum = (self.0 + number).to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(sum)]))
    }
}

#[tool_handler]
impl ServerHandler for Adder {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::new();
    for number in 0..20 {
        let transport = Transport::in_process(Adder(number));
        config = config.server(ServerConfig::new(format!("adder-{number}"), transport)?);
    }
    let runtime = Runtime::builder().config(config).start().await?;
    let mut events = runtime.events();
    runtime.ready(Duration::from_secs(5)).await?;

    let mut connected = 0;
    while let Ok(Some(event)) = events.try_recv() {
        if let EventKind::StateChanged { to, .. } = &event.kind {
            connected += usize::from(*to == StateName::Connected);
        }
    }
    println!("{connected} servers connected");

    let mut tasks = Vec::new();
    for name in runtime.servers() {
        let server = runtime.server(name.as_str())?;
        tasks.push(tokio::spawn(async move {
            server.call_tool("add", json!({ "number": 100 })).await
        }));
    }
    for task in tasks {
        let result = task.await??;
        assert_eq!(result.is_error, Some(false));
    }
    println!("every one of them answered");

    // Disabling one server does not affect the others.
    runtime.disable("adder-7").await?;
    let off = runtime
        .server("adder-7")?
        .call_tool("add", json!({ "number": 1 }));
    if let Err(error) = off.await {
        println!("a disabled one says: {error}");
    }

    let report = runtime.shutdown(Duration::from_secs(5)).await;
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}
