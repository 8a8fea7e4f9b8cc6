//! Checks the structured result of a call against the output schema of its tool.

use std::sync::Arc;
use std::time::Instant;

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::Value;

use crate::api::error::{CallError, SchemaProblem, join};
use crate::config::ResultCheck;
use crate::log_limit::log_limited;
use crate::server::slot::ServerSlot;

/// Checks a result if its tool declares an output schema. The result stays as it is, unless it
/// becomes part of the error. A check that takes too long, or longer than the deadline of its call,
/// finds nothing: the tool ran, so its result is delivered.
pub(crate) async fn check(
    slot: &ServerSlot,
    mode: ResultCheck,
    tool: &str,
    result: &mut CallToolResult,
    due: Instant,
) -> Result<(), CallError> {
    if mode == ResultCheck::Off || result.is_error == Some(true) {
        return Ok(());
    }
    let catalog = slot.callers_catalog();
    let Some(schema) = catalog.tool(tool).and_then(|it| it.output_schema.as_ref()) else {
        return Ok(());
    };
    let problems = match result.structured_content.take() {
        Some(value) => {
            let (value, problems) = problems(slot, tool, schema, value, due).await;
            result.structured_content = Some(value);
            problems
        }
        None => vec![SchemaProblem {
            field: String::new(),
            problem: "structuredContent is missing".to_owned(),
        }],
    };
    if problems.is_empty() {
        return Ok(());
    }
    slot.published.count_invalid_result();
    if mode == ResultCheck::Fail {
        return Err(CallError::InvalidResult {
            server: slot.name().clone(),
            tool: tool.to_owned(),
            problems,
            result: Box::new(std::mem::take(result)),
        });
    }
    log_limited!(slot.log_limit, WARN, server = %slot.name(), tool, problems = %join(&problems, "; "), "a result does not match the output schema of its tool");
    Ok(())
}

/// The problems of a structured result, and the result.
async fn problems(
    slot: &ServerSlot,
    tool: &str,
    schema: &Arc<JsonObject>,
    value: Value,
    due: Instant,
) -> (Value, Vec<SchemaProblem>) {
    let value = Arc::new(value);
    let check = slot.result_checks.check(tool, schema, &value);
    let problems = tokio::time::timeout_at(due.into(), check).await;
    // Copied only if a check that timed out still holds it.
    (Arc::unwrap_or_clone(value), problems.unwrap_or_default())
}
