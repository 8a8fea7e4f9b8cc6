//! Decodes results, errors, requests and notifications as rmcp types.

use std::borrow::Cow;

use rmcp::model::{
    CallToolResult, CancelledNotification, CompleteResult, CustomResult, EmptyResult, ErrorCode,
    ErrorData, GetPromptResult, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, ProgressNotification, ReadResourceResult,
    ResourceUpdatedNotification, ServerNotification, ServerResult,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::weigh::LARGE_LINE;
use crate::link::ReplyKind;
use crate::unknown_fields::{self, Whole};

/// Decodes a result as the expected kind, and as any kind that rmcp knows if that fails: a request
/// for input, a task, a custom result. Those are small. A large result is decoded only as the
/// expected kind, because rmcp would hold it in memory twice while it tries the kinds.
pub(super) fn decode_result(kind: ReplyKind, text: &str) -> serde_json::Result<ServerResult> {
    let expected = match kind {
        ReplyKind::CallTool => whole::<CallToolResult>(text),
        ReplyKind::ListTools => whole::<ListToolsResult>(text),
        ReplyKind::ListPrompts => whole::<ListPromptsResult>(text),
        ReplyKind::GetPrompt => whole::<GetPromptResult>(text),
        ReplyKind::ListResources => whole::<ListResourcesResult>(text),
        ReplyKind::ListTemplates => whole::<ListResourceTemplatesResult>(text),
        ReplyKind::ReadResource => whole::<ReadResourceResult>(text),
        ReplyKind::Complete => typed::<CompleteResult>(text),
        ReplyKind::Initialize => whole::<InitializeResult>(text),
        ReplyKind::Raw => return serde_json::from_str(text).map(|it| CustomResult(it).into()),
        // The content of an acknowledgement is not used.
        ReplyKind::Empty if text.starts_with('{') || text == "null" => Ok(EmptyResult {}.into()),
        ReplyKind::Discover | ReplyKind::Empty | ReplyKind::Any => {
            return serde_json::from_str(text);
        }
    };
    // The first error names a field; the error of the untagged union only says that nothing
    // matched.
    expected.or_else(|problem| match text.len() {
        ..=LARGE_LINE => serde_json::from_str(text).map_err(|_| problem),
        _ => Err(problem),
    })
}

fn typed<R: DeserializeOwned + Into<ServerResult>>(text: &str) -> serde_json::Result<ServerResult> {
    serde_json::from_str::<R>(text).map(Into::into)
}

/// Decodes a result with the members that rmcp drops.
fn whole<R: Whole + Into<ServerResult>>(text: &str) -> serde_json::Result<ServerResult> {
    unknown_fields::from_text::<R>(text).map(Into::into)
}

/// Decodes an error leniently: some servers omit the code or the message, write the code as a
/// string, or send a string instead of an error object.
pub(super) fn decode_error(text: &str) -> serde_json::Result<ErrorData> {
    #[derive(Deserialize)]
    struct Lenient {
        code: Option<Value>,
        message: Option<Value>,
        data: Option<Value>,
    }

    match serde_json::from_str::<ErrorData>(text) {
        Ok(error) => return Ok(error),
        Err(problem) if text.len() > LARGE_LINE => return Err(problem),
        Err(_) => {}
    }
    let Ok(error) = serde_json::from_str::<Lenient>(text) else {
        let message = as_text(serde_json::from_str(text)?);
        return Ok(ErrorData::internal_error(message, None));
    };
    let code = error.code.as_ref().and_then(as_code);
    Ok(ErrorData {
        code: code.unwrap_or(ErrorCode::INTERNAL_ERROR),
        message: error
            .message
            .map_or(Cow::Borrowed("the server gave no message"), |message| {
                Cow::Owned(as_text(message))
            }),
        data: error.data,
    })
}

fn as_code(value: &Value) -> Option<ErrorCode> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            // The cast saturates, and a saturated number is not a valid code.
            number.as_f64().map(|number| number as i64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    i32::try_from(number?).ok().map(ErrorCode)
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Decodes a notification. `method` is raw JSON.
pub(super) fn decode_notification(
    method: &str,
    line: &str,
) -> serde_json::Result<ServerNotification> {
    let expected = match method {
        r#""notifications/progress""# => notification::<ProgressNotification>(line),
        r#""notifications/resources/updated""# => notification::<ResourceUpdatedNotification>(line),
        r#""notifications/cancelled""# => notification::<CancelledNotification>(line),
        _ => None,
    };
    expected.map_or_else(|| serde_json::from_str(line), Ok)
}

fn notification<N: DeserializeOwned + Into<ServerNotification>>(
    line: &str,
) -> Option<ServerNotification> {
    serde_json::from_str::<N>(line).ok().map(Into::into)
}
