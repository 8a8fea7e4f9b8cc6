//! `lab`: one tool for each way a tool can misbehave.

use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::schemars::JsonSchema;
use rmcp::{ErrorData, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone)]
pub(super) struct Lab;

/// The arguments of `echo`: one of each type.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Echo {
    text: String,
    count: i64,
    share: f64,
    flag: bool,
    tags: Vec<String>,
    more: serde_json::Map<String, serde_json::Value>,
}

/// The arguments of `sleep`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Sleep {
    /// How long.
    ms: u64,
}

#[tool_router]
impl Lab {
    /// Answer with the arguments.
    #[tool(annotations(read_only_hint = true))]
    async fn echo(&self, Parameters(echo): Parameters<Echo>) -> Result<CallToolResult, ErrorData> {
        let value = serde_json::to_value(echo)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(CallToolResult::structured(value))
    }

    /// Answer late.
    #[tool]
    async fn sleep(&self, Parameters(sleep): Parameters<Sleep>) -> String {
        tokio::time::sleep(Duration::from_millis(sleep.ms)).await;
        format!("slept {} ms", sleep.ms)
    }

    /// Run, and report a failure as a result.
    #[tool]
    async fn fail(&self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text("this tool always fails")])
    }

    /// Answer with a protocol error.
    #[tool]
    async fn refuse(&self) -> Result<CallToolResult, ErrorData> {
        Err(ErrorData::invalid_params(
            "this tool refuses every argument",
            None,
        ))
    }

    /// Die without an answer.
    #[tool]
    async fn crash(&self) -> String {
        std::process::exit(70)
    }

    /// Answer with a text that tries to repaint the terminal.
    #[tool]
    async fn paint(&self) -> String {
        "clear\u{1b}[2J and \u{202e}reverse".to_owned()
    }

    /// Tell the process.
    #[tool(annotations(read_only_hint = true))]
    async fn pid(&self) -> String {
        std::process::id().to_string()
    }
}

#[tool_handler(name = "lab", version = "1.0.0")]
impl ServerHandler for Lab {}
