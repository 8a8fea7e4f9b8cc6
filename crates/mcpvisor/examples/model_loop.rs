//! A model that calls tools: it gets the available tools, reads results and errors as text, and
//! gets the new tools when the fleet changes. The model here follows a script.
//!
//! `cargo run -p mcpvisor --example model_loop`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use futures_util::future::join_all;
use mcpvisor::for_model::{self, ModelText};
use mcpvisor::rmcp::model::{CallToolResult, ContentBlock};
use mcpvisor::rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use mcpvisor::{Client, Runtime, ServerConfig, Transport};
use serde_json::{Value, json};

#[derive(Clone)]
struct Weather;

#[tool_router]
impl Weather {
    #[tool(description = "The weather of today")]
    async fn today(&self) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("rain")]))
    }

    #[tool(description = "The weather of tomorrow")]
    async fn tomorrow(&self) -> Result<CallToolResult, ErrorData> {
        let said = ContentBlock::text("the satellite is asleep");
        Ok(CallToolResult::error(vec![said]))
    }
}

#[tool_handler]
impl ServerHandler for Weather {}

fn weather(name: &str) -> Result<ServerConfig, mcpvisor::InvalidServerName> {
    ServerConfig::new(name, Transport::in_process(Weather))
}

/// The calls of the model: every offered tool once, and one that does not exist.
fn model(tools: &[Value]) -> Vec<(String, Value)> {
    let offered = tools.iter().filter_map(|tool| tool["name"].as_str());
    let names = offered.chain(["weather__yesterday"]);
    names.map(|name| (name.to_owned(), json!({}))).collect()
}

/// Runs one call of the model and returns the text that it reads.
async fn answer(agent: &Client, tool: &str, arguments: Value) -> String {
    match agent.call(tool, arguments) {
        Ok(request) => request.deadline(Duration::from_secs(5)).await.model_text(),
        Err(unknown) => unknown.model_text(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder()
        .server(weather("weather")?)
        .start()
        .await?;
    runtime.ready(Duration::from_secs(5)).await?;

    let agent = runtime.client("agent").build();
    let mut changes = agent.catalog_changes();
    for turn in 1..=2 {
        let tools = for_model::anthropic_tools(changes.seen());
        println!("turn {turn}: {} tools", tools.len());
        let calls = model(&tools);
        let answers = calls
            .iter()
            .map(|(tool, arguments)| answer(&agent, tool, arguments.clone()));
        for ((tool, _), text) in calls.iter().zip(join_all(answers).await) {
            println!("  {tool}: {text}");
        }
        if turn == 1 {
            runtime.add(weather("other")?).await?;
            // Returns on the first change: the tools of the added server.
            changes.changed().await;
        }
    }
    assert_eq!(changes.seen().tool_count(), 4);

    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
