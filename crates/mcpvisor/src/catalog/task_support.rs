//! Whether tools can be called as tasks, in protocol 2025-11-25.
//!
//! In 2026-07-28 the server alone decides whether a call becomes a task.

use rmcp::model::{ServerPeerInfo, Tool};
use serde_json::Value;

use crate::unknown_fields::kept;

/// Whether a tool can be called as a task (`execution.taskSupport`, protocol 2025-11-25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TaskSupport {
    /// Only as an ordinary call.
    #[default]
    Forbidden,
    /// Both ways.
    Optional,
    /// Only as a task.
    Required,
}

impl TaskSupport {
    /// What a tool declares.
    pub fn of(tool: &Tool) -> Self {
        let execution = kept(tool.meta.as_ref()).and_then(|it| it.get("execution"));
        let support = execution.and_then(|it| it.get("taskSupport"));
        match support.and_then(Value::as_str) {
            Some("required") => Self::Required,
            Some("optional") => Self::Optional,
            _ => Self::Forbidden,
        }
    }
}

/// Whether a server of 2025-11-25 accepts tool calls as tasks.
pub(crate) fn calls_as_tasks(info: &ServerPeerInfo) -> bool {
    let capabilities = kept(info.meta.as_ref()).and_then(|it| it.get("capabilities"));
    let call = capabilities.and_then(|it| it.pointer("/tasks/requests/tools/call"));
    call.is_some_and(Value::is_object)
}
