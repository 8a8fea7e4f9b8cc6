//! The status of a task, as servers of both eras write it.

use std::time::Duration;

use mcpvisor_core::machine::{MAX_FAULT_MESSAGE, truncate_text};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CustomResult, InputRequests, JsonObject, ServerResult, TaskStatus,
};
use serde::Deserialize;
use serde_json::Value;

use crate::api::request::{FromResult, INPUT_REQUIRED};

/// The longest id of a task, in bytes.
const MAX_ID: usize = 4 * 1024;

/// What a server reports about a task.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The server's id of the task.
    pub id: String,
    /// Whether it works, needs input, or has ended.
    pub status: TaskStatus,
    /// The server's text about the status. Unmodified server text.
    pub message: Option<String>,
    /// When it was created (ISO 8601), by the server's clock.
    pub created_at: Option<String>,
    /// When its status last changed (ISO 8601), by the server's clock.
    pub updated_at: Option<String>,
    /// How long the server keeps it after its creation; `None` if it does not say.
    pub ttl: Option<Duration>,
    /// How often the server suggests to poll.
    pub poll_interval: Option<Duration>,
}

/// The status of a task, with what comes with it.
#[derive(Debug, Clone)]
pub(crate) struct TaskState {
    pub(crate) info: TaskInfo,
    /// The input that it needs. Servers of 2025-11-25 send requests instead.
    pub(crate) input: Option<InputRequests>,
    /// The result or the error of its call. Servers of 2025-11-25 send it on request.
    pub(crate) outcome: Option<Result<JsonObject, ErrorData>>,
}

/// A task on the wire. 2025-11-25 names the times `ttl` and `pollInterval`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a task")]
struct Wire {
    task_id: String,
    status: TaskStatus,
    status_message: Option<String>,
    created_at: Option<String>,
    last_updated_at: Option<String>,
    #[serde(alias = "ttl")]
    ttl_ms: Option<f64>,
    #[serde(alias = "pollInterval")]
    poll_interval_ms: Option<f64>,
    input_requests: Option<InputRequests>,
    result: Option<JsonObject>,
    error: Option<Value>,
}

impl TaskState {
    /// Reads the status of a task, or says why it is not valid.
    pub(crate) fn read(task: Value) -> Result<Self, String> {
        let wire: Wire = serde_json::from_value(task)
            .map_err(|problem| format!("the status of a task cannot be read: {problem}"))?;
        if wire.task_id.is_empty() || wire.task_id.len() > MAX_ID {
            return Err(format!(
                "the id of a task is empty or longer than {MAX_ID} bytes"
            ));
        }
        let bounded = |text: Option<String>| {
            text.map(|mut text| {
                truncate_text(&mut text, MAX_FAULT_MESSAGE);
                text
            })
        };
        let info = TaskInfo {
            id: wire.task_id,
            status: wire.status,
            message: bounded(wire.status_message),
            created_at: bounded(wire.created_at),
            updated_at: bounded(wire.last_updated_at),
            ttl: wire.ttl_ms.and_then(milliseconds),
            poll_interval: wire.poll_interval_ms.and_then(milliseconds),
        };
        let outcome = match wire.error {
            Some(error) => Some(Err(read_error(error))),
            None => wire.result.map(Ok),
        };
        Ok(Self {
            info,
            input: wire.input_requests,
            outcome,
        })
    }
}

/// The error of a failed task; some servers send only a text.
fn read_error(error: Value) -> ErrorData {
    let text = match &error {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    serde_json::from_value(error).unwrap_or_else(|_| ErrorData::internal_error(text, None))
}

fn milliseconds(millis: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(millis / 1_000.0).ok()
}

/// The answer to a tool call.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is matched where it is created, and never stored"
)]
pub(crate) enum Answered {
    /// An ordinary result.
    Result(ServerResult),
    /// The call became a task.
    Task(Box<TaskState>),
}

/// Reads the answer to a tool call. `as_task`: it was sent as a task of 2025-11-25.
pub(crate) fn read_answer(answer: ServerResult, as_task: bool) -> Result<Answered, String> {
    match answer {
        ServerResult::CreateTaskResult(created) => {
            let task = serde_json::to_value(created.task).map_err(|it| it.to_string())?;
            read_task(task)
        }
        ServerResult::CustomResult(CustomResult(task)) if task["resultType"] == "task" => {
            read_task(task)
        }
        ServerResult::CustomResult(CustomResult(mut answer))
            if as_task && answer["task"].is_object() =>
        {
            read_task(answer["task"].take())
        }
        // The reply was read as JSON: it might have required input, or been a task.
        ServerResult::CustomResult(CustomResult(answer))
            if answer["resultType"] != INPUT_REQUIRED =>
        {
            let result = CallToolResult::from_result(CustomResult(answer).into())?;
            Ok(Answered::Result(ServerResult::CallToolResult(result)))
        }
        result => Ok(Answered::Result(result)),
    }
}

fn read_task(task: Value) -> Result<Answered, String> {
    TaskState::read(task).map(|state| Answered::Task(Box::new(state)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_eras_are_read() {
        let modern = json!({
            "resultType": "complete",
            "taskId": "a",
            "status": "completed",
            "createdAt": "2026-07-28T10:00:00Z",
            "lastUpdatedAt": "2026-07-28T10:00:01Z",
            "ttlMs": null,
            "pollIntervalMs": 500,
            "result": { "content": [] },
        });
        let modern = TaskState::read(modern).unwrap();
        assert_eq!(modern.info.ttl, None);
        assert_eq!(modern.info.poll_interval, Some(Duration::from_millis(500)));
        assert!(matches!(modern.outcome, Some(Ok(_))));

        let legacy =
            json!({ "taskId": "a", "status": "working", "ttl": 60_000, "pollInterval": 1.5 });
        let legacy = TaskState::read(legacy).unwrap();
        assert_eq!(legacy.info.ttl, Some(Duration::from_secs(60)));
        assert_eq!(
            legacy.info.poll_interval,
            Some(Duration::from_micros(1_500))
        );
        assert!(legacy.outcome.is_none());
    }

    #[test]
    fn a_status_that_is_not_valid_is_refused() {
        for task in [
            json!({ "taskId": "", "status": "working" }),
            json!({ "taskId": "x".repeat(MAX_ID + 1), "status": "working" }),
            json!({ "taskId": "a", "status": "sleeping" }),
            json!({ "status": "working" }),
            json!("a"),
        ] {
            assert!(TaskState::read(task).is_err());
        }
        let odd =
            json!({ "taskId": "a", "status": "working", "ttlMs": -1, "pollIntervalMs": 1e300 });
        let odd = TaskState::read(odd).unwrap();
        assert_eq!((odd.info.ttl, odd.info.poll_interval), (None, None));
    }

    #[test]
    fn only_a_call_that_was_sent_as_a_task_is_answered_with_one_of_2025_11_25() {
        let answer = || {
            let task = json!({ "task": { "taskId": "a", "status": "working" }, "_meta": {} });
            ServerResult::CustomResult(CustomResult(task))
        };
        assert!(matches!(read_answer(answer(), true), Ok(Answered::Task(_))));
        assert!(matches!(
            read_answer(answer(), false),
            Ok(Answered::Result(_))
        ));
        let plain = ServerResult::CustomResult(CustomResult(json!({ "content": [] })));
        let answered = read_answer(plain, true);
        let is_result = matches!(
            answered,
            Ok(Answered::Result(ServerResult::CallToolResult(_)))
        );
        assert!(is_result, "the server ignored that it was to be a task");
    }
}
