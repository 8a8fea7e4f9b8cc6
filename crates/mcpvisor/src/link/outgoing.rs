//! Request ids, cancellation and per-request headers of outgoing messages.

use mcpvisor_core::CallId;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, JsonObject, RequestId,
};
use serde::Serialize;

/// Waits for the result of a task of 2025-11-25; its server may send requests meanwhile.
pub(crate) const TASK_RESULT: &str = "tasks/result";

/// Calls a tool.
pub(crate) const TOOL_CALL: &str = "tools/call";

/// The notification that cancels a request.
pub(crate) fn cancel_notification(id: CallId, reason: &str) -> ClientJsonRpcMessage {
    let param = CancelledNotificationParam::new(Some(request_id(id)), Some(reason.to_owned()));
    let cancelled = CancelledNotification::new(param);
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
}

/// Additional headers of one request, for transports that have headers. They travel in the
/// request's extensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestHeaders(pub(crate) Vec<(String, String)>);

/// Sends a tool call as a task of 2025-11-25. It travels in the request's extensions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TaskParam {
    /// How long the server is to keep the task, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u64>,
}

/// Whether the server may require something of the client before it replies.
pub(crate) fn may_call_back(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
    ) || matches!(request, ClientRequest::CustomRequest(raw) if has_input_rounds(&raw.method))
}

/// Whether the server may require something before it replies to a request with this method.
pub(crate) fn has_input_rounds(method: &str) -> bool {
    matches!(
        method,
        TOOL_CALL | "prompts/get" | "resources/read" | TASK_RESULT
    )
}

/// The tool that a request calls.
pub(crate) fn tool_name(request: &ClientRequest) -> Option<&str> {
    match request {
        ClientRequest::CallToolRequest(call) => Some(&call.params.name),
        ClientRequest::CustomRequest(raw) if raw.method == TOOL_CALL => {
            raw.params.as_ref()?.get("name")?.as_str()
        }
        _ => None,
    }
}

/// The arguments of a tool call.
pub(crate) fn tool_arguments(request: &ClientRequest) -> Option<&JsonObject> {
    match request {
        ClientRequest::CallToolRequest(call) => call.params.arguments.as_ref(),
        ClientRequest::CustomRequest(raw) if raw.method == TOOL_CALL => {
            raw.params.as_ref()?.get("arguments")?.as_object()
        }
        _ => None,
    }
}

/// The id of a request on the wire. Call ids count from 1, so they never reach the sign bit.
pub(crate) fn request_id(call: CallId) -> RequestId {
    RequestId::Number(call.0 as i64)
}

/// The call that a reply's id refers to, if the id has a form that we send: a number, or the same
/// number as a string.
pub(super) fn call_id(id: &RequestId) -> Option<CallId> {
    let number = match id {
        RequestId::Number(number) => u64::try_from(*number).ok()?,
        RequestId::String(text) => text.parse().ok()?,
    };
    Some(CallId(number))
}
